"""Blobs in an export, and a search for blobs that events refer to and the log does not have.

A blob is one line of an export, after the events of its session; a large one is several lines, in order:

    {"type": "blob", "blob": "sess_.../<sha256>", "media_type": "image/png",
     "size_bytes": 9, "data": "<base64>", "offset": 0}

A reader holds one blob in memory at a time. A blob whose content does not match its name is refused. The name
of a private blob says nothing about its content, so its lines have the hash (`sha256`) too.
"""

from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from turnlog.errors import InvalidEvent
from turnlog.events import decode_envelope
from turnlog.events.blob_addresses import BLOB_NAME_PATTERN, BLOB_URL_PREFIX, find_blob_names
from turnlog.ids import PRIVATE_BLOB_PREFIX
from turnlog.log.log import Log
from turnlog.log.records import Blob, Damage, Row, SessionRecord, envelope_json

MAX_PIECE_BYTES = 768 * 1024  # 1 MiB as base64: far below the limit of a line
MAX_BLOB_BYTES = 1_000_000_000  # the limit of SQLite
PRIVATE_NAME_PATTERN = rf"sess_[A-Za-z0-9_-]{{1,64}}/{PRIVATE_BLOB_PREFIX}[0-9a-f]{{32}}"
ADDRESS_PREFIX = BLOB_URL_PREFIX.encode()

BlobName = Annotated[str, Meta(pattern=f"^({BLOB_NAME_PATTERN}|{PRIVATE_NAME_PATTERN})$")]


class BlobLine(msgspec.Struct, tag_field="type", tag="blob", frozen=True):
    """A blob, or a piece of it that begins at `offset`. `sha256` is that of a whole private blob."""

    blob: BlobName
    media_type: Annotated[str, Meta(min_length=1)]
    size_bytes: Annotated[int, Meta(ge=0, le=MAX_BLOB_BYTES)]
    data: bytes
    offset: Annotated[int, Meta(ge=0, le=MAX_BLOB_BYTES)] = 0
    sha256: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_private(self) -> bool:
        return self.local_name.startswith(PRIVATE_BLOB_PREFIX)

    @property
    def local_name(self) -> str:
        return self.blob.rpartition("/")[2]


class NamedBlob(NamedTuple):
    """A complete blob with its name in the export."""

    name: str
    blob: Blob


def encode_blob_lines(name: str, blob: Blob) -> Iterator[bytes]:
    size_bytes = len(blob.data)
    digest = sha256(blob.data).hexdigest() if blob.is_private else msgspec.UNSET
    for offset in range(0, max(size_bytes, 1), MAX_PIECE_BYTES):
        data = blob.data[offset : offset + MAX_PIECE_BYTES]
        yield msgspec.json.encode(BlobLine(name, blob.media_type, size_bytes, data, offset, digest))


class BlobReader:
    """Joins the pieces of one blob after the other."""

    def __init__(self) -> None:
        self._first: BlobLine | None = None  # the first piece of the blob that is incomplete
        self._data = bytearray()

    def feed(self, line: BlobLine, number: int) -> NamedBlob | None:
        """Add a piece. Return the blob once it is complete. Raise `InvalidEvent` for a wrong piece."""
        if self._first is None:
            self._first = line
        if line.blob != self._first.blob or line.offset != len(self._data):
            raise InvalidEvent(f"line {number}: {self._expected_piece()}")

        self._data += line.data
        if len(self._data) < self._first.size_bytes and line.data:
            return None
        return self._complete(number)

    def check_complete(self, number: int) -> None:
        if self._first is not None:
            raise InvalidEvent(f"line {number}: {self._expected_piece()}")

    def _expected_piece(self) -> str:
        assert self._first is not None
        return f"expected the piece of blob {self._first.blob} that begins at byte {len(self._data)}"

    def _complete(self, number: int) -> NamedBlob:
        first = self._first
        assert first is not None
        data = bytes(self._data)
        self._first = None
        self._data = bytearray()
        expected = first.sha256 if first.is_private else first.local_name
        if len(data) != first.size_bytes or sha256(data).hexdigest() != expected:
            raise InvalidEvent(f"line {number}: the content of blob {first.blob} does not match its hash")
        return NamedBlob(first.blob, Blob(first.media_type, data, first.is_private))


async def find_missing_blobs(log: Log, records: list[SessionRecord]) -> AsyncIterator[Damage]:
    for record in records:
        session_id = record.session_id
        blob_names: set[str] | None = None  # loaded on demand: most sessions refer to no blob
        after = record.first - 1
        while page := await log.read(session_id, after):
            for row in page:
                for name in find_row_blobs(row):
                    if blob_names is None:
                        blob_names = set(await log.blob_names(session_id))
                    if name.startswith(f"{session_id}/") and name not in blob_names:
                        problem = f"the blob {name.rpartition('/')[2]} is missing"
                        yield Damage(session_id, row.seq, row.seq, problem)
            after = page.last


def find_row_blobs(row: Row) -> set[str]:
    if ADDRESS_PREFIX not in row.frame:
        return set()
    return find_blob_names(msgspec.json.decode(decode_envelope(envelope_json(row)).payload))
