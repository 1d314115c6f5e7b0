"""One turn as a stream that ends (protocol section 8).

The stream has the events of that turn after any cursor. It ends when the turn has ended or all its agents
wait; its last message has no id. A reader that disconnects stops nothing. The log is read
from the first event of the turn, because a dialect has to know what is open in it.
"""

import asyncio
import math
from contextlib import aclosing

from turnlog.app import Membership, Sessions
from turnlog.app.visible_rows import open_row_view
from turnlog.events import decode_envelope
from turnlog.ids import now_ms
from turnlog.log import Log, Page, Row, SessionRecord, envelope_json
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.server.streaming.blob_images import BlobImages
from turnlog.server.streaming.frames import FramePosition, Frames, last_cursor, position_of
from turnlog.server.streaming.projection import LARGE_FRAME_BYTES
from turnlog.server.streaming.query import last_complete_seq
from turnlog.server.streaming.viewed_dialect import ViewedDialect
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect, no_history
from turnlog.wire.dialects.framing import NATIVE_FRAMING, HeartbeatEncoder
from turnlog.wire.dialects.registry import DialectRequest, DialectWithHistory


class TurnResponse:
    """The frames of one turn. `start_seq` is at or before the turn's first agent."""

    def __init__(
        self,
        sessions: Sessions,
        membership: Membership,
        record: SessionRecord,
        trace: str,
        start_seq: int,
        heartbeat_s: float,
        event_filter: EventFilter = MATCH_ALL,
    ) -> None:
        self._sessions = sessions
        self._membership = membership
        self._record = record
        self._trace = trace
        self._start_seq = start_seq
        self._heartbeat_s = heartbeat_s
        self._event_filter = event_filter._replace(turn=trace, channels=membership.visible_channels)
        self._view = open_row_view(membership)  # of readers without a dialect
        self._dialect: Dialect | None = None  # None: the envelopes themselves
        self._framing = NATIVE_FRAMING
        self._images: BlobImages | None = None
        self.tree = Tree()

    async def stream_frames(
        self, dialect_request: DialectRequest, at: Cursor, earliest_end_seq: int
    ) -> Frames:
        """Return the frames of the turn after a cursor.

        They end when the turn is settled, but not before the event `earliest_end_seq`.
        """
        if dialect_request.name == "turnlog":
            seen: FramePosition = (last_complete_seq(at), math.inf)
        else:
            seen = position_of(at)
            self._framing = dialect_request.framing
            self._images = BlobImages(self._sessions.log, self._record.session_id, dialect_request)
            self._dialect = await make_dialect(
                self._sessions.log, self._membership, dialect_request, self._start_seq
            )
        frames = self._frames(seen, earliest_end_seq)
        return with_heartbeats(frames, dialect_request, self._record.session_id, at)

    async def _frames(self, seen: FramePosition, earliest_end_seq: int) -> Frames:
        clock = asyncio.get_running_loop().time
        beat_s = clock()
        pages = self._sessions.log.follow(
            self._record.session_id,
            self._start_seq - 1,
            idle_s=self._heartbeat_s,
            epoch=self._record.epoch,
        )
        async with aclosing(pages):
            async for page in pages:
                frames: list[bytes] = []
                for row in page:
                    new_frames = await self._frames_for(row, seen)
                    frames += new_frames
                    # images are not collected: each may have some MiB
                    if any(len(frame) > LARGE_FRAME_BYTES for frame in new_frames):
                        yield b"".join(frames)
                        frames = []
                    if row.seq >= earliest_end_seq and self.tree.is_settled(self._trace):
                        yield b"".join(frames) + self._closing_frames()
                        return

                # Events of other turns are a silence for this reader, too.
                is_silent = not page or clock() - beat_s >= self._heartbeat_s
                if frames or is_silent:
                    yield b"".join(frames)
                    beat_s = clock()

    async def _frames_for(self, row: Row, seen: FramePosition) -> list[bytes]:
        envelope = decode_envelope(envelope_json(row))
        payload = self._membership.app.catalog.decode_payload(envelope)
        self.tree.apply(envelope, payload)
        if not self._event_filter.matches_turn_and_channel(row):
            return []

        matches = self._event_filter.matches_type_and_depth(row.type, row.depth)
        if self._dialect is None:
            visible_row = row if self._view is None else self._view.project_row(row)
            if visible_row is None or not matches or (row.seq, 0.0) <= seen:
                return []
            return [Page([visible_row], self._record.epoch).frames().data]

        # The dialect converts every event of the turn, because later events may refer to it.
        if self._images is not None:
            payload = await self._images.resolve(payload)
        messages = self._dialect.convert(envelope, payload)
        if not matches:
            return []
        frames = self._framing.encode_frames(messages, row.seq, self._record.epoch)
        return [frame for index, frame in enumerate(frames) if (row.seq, float(index)) > seen]

    def _closing_frames(self) -> bytes:
        if self._dialect is None:
            return self._framing.end
        return b"".join([sse.encode(message) for message in self._dialect.close()])


def with_heartbeats(frames: Frames, dialect_request: DialectRequest, session_id: str, at: Cursor) -> Frames:
    encode_heartbeat = dialect_request.framing.encode_heartbeat
    if encode_heartbeat is None:
        return frames
    return insert_heartbeats(frames, encode_heartbeat, session_id, at.seq)


async def insert_heartbeats(
    frames: Frames, encode_heartbeat: HeartbeatEncoder, session_id: str, seq: int
) -> Frames:
    async with aclosing(frames):
        async for page in frames:
            cursor = last_cursor(page)
            if cursor is not None:
                seq = cursor.seq
            yield page or sse.encode(encode_heartbeat(seq, now_ms(), session_id))


async def make_dialect(
    log: Log, membership: Membership, dialect_request: DialectRequest, start_seq: int
) -> Dialect:
    view = open_row_view(membership)
    if not dialect_request.options.stream_meta_history_and_tool_results:
        plain_dialect = dialect_request.create_dialect(no_history)
        return plain_dialect if view is None else ViewedDialect(plain_dialect, view)

    dialect = DialectWithHistory(dialect_request)
    after_seq = -1
    while after_seq < start_seq - 1:
        rows = await log.read(membership.session_id, after_seq, replay_from=-1)
        if not rows:
            break
        for row in rows:
            if row.seq >= start_seq or not membership.may_see(row.channel):
                continue
            visible_row = row if view is None else view.project_row(row)
            if visible_row is not None:
                envelope = decode_envelope(envelope_json(visible_row))
                dialect.history.apply(envelope, membership.app.catalog.decode_payload(envelope))
        after_seq = rows[-1].seq
    return dialect if view is None else ViewedDialect(dialect, view)


async def make_resumed_dialect(
    log: Log, membership: Membership, dialect_request: DialectRequest, start_seq: int
) -> Dialect:
    """Return a dialect that continues a stream at a seq: it knows what earlier turns have left.

    The response of a single turn begins without that (`make_dialect`).
    """
    dialect = await make_dialect(log, membership, dialect_request, start_seq)
    types = dialect_request.definition.earlier_types if dialect_request.definition else ()
    if types:

        def matches(row: Row) -> bool:
            return not row.depth and membership.may_see(row.channel)

        row = await log.last_of_types(membership.session_id, types, start_seq, matches)
        if row is not None:
            envelope = decode_envelope(envelope_json(row))
            dialect.convert(envelope, membership.app.catalog.decode_payload(envelope))
    return dialect
