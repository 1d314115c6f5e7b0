"""One append inside a transaction, and the other changes of a session: functions of a store.

Each checks first and writes last, so that one that raises has written nothing. Dedupe is by id: the same
event again gives its old seq, another event under an old id is a `Conflict`. What turns out to be damaged on
the way is recorded as lost, and its id is free again.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from turnlog.errors import Conflict, Fenced, NotFound, SessionClosed, SessionDamaged
from turnlog.events import (
    Event,
    Payload,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    UnknownPayload,
    decode_envelope,
    encode_sse_frame,
)
from turnlog.log.sqlite.checksums import chain_hash, make_row
from turnlog.log.store import (
    Damage,
    NewRow,
    OpenInvite,
    Row,
    SessionRecord,
    SpanEdge,
    Store,
    encode_meta,
    envelope_json,
    live_event_span,
    span_edge,
)


class ExpectedPosition(NamedTuple):
    """Where an append expects a session to stand: its last seq, how many durable events it has, or the seq
    of the last change of its members and invites."""

    last: int | None = None
    durable_count: int | None = None
    members_seq: int | None = None


def insert_session(store: Store, record: SessionRecord) -> None:
    """Add a session; its id must be new."""
    if store.get_record(record.session_id) is not None:
        raise Conflict(f"there is a session {record.session_id[:80]} already", -1)
    store.put_record(record)


def require_record(store: Store, session_id: str) -> SessionRecord:
    """The head of a session that must be there."""
    try:
        head = store.get_record(session_id)
    except SessionDamaged as damage:
        quarantine(store, damage)
        head = store.get_record(session_id)
    if head is None:
        raise NotFound(f"no session {session_id[:80]}")
    return head


def quarantine(store: Store, damage: SessionDamaged) -> bool:
    """Record a damage; whether it was news, and the session has a new epoch."""
    lost = Damage(damage.session_id, damage.first, damage.last, damage.problem)
    if damage.first >= 0 and lost in store.damages():
        return False
    store.quarantine(lost)
    return True


def prune_session(store: Store, session_id: str, before_ms: int) -> int:
    """Prune a session that must be there."""
    require_record(store, session_id)
    return store.prune(session_id, before_ms)


def update_record(store: Store, session_id: str, **changes: object) -> None:
    """Change a session."""
    store.put_record(require_record(store, session_id).replace(**changes))


def append_events(
    store: Store,
    session_id: str,
    events: Sequence[Event],
    expected: ExpectedPosition,
    fence: int | None,
    ts_ms: int,
) -> tuple[list[int], list[Row], str]:
    """One append inside a transaction: checks first, writes last."""
    known = existing_seqs(store, require_record(store, session_id), events)
    head = require_record(store, session_id)
    fresh = [event for event in events if event.id not in known] if known else events
    if fresh:
        check_append(head, expected, fence)
    rows, marks, last, rank, chain = [], list[SpanEdge](), head.last, head.durable_count, head.chain
    for event in fresh:
        last, rank = last + 1, rank + (not event.live)
        row = encode_row(event, session_id, last, rank, ts_ms)
        chain = chain if event.live else chain_hash(chain, row.frame)
        rows.append(
            NewRow(row, event.id, ts_ms, None if event.live else chain, live_event_span(event.payload))
        )
        known[event.id] = last
        if mark := span_edge(event.payload, event.scope.agent_id, event.scope.trace_id, last):
            marks.append(mark)
    updated_ms = max(head.updated_ms, ts_ms) if rows else head.updated_ms
    moved = head.replace(
        last=last,
        durable_count=rank,
        chain=chain,
        fence=max(head.fence, fence or 0),
        updated_ms=updated_ms,
        activity=activity_after(head, {event.scope.channel for event in fresh}, ts_ms),
    )
    for event in fresh:
        if type(event.payload) in RECORD_REDUCERS:
            moved = apply_to_record(moved, event.payload, event.scope.actor, known[event.id])
    if rows:
        store.insert_rows(moved, rows, marks)
    elif moved.fence > head.fence:  # whoever takes over may find everything written already
        store.put_record(moved)
    return [known[event.id] for event in events], [new.row for new in rows], head.epoch


def activity_after(record: SessionRecord, channels: Collection[str | None], ts_ms: int) -> dict[str, int]:
    """Return when something last happened in each channel, after events in some of them."""
    if not record.activity and not any(channels):
        return record.activity
    before = record.activity or {"": record.updated_ms or record.created_ms}
    times = {channel or "": ts_ms for channel in channels}
    return before | {name: max(time, before.get(name, 0)) for name, time in times.items()}


def apply_to_record(
    record: SessionRecord, payload: Payload | UnknownPayload, actor: str | None, seq: int
) -> SessionRecord:
    """A head after an event that says something of the session as a whole."""
    says = RECORD_REDUCERS.get(type(payload))  # type: ignore[arg-type]
    if says is None:
        return record
    moved = record.replace(**says(record, payload, actor))
    return moved.replace(members_seq=seq) if type(payload) in MEMBERSHIP_EVENTS else moved


def _reduce_member(record: SessionRecord, payload: SessionMember, actor: str | None) -> dict[str, object]:
    others = {name: roles for name, roles in record.members.items() if name != payload.principal}
    return {
        "members": {**others, payload.principal: payload.roles} if payload.roles else others,
        "creator": record.creator or payload.principal,
        "invites": _invites_without(record, payload.invite_id),
    }


def _reduce_invite(record: SessionRecord, payload: SessionInvite, actor: str | None) -> dict[str, object]:
    invite = OpenInvite(
        payload.roles, actor or "", payload.expires_ms, payload.principal, payload.as_operator
    )
    return {"invites": {**record.invites, payload.invite_id: invite}}


def _invites_without(record: SessionRecord, invite_id: str | None) -> dict[str, OpenInvite]:
    return {name: invite for name, invite in record.invites.items() if name != invite_id}


def _default_title(record: SessionRecord, payload: UiMessage, actor: str | None) -> dict[str, object]:
    """The first message is the title until there is one, unless it is only for some."""
    return (
        {}
        if record.title or payload.channel
        else {"title": " ".join(payload.text[:400].split())[:MAX_TITLE_CHARS]}
    )


MAX_TITLE_CHARS = 80
MEMBERSHIP_EVENTS = (SessionMember, SessionInvite, SessionInviteEnd)
RECORD_REDUCERS: dict[type[Payload], Callable[[SessionRecord, Any, str | None], dict[str, object]]] = {
    SessionMember: _reduce_member,
    SessionInvite: _reduce_invite,
    SessionInviteEnd: lambda head, payload, _: {"invites": _invites_without(head, payload.invite_id)},
    SessionTitle: lambda head, payload, _: {"title": payload.title},
    UiMessage: _default_title,
}


def existing_seqs(store: Store, record: SessionRecord, events: Sequence[Event]) -> dict[str, int]:
    """The seqs of events that are in the log already; an id of another event is a `Conflict`."""
    ids = [event.id for event in events]
    if len(set(ids)) < len(ids):
        raise Conflict("expected each event id once in an append", record.last)
    rows = find_rows(store, record.session_id, ids)
    for event in events if rows else ():
        if event.id in rows and not has_same_body(event, rows[event.id]):
            raise Conflict(f"{event.id} is the id of another event", record.last)
    return {event_id: row.seq for event_id, row in rows.items()}


def find_rows(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of event ids; one that is damaged is recorded as lost, and its id is free again."""
    while True:
        try:
            return store.find(session_id, event_ids)
        except SessionDamaged as damage:
            quarantine(store, damage)


