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
    Unknown,
    decode,
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
    def rank(self) -> int:
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


Stored = tuple[Any, ...]  # the values of a row, if they are what was written

_row: Callable[[Stored], Row] = partial(tuple.__new__, Row)


class Ready(NamedTuple):
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

    __slots__ = ("_envelopes", "_ready", "epoch", "stored", "upto")

    def __init__(self, stored: Sequence[Stored] = (), epoch: str = "", upto: int | None = None) -> None:
        self.stored = stored
        self.epoch = epoch
        self.upto = upto
        self._ready: Ready | None = None
        self._envelopes: list[Envelope] | None = None

    @property
    def first(self) -> int:
        """The first seq, of a page that has one."""
        seq: int = self.stored[0][0]
        return seq

    @property
    def last(self) -> int:
        """The last seq, of a page that has one."""
        seq: int = self.stored[-1][0]
        return seq

    @property
    def size_bytes(self) -> int:
        """What its frames take."""
        return sum(len(row[2]) for row in self.stored)

    def ready(self) -> Ready:
        """The page as it is sent. All who send this page share the bytes."""
        if self._ready is None:
            rows = self.stored
            parts = framed(self.epoch, [row[0] for row in rows], [row[2] for row in rows])
            self._ready = Ready(self.first, self.last, b"".join(parts), self.epoch)
        return self._ready

    def envelopes(self) -> list[Envelope]:
        """The rows, read; all who follow this page share them."""
        if self._envelopes is None:
            self._envelopes = [decode(line_of(row)) for row in self]
        return self._envelopes

    def __len__(self) -> int:
        return len(self.stored)

    def __iter__(self) -> Iterator[Row]:
        return map(_row, self.stored)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> "Page": ...

    def __getitem__(self, place: int | slice) -> "Row | Page":
        return Page(self.stored[place], self.epoch) if isinstance(place, slice) else _row(self.stored[place])


class Typed(NamedTuple):
    """A question for rows of some durable types, or first words of them, after a seq."""

    after: int
    types: tuple[str, ...]
    limit_bytes: int


def framed(epoch: str, seqs: Sequence[int], frames: Sequence[bytes]) -> list[bytes]:
    """Frames with their `id:` lines, to be joined."""
    line = b"id: %b:%%d\n" % epoch.encode()
    parts = [b""] * (2 * len(frames))
    parts[::2] = [line % seq for seq in seqs]
    parts[1::2] = frames
    return parts


def line_of(row: Row) -> bytes:
    """The envelope of a row, as JSON."""
    return row.frame[len(b"data: ") : -len(b"\n\n")]


def pack(rank: int, live: bool, place: Scope | Envelope, type: str) -> bytes:
    """What stands beside a frame. The type is last: it alone may hold the separator."""
    return b"%d|%b" % (rank, _beside(live, place.depth or 0, place.trace_id, place.channel, type))


@lru_cache(1024)  # events come many to an invocation
def _beside(live: bool, depth: int, trace: str | None, channel: str | None, type: str) -> bytes:
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


class Head(Struct, frozen=True):
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
    rank: int = 0
    chain: bytes = b""
    fence: int = 0
    pruned: int = -1
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

    def is_listed_as(self, before: "Head") -> bool:
        """Whether lists that were written for the session as it was are near enough."""
        same = self.members_seq == before.members_seq and self.members == before.members
        return same and 0 <= self.updated_ms - before.updated_ms < LISTING_STEP_MS

    @property
    def invited(self) -> frozenset[str]:
        """Those whom an open invite is addressed to."""
        return frozenset(one.principal for one in self.invites.values() if one.principal is not None)

    def moved(self, **changes: object) -> "Head":
        """The same session after a change."""
        return structs.replace(self, **changes)


class Place(NamedTuple):
    """Where a session is in a list: the list is in the order of these, the largest first."""

    active_ms: int
    session_id: str


class SpanMark(NamedTuple):
    """A span of the log opens or closes at a seq: a block, a call, an agent."""

    key: str
    opens: bool
    seq: int
    trace: str | None
    agent: bool


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

    last_sight: "Sight"

    @property
    def group(self) -> int:
        """How much work may share a transaction; 1 for a store that cannot take half of it back."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside is durable when it ends, or nothing is."""
        ...

    def head(self, session_id: str) -> Head | None:
        """Where a session stands, the transaction's own changes included."""
        ...

    def put_head(self, head: Head) -> None:
        """Add or change a session."""
        ...

    def find(self, session_id: str, event_ids: Sequence[str]) -> dict[str, Row]:
        """The rows of those event ids that are there."""
        ...

    def put(self, head: Head, rows: Sequence[NewRow], marks: Sequence[SpanMark]) -> None:
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

    def forget_derived(self, session_id: str | None = None) -> None:
        """Remove every document and snapshot, or a session's; they can be made again from the events."""
        ...

    def prune(self, session_id: str, before_ms: int) -> int:
        """Remove the live rows of finished spans older than a time; how many went."""
        ...

    def quarantine(self, damage: Damage) -> None:
        """Take a damaged part out of reading for good."""
        ...


