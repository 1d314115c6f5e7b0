"""Plan appends, closes and imports: pure functions of a session's record, the rows it knows and a request.

A plan has the new rows, their span edges, the record after them and the seq of each event. Events are
deduplicated by id: the same event again returns its old seq, another event under an old id is a `Conflict`.
A refusal is raised. The planner of a store in another process needs nothing else.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, structs

from turnlog.errors import CallerError, Conflict, Fenced, SessionClosed
from turnlog.events import (
    CATALOG,
    Envelope,
    Event,
    Payload,
    Scope,
    SessionClose,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    UnknownPayload,
    decode_envelope,
    encode_envelope,
)
from turnlog.events.envelope import FrameEncoder, parse_timestamp_ms
from turnlog.log.checksums import chain_hash, checksum_seed, seal_row
from turnlog.log.jobs import (
    ANY_POSITION,
    AppendRequest,
    AppendResult,
    CloseSession,
    CreateSession,
    DraftLine,
    EventLine,
    ExpectedPosition,
    ImportCounts,
    ImportEvents,
    JobResult,
)
from turnlog.log.records import (
    NewRow,
    OpenInvite,
    Row,
    SessionRecord,
    as_new_row,
    encode_meta_suffix,
    envelope_json,
)
from turnlog.log.spans import SpanEdge, live_event_span, span_edge

MAX_TITLE_CHARS = 80
HIGHEST_EVENT_ID = "\U0010ffff"  # larger than every id: every id is looked up
# Ids of `ids.new_id` begin with a time, whose first digit is 0 until the year 2527. Derived ids are hashes: a
# high one would hide that all timed ids after it are new. So only timed ids are compared with each other.
is_timed_id = re.compile("evt_0.{7}-.{4}-7", re.DOTALL).match
NO_CHANNELS = {None}  # events that every member sees


class RowPlan(Struct, frozen=True, gc=False):
    """What an append adds to a session: new rows, their span edges, and the record after them.

    Without rows the record has changed only if its revision has: a higher fence is stored for known events.
    """

    rows: list[NewRow]
    edges: list[SpanEdge]
    record: SessionRecord
    result: AppendResult


class GroupPlan(NamedTuple):
    """What several appends add to a session, with the result of each."""

    rows: list[NewRow]
    edges: list[SpanEdge]
    record: SessionRecord
    results: list[AppendResult]

    def job_results(self, stored: SessionRecord) -> list[JobResult]:
        """Return the results of the jobs: each has its own rows, and the record as it is stored."""
        records = (stored,)
        job_results = []
        start = 0
        for result in self.results:
            end = start + len(result.seqs)
            job_results.append(JobResult(result, records, [new.row for new in self.rows[start:end]]))
            start = end
        return job_results


class ImportPlan(NamedTuple):
    """What an import adds to a session."""

    rows: list[NewRow]
    edges: list[SpanEdge]
    record: SessionRecord
    counts: ImportCounts


class RowBatch:
    """The rows and span edges that one append adds to a session.

    `last`, `durable_count` and `chain` are those of the session after the rows so far.
    """

    __slots__ = (
        "_checksum_seed",
        "_live",
        "_meta_suffix",
        "_scope",
        "_type",
        "chain",
        "durable_count",
        "edges",
        "last",
        "rows",
    )

    def __init__(self, record: SessionRecord) -> None:
        self.rows: list[NewRow] = []
        self.edges: list[SpanEdge] = []
        self.last = record.last
        self.durable_count = record.durable_count
        self.chain = record.chain
        self._checksum_seed = checksum_seed(record.session_id)
        self._scope: Scope | Envelope | None = None
        self._type = ""
        self._live = False
        self._meta_suffix = b""

    def add(
        self,
        event: Event | Envelope,
        scope: Scope | Envelope,
        payload: Payload | UnknownPayload,
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

        # Neighbouring events of one type and scope share it.
        if scope is not self._scope or event.type != self._type or live is not self._live:
            self._scope = scope
            self._type = event.type
            self._live = live
            self._meta_suffix = encode_meta_suffix(live, scope, event.type)
        row = seal_row(self._checksum_seed, seq, b"%d|%b" % (self.durable_count, self._meta_suffix), frame)
        self.rows.append(as_new_row((row, event.id, ts_ms, chain, span)))


def plan_append(record: SessionRecord, known: Mapping[str, Row], request: AppendRequest) -> RowPlan:
    """Plan an append to a session. `known` are the rows of the request's event ids that the session has.

    Raise `Conflict`, `Fenced` or `SessionClosed` if it is refused, `CallerError` for a `session.close`.
    """
    plan = plan_rows(record, known, request)
    if plan.record.closed and not record.closed:
        # Only `plan_close` knows that no event follows it.
        raise CallerError("session.close is appended by closing the session (Log.close_session)")
    return plan


def plan_close(record: SessionRecord, known: Mapping[str, Row], job: CloseSession) -> RowPlan:
    """Plan the close of a session with its last events. `known` are the rows of those that it has.

    A closed session stays as it is. Raise `Conflict` or `Fenced` if the close is refused, `CallerError` if
    `session.close` is not the last event.
    """
    events = job.events
    if record.closed:
        seqs = [known[event.id].seq if event.id in known else -1 for event in events]
        return RowPlan([], [], record, AppendResult(seqs, record.last))
    if not events:
        check_append(record, job.expected, job.fence)
        fence = record.fence if job.fence is None else job.fence
        closed_record = record.replace(closed=True, fence=fence, revision=record.revision + 1)
        return RowPlan([], [], closed_record, AppendResult([], record.last))

    closing_places = [place for place, event in enumerate(events) if isinstance(event.payload, SessionClose)]
    if closing_places != [len(events) - 1]:
        raise CallerError("expected session.close as the last event of a close, and once")
    return plan_rows(record, known, AppendRequest(job.session_id, events, job.ts_ms, job.expected, job.fence))


def plan_rows(record: SessionRecord, known: Mapping[str, Row], request: AppendRequest) -> RowPlan:
    """Plan the events of an append or a close, which has checked whether they may close the session."""
    events = request.events
    if len(events) > 1 and len({event.id for event in events}) < len(events):
        raise Conflict("expected each event id once in an append", record.last)

    new_events = events
    seq_by_id: dict[str, int] = {}
    if request.key is not None and request.key in known:
        seqs = [known[event.id].seq if event.id in known else -1 for event in events]
        return RowPlan([], [], record, AppendResult(seqs, record.last))
    if known:
        seq_by_id = known_seqs(record, known, events)
        new_events = [event for event in events if event.id not in seq_by_id]
    if not new_events:
        return plan_fence(record, request, [seq_by_id[event.id] for event in events])

    check_append(record, request.expected, request.fence)
    batch = RowBatch(record)
    ts_ms = request.ts_ms
    frames = FrameEncoder(record.session_id, ts_ms)
    updated = record
    channels = set()
    for seq, event in enumerate(new_events, record.last + 1):
        scope = event.scope
        payload = event.payload
        batch.add(event, scope, payload, seq, event.live, frames.encode(event, seq), ts_ms)
        channels.add(scope.channel)
        if type(payload) in RECORD_REDUCERS:
            updated = apply_to_record(updated, payload, scope.actor, seq)

    updated = structs.replace(
        updated,
        last=batch.last,
        durable_count=batch.durable_count,
        chain=batch.chain,
        # `check_append` has refused a lower one
        fence=record.fence if request.fence is None else request.fence,
        updated_ms=max(record.updated_ms, ts_ms),
        activity=activity_after(record, channels, ts_ms),
        revision=record.revision + 1,
    )
    first = record.last + 1
    if new_events is events:
        seqs = list(range(first, first + len(events)))
    else:
        seq_by_id.update({event.id: seq for seq, event in enumerate(new_events, first)})
        seqs = [seq_by_id[event.id] for event in events]
    return RowPlan(batch.rows, batch.edges, updated, AppendResult(seqs, record.last))


def plan_together(record: SessionRecord, requests: Sequence[AppendRequest]) -> GroupPlan | None:
    """Plan appends of new events to a session as one; None if they have to be planned one after the other.

    The rows and the record are those of appends one by one. The caller has looked for their event ids, and
    the session has none of them.
    """
    if record.closed:
        return None
    event_ids = [event.id for request in requests for event in request.events]
    if len(set(event_ids)) < len(event_ids):
        return None

    batch = RowBatch(record)
    frames = FrameEncoder(record.session_id, requests[0].ts_ms)
    channels = set()
    results = []
    for request in requests:
        if not is_unconditional(record, request):
            return None
        ts_ms = request.ts_ms
        if ts_ms != frames.ts_ms:
            frames = FrameEncoder(record.session_id, ts_ms)
        previous_last = batch.last
        seqs = []
        for seq, event in enumerate(request.events, previous_last + 1):
            scope = event.scope
            payload = event.payload
            if type(payload) in RECORD_REDUCERS:
                return None
            batch.add(event, scope, payload, seq, event.live, frames.encode(event, seq), ts_ms)
            channels.add(scope.channel)
            seqs.append(seq)
        results.append(AppendResult(seqs, previous_last))

    if len(channels) > 1:
        return None  # each channel has the time of its own last event

    newest_ms = max(request.ts_ms for request in requests)
    updated = structs.replace(
        record,
        last=batch.last,
        durable_count=batch.durable_count,
        chain=batch.chain,
        updated_ms=max(record.updated_ms, newest_ms),
        activity=activity_after(record, channels, newest_ms),
        revision=record.revision + len(requests),
    )
    return GroupPlan(batch.rows, batch.edges, updated, results)


def is_unconditional(record: SessionRecord, request: AppendRequest) -> bool:
    """Return whether new events are appended whatever else happens to the session before."""
    return (
        request.expected is ANY_POSITION
        and not request.wants_work
        and (request.fence is None or request.fence == record.fence)
        and bool(request.events)
    )


def plan_fence(record: SessionRecord, request: AppendRequest, seqs: list[int]) -> RowPlan:
    """Plan an append without new events: a new owner may retry only events that are stored already."""
    fence = request.fence or 0
    if fence > record.fence:
        record = record.replace(fence=fence, revision=record.revision + 1)
    return RowPlan([], [], record, AppendResult(seqs, record.last))


def plan_create(job: CreateSession) -> RowPlan:
    """Plan the first events of a new session."""
    record = job.record.replace(revision=job.record.revision + 1)
    if not job.events:
        return RowPlan([], [], record, AppendResult([], record.last))
    return plan_append(record, {}, AppendRequest(job.session_id, job.events, record.created_ms))


def known_seqs(record: SessionRecord, known: Mapping[str, Row], events: Sequence[Event]) -> dict[str, int]:
    """Return the seqs of known events; raise `Conflict` if an id belongs to another event."""
    for event in events:
        if event.id in known and not has_same_body(event, known[event.id]):
            raise Conflict(f"{event.id} is the id of another event", record.last)
    return {event_id: row.seq for event_id, row in known.items()}


def plan_import(record: SessionRecord, known: Mapping[str, Row], job: ImportEvents) -> ImportPlan:
    """Plan an import into a session. `known` are the rows of the lines' event ids that the session has.

    Raise `Conflict` or `SessionClosed` with the number of the line.
    """
    updated = record
    batch = RowBatch(record)
    line_by_id: dict[str, bytes] = {}
    for line in job.lines:
        if isinstance(line, DraftLine):
            if is_known_draft(record, known, line_by_id, line):
                continue
            item = draft_at(record.session_id, batch.last + 1, line)
        else:
            item = line
            if line_by_id.get(item.event_id) == item.line or is_already_imported(record, known, item):
                continue
            if item.envelope.seq <= batch.last or item.event_id in line_by_id:
                raise import_conflict(record, item)
        # also by a `session.close` of an earlier line
        if updated.closed:
            raise SessionClosed(f"line {item.number}: {record.session_id} is closed")

        updated = restore_event(updated, batch, item)
        line_by_id[item.event_id] = item.line

    if batch.rows:
        updated = updated.replace(
            last=batch.last,
            durable_count=batch.durable_count,
            chain=batch.chain,
            revision=record.revision + 1,
        )
    counts = ImportCounts(len(batch.rows), len(job.lines) - len(batch.rows))
    return ImportPlan(batch.rows, batch.edges, updated, counts)


def is_already_imported(record: SessionRecord, known: Mapping[str, Row], item: EventLine) -> bool:
    """Return True if the log has this event, or had it and pruned it. Raise `Conflict` for another event."""
    envelope = item.envelope
    row = known.get(envelope.id)
    if row is None:
        if envelope.seq > record.pruned_through:
            return False
        return live_event_span(CATALOG.decode_payload(envelope)) is not None
    if envelope_json(row) != item.line:
        raise import_conflict(record, item)
    return True


def is_known_draft(
    record: SessionRecord, known: Mapping[str, Row], line_by_id: Mapping[str, bytes], draft: DraftLine
) -> bool:
    """Return whether the log, or the import before it, has this event. Raise `Conflict` for another one."""
    event = draft.event
    line = line_by_id.get(event.id)
    if line is None and event.id in known:
        line = envelope_json(known[event.id])
    if line is None:
        return False

    stored = decode_envelope(line)
    if (stored.type, bytes(stored.payload)) != (event.type, event.body):
        raise Conflict(f"line {draft.number}: {event.id} is the id of another event", record.last)
    return True


def draft_at(session_id: str, seq: int, draft: DraftLine) -> EventLine:
    """Return a draft as the log stores it at a seq."""
    line = encode_envelope(draft.event, session_id=session_id, seq=seq, ts_ms=draft.ts_ms)
    return EventLine(draft.number, decode_envelope(line), line)


def import_conflict(record: SessionRecord, item: EventLine) -> Conflict:
    text = f"line {item.number}: the log has another event in the place of {item.envelope.id}"
    return Conflict(text, record.last)


def restore_event(record: SessionRecord, batch: RowBatch, item: EventLine) -> SessionRecord:
    """Add an event to a batch with its own bytes, seq and time. Return the record after it.

    Missing seqs before it count as pruned.
    """
    envelope = item.envelope
    payload = CATALOG.decode_payload(envelope)
    ts_ms = parse_timestamp_ms(envelope.ts)
    has_gap = envelope.seq > batch.last + 1
    batch.add(
        envelope,
        envelope,
        payload,
        seq=envelope.seq,
        live=live_event_span(payload) is not None,
        frame=b"data: " + item.line + b"\n\n",
        ts_ms=ts_ms,
    )
    updated = record.replace(
        pruned_through=envelope.seq - 1 if has_gap else record.pruned_through,
        updated_ms=max(record.updated_ms, ts_ms),
        activity=activity_after(record, {envelope.channel}, ts_ms),
    )
    return apply_to_record(updated, payload, envelope.actor, envelope.seq)


def activity_after(record: SessionRecord, channels: Collection[str | None], ts_ms: int) -> dict[str, int]:
    """Return `SessionRecord.activity` after events at a time in some channels; None is no channel."""
    if not record.activity and channels == NO_CHANNELS:
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
        payload.roles, actor or "", payload.expires_ms, payload.principal, payload.as_operator, payload.name
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


def _reduce_close(record: SessionRecord, payload: SessionClose, actor: str | None) -> dict[str, object]:
    return {"closed": True}


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
    SessionClose: _reduce_close,
    UiMessage: _reduce_message,
}
RECORD_EVENT_TYPES = tuple(cls.TYPE for cls in RECORD_REDUCERS if issubclass(cls, Payload))


def check_append(record: SessionRecord, expected: ExpectedPosition, fence: int | None) -> None:
    """Raise `SessionClosed`, `Fenced` or `Conflict` if new events may not be appended."""
    if record.closed:
        raise SessionClosed(f"{record.session_id} is closed")
    if fence is not None and fence < record.fence:
        raise Fenced(f"expected fence {record.fence} or higher, got {fence}")
    if expected is ANY_POSITION:
        return
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
