"""Blobs on their way out of a log and into one, and those that events name and no store has.

A blob is a line of an export, after the events of its session; a large one is several, in order:

    {"type": "blob", "blob": "sess_.../<sha256>", "media_type": "image/png",
     "size_bytes": 9, "data": "<base64>", "offset": 0}

Whoever reads them holds one blob at a time. A blob whose content is not what its name says is refused.
"""

import re
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from turnlog.errors import InvalidEvent
from turnlog.events import decode_envelope
from turnlog.log.log import Log
from turnlog.log.store import Blob, Damage, Row, SessionRecord, envelope_json

MAX_PIECE_BYTES = 768 * 1024  # 1 MiB as base64: far below what a line may have
MAX_BLOB_BYTES = 1_000_000_000  # the most that SQLite takes
BLOB_NAME_PATTERN = r"sess_[A-Za-z0-9_-]{1,64}/[0-9a-f]{64}"
BLOB_URL_PATTERN = re.compile(rf"/?api/blobs/({BLOB_NAME_PATTERN})")
BLOB_URL_PREFIX = b"api/blobs/"

BlobName = Annotated[str, Meta(pattern=f"^{BLOB_NAME_PATTERN}$")]


class BlobLine(msgspec.Struct, tag_field="type", tag="blob", frozen=True):
    """A blob, or the piece of it that begins at `offset`."""

    blob: BlobName
    media_type: Annotated[str, Meta(min_length=1)]
    size_bytes: Annotated[int, Meta(ge=0, le=MAX_BLOB_BYTES)]
    data: bytes
    offset: Annotated[int, Meta(ge=0, le=MAX_BLOB_BYTES)] = 0


class NamedBlob(NamedTuple):
    """A whole blob under the name that it had in the export."""

    name: str
    blob: Blob

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        return self.name.partition("/")[0]


def encode_blob_lines(name: str, blob: Blob) -> Iterator[bytes]:
    """Return a blob as lines, without their line ends."""
    size_bytes = len(blob.data)
    for offset in range(0, max(size_bytes, 1), MAX_PIECE_BYTES):
        data = blob.data[offset : offset + MAX_PIECE_BYTES]
        yield msgspec.json.encode(BlobLine(name, blob.media_type, size_bytes, data, offset))


class BlobReader:
    """Joins the pieces of one blob after the other."""

    def __init__(self) -> None:
        self._first: BlobLine | None = None  # of the blob that is not complete
        self._data = bytearray()

    def feed(self, line: BlobLine, number: int) -> NamedBlob | None:
        """Take the next piece; return the blob when it is complete. Raise `InvalidEvent` for a wrong one."""
        if self._first is None:
            self._first = line
        if (line.blob, line.offset) != (self._first.blob, len(self._data)):
            raise InvalidEvent(f"line {number}: {self._expected_piece()}")
        self._data += line.data
        if len(self._data) < self._first.size_bytes and line.data:
            return None
        return self._complete(number)

    def check_complete(self, number: int) -> None:
        """Raise `InvalidEvent` if a line follows, or the end, while a piece is missing."""
        if self._first is not None:
            raise InvalidEvent(f"line {number}: {self._expected_piece()}")

    def _expected_piece(self) -> str:
        assert self._first is not None
        return f"expected the piece of blob {self._first.blob} that begins at byte {len(self._data)}"

    def _complete(self, number: int) -> NamedBlob:
        first, data = self._first, bytes(self._data)
        assert first is not None
        self._first, self._data = None, bytearray()
        if len(data) != first.size_bytes or sha256(data).hexdigest() != first.blob.rpartition("/")[2]:
            raise InvalidEvent(f"line {number}: the content of blob {first.blob} is not what its name says")
        return NamedBlob(first.blob, Blob(first.media_type, data))


async def find_missing_blobs(log: Log, records: list[SessionRecord]) -> AsyncIterator[Damage]:
    """The events that name a blob of their session which the log does not have."""
    for head in records:
        known: set[str] | None = None  # most sessions name no blob: asked for when one does
        after = head.first - 1
        while page := await log.read(head.session_id, after):
            for row in page:
                for name in find_blob_names(row):
                    if known is None:
                        known = set(await log.blob_names(head.session_id))
                    if name.startswith(f"{head.session_id}/") and name not in known:
                        problem = f"the blob {name.rpartition('/')[2]} is missing"
                        yield Damage(head.session_id, row.seq, row.seq, problem)
            after = page.last


def find_blob_names(row: Row) -> set[str]:
    """The blobs that an event names: a value in its payload is their address, and nothing else."""
    if BLOB_URL_PREFIX not in row.frame:
        return set()
    payload = msgspec.json.decode(decode_envelope(envelope_json(row)).payload)
    return {found[1] for text in iter_strings(payload) if (found := BLOB_URL_PATTERN.fullmatch(text))}


def iter_strings(payload: Any) -> Iterator[str]:
    """Every string that is a value of a JSON tree, whatever its depth."""
    waiting = [payload]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
