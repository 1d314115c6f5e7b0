"""What a store must do, and the values that pass through it.

A store is synchronous and small. Writing is one thread's business: `transaction` brackets a group of work,
and the methods of `StoreWriter` are called inside it. The methods of `StoreReader` may be called from any
thread. A store never hands out a row it cannot vouch for: it raises `Damaged` instead, after the good rows
before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from math import inf
from typing import Any, NamedTuple, Protocol, overload

from msgspec import Struct, structs

from turnlog.events import (
    AgentEnd,
    AgentStart,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Envelope,
    Payload,
    Scope,
    ToolCall,
    ToolProgress,
    ToolResult,
    UnknownPayload,
    decode_envelope,
)
from turnlog.events.roles import OWNER

MAX_SAME_AGENTS = 8  # sessions that hold an agent of one id: more than one only where logs were imported
LISTING_STEP_MS = 1_000  # a session moves in lists once in a second at most, however much happens in it


class Row(NamedTuple):
    """An event as stored: the finished frame, beside it what filters and replay ask, packed by `pack`.

    The checksum is over all of it (`integrity.make_row`).
    """

    seq: int
    meta: bytes
    frame: bytes
    checksum: int

    @property
    def durable_count(self) -> int:
        """How many durable events there are up to this one: a jump in it is a loss."""
        return int(self.meta.split(b"|", 1)[0])

    @property
    def live(self) -> bool:
        return self.meta.split(b"|", 2)[1] == b"1"

    @property
    def depth(self) -> int:
        return int(self.meta.split(b"|", 3)[2])

    @property
    def trace(self) -> str | None:
        return self.meta.split(b"|", 4)[3].decode() or None

    @property
    def channel(self) -> str | None:
        """The role whose members alone see it."""
        return self.meta.split(b"|", 5)[4].decode() or None

    @property
    def type(self) -> str:
        return self.meta.split(b"|", 5)[5].decode()


RawRow = tuple[Any, ...]  # the values of a row, if they are what was written

_as_row: Callable[[RawRow], Row] = partial(tuple.__new__, Row)


class FrameBatch(NamedTuple):
    """Rows as they are sent: every frame with its `id:` line."""

    first: int
    last: int
    data: bytes
    epoch: str

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def upto(self) -> int | None:
        """None: it is no page of some types."""
        return None


class Page(Sequence[Row]):
    """Rows as they were read, made one by one when they are asked for, and their bytes, made once.

    `upto` is the seq up to which a page of some types has been looked at; None of other pages.
    """

    __slots__ = ("_envelopes", "_frames", "epoch", "raw_rows", "upto")

    def __init__(self, raw_rows: Sequence[RawRow] = (), epoch: str = "", upto: int | None = None) -> None:
        self.raw_rows = raw_rows
        self.epoch = epoch
        self.upto = upto
        self._frames: FrameBatch | None = None
        self._envelopes: list[Envelope] | None = None

    @property
    def first(self) -> int:
        """The first seq, of a page that has one."""
        seq: int = self.raw_rows[0][0]
        return seq

    @property
    def last(self) -> int:
        """The last seq, of a page that has one."""
        seq: int = self.raw_rows[-1][0]
        return seq

    @property
    def size_bytes(self) -> int:
        """What its frames take."""
        return sum(len(row[2]) for row in self.raw_rows)

    def frames(self) -> FrameBatch:
        """The page as it is sent. All who send this page share the bytes."""
        if self._frames is None:
            rows = self.raw_rows
            parts = with_id_lines(self.epoch, [row[0] for row in rows], [row[2] for row in rows])
            self._frames = FrameBatch(self.first, self.last, b"".join(parts), self.epoch)
        return self._frames

    def envelopes(self) -> list[Envelope]:
        """The rows, read; all who follow this page share them."""
        if self._envelopes is None:
            self._envelopes = [decode_envelope(envelope_json(row)) for row in self]
        return self._envelopes

    def __len__(self) -> int:
        return len(self.raw_rows)

    def __iter__(self) -> Iterator[Row]:
        return map(_as_row, self.raw_rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> "Page": ...

    def __getitem__(self, place: int | slice) -> "Row | Page":
        return (
            Page(self.raw_rows[place], self.epoch)
            if isinstance(place, slice)
            else _as_row(self.raw_rows[place])
        )


class TypeQuery(NamedTuple):
    """A question for rows of some durable types, or first words of them, after a seq."""

    after: int
    types: tuple[str, ...]
    limit_bytes: int


def with_id_lines(epoch: str, seqs: Sequence[int], frames: Sequence[bytes]) -> list[bytes]:
    """Frames with their `id:` lines, to be joined."""
    line = b"id: %b:%%d\n" % epoch.encode()
    parts = [b""] * (2 * len(frames))
    parts[::2] = [line % seq for seq in seqs]
    parts[1::2] = frames
    return parts


def envelope_json(row: Row) -> bytes:
    """The envelope of a row, as JSON."""
    return row.frame[len(b"data: ") : -len(b"\n\n")]


def encode_meta(durable_count: int, live: bool, scope: Scope | Envelope, type: str) -> bytes:
    """What stands beside a frame. The type is last: it alone may hold the separator."""
    return b"%d|%b" % (
        durable_count,
        _meta_suffix(live, scope.depth or 0, scope.trace_id, scope.channel, type),
    )


@lru_cache(1024)  # events come many to an invocation
def _meta_suffix(live: bool, depth: int, trace: str | None, channel: str | None, type: str) -> bytes:
    return f"{live:d}|{depth}|{trace or ''}|{channel or ''}|{type}".encode()


class NewRow(NamedTuple):
    """A row on its way in: its identity, its link in the hash chain or, if live, the span it is part of."""

    row: Row
    id: str
    ts_ms: int
    chain: bytes | None
    span: str | None


class OpenInvite(Struct, frozen=True, omit_defaults=True):
    """An invite that was not used, declined, revoked or found expired yet (`session.invite`)."""

    roles: tuple[str, ...]
    by: str
    expires_ms: int
    principal: str | None = None
    as_operator: bool = False


class SessionRecord(Struct, frozen=True):
    """Where a session stands, and what its events say of it as a whole (`append.SAYINGS`): its title, its
    members with their roles, its creator, its open invites by their id, when something last happened. Live
    rows up to `pruned` may be gone; `revision` counts the changes; `members_seq` is the last event that
    changed members or invites. `activity` has the time of the last event of each channel, and under "" of
    those in none; it is empty until an event is in a channel, because `updated_ms` says the same until then.
    """

    session_id: str
    epoch: str
    app: str
    created_ms: int = 0
    first: int = 0
    last: int = -1
    durable_count: int = 0
    chain: bytes = b""
    fence: int = 0
    pruned_through: int = -1
    revision: int = 0
    updated_ms: int = 0
    title: str = ""
    members: dict[str, tuple[str, ...]] = {}
    creator: str = ""
    invites: dict[str, OpenInvite] = {}
    members_seq: int = -1
    closed: bool = False
    activity: dict[str, int] = {}

    def active_ms(self, principal: str | None) -> int:
        """Return when something last happened that a principal may see; None stands for who sees all of it.

        A member sees the channels that are called as its roles are, and an owner every one.
        """
        roles = self.members.get(principal, ()) if principal is not None else (OWNER,)
        if OWNER in roles or not self.activity:
            return self.updated_ms or self.created_ms
        return max(self.activity.get(channel, 0) for channel in ("", *roles))

    def is_listed_as(self, before: "SessionRecord") -> bool:
        """Whether lists that were written for the session as it was are near enough."""
        same = self.members_seq == before.members_seq and self.members == before.members
        return same and 0 <= self.updated_ms - before.updated_ms < LISTING_STEP_MS

    @property
    def invited_principals(self) -> frozenset[str]:
        """Those whom an open invite is addressed to."""
        return frozenset(one.principal for one in self.invites.values() if one.principal is not None)

    def replace(self, **changes: object) -> "SessionRecord":
        """The same session after a change."""
        return structs.replace(self, **changes)


class ListPosition(NamedTuple):
    """Where a session is in a list: the list is in the order of these, the largest first."""

    active_ms: int
    session_id: str


class SpanEdge(NamedTuple):
    """A span of the log opens or closes at a seq: a block, a call, an agent."""

    key: str
    is_start: bool
    seq: int
    trace: str | None
    is_agent: bool


class Damage(NamedTuple):
    """A part of a session that is lost, and why."""

    session_id: str
    first: int
    last: int
    problem: str


class Document(NamedTuple):
    """A document made from events: stable id, queried by type and category."""

    session_id: str
    id: str
    type: str
    category: str
    body: bytes


class Blob(NamedTuple):
    """Binary content, known by its hash."""

    media_type: str
    data: bytes


class StoreWriter(Protocol):
    """What the one writer does, inside a transaction.

    A store that lets go of old events tells `last_sight` what goes: itself, the session, and the rows. It is
    called in the transaction, and by a store that keeps everything never.
    """

    on_evict: "EvictCallback"

    @property
    def max_batch(self) -> int:
        """How much work may share a transaction; 1 for a store that cannot take half of it back."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is durable when it ends, or nothing is."""
        ...

    def get_record(self, session_id: str) -> SessionRecord | None:
        """Where a session stands, the transaction's own changes included."""
        ...

    def put_record(self, record: SessionRecord) -> None:
        """Add or change a session."""
        ...

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """The rows of those event ids that are there."""
        ...

    def insert_rows(self, record: SessionRecord, rows: Sequence[NewRow], edges: Sequence[SpanEdge]) -> None:
        """Add rows and move the head there."""
        ...

    def put_blob(self, name: str, blob: Blob) -> None:
        """Keep binary content under its hash."""
        ...

    def put_document(self, document: Document) -> None:
        """Add or replace a document."""
        ...

    def put_snapshot(self, session_id: str, name: str, seq: int, body: bytes) -> None:
        """Keep a state as of a seq."""
        ...

    def drop_snapshots(self, session_id: str, name: str, first: int, last: int) -> None:
        """Remove the states of a name as of the seqs from `first` to `last`."""
        ...

    def delete_derived(self, session_id: str | None = None) -> None:
        """Remove every document and snapshot, or a session's; they can be made again from the events."""
        ...

    def prune(self, session_id: str, before_ms: int) -> int:
        """Remove the live rows of finished spans older than a time; how many went."""
        ...

    def quarantine(self, damage: Damage) -> None:
        """Take a damaged part out of reading for good."""
        ...


