"""Sessions in memory: a ring per session. Durable means: as long as the process lives.

A ring keeps at least the newest `ring_events` durable events. It evicts older ones, but only at a cut that no
turn crosses: finished turns are evicted whole; an open turn, and a message that waits for its turn, never
are. Above `ring_bytes` it keeps fewer events, and the newest turn may use twice of that. The store calls
`on_evict` with the evicted rows, so that what is derived from them can be stored.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import NamedTuple

from turnlog.events import CATALOG, decode_envelope
from turnlog.ids import new_epoch
from turnlog.log.bell import Bell, RingListener, StopListening
from turnlog.log.filter import matches_any_type
from turnlog.log.jobs import Job, JobOutcome, Snapshot
from turnlog.log.leases import LeaseRow, LeaseState, Owners
from turnlog.log.local_jobs import commit_jobs, run_job
from turnlog.log.records import (
    Blob,
    BlobInfo,
    Damage,
    Document,
    FrameBatch,
    ListPosition,
    NewRow,
    Page,
    Row,
    SessionRecord,
    TypeQuery,
    envelope_json,
)
from turnlog.log.spans import MAX_SAME_AGENTS, SpanEdge, oldest_open_turn_start, span_bounds
from turnlog.log.store import EvictCallback, ignore_eviction

RING_EVENTS = 2000
MAX_PAGE_ROWS = 256
RING_BYTES = 64 << 20


@dataclass(slots=True)
class RingSpan:
    """A block, a call or an agent; open until its first end."""

    key: str
    first: int
    trace: str | None
    is_agent: bool
    last: int | None = None

    @property
    def end_or_inf(self) -> float:
        return inf if self.last is None else self.last


@dataclass(slots=True)
class RingTurn:
    """The durable events of one trace; open while it waits for an agent, or an agent is open."""

    trace: str
    first: int
    last: int
    is_waiting: bool = False
    has_started: bool = False
    open_agents: set[str] = field(default_factory=set)

    @property
    def end_or_inf(self) -> float:
        """Return the last seq; infinity while the turn is open. Without agents it is the first seq."""
        if self.is_waiting or self.open_agents:
            return inf
        return self.last if self.has_started else self.first


@dataclass(slots=True)
class Ring:
    """One session: its rows in the order of seqs, and indexes of them."""

    record: SessionRecord
    rows: list[Row] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    cumulative_bytes: list[int] = field(default_factory=list)
    event_ids: list[str] = field(default_factory=list)
    seq_by_event_id: dict[str, int] = field(default_factory=dict)
    span_by_seq: dict[int, str] = field(default_factory=dict)
    ts_ms_by_seq: dict[int, int] = field(default_factory=dict)
    spans: dict[str, RingSpan] = field(default_factory=dict)
    turns: dict[str, RingTurn] = field(default_factory=dict)
    seqs_by_type: dict[str, list[int]] = field(default_factory=dict)  # durable rows only
    starts_at: dict[int, list[RingSpan | RingTurn]] = field(default_factory=dict)  # by first seq
    blocked_by: RingSpan | RingTurn | None = None  # what stopped the last eviction
    evict_from_count: int = 0  # no eviction with fewer durable events: the oldest turns have too many
    size_bytes: int = 0
    durable_count: int = 0

    def add(self, new: NewRow) -> None:
        row = new.row
        seq = row.seq
        before_bytes = self.cumulative_bytes[-1] if self.cumulative_bytes else 0
        self.rows.append(row)
        self.seqs.append(seq)
        self.cumulative_bytes.append(before_bytes + len(row.frame))
        self.event_ids.append(new.id)
        self.seq_by_event_id[new.id] = seq
        self.ts_ms_by_seq[seq] = new.ts_ms
        self._add_to_totals(row, new.span, 1)

        if new.span is not None:
            self.span_by_seq[seq] = new.span
            return

        self.seqs_by_type.setdefault(row.type, []).append(seq)
        trace = row.trace
        if trace is not None:
            turn = self.turns.get(trace) or self._new_turn(trace, seq)
            turn.last = seq
            if not turn.open_agents and not turn.is_waiting:
                turn.is_waiting = opens_turn(row)

    def _new_turn(self, trace: str, seq: int) -> RingTurn:
        turn = self.turns[trace] = RingTurn(trace, seq, seq)
        self._index_start(turn)
        return turn

    def _index_start(self, span: RingSpan | RingTurn) -> None:
        self.starts_at.setdefault(span.first, []).append(span)

    def _add_to_totals(self, row: Row, span: str | None, sign: int) -> None:
        self.size_bytes += sign * len(row.frame)
        if span is None:
            self.durable_count += sign

    def apply_edge(self, edge: SpanEdge) -> None:
        span = self.spans.get(edge.key)
        if span is not None and span.last is None:
            # A span that starts again has ended before.
            self._close_span(span, edge.seq - 1 if edge.is_start else edge.seq)
        if not edge.is_start:
            return

        span = self.spans[edge.key] = RingSpan(edge.key, edge.seq, edge.trace, edge.is_agent)
        self._index_start(span)
        turn = self.turns.get(edge.trace or "")
        if turn and edge.is_agent:
            turn.is_waiting = False
            turn.has_started = True
            turn.open_agents.add(edge.key)

    def _close_span(self, span: RingSpan, seq: int) -> None:
        span.last = seq
        turn = self.turns.get(span.trace or "")
        if turn:
            turn.open_agents.discard(span.key)

    def page_end(self, begin: int, size_bytes: int) -> int:
        """Return the index after a page of about this size, at least one row after `begin`."""
        before_bytes = self.cumulative_bytes[begin] - len(self.rows[begin].frame)
        end = bisect_left(self.cumulative_bytes, before_bytes + size_bytes, begin) + 1
        return min(end, len(self.cumulative_bytes))

    def visible_rows(self, rows: list[Row], replay_from: int | None) -> list[Row]:
        if replay_from is None or not self.span_by_seq:
            return rows
        finished = {
            key for key, span in self.spans.items() if span.first > replay_from and span.last is not None
        }
        return [row for row in rows if self.span_by_seq.get(row.seq) not in finished]

    def seqs_of_types(self, type_query: TypeQuery) -> list[int]:
        matching: list[int] = []
        for type_name, seqs in self.seqs_by_type.items():
            if matches_any_type(type_name, type_query.types):
                begin = bisect_right(seqs, type_query.after)
                matching += seqs[begin : begin + MAX_PAGE_ROWS]
        return sorted(matching)[:MAX_PAGE_ROWS]

    def find_row(self, seq: int) -> Row | None:
        index = bisect_left(self.seqs, seq)
        if index == len(self.seqs) or self.seqs[index] != seq:
            return None
        return self.rows[index]

    def evict(self, events: int, size_bytes: int) -> list[Row]:
        """Remove the oldest rows down to `events` durable ones and `size_bytes`. Return the removed rows.

        A cut is where no turn crosses it. A cut that leaves fewer durable events is made for the bytes alone.
        """
        if self.blocked_by and self.blocked_by.end_or_inf == inf:
            return []
        if self.durable_count < self.evict_from_count and self.size_bytes <= size_bytes:
            return []

        evicted = self.rows[: self._find_cut(events, size_bytes)]
        if evicted:
            self._drop_oldest(len(evicted))
        return evicted

    def _find_cut(self, events: int, size_bytes: int) -> int:
        """Return how many of the oldest rows may be evicted. Sets `blocked_by` and `evict_from_count`."""
        self.evict_from_count = 0
        cut = 0
        cut_durable = durable = self.durable_count  # durable events after the cut, and after this row
        cut_bytes = left_bytes = self.size_bytes
        open_until = -inf  # the last seq of the turns that have begun so far
        for index, row in enumerate(self.rows, 1):
            starting = self.starts_at.get(row.seq, [])
            self.blocked_by = next((span for span in starting if span.end_or_inf == inf), None)
            if self.blocked_by:
                break

            open_until = max([open_until, *[span.end_or_inf for span in starting]])
            if row.seq not in self.span_by_seq:
                durable -= 1
            left_bytes -= len(row.frame)
            if open_until > row.seq:
                continue

            # No turn crosses the place after this row. A cut after the last row would leave nothing: it is
            # made only if the newest turn has more than twice the bytes.
            max_bytes = size_bytes if index < len(self.rows) else 2 * size_bytes
            if durable < events and cut_bytes <= max_bytes:
                self.evict_from_count = events + cut_durable - durable
                break
            cut = index
            cut_durable = durable
            cut_bytes = left_bytes
        return cut

    def _drop_oldest(self, count: int) -> None:
        self._drop_indexes(range(count))
        for column in (self.rows, self.seqs, self.cumulative_bytes, self.event_ids):
            del column[:count]

        first = self.seqs[0] if self.seqs else self.record.last + 1
        self.record = self.record.replace(first=first)
        self.seqs_by_type = {name: seqs for name, seqs in self.seqs_by_type.items() if seqs[-1] >= first}
        for seqs in self.seqs_by_type.values():
            del seqs[: bisect_left(seqs, first)]

    def prune(self, before_ms: int) -> list[int]:
        indexes = [
            index
            for index, seq in enumerate(self.seqs)
            if self.ts_ms_by_seq[seq] < before_ms and self._is_in_finished_span(seq)
        ]
        seqs = [self.seqs[index] for index in indexes]
        self._drop_rows(set(indexes))
        return seqs

    def clear(self) -> int:
        """Remove all rows. Return how many."""
        count = len(self.rows)
        self._drop_oldest(count)
        return count

    def _is_in_finished_span(self, seq: int) -> bool:
        span = self.spans.get(self.span_by_seq.get(seq, ""))
        return span is not None and span.last is not None

    def _drop_indexes(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            row = self.rows[index]
            self._add_to_totals(row, self.span_by_seq.pop(row.seq, None), -1)
            del self.seq_by_event_id[self.event_ids[index]]
            del self.ts_ms_by_seq[row.seq]
            for span in self.starts_at.pop(row.seq, ()):
                if isinstance(span, RingTurn):
                    del self.turns[span.trace]
                elif self.spans.get(span.key) is span:  # not a later span with the same key
                    del self.spans[span.key]

    def _drop_rows(self, indexes: set[int]) -> None:
        self._drop_indexes(indexes)
        remaining = [index for index in range(len(self.rows)) if index not in indexes]
        self.rows = [self.rows[index] for index in remaining]
        self.seqs = [self.seqs[index] for index in remaining]
        self.event_ids = [self.event_ids[index] for index in remaining]
        self.cumulative_bytes = list(accumulate(len(row.frame) for row in self.rows))


def opens_turn(row: Row) -> bool:
    if row.type in CATALOG.types:
        return row.type in ("ui.message", "ui.action")
    return decode_envelope(envelope_json(row)).origin == "ui"


def update_lists(lists: dict[str, set[str]], session_id: str, before: set[str], after: set[str]) -> None:
    for principal in before - after:
        lists[principal].discard(session_id)
        if not lists[principal]:
            del lists[principal]
    for principal in after - before:
        lists.setdefault(principal, set()).add(session_id)


class StoredDocument(NamedTuple):
    """A document and the time at which it was stored."""

    document: Document
    ts_ms: int


class StoredSnapshot(NamedTuple):
    """A snapshot and the time at which it was stored."""

    body: bytes
    ts_ms: int


SnapshotKey = tuple[str, str, str]  # session, name, version


class MemoryStore:
    """The store behind `memory:`."""

    max_batch = 1  # memory cannot be rolled back
    reader_threads = 0
    reconcile_s: float | None = None  # the bell is a call: no ring is lost
    lease_s: float | None = None  # the owners are those of this process

    def __init__(self, ring_events: int = RING_EVENTS, ring_bytes: int = RING_BYTES) -> None:
        self._ring_events = ring_events
        self._ring_bytes = ring_bytes
        self.on_evict: EvictCallback = ignore_eviction
        self._lock = threading.RLock()
        self._rings: dict[str, Ring] = {}
        self._sessions_by_member: dict[str, set[str]] = {}
        self._sessions_by_invitee: dict[str, set[str]] = {}
        self._blobs: dict[str, Blob] = {}
        self._uploads: dict[str, int] = {}  # blobs that no event names yet, and the time of their upload
        self._documents: dict[tuple[str, str, str], StoredDocument] = {}
        self._snapshots: dict[SnapshotKey, dict[int, StoredSnapshot]] = {}
        self._leases: dict[str, LeaseRow] = {}
        self.owners = Owners()
        self._bell = Bell()
        self._moved: dict[str, int] = {}  # by this transaction: the last seq by session
        self._is_wanted = False  # this transaction has marked a session as wanted

    def close(self) -> None:
        pass

    def listen(self, ring: RingListener) -> StopListening:
        return self._bell.listen(ring)

    # writing

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        return commit_jobs(self, jobs)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            finally:
                moved = self._moved
                is_wanted = self._is_wanted
                self._moved = {}
                self._is_wanted = False
            # Inside the lock: rings come in the order of commits.
            if moved or is_wanted:
                self._bell.ring(moved, is_wanted)

    def get_record(self, session_id: str) -> SessionRecord | None:
        return self.info(session_id)

    def put_record(self, record: SessionRecord) -> None:
        session_id = record.session_id
        self._moved[session_id] = record.last
        members: set[str] = set()
        invitees: set[str] = set()
        ring = self._rings.get(session_id)
        if ring is None:
            self._rings[session_id] = Ring(record)
        else:
            before = ring.record
            ring.record = record
            if record.members_seq == before.members_seq:
                return
            members.update(before.members)
            invitees.update(before.invited_principals)

        update_lists(self._sessions_by_member, session_id, members, set(record.members))
        update_lists(self._sessions_by_invitee, session_id, invitees, set(record.invited_principals))

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        ring = self._rings[session_id]
        rows: dict[str, Row] = {}
        for event_id in event_ids:
            seq = ring.seq_by_event_id.get(event_id)
            row = None if seq is None else ring.find_row(seq)
            if row is not None:
                rows[event_id] = row
        return rows

    def insert_rows(
        self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]
    ) -> SessionRecord:
        ring = self._rings[record.session_id]
        edge_by_seq = {edge.seq: edge for edge in edges}
        for new in rows:
            ring.add(new)
            if edge_by_seq and new.row.seq in edge_by_seq:
                ring.apply_edge(edge_by_seq[new.row.seq])
        self.put_record(record)

        if ring.durable_count > self._ring_events or ring.size_bytes > self._ring_bytes:
            evicted = ring.evict(self._ring_events, self._ring_bytes)
            if evicted:
                self.on_evict(self, ring.record, evicted)
        return ring.record

    def put_blob(self, name: str, blob: Blob) -> None:
        self._blobs.setdefault(name, blob)

    def has_blob(self, name: str) -> bool:
        return name in self._blobs

    def blob_info(self, name: str) -> BlobInfo | None:
        blob = self._blobs.get(name)
        return None if blob is None or blob.is_private else BlobInfo(blob.media_type, len(blob.data))

    def drop_blobs(self, session_id: str) -> None:
        for name in [name for name in self._blobs if name.startswith(f"{session_id}/")]:
            del self._blobs[name]
            self._uploads.pop(name, None)

    def mark_upload(self, name: str, ts_ms: int) -> None:
        self._uploads[name] = ts_ms

    def unmark_upload(self, name: str) -> bool:
        return self._uploads.pop(name, None) is not None

    def drop_uploads(self, before_ms: int, limit: int) -> int:
        names = [name for name, ts_ms in self._uploads.items() if ts_ms < before_ms][:limit]
        for name in names:
            del self._uploads[name]
            del self._blobs[name]
        return len(names)

    def drop_private_blob(self, name: str) -> bool:
        blob = self._blobs.get(name)
        if blob is None or not blob.is_private:
            return False
        del self._blobs[name]
        return True

    def put_document(self, document: Document, ts_ms: int) -> None:
        key = (document.session_id, document.id, document.version)
        self._documents[key] = StoredDocument(document, ts_ms)

    def put_snapshot(self, snapshot: Snapshot, ts_ms: int) -> None:
        session_id, name, seq, body, version = snapshot
        self._snapshots.setdefault((session_id, name, version), {})[seq] = StoredSnapshot(body, ts_ms)

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int, version: str) -> None:
        snapshots = self._snapshots.get((session_id, name, version), {})
        for seq in [seq for seq in snapshots if first <= seq <= last]:
            del snapshots[seq]

    def delete_derived(self, session_id: str = "", version: str | None = None) -> None:
        def is_deleted(key: tuple[str, str, str]) -> bool:
            return session_id in ("", key[0]) and version in (None, key[2])

        self._documents = {key: value for key, value in self._documents.items() if not is_deleted(key)}
        self._snapshots = {key: value for key, value in self._snapshots.items() if not is_deleted(key)}

    def collect_derived(self, session_id: str, versions: Collection[str], before_ms: int) -> None:
        def is_old(key: tuple[str, str, str], ts_ms: int) -> bool:
            return key[0] == session_id and key[2] not in versions and ts_ms < before_ms

        self._documents = {
            key: stored for key, stored in self._documents.items() if not is_old(key, stored.ts_ms)
        }
        for key, snapshots in list(self._snapshots.items()):
            kept = {seq: stored for seq, stored in snapshots.items() if not is_old(key, stored.ts_ms)}
            if kept:
                self._snapshots[key] = kept
            else:
                del self._snapshots[key]

    def put_derived(self, job: Job) -> None:
        run_job(self, job)

    def prune(self, session_id: str, before_ms: int) -> int:
        ring = self._rings[session_id]
        seqs = ring.prune(before_ms)
        if seqs:
            record = ring.record
            pruned_through = max(record.pruned_through, seqs[-1])
            self.put_record(record.replace(pruned_through=pruned_through, revision=record.revision + 1))
        return len(seqs)

    def remove_events(self, session_id: str) -> int:
        return self._rings[session_id].clear()

    def quarantine(self, damage: Damage) -> None:
        record = self.info(damage.session_id)
        if record is not None:
            self.put_record(record.replace(epoch=new_epoch(), revision=record.revision + 1))

    def get_lease(self, session_id: str) -> LeaseRow | None:
        return self._leases.get(session_id)

    def put_lease(self, row: LeaseRow) -> None:
        self._leases[row.session_id] = row
        if row.owner is None and row.wanted_at_ms is not None:
            self._is_wanted = True

    def held_leases(self) -> list[LeaseRow]:
        return [row for row in self._leases.values() if row.owner is not None]

    def due_leases(self, now_ms: int, apps: Collection[str] | None, limit: int) -> list[LeaseRow]:
        due = [row for row in self._leases.values() if row.is_due(now_ms) and self._is_run_by(row, apps)]
        return sorted(due, key=lambda row: row.due_ms)[:limit]

    def _is_run_by(self, row: LeaseRow, apps: Collection[str] | None) -> bool:
        """Return True if the session of a lease is open and of one of these applications."""
        record = self._rings[row.session_id].record
        return not record.closed and (apps is None or record.app in apps)

    # reading

    def info(self, session_id: str) -> SessionRecord | None:
        ring = self._rings.get(session_id)
        return ring.record if ring else None

    def sessions(self) -> list[SessionRecord]:
        with self._lock:
            return [ring.record for ring in self._rings.values()]

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        with self._lock:
            ids = list(self._rings if principal is None else self._sessions_by_member.get(principal, ()))
        return self._page_of_sessions(ids, principal, after, limit)

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        with self._lock:
            ids = list(self._sessions_by_invitee.get(principal, ()))
        return [record for _, record in self._page_of_sessions(ids, principal, None, limit)]

    def _page_of_sessions(
        self, session_ids: list[str], principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        items = []
        for session_id in session_ids:
            record = self._rings[session_id].record
            position = ListPosition(record.active_ms(principal), session_id)
            if after is None or position < after:
                items.append((position, record))
        return nlargest(limit, items, key=itemgetter(0))

    def damaged_sessions(self) -> list[str]:
        return []

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            if ring is None:
                return Page()

            rows: list[Row] = []
            begin = bisect_right(ring.seqs, after)
            while not rows and begin < len(ring.rows):  # replay may leave out all rows of a page
                end = ring.page_end(begin, limit_bytes)
                rows = ring.visible_rows(ring.rows[begin:end], replay_from)
                begin = end
            return Page(rows, ring.record.epoch)

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            if ring is None:
                return Page()

            seqs = ring.seqs_of_types(type_query)
            matching = [row for seq in seqs if (row := ring.find_row(seq))]
            sizes = list(accumulate(len(row.frame) for row in matching))
            rows = matching[: bisect_left(sizes, type_query.limit_bytes) + 1]
            has_all = len(rows) == len(matching) and len(seqs) < MAX_PAGE_ROWS
            return Page(rows, ring.record.epoch, ring.record.last if has_all else rows[-1].seq)

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        page = self.read(session_id, after, replay_from, limit_bytes)
        return page.frames() if page else None

    def has_event(self, session_id: str, seq: int) -> bool:
        with self._lock:
            ring = self._rings.get(session_id)
            return ring is not None and ring.find_row(seq) is not None

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        with self._lock:
            spans = self._spans(session_id)
            return oldest_open_turn_start([(span.trace, span.first, span.last) for span in spans], at)

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        with self._lock:
            spans = self._spans(session_id)
            return span_bounds(
                [(span.first, span.last) for span in spans if span.is_agent and span.trace == trace]
            )

    def _spans(self, session_id: str) -> Iterable[RingSpan]:
        ring = self._rings.get(session_id)
        return ring.spans.values() if ring else ()

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        with self._lock:
            spans = [(name, ring.spans[key]) for name, ring in self._rings.items() if key in ring.spans]
        return [(name, span.first) for name, span in spans if span.is_agent][-MAX_SAME_AGENTS:]

    def span_end(self, session_id: str, key: str) -> int | None:
        ring = self._rings.get(session_id)
        span = ring.spans.get(key) if ring else None
        return span.last if span else None

    def sessions_with_open_agents(self) -> list[str]:
        with self._lock:
            return [
                session_id
                for session_id, ring in self._rings.items()
                if any(span.is_agent and span.last is None for span in ring.spans.values())
            ]

    def blob(self, name: str) -> Blob | None:
        return self._blobs.get(name)

    def blob_names(self, session_id: str, is_private: bool) -> list[str]:
        with self._lock:
            names = [name for name, blob in self._blobs.items() if blob.is_private == is_private]
        return sorted(name for name in names if name.startswith(f"{session_id}/"))

    def documents(
        self, session_id: str | None, type: str | None, category: str | None, version: str
    ) -> list[Document]:
        with self._lock:
            return [
                document
                for _, (document, _) in sorted(self._documents.items())
                if session_id in (None, document.session_id)
                and type in (None, document.type)
                and category in (None, document.category)
                and version == document.version
            ]

    def snapshot(self, session_id: str, name: str, at: int, version: str = "") -> tuple[int, bytes] | None:
        with self._lock:
            snapshots = self._snapshots.get((session_id, name, version), {})
            seq = max((seq for seq in snapshots if seq <= at), default=None)
            return None if seq is None else (seq, snapshots[seq].body)

    def owner_of(self, session_id: str) -> str | None:
        with self._lock:
            row = self._leases.get(session_id)
            return row.owner if row is not None and self.owners.is_alive(row) else None

    def holds_lease(self, session_id: str, owner: str, fence: int) -> bool:
        with self._lock:
            row = self._leases.get(session_id)
            return row is not None and row.is_held(owner, fence)

    def lease_states(self, session_ids: Sequence[str]) -> dict[str, LeaseState]:
        with self._lock:
            rows = [self._leases[session_id] for session_id in session_ids if session_id in self._leases]
            return {row.session_id: row.summary for row in rows}

    def next_wake_ms(self, after_ms: int) -> int | None:
        with self._lock:
            times = [row.wake_at_ms for row in self._leases.values() if row.owner is None]
            later = [time_ms for time_ms in times if time_ms is not None and time_ms > after_ms]
            return min(later, default=None)

    def damages(self) -> list[Damage]:
        return []

    def verify(self) -> list[Damage]:
        return []
