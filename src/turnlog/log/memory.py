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

from turnlog.events import CATALOG, decode
from turnlog.log.filter import is_a
from turnlog.log.store import (
    MAX_SAME_AGENTS,
    Blob,
    Damage,
    Document,
    Head,
    NewRow,
    Page,
    Place,
    Ready,
    Row,
    Sight,
    SpanMark,
    Typed,
    extent,
    line_of,
    oldest_open,
    unseen,
)

RING_EVENTS = 2000
PAGE_ROWS = 256
RING_BYTES = 64 << 20


@dataclass(slots=True)
class Span:
    """A block, a call or an agent; open until its first end."""

    key: str
    first: int
    trace: str | None
    agent: bool
    last: int | None = None

    @property
    def end(self) -> float:
        """The last seq, if it is known."""
        return inf if self.last is None else self.last


@dataclass(slots=True)
class Turn:
    """From the first durable event of a trace to its last; open while it waits for an agent, or has one."""

    trace: str
    first: int
    last: int
    waiting: bool = False
    started: bool = False
    agents: set[str] = field(default_factory=set)

    @property
    def end(self) -> float:
        """The last seq, if it is known; a trace in which no agent works holds nothing together."""
        if self.waiting or self.agents:
            return inf
        return self.last if self.started else self.first


@dataclass(slots=True)
class Ring:
    """One session: its rows, sorted by seq, and what is indexed about them."""

    head: Head
    rows: list[Row] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    inside: dict[int, str] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    types: dict[str, list[int]] = field(default_factory=dict)  # the seqs of durable rows
    begun: dict[int, list[Span | Turn]] = field(default_factory=dict)  # by the seq at which they begin
    holding: Span | Turn | None = None  # what the ring could not let go of
    enough: int = 0  # with fewer durable events nothing can go: the oldest turns are too many of them
    size_bytes: int = 0
    durable: int = 0

    def add(self, new: NewRow) -> None:
        seq, trace = new.row.seq, new.row.trace
        self.rows.append(new.row)
        self.seqs.append(seq)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(new.row.frame))
        self.names.append(new.id)
        self.ids[new.id] = seq
        self.times[seq] = new.ts_ms
        self._count(new.row, new.span, 1)
        if new.span is None:
            self.types.setdefault(new.row.type, []).append(seq)
        if new.span is not None:
            self.inside[seq] = new.span
        elif trace is not None:
            turn = self.turns.get(trace) or self._new_turn(trace, seq)
            turn.last = seq
            if not turn.agents and not turn.waiting:
                turn.waiting = asks(new.row)

    def _new_turn(self, trace: str, seq: int) -> Turn:
        turn = self.turns[trace] = Turn(trace, seq, seq)
        self._begin(turn)
        return turn

    def _begin(self, one: Span | Turn) -> None:
        self.begun.setdefault(one.first, []).append(one)

    def _count(self, row: Row, span: str | None, sign: int) -> None:
        self.size_bytes += sign * len(row.frame)
        self.durable += sign * (span is None)

    def mark(self, mark: SpanMark) -> None:
        span = self.spans.get(mark.key)
        if span is not None and span.last is None:
            self._end(span, mark.seq - 1 if mark.opens else mark.seq)  # what begins anew ended before
        if mark.opens:
            span = self.spans[mark.key] = Span(mark.key, mark.seq, mark.trace, mark.agent)
            self._begin(span)
            turn = self.turns.get(mark.trace or "")
            if turn and mark.agent:
                turn.waiting, turn.started = False, True
                turn.agents.add(mark.key)

    def _end(self, span: Span, seq: int) -> None:
        span.last = seq
        if turn := self.turns.get(span.trace or ""):
            turn.agents.discard(span.key)

    def reach(self, begin: int, size_bytes: int) -> int:
        """Where a page of about this size ends, if it begins at a place; at least one row further."""
        before = self.ends[begin] - len(self.rows[begin].frame)
        return min(bisect_left(self.ends, before + size_bytes, begin) + 1, len(self.ends))

    def shown(self, rows: list[Row], origin: int | None) -> list[Row]:
        """The rows that replay does not leave out: live, of a span that began after the origin and ended."""
        if origin is None or not self.inside:
            return rows
        gone = {key for key, span in self.spans.items() if span.first > origin and span.last is not None}
        return [row for row in rows if self.inside.get(row.seq) not in gone]

    def typed(self, asked: Typed) -> list[int]:
        """The seqs of the next durable rows of some types."""
        names = [name for name in self.types if any(is_a(name, one) for one in asked.types)]
        found = [self.types[name] for name in names]
        begun = [(seqs, bisect_right(seqs, asked.after)) for seqs in found]
        return sorted(seq for seqs, at in begun for seq in seqs[at : at + PAGE_ROWS])[:PAGE_ROWS]

    def row(self, seq: int) -> Row | None:
        place = bisect_right(self.seqs, seq - 1)
        return self.rows[place] if place < len(self.seqs) and self.seqs[place] == seq else None

    def let_go(self, events: int, size_bytes: int) -> list[Row]:
        """Remove the oldest rows down to `events` durable ones and `size_bytes`; return what was removed.

        A cut lies where no turn crosses it. One that leaves fewer durable events is made for the bytes alone.
        """
        if self.holding and self.holding.end == inf:
            return []
        if self.durable < self.enough and self.size_bytes <= size_bytes:
            return []
        cut, removed, self.enough, reach = 0, 0, 0, -inf
        durable, size, size_after_cut = self.durable, self.size_bytes, self.size_bytes
        for place, row in enumerate(self.rows, 1):
            begun = self.begun.get(row.seq, [])
            self.holding = next((one for one in begun if one.end == inf), None)
            if self.holding:
                break
            reach = max([reach, *[one.end for one in begun]])
            durable -= row.seq not in self.inside
            size -= len(row.frame)
            if reach > row.seq:
                continue
            # no turn crosses the place after this row; after the last one a cut leaves nothing
            most_bytes = size_bytes if place < len(self.rows) else 2 * size_bytes
            too_large = size_after_cut > most_bytes
            if durable < events and not too_large:
                self.enough = events + self.durable - removed - durable
                break
            cut, removed, size_after_cut = place, self.durable - durable, size
        gone = self.rows[:cut]
        if gone:
            self._forget(range(cut))
            for column in (self.rows, self.seqs, self.ends, self.names):
                del column[:cut]
            first = self.seqs[0] if self.seqs else self.head.last + 1
            self.head = self.head.moved(first=first)
            self.types = {name: seqs for name, seqs in self.types.items() if seqs[-1] >= first}
            for seqs in self.types.values():
                del seqs[: bisect_left(seqs, first)]
        return gone

    def prune(self, before_ms: int) -> list[int]:
        """Drop the live rows of finished spans older than a time; their seqs."""
        gone = [
            place
            for place, seq in enumerate(self.seqs)
            if self.times[seq] < before_ms
            and (span := self.spans.get(self.inside.get(seq, "")))
            and span.last is not None
        ]
        seqs = [self.seqs[place] for place in gone]
        self._drop(set(gone))
        return seqs

    def _forget(self, places: Iterable[int]) -> None:
        """Let go of what is indexed about rows that are about to go."""
        for place in places:
            row = self.rows[place]
            self._count(row, self.inside.pop(row.seq, None), -1)
            del self.ids[self.names[place]], self.times[row.seq]
            for one in self.begun.pop(row.seq, ()):
                if isinstance(one, Turn):
                    del self.turns[one.trace]
                elif self.spans.get(one.key) is one:  # and not one of its name that began later
                    del self.spans[one.key]

    def _drop(self, places: set[int]) -> None:
        self._forget(places)
        kept = [place for place in range(len(self.rows)) if place not in places]
        self.rows = [self.rows[place] for place in kept]
        self.seqs = [self.seqs[place] for place in kept]
        self.names = [self.names[place] for place in kept]
        self.ends = list(accumulate(len(row.frame) for row in self.rows))


