"""Read a stream, or any session of ours, after an offset: pages, and a wait for new data.

A `Readable` describes both. A fork is read from the sessions that it inherits from, then from its own. Every
event of an ordinary session that its member may see is one JSON message.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from turnlog.app import Membership
from turnlog.app.visible_rows import RowView, open_row_view
from turnlog.log import Log, Row, envelope_json
from turnlog.log.filter import EventFilter
from turnlog.server.protocols.durable_streams.open_stream import OpenStream
from turnlog.server.streaming.query import CursorGone
from turnlog.wire.durable_streams.events import InheritedPart
from turnlog.wire.durable_streams.framing import (
    NO_CONTENT,
    StoredContent,
    StreamFormat,
    decode_content,
    format_of,
)
from turnlog.wire.durable_streams.offsets import ANY_TAG, NOW, Offset, format_offset, tag_epoch
from turnlog.wire.durable_streams.requests import JSON_TYPE
from turnlog.wire.durable_streams.state import StreamState

RowDecoder = Callable[[Row], StoredContent]


class Readable(NamedTuple):
    """What can be read as a stream: a session, the parts of others before it, and how its rows are read.

    `first` and `last` are the seqs of the session's own events. `counts_all` is whether events without
    content move the offset, too. `view` is that of a member who does not see everything: it belongs to one
    reader, and must be primed.
    """

    session_id: str
    epoch: str
    content_type: str
    format: StreamFormat
    inherits: tuple[InheritedPart, ...]
    base: int
    first: int
    last: int
    tail: int
    is_closed: bool
    decode: RowDecoder
    offset_at: Callable[[int], str]
    counts_all: bool = False
    view: RowView | None = None

    @property
    def parts(self) -> tuple[InheritedPart, ...]:
        """Return all parts. The session's own one ends after its last event."""
        until = max(self.base + self.last + 1, self.base)
        own = InheritedPart(session_id=self.session_id, epoch=self.epoch, base=self.base, until=until)
        return (*self.inherits, own)

    def resolve(self, offset: Offset) -> int:
        """Return the position of an offset. Raise `CursorGone` if it is none of this history."""
        if offset == NOW:
            return self.tail
        position = offset.position
        if position == 0:
            return 0
        if position > self.tail or self.offset_at(position) != format_offset(position, offset.tag):
            raise CursorGone("the offset is not one of this stream's history, read it from its start")
        if self.base < position < self.base + self.first:
            raise CursorGone("what follows the offset was removed, read the stream from its start")
        return position


class ContentPage(NamedTuple):
    """Contents of consecutive appends, and the position after them."""

    contents: list[bytes]
    position: int


def make_readable_stream(stream: OpenStream) -> Readable:
    state: StreamState = stream.state
    record = stream.record
    stream_format = format_of(state.content_type)
    return Readable(
        session_id=stream.session_id,
        epoch=record.epoch,
        content_type=state.content_type,
        format=stream_format,
        inherits=state.inherits,
        base=state.base,
        first=record.first,
        last=state.last,
        tail=state.tail,
        is_closed=state.is_closed,
        decode=partial(decode_stream_row, stream_format),
        offset_at=partial(offset_in_stream, state, record.epoch),
    )


def make_readable_session(membership: Membership) -> Readable:
    record = membership.record
    event_filter = EventFilter(channels=membership.visible_channels)
    view = open_row_view(membership)
    return Readable(
        session_id=record.session_id,
        epoch=record.epoch,
        content_type=JSON_TYPE,
        format=StreamFormat.JSON,
        inherits=(),
        base=0,
        first=record.first,
        last=record.last,
        tail=record.last + 1,
        is_closed=record.closed,
        decode=partial(decode_session_row, event_filter, view),
        offset_at=partial(offset_in_session, tag_epoch(record.epoch)),
        counts_all=True,
        view=view,
    )


def offset_in_stream(state: StreamState, epoch: str, position: int) -> str:
    return state.offset_at(position, epoch)


def offset_in_session(tag: int, position: int) -> str:
    return format_offset(position, tag if position else ANY_TAG)


def decode_stream_row(stream_format: StreamFormat, row: Row) -> StoredContent:
    return decode_content(row.type, envelope_json(row), stream_format)


def decode_session_row(event_filter: EventFilter, view: RowView | None, row: Row) -> StoredContent:
    visible_row = row if view is None else view.project_row(row)
    if visible_row is None or not event_filter.matches(row):
        return NO_CONTENT
    return StoredContent(envelope_json(visible_row))


async def read_contents(log: Log, readable: Readable, position: int, max_bytes: int) -> ContentPage:
    """Return what follows a position: about `max_bytes`, at least one content unless there is none."""
    contents: list[bytes] = []
    left_bytes = max_bytes
    may_begin_later = readable.counts_all or position == 0  # the start is the oldest event that is stored
    for part in readable.parts:
        while position < part.until and left_bytes > 0:
            after = max(position - part.base, 0) - 1
            page = await log.read(part.session_id, after, max_bytes=left_bytes)
            has_gap = bool(page) and page.first > after + 1 and not may_begin_later
            if page.epoch != part.epoch or has_gap:
                raise CursorGone("a part of the stream was lost, read it from its start")
            may_begin_later = readable.counts_all

            rows = [row for row in page if part.base + row.seq < part.until]
            for row in rows:
                content = readable.decode(row).content
                if content is not None:
                    contents.append(content)
                    left_bytes -= len(content)
                position = part.base + row.seq + 1
                if left_bytes <= 0:
                    break
            if not rows and part.session_id != readable.session_id:
                raise CursorGone("what the stream inherits was lost")
            if not rows:
                position = part.until
    return ContentPage(contents, settle_position(readable, position))


def settle_position(readable: Readable, position: int) -> int:
    """Return the position that a reader is told: not beyond the last append of a stream."""
    return position if readable.counts_all else min(position, readable.tail)


async def wait_for_content(log: Log, readable: Readable, timeout_s: float) -> None:
    """Wait until an event with content, or one that ends the stream, follows; at most `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            pages = log.follow(readable.session_id, readable.last, epoch=readable.epoch)
            async with aclosing(pages):
                async for page in pages:
                    stored = [readable.decode(row) for row in page]
                    if any(item.content is not None or item.ends for item in stored):
                        return
    except TimeoutError:
        return
