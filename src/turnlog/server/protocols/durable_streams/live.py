"""Live reads as Server-Sent Events: each batch of new data is encoded once for all readers of a stream."""

from functools import partial
from random import randint
from weakref import WeakValueDictionary

from turnlog.ids import now_ms
from turnlog.log import Log, Page
from turnlog.log.subscription import Drain, FrameSink
from turnlog.server.limits.read_cost import ReadMeter
from turnlog.server.protocols.durable_streams.open_stream import OpenStream
from turnlog.server.protocols.durable_streams.reading import ContentPage, Readable, read_contents
from turnlog.wire.dialects.framing import COMMENT_FRAME, Framing, encode_no_retry
from turnlog.wire.durable_streams.framing import (
    MAX_JITTER_INTERVALS,
    Control,
    encode_control_event,
    encode_data_event,
    join_contents,
    next_cursor,
)

INHERITED_PAGE_BYTES = 64 * 1024
STREAM_FRAMING = Framing(
    headers=(
        (b"content-type", b"text/event-stream"),  # clients of the protocol compare the whole value
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ),
    encode_opening=encode_no_retry,
    heartbeat=COMMENT_FRAME,
    end=b"",
)

EncoderKey = tuple[str, str, frozenset[str] | None]  # session, epoch, visible channels


class StreamEnded(Exception):
    """The last data of a stream: the reader gets it, and its connection ends."""

    def __init__(self, data: bytes) -> None:
        super().__init__("the stream has ended")
        self.data = data


class LiveEncoder:
    """Encodes pages of a stream's own session. Readers at its end share the bytes of the last page."""

    def __init__(self, readable: Readable, cursor: int | None) -> None:
        """`cursor` is that of one client, which must get a later one; None for readers who share this."""
        self._readable = readable
        self._cursor = cursor
        self.tail = readable.tail
        self._last_key: tuple[int, int, bool] | None = None
        self._last_data: bytes | StreamEnded = b""

    def encode_page(self, page: Page, is_last: bool) -> bytes:
        """Return a page as it is sent. Raise `StreamEnded` if nothing follows it."""
        key = (page.first, page.last, is_last)
        if key != self._last_key:
            self._last_data = self._encode(page, is_last)
            self._last_key = key
        if isinstance(self._last_data, StreamEnded):
            raise self._last_data
        return self._last_data

    def _encode(self, page: Page, is_last: bool) -> bytes | StreamEnded:
        readable = self._readable
        contents: list[bytes] = []
        position = 0
        for row in page:
            stored = readable.decode(row)
            if stored.content is not None:
                contents.append(stored.content)
            if stored.content is not None or readable.counts_all:
                position = readable.base + row.seq + 1
            if stored.is_deleted:
                return StreamEnded(self.encode_contents(ContentPage(contents, position), False, False))
            if stored.ends:
                # A close without content leaves the offset where it is: after the last append before it.
                self.tail = max(self.tail, position)
                return StreamEnded(self.encode_contents(ContentPage(contents, self.tail), True, True))
        self.tail = max(self.tail, position)
        return self.encode_contents(ContentPage(contents, position), is_last, False)

    def encode_contents(self, page: ContentPage, is_up_to_date: bool, is_closed: bool) -> bytes:
        """Return a `data` event, if there is data, and a `control` event."""
        if not page.contents and not is_closed:
            return b""
        return self._encode_data(page) + self.encode_control(page.position, is_up_to_date, is_closed)

    def _encode_data(self, page: ContentPage) -> bytes:
        if not page.contents:
            return b""
        body = join_contents(page.contents, self._readable.format)
        return encode_data_event(body, self._readable.format, self._readable.offset_at(page.position))

    def encode_control(self, position: int, is_up_to_date: bool, is_closed: bool) -> bytes:
        offset = self._readable.offset_at(position)
        if is_closed:
            return encode_control_event(Control(offset, stream_closed=True))
        cursor = str(make_cursor(self._cursor))
        return encode_control_event(Control(offset, cursor, up_to_date=is_up_to_date))


class LiveEncoders:
    """The encoders that readers share. One without readers is dropped."""

    def __init__(self) -> None:
        self._encoders: WeakValueDictionary[EncoderKey, LiveEncoder] = WeakValueDictionary()

    def get(self, readable: Readable, channels: frozenset[str] | None, cursor: int | None) -> LiveEncoder:
        if cursor is not None and make_cursor(None) <= cursor:
            return LiveEncoder(readable, cursor)
        # A view remembers what one reader has read.
        if readable.view is not None:
            return LiveEncoder(readable, None)
        key = (readable.session_id, readable.epoch, channels)
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = LiveEncoder(readable, None)
            self._encoders[key] = encoder
        encoder.tail = max(encoder.tail, readable.tail)
        return encoder


class LiveSource:
    """A stream after a position: first what it inherits, then its own events as they are appended."""

    def __init__(
        self,
        log: Log,
        readable: Readable,
        encoder: LiveEncoder,
        position: int,
        meter: ReadMeter,
        heartbeat_s: float,
        stream: OpenStream | None,
    ) -> None:
        """`stream` is touched while it is read; None for an ordinary session."""
        self._log = log
        self._readable = readable
        self._encoder = encoder
        self._position = position
        self._meter = meter
        self._heartbeat_s = heartbeat_s
        self._stream = stream

    async def deliver(self, sink: FrameSink) -> None:
        try:
            await self._send_inherited(sink)
            await self._send_own(sink)
        except StreamEnded as end:
            if end.data:
                await write(sink, end.data)

    async def _send_inherited(self, sink: FrameSink) -> None:
        """Send what comes before the session's own events, and the position of a reader at the end."""
        readable = self._readable
        while self._position < min(readable.base, readable.tail):
            page = await read_contents(
                self._log, readable._replace(last=-1), self._position, INHERITED_PAGE_BYTES
            )
            is_up_to_date = page.position >= readable.tail
            is_closed = is_up_to_date and readable.is_closed
            data = self._encoder.encode_contents(page, is_up_to_date, is_closed)
            if is_closed:
                raise StreamEnded(data)
            self._position = page.position
            if data:
                await self._meter.charge_and_wait(len(data))
                await write(sink, data)

        if self._position >= readable.tail:
            data = self._encoder.encode_control(self._position, True, readable.is_closed)
            if readable.is_closed:
                raise StreamEnded(data)
            await write(sink, data)

    async def _send_own(self, sink: FrameSink) -> None:
        readable = self._readable
        after = max(self._position - readable.base, 0) - 1
        if self._position >= readable.tail:
            after = readable.last  # what follows the last append is not sent
        await self._log.push_pages(
            readable.session_id,
            partial(self._send, sink),
            self._encoder.encode_page,
            after,
            idle_s=self._heartbeat_s,
            epoch=readable.epoch,
            charge_bytes=self._meter.charge_and_wait,
        )

    def _send(self, sink: FrameSink, data: bytes) -> Drain | None:
        if not data and self._stream is not None and self._stream.state.ttl_s is not None:
            return partial(self._touch_and_beat, sink, self._stream)
        return sink(data)

    async def _touch_and_beat(self, sink: FrameSink, stream: OpenStream) -> None:
        await stream.touch()
        await write(sink, b"")


async def write(sink: FrameSink, data: bytes) -> None:
    drain = sink(data)
    if drain is not None:
        await drain()


def make_cursor(client_cursor: int | None) -> int:
    return next_cursor(client_cursor, now_ms(), randint(1, MAX_JITTER_INTERVALS))
