"""What a member sends: a message or a chat, the channel and turn it belongs to, and the same one again."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.app.app import App
from turnlog.app.client_events import ClientEvent
from turnlog.app.membership import Membership
from turnlog.errors import BadInput, Conflict
from turnlog.events import Event, Scope, SessionMember, UiMessage, decode_envelope
from turnlog.events.roles import OWNER
from turnlog.ids import new_id
from turnlog.log import Row, envelope_json
from turnlog.state.tree import Tree
from turnlog.team.markers import parse_route


class SendResult(NamedTuple):
    """What became of a message."""

    seq: int
    id: str
    turn: str
    cancelled_calls: int = 0  # how many calls it answered, right before it, because they waited


class Chat(NamedTuple):
    """What a page has to say in a channel: events, then a message.

    A chat with a key is the same one again: the key is the id of its message, and begins those of its events
    that it does not name itself.
    """

    channel: str | None
    direct_events: Sequence[ClientEvent] = ()
    message: UiMessage | None = None
    key: str | None = None

    @property
    def collision_ids(self) -> tuple[str, ...]:
        """Ids that are taken if more was said under the key before."""
        return (self.key, f"{self.key}_{len(self.direct_events)}") if self.key else ()


def build_event(app: App, item: TurnEvent, event_id: str | None = None) -> Event:
    """An item as an event."""
    event_id = event_id or new_id("evt_")
    return app.catalog.build_event(item.payload, id=event_id, origin=item.origin, scope=item.scope)


def with_actor(membership: Membership, item: TurnEvent) -> TurnEvent:
    """An item with the name of who sent it."""
    return item._replace(scope=structs.replace(item.scope, actor=membership.principal.name))


def has_same_payload(event: Event, row: Row) -> bool:
    """Whether a row says what an event says, wherever that would stand now."""
    stored = decode_envelope(envelope_json(row))
    return (stored.type, bytes(stored.payload)) == (event.type, event.body)


def waiting_turn_scope(tree: Tree, channel: str | None, trace: str) -> Scope:
    """Where direct events go: into the turn that waits in their channel, or into a new one."""
    waiting = [tree.open[agent_id].scope for agent_id in tree.agents_asking_page()]
    same = [scope for scope in waiting if scope.channel == channel]
    return Scope(trace_id=same[-1].trace_id if same else trace, channel=channel)


def with_trace(event: Event, scope: Scope) -> Event:
    """An event as part of a turn."""
    return structs.replace(event, scope=structs.replace(event.scope, trace_id=scope.trace_id))


def membership_events(membership: Membership, tree: Tree) -> list[Event]:
    """Record who acts by a server role as a member first: the log alone says who acted by which right."""
    if not membership.principal.server_roles or OWNER in membership.roles:
        return []
    roles = tuple(sorted(membership.roles | membership.principal.server_roles))
    if set(roles) <= set(tree.members.get(membership.principal.name, ())):
        return []
    member = SessionMember(principal=membership.principal.name, roles=roles)
    return [build_event(membership.app, TurnEvent(member, Scope(actor=membership.principal.name), "system"))]


def resolve_channel(membership: Membership, message: UiMessage) -> UiMessage:
    """A message in the channel it goes to; one in a channel that its sender does not see is refused."""
    message = apply_route_prefix(message) if membership.app.claude_code else message
    if message.channel is None:
        return structs.replace(message, channel=membership.channel)
    if message.channel not in membership.app.channels or not membership.may_see(message.channel):
        raise BadInput(f"expected a channel of yours, got {message.channel[:80]}", "$.channel")
    return message


def apply_route_prefix(message: UiMessage) -> UiMessage:
    """A message that begins by saying whom it is for (protocol 5.8), with that as its target."""
    target, text = parse_route(message.text)
    if target is None or message.target is not None or not text:
        return message
    return structs.replace(message, target=target, text=text)


def previous_send(app: App, message: UiMessage, row: Row, last: int) -> SendResult:
    """What became of a message that was sent before; another one under its id is refused."""
    envelope = decode_envelope(envelope_json(row))
    if app.catalog.decode_payload(envelope) != message:
        raise Conflict(f"{envelope.id} is the id of another message", last)
    return SendResult(row.seq, envelope.id, row.trace or "")
