"""Appends and other changes of a session: functions of a store, called inside a transaction.

Each function checks first and writes last, so one that raises has written nothing. Events are deduplicated
by id: the same event again returns its old seq, another event under an old id is a `Conflict`. Damage that
a check meets is recorded, and the id of a damaged event may be used again.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from turnlog.errors import Conflict, Fenced, NotFound, SessionClosed, SessionDamaged
from turnlog.events import (
    Envelope,
    Event,
    Payload,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    UnknownPayload,
    decode_envelope,
    encode_sse_frame,
)
from turnlog.log.checksums import chain_hash, make_row
from turnlog.log.records import Damage, NewRow, OpenInvite, Row, SessionRecord, encode_meta, envelope_json
from turnlog.log.spans import SpanEdge, live_event_span, span_edge
from turnlog.log.store import Store

MAX_TITLE_CHARS = 80


class ExpectedPosition(NamedTuple):
    """Where an append expects a session to be; None: anywhere.

    `last` is the last seq, `durable_count` the number of durable events, `members_seq` the seq of the last
    change of members and invites.
    """

    last: int | None = None
    durable_count: int | None = None
    members_seq: int | None = None


def insert_session(store: Store, record: SessionRecord) -> None:
    """Add a session. Raise `Conflict` if its id exists."""
    if store.get_record(record.session_id) is not None:
        raise Conflict(f"session {record.session_id[:80]} already exists", -1)
    store.put_record(record)


def require_record(store: Store, session_id: str) -> SessionRecord:
    """Return the record of a session, repaired if it is damaged. Raise `NotFound` if there is none."""
    try:
        record = store.get_record(session_id)
    except SessionDamaged as damage:
        quarantine(store, damage)
        record = store.get_record(session_id)
    if record is None:
        raise NotFound(f"no session {session_id[:80]}")
    return record


def quarantine(store: Store, damage: SessionDamaged) -> bool:
    """Record a damage. Return True if it was not recorded before: then the session has a new epoch."""
    lost = Damage(damage.session_id, damage.first, damage.last, damage.problem)
    if damage.first >= 0 and lost in store.damages():
        return False
    store.quarantine(lost)
    return True


def prune_session(store: Store, session_id: str, before_ms: int) -> int:
    """Prune a session and return how many rows were removed. Raise `NotFound` if there is none."""
    require_record(store, session_id)
    return store.prune(session_id, before_ms)


def update_record(store: Store, session_id: str, **changes: object) -> None:
    """Change fields of a session's record. Raise `NotFound` if there is none."""
    store.put_record(require_record(store, session_id).replace(**changes))


class RowBatch:
    """The rows and span edges that one append adds to a session.

    `last`, `durable_count` and `chain` are those of the session after the rows so far.
    """

    def __init__(self, record: SessionRecord) -> None:
        self.rows: list[NewRow] = []
        self.edges: list[SpanEdge] = []
        self.last = record.last
        self.durable_count = record.durable_count
        self.chain = record.chain
        self._session_id = record.session_id

    def add(
        self,
        event: Event | Envelope,
        scope: Scope | Envelope,
        payload: Payload | UnknownPayload,
        *,
        seq: int,
        live: bool,
        frame: bytes,
        ts_ms: int,
    ) -> None:
        self.last = seq
        span: str | None = None
        chain: bytes | None = None
        if live:
            span = live_event_span(payload)
        else:
            self.durable_count += 1
            self.chain = chain = chain_hash(self.chain, frame)
            edge = span_edge(payload, scope.agent_id, scope.trace_id, seq)
            if edge is not None:
                self.edges.append(edge)

        meta = encode_meta(self.durable_count, live, scope, event.type)
        row = make_row(self._session_id, seq, meta, frame)
        self.rows.append(NewRow(row, event.id, ts_ms, chain, span))


def append_events(
    store: Store,
    session_id: str,
    events: Sequence[Event],
    expected: ExpectedPosition,
    fence: int | None,
    ts_ms: int,
) -> tuple[list[int], list[Row], str]:
    """Append events, all or none. Return the seq of each, the new rows and the epoch of the session.

    Raise `Conflict`, `Fenced`, `SessionClosed` or `NotFound` and write nothing.
    """
    seq_by_id = existing_seqs(store, require_record(store, session_id), events)
    record = require_record(store, session_id)  # again: a damaged event may have been recorded meanwhile
    new_events = [event for event in events if event.id not in seq_by_id] if seq_by_id else events
    if new_events:
        check_append(record, expected, fence)

    batch = RowBatch(record)
    for event in new_events:
        seq = batch.last + 1
        frame = encode_sse_frame(event, session_id=session_id, seq=seq, ts_ms=ts_ms)
        batch.add(event, event.scope, event.payload, seq=seq, live=event.live, frame=frame, ts_ms=ts_ms)
        seq_by_id[event.id] = seq

    updated = record.replace(
        last=batch.last,
        durable_count=batch.durable_count,
        chain=batch.chain,
        fence=max(record.fence, fence or 0),
        updated_ms=max(record.updated_ms, ts_ms) if batch.rows else record.updated_ms,
        activity=activity_after(record, {event.scope.channel for event in new_events}, ts_ms),
    )
    for event in new_events:
        if type(event.payload) in RECORD_REDUCERS:
            updated = apply_to_record(updated, event.payload, event.scope.actor, seq_by_id[event.id])

    if batch.rows:
        store.insert_rows(updated, batch.rows, batch.edges)
    elif updated.fence > record.fence:  # a new owner may retry only events that are stored already
        store.put_record(updated)
    return [seq_by_id[event.id] for event in events], [new.row for new in batch.rows], record.epoch


