"""What members send: events, messages and chats; their channel, and how a repeated one is recognised."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.app.app import App
from turnlog.app.membership import Membership
from turnlog.errors import BadInput, Conflict
from turnlog.events import Event, EventDraft, Scope, SessionMember, UiMessage, decode_envelope
from turnlog.events.roles import OWNER
from turnlog.ids import new_id
from turnlog.log import Row, envelope_json
from turnlog.state.tree import Tree
from turnlog.team.markers import parse_route


class ClientEvent(NamedTuple):
    """An event that a page posts. `path` is its place in the request, for errors.

    `trace_id` is the turn that it answers, as the page says: it selects among open calls and sets nothing.
    """

    type: str
    payload: Mapping[str, Any]
    id: str
    path: str = "$"
    trace_id: str | None = None


class SendResult(NamedTuple):
    """Where a message is in the log. `cancelled_calls` counts the waiting calls that it cancelled."""

    seq: int
    id: str
    turn: str
    cancelled_calls: int = 0


class Chat(NamedTuple):
    """A page's events and then a message, in one channel.

    With a `key` it can be repeated: the key is the id of its message, and the prefix of the ids of those
    events that have no id of their own.
    """

    channel: str | None
    direct_events: Sequence[ClientEvent] = ()
    message: UiMessage | None = None
    key: str | None = None

    @property
    def collision_ids(self) -> tuple[str, ...]:
        """Return the ids that the log has if a longer chat was sent under the same key."""
        if not self.key:
            return ()
        return self.key, f"{self.key}_{len(self.direct_events)}"


def with_actor(membership: Membership, item: EventDraft) -> EventDraft:
    scope = structs.replace(item.scope, actor=membership.principal.name)
    return structs.replace(item, scope=scope)


def has_same_payload(event: Event, row: Row) -> bool:
    stored = decode_envelope(envelope_json(row))
    return (stored.type, bytes(stored.payload)) == (event.type, event.body)


def waiting_turn_scope(tree: Tree, channel: str | None, trace: str) -> Scope:
    scopes = [tree.open[agent_id].scope for agent_id in tree.agents_asking_page()]
    traces = [scope.trace_id for scope in scopes if scope.channel == channel]
    return Scope(trace_id=traces[-1] if traces else trace, channel=channel)


def with_trace(event: Event, scope: Scope) -> Event:
    return structs.replace(event, scope=structs.replace(event.scope, trace_id=scope.trace_id))


def membership_events(membership: Membership, tree: Tree) -> list[Event]:
    """Build the event that makes a principal with a server role a member, unless the log has it.

    The log alone must show by which right each actor acted.
    """
    if not membership.principal.server_roles or OWNER in membership.roles:
        return []
    roles = tuple(sorted(membership.roles | membership.principal.server_roles))
    if set(roles) <= set(tree.members.get(membership.principal.name, ())):
        return []
    name = membership.principal.name
    item = EventDraft(SessionMember(principal=name, roles=roles), Scope(actor=name), "system")
    return [item.build(membership.app.catalog, new_id("evt_"))]


def resolve_channel(membership: Membership, message: UiMessage) -> UiMessage:
    """Return the message with its channel. Raise `BadInput` for a channel that its sender does not see."""
    if membership.app.runtime.takes_commands:
        message = apply_route_prefix(message)
    if message.channel is None:
        return structs.replace(message, channel=membership.channel)
    if message.channel not in membership.app.channels or not membership.may_see(message.channel):
        raise BadInput(f"expected a channel of yours, got {message.channel[:80]}", "$.channel")
    return message


def apply_route_prefix(message: UiMessage) -> UiMessage:
    target, text = parse_route(message.text)
    if target is None or message.target is not None or not text:
        return message
    return structs.replace(message, target=target, text=text)


def previous_send(app: App, message: UiMessage, row: Row, last: int) -> SendResult:
    """Return the result of a message that was sent before. Raise `Conflict` if its id is another's."""
    envelope = decode_envelope(envelope_json(row))
    stored = app.catalog.decode_payload(envelope)
    # each attempt of a request may have a span of its own: the first one counts
    if isinstance(stored, UiMessage):
        stored = structs.replace(stored, traceparent=message.traceparent)
    if stored != message:
        raise Conflict(f"{envelope.id} is the id of another message", last)
    return SendResult(row.seq, envelope.id, row.trace or "")