Sight = Callable[["Store", Head, Sequence[Row]], None]


def unseen(store: "Store", head: Head, rows: Sequence[Row]) -> None:
    """Nobody wants to see what goes."""


class StoreReader(Protocol):
    """What anyone may ask, from any thread."""

    @property
    def readers(self) -> int:
        """How many threads may wait for it at a time; 0 for a store that never makes anyone wait."""
        ...

    def info(self, session_id: str) -> Head | None:
        """Where a session stands."""
        ...

    def sessions(self) -> list[Head]:
        """All sessions whose record is whole, the oldest first."""
        ...

    def listing(self, principal: str | None, after: Place | None, limit: int) -> list[tuple[Place, Head]]:
        """Return at most so many sessions of a principal after a place, the last active first.

        None lists the sessions of all. The order is exact to `LISTING_STEP_MS`. Reads no other head; raises
        `Damaged` for a record that is not what was written.
        """
        ...

    def invitations(self, principal: str, limit: int) -> list[Head]:
        """Return at most so many sessions with an open invite of a principal, the last active first.

        Reads no other head; raises `Damaged` as `listing` does.
        """
        ...

    def broken(self) -> list[str]:
        """The sessions whose record is not what was written; asking for one tells."""
        ...

    def read(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Page:
        """Rows after a seq, about `limit_bytes` of them, at least one if there is one; no epoch, no session.

        With an origin, live rows of spans that began after it and have ended are left out.
        """
        ...

    def read_types(self, session_id: str, asked: Typed) -> Page:
        """Durable rows of some types, about so many bytes; the page says up to which seq it has looked.

        Costs what it gives: rows of other types are not read. Live rows are in no page.
        """
        ...

    def ready(self, session_id: str, after: int, origin: int | None, limit_bytes: int) -> Ready | None:
        """What `read` gives, as it is sent; None if there is nothing."""
        ...

    def holds(self, session_id: str, seq: int) -> bool:
        """Whether the row of a seq is there."""
        ...

    def turn_start(self, session_id: str, at: int) -> int:
        """The first seq of the oldest turn that was open at a seq, or `at + 1`."""
        ...

    def turn(self, session_id: str, trace: str) -> tuple[int, int | None] | None:
        """Where the agents of a turn begin and end (None while one is open); None if it has none."""
        ...

    def agent_starts(self, key: str) -> list[tuple[str, int]]:
        """The sessions in which an agent of a key begins, and where; at most `MAX_SAME_AGENTS`."""
        ...

    def span_end(self, session_id: str, key: str) -> int | None:
        """The seq at which a block, call or agent was closed."""
        ...

    def unfinished(self) -> list[str]:
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

    def counter(self) -> int:
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


BLOCK, CALL, AGENT = "block:", "call:", "agent:"  # spans of different kinds may bear the same name
INSIDE: dict[type, tuple[str, str]] = {BlockDelta: (BLOCK, "block_id"), ToolProgress: (CALL, "call_id")}
EDGES: dict[type, tuple[str, str, bool]] = {
    BlockStart: (BLOCK, "block_id", True),
    BlockEnd: (BLOCK, "block_id", False),
    ToolCall: (CALL, "call_id", True),
    ToolResult: (CALL, "call_id", False),
    AgentStart: (AGENT, "", True),
    AgentEnd: (AGENT, "", False),
}


LIVE_TYPES = (BlockDelta.TYPE, ToolProgress.TYPE)


def span_of(payload: Payload | Unknown) -> str | None:
    """The span a live event belongs to."""
    inside = INSIDE.get(type(payload))
    return inside[0] + str(getattr(payload, inside[1])) if inside else None


def span_mark(
    payload: Payload | Unknown, agent_id: str | None, trace: str | None, seq: int
) -> SpanMark | None:
    """The span an event opens or closes."""
    edge = EDGES.get(type(payload))
    if edge is None:
        return None
    kind, field, opens = edge
    name = getattr(payload, field) if field else agent_id
    return SpanMark(kind + str(name), opens, seq, trace, kind is AGENT) if name else None


def oldest_open(spans: Iterable[tuple[str | None, int, int | None]], at: int) -> int:
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


def extent(spans: Sequence[tuple[int, int | None]]) -> tuple[int, int | None] | None:
    """From the first of some spans to the end of the last, None while one is open."""
    if not spans:
        return None
    ends = [last for _, last in spans if last is not None]
    return min(first for first, _ in spans), max(ends) if len(ends) == len(spans) else None
