"""One append inside a transaction, and the other changes of a session: functions of a store.

Each checks first and writes last, so that one that raises has written nothing. Dedupe is by id: the same
event again gives its old seq, another event under an old id is a `Conflict`. What turns out to be damaged on
the way is recorded as lost, and its id is free again.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from turnlog.errors import Closed, Conflict, Damaged, Fenced, NotFound
from turnlog.events import (
    Event,
    Payload,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    Unknown,
    decode,
    frame,
)
from turnlog.log.sqlite.checksums import link, make_row
from turnlog.log.store import (
    Damage,
    Head,
    NewRow,
    OpenInvite,
    Row,
    SpanMark,
    Store,
    line_of,
    pack,
    span_mark,
    span_of,
)


class Expected(NamedTuple):
    """Where an append expects a session to stand: its last seq, how many durable events it has, or the seq
    of the last change of its members and invites."""

    last: int | None = None
    rank: int | None = None
    members_seq: int | None = None


def new_session(store: Store, head: Head) -> None:
    """Add a session; its id must be new."""
    if store.head(head.session_id) is not None:
        raise Conflict(f"there is a session {head.session_id[:80]} already", -1)
    store.put_head(head)


def known_head(store: Store, session_id: str) -> Head:
    """The head of a session that must be there."""
    try:
        head = store.head(session_id)
    except Damaged as damage:
        quarantine(store, damage)
        head = store.head(session_id)
    if head is None:
        raise NotFound(f"no session {session_id[:80]}")
    return head


def quarantine(store: Store, damage: Damaged) -> bool:
    """Record a damage; whether it was news, and the session has a new epoch."""
    lost = Damage(damage.session_id, damage.first, damage.last, damage.problem)
    if damage.first >= 0 and lost in store.damages():
        return False
    store.quarantine(lost)
    return True


def pruned(store: Store, session_id: str, before_ms: int) -> int:
    """Prune a session that must be there."""
    known_head(store, session_id)
    return store.prune(session_id, before_ms)


def change_head(store: Store, session_id: str, **changes: object) -> None:
    """Change a session."""
    store.put_head(known_head(store, session_id).moved(**changes))


def write(
    store: Store,
    session_id: str,
    events: Sequence[Event],
    expected: Expected,
    fence: int | None,
    ts_ms: int,
) -> tuple[list[int], list[Row], str]:
    """One append inside a transaction: checks first, writes last."""
    known = known_seqs(store, known_head(store, session_id), events)
    head = known_head(store, session_id)
    fresh = [event for event in events if event.id not in known] if known else events
    if fresh:
        check_append(head, expected, fence)
    rows, marks, last, rank, chain = [], list[SpanMark](), head.last, head.rank, head.chain
    for event in fresh:
        last, rank = last + 1, rank + (not event.live)
        row = row_of(event, session_id, last, rank, ts_ms)
        chain = chain if event.live else link(chain, row.frame)
        rows.append(NewRow(row, event.id, ts_ms, None if event.live else chain, span_of(event.payload)))
        known[event.id] = last
        if mark := span_mark(event.payload, event.scope.agent_id, event.scope.trace_id, last):
            marks.append(mark)
    updated_ms = max(head.updated_ms, ts_ms) if rows else head.updated_ms
    moved = head.moved(
        last=last,
        rank=rank,
        chain=chain,
        fence=max(head.fence, fence or 0),
        updated_ms=updated_ms,
        activity=activity_after(head, {event.scope.channel for event in fresh}, ts_ms),
    )
    for event in fresh:
        if type(event.payload) in SAYINGS:
            moved = told(moved, event.payload, event.scope.actor, known[event.id])
    if rows:
        store.put(moved, rows, marks)
    elif moved.fence > head.fence:  # whoever takes over may find everything written already
        store.put_head(moved)
    return [known[event.id] for event in events], [new.row for new in rows], head.epoch


def activity_after(head: Head, channels: Collection[str | None], ts_ms: int) -> dict[str, int]:
    """Return when something last happened in each channel, after events in some of them."""
    if not head.activity and not any(channels):
        return head.activity
    before = head.activity or {"": head.updated_ms or head.created_ms}
    times = {channel or "": ts_ms for channel in channels}
    return before | {name: max(time, before.get(name, 0)) for name, time in times.items()}


def told(head: Head, payload: Payload | Unknown, actor: str | None, seq: int) -> Head:
    """A head after an event that says something of the session as a whole."""
    says = SAYINGS.get(type(payload))  # type: ignore[arg-type]
    if says is None:
        return head
    moved = head.moved(**says(head, payload, actor))
    return moved.moved(members_seq=seq) if type(payload) in MEMBERSHIP else moved


def _members(head: Head, payload: SessionMember, actor: str | None) -> dict[str, object]:
    others = {name: roles for name, roles in head.members.items() if name != payload.principal}
    return {
        "members": {**others, payload.principal: payload.roles} if payload.roles else others,
        "creator": head.creator or payload.principal,
        "invites": _without(head, payload.invite_id),
    }


def _invite(head: Head, payload: SessionInvite, actor: str | None) -> dict[str, object]:
    invite = OpenInvite(
        payload.roles, actor or "", payload.expires_ms, payload.principal, payload.as_operator
    )
    return {"invites": {**head.invites, payload.invite_id: invite}}


def _without(head: Head, invite_id: str | None) -> dict[str, OpenInvite]:
    return {name: invite for name, invite in head.invites.items() if name != invite_id}


def _first_words(head: Head, payload: UiMessage, actor: str | None) -> dict[str, object]:
    """The first message is the title until there is one, unless it is only for some."""
    return (
        {} if head.title or payload.channel else {"title": " ".join(payload.text[:400].split())[:TITLE_CHARS]}
    )


TITLE_CHARS = 80
MEMBERSHIP = (SessionMember, SessionInvite, SessionInviteEnd)
SAYINGS: dict[type[Payload], Callable[[Head, Any, str | None], dict[str, object]]] = {
    SessionMember: _members,
    SessionInvite: _invite,
    SessionInviteEnd: lambda head, payload, _: {"invites": _without(head, payload.invite_id)},
    SessionTitle: lambda head, payload, _: {"title": payload.title},
    UiMessage: _first_words,
}


def known_seqs(store: Store, head: Head, events: Sequence[Event]) -> dict[str, int]:
    """The seqs of events that are in the log already; an id of another event is a `Conflict`."""
    ids = [event.id for event in events]
    if len(set(ids)) < len(ids):
        raise Conflict("expected each event id once in an append", head.last)
    rows = found(store, head.session_id, ids)
    for event in events if rows else ():
        if event.id in rows and not same_body(event, rows[event.id]):
            raise Conflict(f"{event.id} is the id of another event", head.last)
    return {event_id: row.seq for event_id, row in rows.items()}


def found(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of event ids; one that is damaged is recorded as lost, and its id is free again."""
    while True:
        try:
            return store.find(session_id, event_ids)
        except Damaged as damage:
            quarantine(store, damage)