def asks(row: Row) -> bool:
    """Whether an event asks for a turn: what a page says or does, or an application's event that it sent."""
    if row.type in CATALOG.kinds:
        return row.type in ("ui.message", "ui.action")
    return decode(line_of(row)).origin == "ui"


def relist(lists: dict[str, set[str]], session_id: str, before: set[str], after: set[str]) -> None:
    """Change whose lists have a session."""
    for principal in before - after:
        lists[principal].discard(session_id)
        if not lists[principal]:
            del lists[principal]
    for principal in after - before:
        lists.setdefault(principal, set()).add(session_id)


class MemoryStore:
    """The store behind `memory:`."""

    group = 1  # memory cannot be rolled back
    readers = 0

    def __init__(self, ring_events: int = RING_EVENTS, ring_bytes: int = RING_BYTES) -> None:
        self._ring_events = ring_events
        self._ring_bytes = ring_bytes
        self.last_sight: Sight = unseen
        self._lock = threading.RLock()
        self._rings: dict[str, Ring] = {}
        self._listed: dict[str, set[str]] = {}  # the sessions of each principal
        self._invited: dict[str, set[str]] = {}  # the sessions that each principal is invited to
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

    def head(self, session_id: str) -> Head | None:
        return self.info(session_id)

    def put_head(self, head: Head) -> None:
        ring = self._rings.get(head.session_id)
        before = ring.head if ring else None
        if ring is None:
            self._rings[head.session_id] = Ring(head)
        else:
            ring.head = head
        if before is None or head.members_seq != before.members_seq:
            members, invited = (before.members.keys(), before.invited) if before else ((), ())
            relist(self._listed, head.session_id, set(members), set(head.members))
            relist(self._invited, head.session_id, set(invited), set(head.invited))

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        ring = self._rings[session_id]
        found = {event_id: ring.row(ring.ids[event_id]) for event_id in event_ids if event_id in ring.ids}
        return {event_id: row for event_id, row in found.items() if row}

    def put(self, head: Head, rows: Sequence[NewRow], marks: Sequence[SpanMark]) -> None:
        ring = self._rings[head.session_id]
        marked = {mark.seq: mark for mark in marks}
        for new in rows:
            ring.add(new)
            if marked and new.row.seq in marked:
                ring.mark(marked[new.row.seq])
        self.put_head(head)
        full = ring.durable > self._ring_events or ring.size_bytes > self._ring_bytes
        if full and (gone := ring.let_go(self._ring_events, self._ring_bytes)):
            self.last_sight(self, ring.head, gone)

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

    def forget_derived(self, session_id: str | None = None) -> None:
        for kept in (self._documents, self._snapshots):
            for key in [key for key in kept if session_id in (None, key[0])]:
                del kept[key]

    def prune(self, session_id: str, before_ms: int) -> int:
        ring = self._rings[session_id]
        gone = ring.prune(before_ms)
        if gone:
            ring.head = ring.head.moved(pruned=max(ring.head.pruned, *gone))
        return len(gone)

    def quarantine(self, damage: Damage) -> None:
        raise AssertionError("memory is not damaged")

    # reading

    def info(self, session_id: str) -> Head | None:
        ring = self._rings.get(session_id)
        return ring.head if ring else None

    def sessions(self) -> list[Head]:
        with self._lock:
            return [ring.head for ring in self._rings.values()]

    def listing(self, principal: str | None, after: Place | None, limit: int) -> list[tuple[Place, Head]]:
        with self._lock:
            names = list(self._rings if principal is None else self._listed.get(principal, ()))
        return self._ordered(names, principal, after, limit)

    def invitations(self, principal: str, limit: int) -> list[Head]:
        with self._lock:
            names = list(self._invited.get(principal, ()))
        return [head for _, head in self._ordered(names, principal, None, limit)]

    def _ordered(
        self, names: list[str], principal: str | None, after: Place | None, limit: int
    ) -> list[tuple[Place, Head]]:
        heads = [self._rings[name].head for name in names]
        places = [(Place(head.active_ms(principal), head.session_id), head) for head in heads]
        behind = [one for one in places if after is None or one[0] < after]
        return nlargest(limit, behind, key=itemgetter(0))

    def broken(self) -> list[str]:
        return []

    def read(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            begin, rows = bisect_right(ring.seqs, after) if ring else 0, list[Row]()
            while ring and not rows and begin < len(ring.rows):
                end = ring.reach(begin, limit_bytes)
                rows = ring.shown(ring.rows[begin:end], origin)
                begin = end
            return Page(rows, ring.head.epoch if ring else "")

    def read_types(self, session_id: str, asked: Typed) -> Page:
        with self._lock:
            ring = self._rings.get(session_id)
            if ring is None:
                return Page()
            seqs = ring.typed(asked)
            found = [row for seq in seqs if (row := ring.row(seq))]
            sizes = list(accumulate(len(row.frame) for row in found))
            rows = found[: bisect_left(sizes, asked.limit_bytes) + 1]
            is_whole = len(rows) == len(found) and len(seqs) < PAGE_ROWS
            return Page(rows, ring.head.epoch, ring.head.last if is_whole else rows[-1].seq)

    def ready(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Ready | None:
        page = self.read(session_id, after, origin, limit_bytes)
        return page.ready() if page else None

    def holds(self, session_id: str, seq: int) -> bool:
        with self._lock:
            ring = self._rings.get(session_id)
            return ring is not None and ring.row(seq) is not None

    def turn_start(self, session_id: str, at: int) -> int:
        with self._lock:
            ring = self._rings.get(session_id)
            spans = ring.spans.values() if ring else []
            return oldest_open([(span.trace, span.first, span.last) for span in spans], at)

    def turn(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        with self._lock:
            ring = self._rings.get(session_id)
            spans = ring.spans.values() if ring else ()
            return extent([(span.first, span.last) for span in spans if span.agent and span.trace == trace])

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        with self._lock:
            spans = [(name, ring.spans[key]) for name, ring in self._rings.items() if key in ring.spans]
        return [(name, span.first) for name, span in spans if span.agent][-MAX_SAME_AGENTS:]

    def span_end(self, session_id: str, key: str) -> int | None:
        ring = self._rings.get(session_id)
        span = ring.spans.get(key) if ring else None
        return span.last if span else None

    def unfinished(self) -> list[str]:
        with self._lock:
            return [
                session_id
                for session_id, ring in self._rings.items()
                if any(span.agent and span.last is None for span in ring.spans.values())
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

    def counter(self) -> int:
        return 0
