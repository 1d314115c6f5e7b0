"""What a member sends: a message or a chat, the channel and turn it belongs to, and the same one again."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from turnlog.agents.runtime.turn_loop import Item
from turnlog.app.app import App
from turnlog.app.client_events import Posted
from turnlog.app.membership import Seat
from turnlog.errors import BadInput, Conflict
from turnlog.events import Event, Scope, SessionMember, UiMessage, decode
from turnlog.events.roles import OWNER
from turnlog.ids import new_id
from turnlog.log import Row, line_of
from turnlog.parse.inline.markers import route
from turnlog.state.tree import Tree


class Sent(NamedTuple):
    """What became of a message."""

    seq: int
    id: str
    turn: str
    freed: int = 0  # how many calls it answered, right before it, because they waited


class Chat(NamedTuple):
    """What a page has to say in a channel: events, then a message.

    A chat with a key is the same one again: the key is the id of its message, and begins those of its events
    that it does not name itself.
    """

    channel: str | None
    direct: Sequence[Posted] = ()
    message: UiMessage | None = None
    key: str | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """Ids that are taken if more was said under the key before."""
        return (self.key, f"{self.key}_{len(self.direct)}") if self.key else ()


def made(app: App, item: Item, event_id: str | None = None) -> Event:
    """An item as an event."""
    event_id = event_id or new_id("evt_")
    return app.catalog.event(item.payload, id=event_id, origin=item.origin, scope=item.scope)


def by(seat: Seat, item: Item) -> Item:
    """An item with the name of who sent it."""
    return item._replace(scope=structs.replace(item.scope, actor=seat.principal.name))


def same_words(event: Event, row: Row) -> bool:
    """Whether a row says what an event says, wherever that would stand now."""
    stored = decode(line_of(row))
    return (stored.type, bytes(stored.payload)) == (event.type, event.body)


def waiting_scope(tree: Tree, channel: str | None, trace: str) -> Scope:
    """Where direct events go: into the turn that waits in their channel, or into a new one."""
    waiting = [tree.open[agent_id].scope for agent_id in tree.waiting()]
    same = [scope for scope in waiting if scope.channel == channel]
    return Scope(trace_id=same[-1].trace_id if same else trace, channel=channel)


def in_turn(event: Event, scope: Scope) -> Event:
    """An event as part of a turn."""
    return structs.replace(event, scope=structs.replace(event.scope, trace_id=scope.trace_id))


def joining(seat: Seat, tree: Tree) -> list[Event]:
    """Record who acts by a server role as a member first: the log alone says who acted by which right."""
    if not seat.principal.server_roles or OWNER in seat.roles:
        return []
    roles = tuple(sorted(seat.roles | seat.principal.server_roles))
    if set(roles) <= set(tree.members.get(seat.principal.name, ())):
        return []
    member = SessionMember(principal=seat.principal.name, roles=roles)
    return [made(seat.app, Item(member, Scope(actor=seat.principal.name), "system"))]


def in_channel(seat: Seat, message: UiMessage) -> UiMessage:
    """A message in the channel it goes to; one in a channel that its sender does not see is refused."""
    message = routed(message) if seat.app.cli else message
    if message.channel is None:
        return structs.replace(message, channel=seat.channel)
    if message.channel not in seat.app.channels or not seat.may_see(message.channel):
        raise BadInput(f"expected a channel of yours, got {message.channel[:80]}", "$.channel")
    return message


def routed(message: UiMessage) -> UiMessage:
    """A message that begins by saying whom it is for (protocol 5.8), with that as its target."""
    target, text = route(message.text)
    if target is None or message.target is not None or not text:
        return message
    return structs.replace(message, target=target, text=text)


def sent_before(app: App, message: UiMessage, row: Row, last: int) -> Sent:
    """What became of a message that was sent before; another one under its id is refused."""
    envelope = decode(line_of(row))
    if app.catalog.payload(envelope) != message:
        raise Conflict(f"{envelope.id} is the id of another message", last)
    return Sent(row.seq, envelope.id, row.trace or "")