def find_rows_in_session(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of those event ids that are in a session, which must be there."""
    require_record(store, session_id)
    return find_rows(store, session_id, event_ids)


def check_append(record: SessionRecord, expected: ExpectedPosition, fence: int | None) -> None:
    """Whether new events may be appended."""
    if record.closed:
        raise SessionClosed(f"{record.session_id} is closed")
    if fence is not None and fence < record.fence:
        raise Fenced(f"expected fence {record.fence} or higher, got {fence}")
    if expected.last not in (None, record.last):
        raise Conflict(f"expected the last seq to be {expected.last}", record.last)
    if expected.durable_count not in (None, record.durable_count):
        raise Conflict(
            f"expected {expected.durable_count} durable events, got {record.durable_count}", record.last
        )
    if expected.members_seq not in (None, record.members_seq):
        raise Conflict(f"expected seq {expected.members_seq} to be the last change of members", record.last)


def encode_row(event: Event, session_id: str, seq: int, durable_count: int, ts_ms: int) -> Row:
    """An event as it is stored: stamped, encoded, framed, once."""
    stored = encode_sse_frame(event, session_id=session_id, seq=seq, ts_ms=ts_ms)
    meta = encode_meta(durable_count, event.live, event.scope, event.type)
    return make_row(session_id, seq, meta, stored)


def has_same_body(event: Event, row: Row) -> bool:
    """Whether a stored row says the same as an event (protocol section 2.2)."""
    stored = decode_envelope(envelope_json(row))
    return (stored.type, bytes(stored.payload), stored.agent_id) == (
        event.type,
        event.body,
        event.scope.agent_id,
    )
