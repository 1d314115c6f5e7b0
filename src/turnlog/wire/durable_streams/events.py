"""The vocabulary `stream`: what happens to a stream of the Durable Streams protocol.

A stream is a session. Its first event is `stream.create`. Each request that appends is one `stream.append`,
so its messages are stored all or none, together with the sequence number of the producer that sent them. The
server alone emits these events.
"""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from turnlog.events import Payload, Record, Vocabulary
from turnlog.events.payload import SYSTEM_ORIGINS, Count, Origins, SessionId

STREAM_APP = "durable-streams"  # of the sessions of streams; no application of this name is served
MAX_PATH_CHARS = 1024
MAX_CONTENT_TYPE_CHARS = 256
MAX_PRODUCER_ID_CHARS = 256
MAX_WRITER_SEQ_CHARS = 256

StreamPath = Annotated[str, Meta(min_length=1, max_length=MAX_PATH_CHARS)]
WriterSeq = Annotated[str, Meta(max_length=MAX_WRITER_SEQ_CHARS)]
ContentType = Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT_TYPE_CHARS)]


class Producer(Record, frozen=True, kw_only=True):
    """The sender of a request: its id, the epoch of its process, the number of the request in the epoch."""

    id: Annotated[str, Meta(min_length=1, max_length=MAX_PRODUCER_ID_CHARS)]
    epoch: Count
    seq: Count


class InheritedPart(Record, frozen=True, kw_only=True):
    """The part of another session that a fork begins with: its events up to the position `until`.

    The position after an event is `base` + seq + 1.
    """

    session_id: SessionId
    epoch: str
    base: Count
    until: Count


class ForkSource(Record, frozen=True, kw_only=True):
    """The stream that a fork was taken from, and the place that the request named."""

    path: StreamPath
    position: Count
    sub_offset: Count = 0


class StreamCreate(Payload, frozen=True, kw_only=True):
    """A client created a stream."""

    TYPE: ClassVar = "stream.create"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"path": "chat/1", "content_type": "application/json", "ttl_s": 3600}

    path: StreamPath
    content_type: ContentType
    ttl_s: Annotated[Count | None, Meta(description="The stream ends this long after its last use.")] = None
    expires_at: Annotated[str | None, Meta(description="RFC 3339, as the client wrote it.")] = None
    fork: ForkSource | None = None
    inherits: Annotated[
        tuple[InheritedPart, ...], Meta(description="What a fork begins with, the oldest part first.")
    ] = ()


class StreamAppend(Payload, frozen=True, kw_only=True):
    """A client appended JSON messages, or bytes."""

    TYPE: ClassVar = "stream.append"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"messages": [{"text": "Hello"}], "producer": {"id": "worker", "epoch": 0, "seq": 4}}

    messages: Annotated[tuple[Any, ...], Meta(description="Of a stream of JSON.")] = ()
    data: Annotated[bytes, Meta(description="Of a stream of another content type.")] = b""
    producer: Producer | None = None
    writer_seq: Annotated[WriterSeq | None, Meta(description="Must be greater than the one before.")] = None
    closes: Annotated[bool, Meta(description="Nothing can be appended after it.")] = False


class StreamClose(Payload, frozen=True, kw_only=True):
    """A client closed a stream. It can still be read."""

    TYPE: ClassVar = "stream.close"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"producer": {"id": "worker", "epoch": 0, "seq": 5}}

    producer: Producer | None = None


class StreamTouch(Payload, frozen=True, kw_only=True):
    """A client used a stream that ends some time after its last use. Not every use is recorded."""

    TYPE: ClassVar = "stream.touch"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS


class StreamFork(Payload, frozen=True, kw_only=True):
    """A fork of the stream is about to be created. Its session exists unless that failed."""

    TYPE: ClassVar = "stream.fork"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {"session_id": "sess_1"}

    session_id: SessionId


class StreamDelete(Payload, frozen=True, kw_only=True):
    """A client deleted a stream. Its events are erased, and its path is free, when no fork of it is left."""

    TYPE: ClassVar = "stream.delete"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS


STREAM = Vocabulary(
    "stream", [StreamCreate, StreamAppend, StreamClose, StreamTouch, StreamFork, StreamDelete]
)