def activity_after(record: SessionRecord, channels: Collection[str | None], ts_ms: int) -> dict[str, int]:
    """Return `SessionRecord.activity` after events at a time in some channels; None is no channel."""
    if not record.activity and not any(channels):
        return record.activity

    activity = dict(record.activity or {"": record.updated_ms or record.created_ms})
    for channel in channels:
        name = channel or ""
        activity[name] = max(ts_ms, activity.get(name, 0))
    return activity


def apply_to_record(
    record: SessionRecord, payload: Payload | UnknownPayload, actor: str | None, seq: int
) -> SessionRecord:
    reducer = RECORD_REDUCERS.get(type(payload))
    if reducer is None:
        return record

    changes = reducer(record, payload, actor)
    if "members" in changes or "invites" in changes:
        changes["members_seq"] = seq
    return record.replace(**changes)


def _reduce_member(record: SessionRecord, payload: SessionMember, actor: str | None) -> dict[str, object]:
    # A member whose roles change moves to the end; one without roles is removed.
    members = {name: roles for name, roles in record.members.items() if name != payload.principal}
    if payload.roles:
        members[payload.principal] = payload.roles
    return {
        "members": members,
        "creator": record.creator or payload.principal,
        "invites": _invites_without(record, payload.invite_id),
    }


def _reduce_invite(record: SessionRecord, payload: SessionInvite, actor: str | None) -> dict[str, object]:
    invite = OpenInvite(
        payload.roles, actor or "", payload.expires_ms, payload.principal, payload.as_operator
    )
    return {"invites": {**record.invites, payload.invite_id: invite}}


def _reduce_invite_end(
    record: SessionRecord, payload: SessionInviteEnd, actor: str | None
) -> dict[str, object]:
    return {"invites": _invites_without(record, payload.invite_id)}


def _invites_without(record: SessionRecord, invite_id: str | None) -> dict[str, OpenInvite]:
    return {name: invite for name, invite in record.invites.items() if name != invite_id}


def _reduce_title(record: SessionRecord, payload: SessionTitle, actor: str | None) -> dict[str, object]:
    return {"title": payload.title}


def _reduce_message(record: SessionRecord, payload: UiMessage, actor: str | None) -> dict[str, object]:
    """Return the text as the title if there is none yet, unless the message is in a channel."""
    if record.title or payload.channel:
        return {}
    return {"title": " ".join(payload.text[:400].split())[:MAX_TITLE_CHARS]}


# The events that change a session's record. Damage repair rebuilds a record from the same table.
RECORD_REDUCERS: dict[type, Callable[[SessionRecord, Any, str | None], dict[str, object]]] = {
    SessionMember: _reduce_member,
    SessionInvite: _reduce_invite,
    SessionInviteEnd: _reduce_invite_end,
    SessionTitle: _reduce_title,
    UiMessage: _reduce_message,
}
RECORD_EVENT_TYPES = tuple(cls.TYPE for cls in RECORD_REDUCERS if issubclass(cls, Payload))


def existing_seqs(store: Store, record: SessionRecord, events: Sequence[Event]) -> dict[str, int]:
    """Return the seqs of those events that are stored already.

    Raise `Conflict` if an id belongs to another event, or occurs twice in `events`.
    """
    ids = [event.id for event in events]
    if len(set(ids)) < len(ids):
        raise Conflict("expected each event id once in an append", record.last)

    rows = find_rows(store, record.session_id, ids)
    if not rows:
        return {}
    for event in events:
        if event.id in rows and not has_same_body(event, rows[event.id]):
            raise Conflict(f"{event.id} is the id of another event", record.last)
    return {event_id: row.seq for event_id, row in rows.items()}


def find_rows(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of event ids. Damage is recorded on the way, and the damaged ids are left out."""
    while True:
        try:
            return store.find(session_id, event_ids)
        except SessionDamaged as damage:
            quarantine(store, damage)


def find_rows_in_session(store: Store, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of event ids. Raise `NotFound` if there is no such session."""
    require_record(store, session_id)
    return find_rows(store, session_id, event_ids)


def check_append(record: SessionRecord, expected: ExpectedPosition, fence: int | None) -> None:
    """Raise `SessionClosed`, `Fenced` or `Conflict` if new events may not be appended."""
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
        raise Conflict(
            f"expected seq {expected.members_seq} as the last change of members, got {record.members_seq}",
            record.last,
        )


def has_same_body(event: Event, row: Row) -> bool:
    """Compare an event with a stored row: type, payload and agent count (protocol section 2.2)."""
    stored = decode_envelope(envelope_json(row))
    return (
        stored.type == event.type
        and bytes(stored.payload) == event.body
        and stored.agent_id == event.scope.agent_id
    )
