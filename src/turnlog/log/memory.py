"""Sessions in memory: a ring per session. Durable means: as long as the process lives.

A ring keeps at least the newest `ring_events` durable events. It lets go of older ones, but only at a place
no turn crosses: finished turns go whole, an open one and a message that waits for its turn never go. Above
`ring_bytes` it keeps fewer events; the newest turn stays up to twice of that. What goes is shown to
`last_sight` first, so that what is made of it can be kept.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from math import inf
from operator import itemgetter

from turnlog.events import CATALOG, decode_envelope
from turnlog.log.filter import type_matches
from turnlog.log.store import (
    MAX_SAME_AGENTS,
    Blob,
    Damage,
    Document,
    EvictCallback,
    FrameBatch,
    ListPosition,
    NewRow,
    Page,
    Row,
    SessionRecord,
    SpanEdge,
    TypeQuery,
    envelope_json,
    ignore_eviction,
    oldest_open_turn_start,
    span_bounds,
)

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
        """The last seq, if it is known."""
        return inf if self.last is None else self.last


@dataclass(slots=True)
class RingTurn:
    """From the first durable event of a trace to its last; open while it waits for an agent, or has one."""

    trace: str
    first: int
    last: int
    is_waiting: bool = False
    has_started: bool = False
    open_agents: set[str] = field(default_factory=set)

    @property
    def end_or_inf(self) -> float:
        """The last seq, if it is known; a trace in which no agent works holds nothing together."""
        if self.is_waiting or self.open_agents:
            return inf
        return self.last if self.has_started else self.first


@dataclass(slots=True)
class Ring:
    """One session: its rows, sorted by seq, and what is indexed about them."""

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
    seqs_by_type: dict[str, list[int]] = field(default_factory=dict)  # the seqs of durable rows
    starts_at: dict[int, list[RingSpan | RingTurn]] = field(
        default_factory=dict
    )  # by the seq at which they begin
    blocked_by: RingSpan | RingTurn | None = None  # what the ring could not let go of
    evict_from_count: int = (
        0  # with fewer durable events nothing can go: the oldest turns are too many of them
    )
    size_bytes: int = 0
    durable_count: int = 0

    def add(self, new: NewRow) -> None:
        seq, trace = new.row.seq, new.row.trace
        self.rows.append(new.row)
        self.seqs.append(seq)
        self.cumulative_bytes.append(
            (self.cumulative_bytes[-1] if self.cumulative_bytes else 0) + len(new.row.frame)
        )
        self.event_ids.append(new.id)
        self.seq_by_event_id[new.id] = seq
        self.ts_ms_by_seq[seq] = new.ts_ms
        self._add_to_totals(new.row, new.span, 1)
        if new.span is None:
            self.seqs_by_type.setdefault(new.row.type, []).append(seq)
        if new.span is not None:
            self.span_by_seq[seq] = new.span
        elif trace is not None:
            turn = self.turns.get(trace) or self._new_turn(trace, seq)
            turn.last = seq
            if not turn.open_agents and not turn.is_waiting:
                turn.is_waiting = opens_turn(new.row)

    def _new_turn(self, trace: str, seq: int) -> RingTurn:
        turn = self.turns[trace] = RingTurn(trace, seq, seq)
        self._index_start(turn)
        return turn

    def _index_start(self, span: RingSpan | RingTurn) -> None:
        self.starts_at.setdefault(span.first, []).append(span)

    def _add_to_totals(self, row: Row, span: str | None, sign: int) -> None:
        self.size_bytes += sign * len(row.frame)
        self.durable_count += sign * (span is None)

    def apply_edge(self, edge: SpanEdge) -> None:
        span = self.spans.get(edge.key)
        if span is not None and span.last is None:
            self._close_span(
                span, edge.seq - 1 if edge.is_start else edge.seq
            )  # what begins anew ended before
        if edge.is_start:
            span = self.spans[edge.key] = RingSpan(edge.key, edge.seq, edge.trace, edge.is_agent)
            self._index_start(span)
            turn = self.turns.get(edge.trace or "")
            if turn and edge.is_agent:
                turn.is_waiting, turn.has_started = False, True
                turn.open_agents.add(edge.key)

    def _close_span(self, span: RingSpan, seq: int) -> None:
        span.last = seq
        if turn := self.turns.get(span.trace or ""):
            turn.open_agents.discard(span.key)

    def page_end(self, begin: int, size_bytes: int) -> int:
        """Where a page of about this size ends, if it begins at a place; at least one row further."""
        before = self.cumulative_bytes[begin] - len(self.rows[begin].frame)
        return min(
            bisect_left(self.cumulative_bytes, before + size_bytes, begin) + 1, len(self.cumulative_bytes)
        )

    def visible_rows(self, rows: list[Row], replay_from: int | None) -> list[Row]:
        """The rows that replay does not leave out: live, of a span that began after the origin and ended."""
        if replay_from is None or not self.span_by_seq:
            return rows
        gone = {key for key, span in self.spans.items() if span.first > replay_from and span.last is not None}
        return [row for row in rows if self.span_by_seq.get(row.seq) not in gone]

    def seqs_of_types(self, type_query: TypeQuery) -> list[int]:
        """The seqs of the next durable rows of some types."""
        names = [
            name for name in self.seqs_by_type if any(type_matches(name, one) for one in type_query.types)
        ]
        found = [self.seqs_by_type[name] for name in names]
        begun = [(seqs, bisect_right(seqs, type_query.after)) for seqs in found]
        return sorted(seq for seqs, at in begun for seq in seqs[at : at + MAX_PAGE_ROWS])[:MAX_PAGE_ROWS]

    def find_row(self, seq: int) -> Row | None:
        place = bisect_right(self.seqs, seq - 1)
        return self.rows[place] if place < len(self.seqs) and self.seqs[place] == seq else None

    def evict(self, events: int, size_bytes: int) -> list[Row]:
        """Remove the oldest rows down to `events` durable ones and `size_bytes`; return what was removed.

        A cut lies where no turn crosses it. One that leaves fewer durable events is made for the bytes alone.
        """
        if self.blocked_by and self.blocked_by.end_or_inf == inf:
            return []
        if self.durable_count < self.evict_from_count and self.size_bytes <= size_bytes:
            return []
        cut, removed, self.evict_from_count, reach = 0, 0, 0, -inf
        durable, size, size_after_cut = self.durable_count, self.size_bytes, self.size_bytes
        for place, row in enumerate(self.rows, 1):
            begun = self.starts_at.get(row.seq, [])
            self.blocked_by = next((one for one in begun if one.end_or_inf == inf), None)
            if self.blocked_by:
                break
            reach = max([reach, *[one.end_or_inf for one in begun]])
            durable -= row.seq not in self.span_by_seq
            size -= len(row.frame)
            if reach > row.seq:
                continue
            # no turn crosses the place after this row; after the last one a cut leaves nothing
            most_bytes = size_bytes if place < len(self.rows) else 2 * size_bytes
            too_large = size_after_cut > most_bytes
            if durable < events and not too_large:
                self.evict_from_count = events + self.durable_count - removed - durable
                break
            cut, removed, size_after_cut = place, self.durable_count - durable, size
        gone = self.rows[:cut]
        if gone:
            self._drop_indexes(range(cut))
            for column in (self.rows, self.seqs, self.cumulative_bytes, self.event_ids):
                del column[:cut]
            first = self.seqs[0] if self.seqs else self.record.last + 1
            self.record = self.record.replace(first=first)
            self.seqs_by_type = {name: seqs for name, seqs in self.seqs_by_type.items() if seqs[-1] >= first}
            for seqs in self.seqs_by_type.values():
                del seqs[: bisect_left(seqs, first)]
        return gone

    def prune(self, before_ms: int) -> list[int]:
        """Drop the live rows of finished spans older than a time; their seqs."""
        gone = [
            place
            for place, seq in enumerate(self.seqs)
            if self.ts_ms_by_seq[seq] < before_ms
            and (span := self.spans.get(self.span_by_seq.get(seq, "")))
            and span.last is not None
        ]
        seqs = [self.seqs[place] for place in gone]
        self._drop_rows(set(gone))
        return seqs

    def _drop_indexes(self, indexes: Iterable[int]) -> None:
        """Let go of what is indexed about rows that are about to go."""
        for place in indexes:
            row = self.rows[place]
            self._add_to_totals(row, self.span_by_seq.pop(row.seq, None), -1)
            del self.seq_by_event_id[self.event_ids[place]], self.ts_ms_by_seq[row.seq]
            for one in self.starts_at.pop(row.seq, ()):
                if isinstance(one, RingTurn):
                    del self.turns[one.trace]
                elif self.spans.get(one.key) is one:  # and not one of its name that began later
                    del self.spans[one.key]

    def _drop_rows(self, indexes: set[int]) -> None:
        self._drop_indexes(indexes)
        kept = [place for place in range(len(self.rows)) if place not in indexes]
        self.rows = [self.rows[place] for place in kept]
        self.seqs = [self.seqs[place] for place in kept]
        self.event_ids = [self.event_ids[place] for place in kept]
        self.cumulative_bytes = list(accumulate(len(row.frame) for row in self.rows))


def opens_turn(row: Row) -> bool:
    """Whether an event asks for a turn: what a page says or does, or an application's event that it sent."""
    if row.type in CATALOG.types:
        return row.type in ("ui.message", "ui.action")
    return decode_envelope(envelope_json(row)).origin == "ui"


