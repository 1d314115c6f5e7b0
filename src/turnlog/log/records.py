"""The values that pass through a store: rows, pages, session records, documents, blobs.

A row holds a finished SSE frame, so that replay reads and sends bytes. `meta` repeats what filters and replay
need (durable count, live, depth, trace, channel, type), so that they decode no JSON. Pages build their bytes
and their envelopes once, however many readers share them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, overload

from msgspec import Struct, structs

from turnlog.events import Envelope, Scope
from turnlog.events.envelope import decode_stored_envelope
from turnlog.events.roles import OWNER

LISTING_STEP_MS = 1_000  # a busy session moves in lists at most once per second


class Row(NamedTuple):
    """A stored event: its SSE frame, its `meta` (see `encode_meta`) and a checksum over both.

    `checksums.make_row` computes the checksum.
    """

    seq: int
    meta: bytes
    frame: bytes
    checksum: int

    @property
    def durable_count(self) -> int:
        """Return the number of durable events up to and including this one. A jump means lost events."""
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
        """Return the role whose members alone see the event; None if every member does."""
        return self.meta.split(b"|", 5)[4].decode() or None

    @property
    def type(self) -> str:
        return self.meta.split(b"|", 5)[5].decode()


RawRow = tuple[Any, ...]  # the values of a row as a database returned them: not verified

as_row: Callable[[RawRow], Row] = partial(tuple.__new__, Row)  # cheaper than `Row(...)`


class FrameBatch(NamedTuple):
    """Consecutive rows as they are sent: each frame after its `id:` line."""

    first: int
    last: int
    data: bytes
    epoch: str

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def upto(self) -> int | None:
        """Return None: only pages of some types have it (see `Page`)."""
        return None


class Page(Sequence[Row]):
    """Consecutive rows of one session. Rows are built on access, frames and envelopes once.

    `upto` is the seq up to which the store has searched for a page of some types; None for other pages.
    An empty `epoch` means that there is no such session.
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
        """Return the first seq. Raise IndexError for an empty page."""
        seq: int = self.raw_rows[0][0]
        return seq

    @property
    def last(self) -> int:
        """Return the last seq. Raise IndexError for an empty page."""
        seq: int = self.raw_rows[-1][0]
        return seq

    @property
    def size_bytes(self) -> int:
        return sum(len(row[2]) for row in self.raw_rows)

    def frames(self) -> FrameBatch:
        """Return the page as it is sent. All readers of the page share the bytes."""
        if self._frames is None:
            rows = self.raw_rows
            parts = with_id_lines(self.epoch, [row[0] for row in rows], [row[2] for row in rows])
            self._frames = FrameBatch(self.first, self.last, b"".join(parts), self.epoch)
        return self._frames

    def envelopes(self) -> list[Envelope]:
        """Return the decoded rows. All readers of the page share the list."""
        if self._envelopes is None:
            self._envelopes = [decode_stored_envelope(envelope_json(row)) for row in self]
        return self._envelopes

    def __len__(self) -> int:
        return len(self.raw_rows)

    def __iter__(self) -> Iterator[Row]:
        return map(as_row, self.raw_rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> "Page": ...

    def __getitem__(self, index: int | slice) -> "Row | Page":
        if isinstance(index, slice):
            return Page(self.raw_rows[index], self.epoch)
        return as_row(self.raw_rows[index])


class TypeQuery(NamedTuple):
    """A request for durable rows of some types (`tool` means all of `tool.*`) after a seq."""

    after: int
    types: tuple[str, ...]
    limit_bytes: int


def with_id_lines(epoch: str, seqs: Sequence[int], frames: Sequence[bytes]) -> list[bytes]:
    line = b"id: %%d:%b\n" % epoch.encode()
    parts = [b""] * (2 * len(frames))
    parts[::2] = [line % seq for seq in seqs]
    parts[1::2] = frames
    return parts


def envelope_json(row: Row) -> bytes:
    """Return the envelope of a row as JSON, without the SSE framing."""
    return row.frame[len(b"data: ") : -len(b"\n\n")]


def encode_meta(durable_count: int, live: bool, scope: Scope | Envelope, type: str) -> bytes:
    """Encode the `meta` column of a row. The type is last: it alone may contain the separator."""
    return b"%d|%b" % (durable_count, encode_meta_suffix(live, scope, type))


def encode_meta_suffix(live: bool, scope: Scope | Envelope, type: str) -> bytes:
    """Encode what the events of a type and scope have in common: `meta` without its durable count."""
    return _meta_suffix(live, scope.depth or 0, scope.trace_id, scope.channel, type)


@lru_cache(1024)  # the events of one invocation share few suffixes
def _meta_suffix(live: bool, depth: int, trace: str | None, channel: str | None, type: str) -> bytes:
    return f"{live:d}|{depth}|{trace or ''}|{channel or ''}|{type}".encode()


class NewRow(NamedTuple):
    """A row that is appended. `chain` is its hash chain link, None for live rows.

    `span` is the block or call that a live row belongs to, None for durable rows.
    """

    row: Row
    id: str
    ts_ms: int
    chain: bytes | None
    span: str | None


as_new_row: Callable[[tuple[Any, ...]], NewRow] = partial(tuple.__new__, NewRow)  # see `as_row`


class OpenInvite(Struct, frozen=True, omit_defaults=True):
    """An invite (`session.invite`) that was not used, declined, revoked or found expired yet."""

    roles: tuple[str, ...]
    by: str
    expires_ms: int
    principal: str | None = None
    as_operator: bool = False
    name: str | None = None


class SessionRecord(Struct, frozen=True, gc=False):
    """The position of a session in the log, and its properties as its events define them.

    `append.RECORD_REDUCERS` lists the events that change title, members, creator, invites and closed.
    Live rows up to `pruned_through` may be gone. `revision` counts changes of the record. `members_seq` is
    the last event that changed members or invites. `activity` maps each channel, and "" for events in no
    channel, to the time of its last event. It is empty until an event is in a channel: `updated_ms` has the
    same information until then.
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
        """Return the time of the last event that a principal may see; None sees everything.

        A member sees the channels named like its roles. An owner sees every channel.
        """
        roles = (OWNER,) if principal is None else self.members.get(principal, ())
        if OWNER in roles or not self.activity:
            return self.updated_ms or self.created_ms
        return max(self.activity.get(channel, 0) for channel in ("", *roles))

    def is_listed_as(self, before: "SessionRecord") -> bool:
        """Return True if list entries written for `before` are exact enough for this record."""
        if self.members_seq != before.members_seq or self.members != before.members:
            return False
        return 0 <= self.updated_ms - before.updated_ms < LISTING_STEP_MS

    @property
    def invited_principals(self) -> frozenset[str]:
        return frozenset(invite.principal for invite in self.invites.values() if invite.principal is not None)

    @property
    def is_erased(self) -> bool:
        """Return whether all events were removed for good (`jobs.EraseSession`)."""
        return self.closed and 0 <= self.last < self.first

    def erase(self) -> "SessionRecord":
        """Return the record without events. It keeps its position, so that no seq is used again."""
        return self.replace(
            first=self.last + 1,
            pruned_through=self.last,
            revision=self.revision + 1,
            title="",
            members={},
            creator="",
            invites={},
            members_seq=self.last,
            closed=True,
        )

    def replace(self, **changes: object) -> "SessionRecord":
        return structs.replace(self, **changes)


class ListPosition(NamedTuple):
    """The sort key of a session in a list; lists are sorted by it, the largest first."""

    active_ms: int
    session_id: str


class News(NamedTuple):
    """What is new in a session: its record, and rows without a gap; none if they have to be read alone."""

    record: SessionRecord
    rows: Sequence[Row]


class Damage(NamedTuple):
    """A lost part of a session and the reason. Seqs of -1 mean the session's record, or the whole log."""

    session_id: str
    first: int
    last: int
    problem: str


class Document(NamedTuple):
    """A document derived from events: stable id, queried by type and category.

    `version` is that of the code that derived it.
    """

    session_id: str
    id: str
    type: str
    category: str
    body: bytes
    version: str = ""


class BlobInfo(NamedTuple):
    """What is known of a public blob without its content."""

    media_type: str
    size_bytes: int


class Blob(NamedTuple):
    """Binary content. A private blob is for the runtime that stored it: no member of its session gets it."""

    media_type: str
    data: bytes
    is_private: bool = False