def known_events(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of those event ids that are in a session, which must be there."""
    known_head(store, session_id)
    return found(store, session_id, event_ids)


def check_append(head: Head, expected: Expected, fence: int | None) -> None:
    """Whether new events may be appended."""
    if head.closed:
        raise Closed(f"{head.session_id} is closed")
    if fence is not None and fence < head.fence:
        raise Fenced(f"expected fence {head.fence} or higher, got {fence}")
    if expected.last not in (None, head.last):
        raise Conflict(f"expected the last seq to be {expected.last}", head.last)
    if expected.rank not in (None, head.rank):
        raise Conflict(f"expected {expected.rank} durable events, got {head.rank}", head.last)
    if expected.members_seq not in (None, head.members_seq):
        raise Conflict(f"expected seq {expected.members_seq} to be the last change of members", head.last)


def row_of(event: Event, session_id: str, seq: int, rank: int, ts_ms: int) -> Row:
    """An event as it is stored: stamped, encoded, framed, once."""
    stored = frame(event, session_id=session_id, seq=seq, ts_ms=ts_ms)
    meta = pack(rank, event.live, event.scope, event.type)
    return make_row(session_id, seq, meta, stored)


def same_body(event: Event, row: Row) -> bool:
    """Whether a stored row says the same as an event (protocol section 2.2)."""
    stored = decode(line_of(row))
    return (stored.type, bytes(stored.payload), stored.agent_id) == (
        event.type,
        event.body,
        event.scope.agent_id,
    )