def update_lists(lists: dict[str, set[str]], session_id: str, before: set[str], after: set[str]) -> None:
    """Change whose lists have a session."""
    for principal in before - after:
        lists[principal].discard(session_id)
        if not lists[principal]:
            del lists[principal]
    for principal in after - before:
        lists.setdefault(principal, set()).add(session_id)


class MemoryStore:
    """The store behind `memory:`."""

    max_batch = 1  # memory cannot be rolled back
    reader_threads = 0

    def __init__(self, ring_events: int = RING_EVENTS, ring_bytes: int = RING_BYTES) -> None:
        self._ring_events = ring_events
        self._ring_bytes = ring_bytes
        self.on_evict: EvictCallback = ignore_eviction
        self._lock = threading.RLock()
        self._rings: dict[str, Ring] = {}
        self._sessions_by_member: dict[str, set[str]] = {}  # the sessions of each principal
        self._sessions_by_invitee: dict[str, set[str]] = {}  # the sessions that each principal is invited to
        self._blobs: dict[str, Blob] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._snapshots: dict[tuple[str, str], dict[int, bytes]] = {}

    def close(self) -> None:
        pass

    # writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            yield

    def get_record(self, session_id: str) -> SessionRecord | None:
        return self.info(session_id)

    def put_record(self, record: SessionRecord) -> None:
        ring = self._rings.get(record.session_id)
        before = ring.record if ring else None
        if ring is None:
            self._rings[record.session_id] = Ring(record)
        else:
            ring.record = record
        if before is None or record.members_seq != before.members_seq:
            members, invited = (before.members.keys(), before.invited_principals) if before else ((), ())
            update_lists(self._sessions_by_member, record.session_id, set(members), set(record.members))
            update_lists(
                self._sessions_by_invitee, record.session_id, set(invited), set(record.invited_principals)
            )

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        ring = self._rings[session_id]
        found = {
            event_id: ring.find_row(ring.seq_by_event_id[event_id])
            for event_id in event_ids
            if event_id in ring.seq_by_event_id
        }
        return {event_id: row for event_id, row in found.items() if row}

    def insert_rows(self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]) -> None:
        ring = self._rings[record.session_id]
        marked = {mark.seq: mark for mark in edges}
        for new in rows:
            ring.add(new)
            if marked and new.row.seq in marked:
                ring.apply_edge(marked[new.row.seq])
        self.put_record(record)
        full = ring.durable_count > self._ring_events or ring.size_bytes > self._ring_bytes
        if full and (gone := ring.evict(self._ring_events, self._ring_bytes)):
            self.on_evict(self, ring.record, gone)

    def put_blob(self, name: str, blob: Blob) -> None:
        self._blobs.setdefault(name, blob)

    def put_document(self, document: Document) -> None:
        self._documents[document.session_id, document.id] = document

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        self._snapshots.setdefault((session_id, name), {})[seq] = body

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        kept = self._snapshots.get((session_id, name), {})
        for seq in [seq for seq in kept if first <= seq <= last]:
            del kept[seq]

    def delete_derived(self, session_id: str | None = None) -> None:
        for kept in (self._documents, self._snapshots):
            for key in [key for key in kept if session_id in (None, key[0])]:
                del kept[key]

    def prune(self, session_id: str, before_ms: int) -> int:
        ring = self._rings[session_id]
        gone = ring.prune(before_ms)
        if gone:
            ring.record = ring.record.replace(pruned_through=max(ring.record.pruned_through, *gone))
        return len(gone)

    def quarantine(self, damage: Damage) -> None:
        raise AssertionError("memory is not damaged")

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
            names = list(self._rings if principal is None else self._sessions_by_member.get(principal, ()))
        return self._page_of_sessions(names, principal, after, limit)

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        with self._lock:
            names = list(self._sessions_by_invitee.get(principal, ()))
        return [head for _, head in self._page_of_sessions(names, principal, None, limit)]

    def _page_of_sessions(
        self, names: list[str], principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        heads = [self._rings[name].record for name in names]
        places = [(ListPosition(head.active_ms(principal), head.session_id), head) for head in heads]
        behind = [one for one in places if after is None or one[0] < after]
        return nlargest(limit, behind, key=itemgetter(0))

    def damaged_sessions(self) -> list[str]:
        return []

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            begin, rows = bisect_right(ring.seqs, after) if ring else 0, list[Row]()
            while ring and not rows and begin < len(ring.rows):
                end = ring.page_end(begin, limit_bytes)
                rows = ring.visible_rows(ring.rows[begin:end], replay_from)
                begin = end
            return Page(rows, ring.record.epoch if ring else "")

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            if ring is None:
                return Page()
            seqs = ring.seqs_of_types(type_query)
            found = [row for seq in seqs if (row := ring.find_row(seq))]
            sizes = list(accumulate(len(row.frame) for row in found))
            rows = found[: bisect_left(sizes, type_query.limit_bytes) + 1]
            is_whole = len(rows) == len(found) and len(seqs) < MAX_PAGE_ROWS
            return Page(rows, ring.record.epoch, ring.record.last if is_whole else rows[-1].seq)

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
            ring = self._rings.get(session_id)
            spans = ring.spans.values() if ring else []
            return oldest_open_turn_start([(span.trace, span.first, span.last) for span in spans], at)

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        with self._lock:
            ring = self._rings.get(session_id)
            spans = ring.spans.values() if ring else ()
            return span_bounds(
                [(span.first, span.last) for span in spans if span.is_agent and span.trace == trace]
            )

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

    def blob_names(self, session_id: str) -> list[str]:
        return sorted(name for name in self._blobs if name.startswith(f"{session_id}/"))

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        with self._lock:
            return [
                document
                for _, document in sorted(self._documents.items())
                if session_id in (None, document.session_id)
                and type in (None, document.type)
                and category in (None, document.category)
            ]

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        with self._lock:
            kept = self._snapshots.get((session_id, name), {})
            seqs = [seq for seq in kept if seq <= at]
            return (max(seqs), kept[max(seqs)]) if seqs else None

    def damages(self) -> list[Damage]:
        return []

    def verify(self) -> list[Damage]:
        return []

    def commit_count(self) -> int:
        return 0