EvictCallback = Callable[["Store", SessionRecord, Sequence[Row]], None]


def ignore_eviction(store: "Store", record: SessionRecord, rows: Sequence[Row]) -> None:
    """Nobody wants to see what goes."""


class StoreReader(Protocol):
    """What anyone may ask, from any thread."""

    @property
    def reader_threads(self) -> int:
        """How many threads may wait for it at a time; 0 for a store that never makes anyone wait."""
        ...

    def info(self, session_id: str) -> SessionRecord | None:
        """Where a session stands."""
        ...

    def sessions(self) -> list[SessionRecord]:
        """All sessions whose record is whole, the oldest first."""
        ...

    def listing(
        self, principal: str | None, after: ListPosition | None, limit: int
    ) -> list[tuple[ListPosition, SessionRecord]]:
        """Return at most so many sessions of a principal after a place, the last active first.

        None lists the sessions of all. The order is exact to `LISTING_STEP_MS`. Reads no other head; raises
        `Damaged` for a record that is not what was written.
        """
        ...

    def invitations(self, principal: str, limit: int) -> list[SessionRecord]:
        """Return at most so many sessions with an open invite of a principal, the last active first.

        Reads no other head; raises `Damaged` as `listing` does.
        """
        ...

    def damaged_sessions(self) -> list[str]:
        """The sessions whose record is not what was written; asking for one tells."""
        ...

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        """Rows after a seq, about `limit_bytes` of them, at least one if there is one; no epoch, no session.

        With an origin, live rows of spans that began after it and have ended are left out.
        """
        ...

    def read_types(self, session_id: str, type_query: TypeQuery) -> Page:
        """Durable rows of some types, about so many bytes; the page says up to which seq it has looked.

        Costs what it gives: rows of other types are not read. Live rows are in no page.
        """
        ...

    def read_frames(
        self, session_id: str, after: int, replay_from: int | None, limit_bytes: int
    ) -> FrameBatch | None:
        """What `read` gives, as it is sent; None if there is nothing."""
        ...

    def has_event(self, session_id: str, seq: int) -> bool:
        """Whether the row of a seq is there."""
        ...

    def oldest_open_turn_start(self, session_id: str, at: int) -> int:
        """The first seq of the oldest turn that was open at a seq, or `at + 1`."""
        ...

    def turn_bounds(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        """Where the agents of a turn begin and end (None while one is open); None if it has none."""
        ...

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        """The sessions in which an agent of a key begins, and where; at most `MAX_SAME_AGENTS`."""
        ...

    def span_end(self, session_id: str, key: str) -> int | None:
        """The seq at which a block, call or agent was closed."""
        ...

    def sessions_with_open_agents(self) -> list[str]:
        """The sessions in which an agent is open."""
        ...

    def blob(self, name: str) -> Blob | None:
        """The content of a hash."""
        ...

    def blob_names(self, session_id: str) -> list[str]:
        """The names of the blobs of a session, in order."""
        ...

    def documents(self, session_id: str | None, type: str | None, category: str | None) -> list[Document]:
        """The documents that match."""
        ...

    def snapshot(self, session_id: str, name: str, at: int) -> tuple[int, bytes] | None:
        """The newest state of a name as of a seq or earlier."""
        ...

    def commit_count(self) -> int:
        """A number that changes when another process has written."""
        ...

    def verify(self) -> Iterable[Damage]:
        """Check everything; what is wrong, session by session."""
        ...

    def damages(self) -> list[Damage]:
        """What is known to be lost."""
        ...

    def close(self) -> None:
        """Let go of every file."""
        ...


class Store(StoreWriter, StoreReader, Protocol):
    """A place where sessions live."""


BLOCK_SPAN_PREFIX, CALL_SPAN_PREFIX, AGENT_SPAN_PREFIX = (
    "block:",
    "call:",
    "agent:",
)  # spans of different kinds may bear the same name
LIVE_EVENT_SPANS: dict[type, tuple[str, str]] = {
    BlockDelta: (BLOCK_SPAN_PREFIX, "block_id"),
    ToolProgress: (CALL_SPAN_PREFIX, "call_id"),
}
SPAN_EDGES: dict[type, tuple[str, str, bool]] = {
    BlockStart: (BLOCK_SPAN_PREFIX, "block_id", True),
    BlockEnd: (BLOCK_SPAN_PREFIX, "block_id", False),
    ToolCall: (CALL_SPAN_PREFIX, "call_id", True),
    ToolResult: (CALL_SPAN_PREFIX, "call_id", False),
    AgentStart: (AGENT_SPAN_PREFIX, "", True),
    AgentEnd: (AGENT_SPAN_PREFIX, "", False),
}


LIVE_TYPES = (BlockDelta.TYPE, ToolProgress.TYPE)


def live_event_span(payload: Payload | UnknownPayload) -> str | None:
    """The span a live event belongs to."""
    inside = LIVE_EVENT_SPANS.get(type(payload))
    return inside[0] + str(getattr(payload, inside[1])) if inside else None


def span_edge(
    payload: Payload | UnknownPayload, agent_id: str | None, trace: str | None, seq: int
) -> SpanEdge | None:
    """The span an event opens or closes."""
    edge = SPAN_EDGES.get(type(payload))
    if edge is None:
        return None
    kind, field, opens = edge
    name = getattr(payload, field) if field else agent_id
    return SpanEdge(kind + str(name), opens, seq, trace, kind is AGENT_SPAN_PREFIX) if name else None


def oldest_open_turn_start(spans: Iterable[tuple[str | None, int, int | None]], at: int) -> int:
    """The first seq of the oldest turn that was open at a seq, from (trace, first, last) of each span.

    A turn is open from its first span to the end of its last one: a hand-off does not close it. A span
    without a trace is a turn of its own.
    """
    turns: dict[str | int, tuple[int, float]] = {}
    for trace, first, last in spans:
        key = first if trace is None else trace
        begin, end = turns.get(key, (first, -1))
        turns[key] = min(begin, first), max(end, first, inf if last is None else last)
    return min([begin for begin, end in turns.values() if begin <= at < end] + [at + 1])


def span_bounds(spans: Sequence[tuple[int, int | None]]) -> tuple[int, int | None] | None:
    """From the first of some spans to the end of the last, None while one is open."""
    if not spans:
        return None
    ends = [last for _, last in spans if last is not None]
    return min(first for first, _ in spans), max(ends) if len(ends) == len(spans) else None
