"""A response: one turn as a stream that ends (protocol section 8).

It tells only that turn, from any cursor, and ends when the turn is over or everyone in it waits; its last
message is `[DONE]`, without an id. Cutting it stops nothing. It reads from the first event of the turn,
because a dialect has to know what is open in it, and sends what comes after the cursor.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from turnlog.app import Membership, Sessions
from turnlog.events import decode_envelope
from turnlog.ids import now_ms
from turnlog.log import Log, Page, Row, SessionRecord, envelope_json
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.server.streaming.query import last_complete_seq
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor, parse_cursor
from turnlog.wire.dialects.base import DONE, Dialect, no_history
from turnlog.wire.dialects.registry import HEARTBEAT_ENCODERS, DialectRequest, DialectWithHistory
from turnlog.wire.dialects.registry import encode_frames as told_frames

HEARTBEAT_INTERVAL_S = 15.0
DONE_FRAME = sse.encode(DONE)
_ID = re.compile(rb"^id: ([^\n]*)$", re.MULTILINE)  # data is one line, and begins otherwise

Frames = AsyncGenerator[bytes, None]
FramePosition = tuple[int, float]  # a seq, and the number of a message within its event


class TurnResponse:
    """One turn while it is told, from a seq at or before its first agent."""

    def __init__(
        self,
        sessions: Sessions,
        membership: Membership,
        head: SessionRecord,
        trace: str,
        start: int,
        event_filter: EventFilter = MATCH_ALL,
    ) -> None:
        self._sessions = sessions
        self._membership = membership
        self._head = head
        self._trace = trace
        self._start = start
        self._event_filter = event_filter._replace(turn=trace, channels=membership.visible_channels)
        self._dialect: Dialect | None = None  # None: the envelopes themselves
        self.tree = Tree()

    async def stream_frames(
        self, dialect_request: DialectRequest, at: Cursor, earliest_end_seq: int
    ) -> Frames:
        """The frames of the turn after a cursor, until it rests at or after the seq `begun`."""
        seen: FramePosition = (at.seq, math.inf if at.chunk is None else at.chunk)
        if dialect_request.name == "turnlog":
            seen = (last_complete_seq(at), math.inf)
        else:
            self._dialect = await make_dialect(
                self._sessions.log, self._membership, dialect_request, self._start
            )
        return with_heartbeats(
            self._frames(seen, earliest_end_seq), dialect_request, self._head.session_id, at
        )

    async def _frames(self, seen: FramePosition, earliest_end_seq: int) -> Frames:
        follow, clock = self._sessions.log.follow, asyncio.get_running_loop().time
        head, start, beat = self._head, self._start, clock()
        async with aclosing(
            follow(head.session_id, start - 1, idle_s=HEARTBEAT_INTERVAL_S, epoch=head.epoch)
        ) as pages:
            async for page in pages:
                frames: list[bytes] = []
                for row in page:
                    frames += self._frames_for(row, seen)
                    if row.seq >= earliest_end_seq and self.tree.is_settled(self._trace):
                        yield b"".join(frames) + self._closing_frame()
                        return
                if (
                    frames or not page or clock() - beat >= HEARTBEAT_INTERVAL_S
                ):  # other turns are silence, too
                    yield b"".join(frames)
                    beat = clock()

    def _frames_for(self, row: Row, seen: FramePosition) -> list[bytes]:
        """The frames of one event after a place."""
        envelope = decode_envelope(envelope_json(row))
        payload = self._membership.app.catalog.decode_payload(envelope)
        self.tree.apply(envelope, payload)
        if not self._event_filter.matches_turn_and_channel(row):
            return []
        wants = self._event_filter.matches_type_and_depth(row.type, row.depth)
        if self._dialect is None:
            is_new = wants and (row.seq, 0.0) > seen
            return [Page([row], self._head.epoch).frames().data] if is_new else []
        messages = self._dialect.convert(envelope, payload)
        if not wants:
            return []
        ready = told_frames(messages, row.seq, self._head.epoch)
        return [frame for number, frame in enumerate(ready) if (row.seq, float(number)) > seen]

    def _closing_frame(self) -> bytes:
        """What ends the response."""
        messages = self._dialect.close() if self._dialect else [DONE]
        return b"".join([sse.encode(message) for message in messages])


def with_heartbeats(frames: Frames, dialect_request: DialectRequest, session_id: str, at: Cursor) -> Frames:
    """The frames of a dialect, with heartbeats of its own if it has them."""
    return (
        insert_heartbeats(frames, dialect_request.name, session_id, at.seq)
        if dialect_request.name in HEARTBEAT_ENCODERS
        else frames
    )


async def insert_heartbeats(frames: Frames, name: str, session_id: str, seq: int) -> Frames:
    """Frames whose silences say the seq that the reader is at."""
    async with aclosing(frames):
        async for page in frames:
            if cursors := _ID.findall(page):
                seq = parse_cursor(cursors[-1].decode()).seq
            yield page or sse.encode(HEARTBEAT_ENCODERS[name](seq, now_ms(), session_id))


async def make_dialect(
    log: Log, membership: Membership, dialect_request: DialectRequest, start: int
) -> Dialect:
    """A dialect that begins at a seq; the histories it tells are of what this member sees before it."""
    if not dialect_request.options.stream_meta_history_and_tool_results:
        return dialect_request.create_dialect(no_history)
    told = DialectWithHistory(dialect_request)
    after = -1
    while after < start - 1 and (rows := await log.read(membership.session_id, after, replay_from=-1)):
        for row in rows:
            if row.seq < start and membership.may_see(row.channel):
                envelope = decode_envelope(envelope_json(row))
                told.history.apply(envelope, membership.app.catalog.decode_payload(envelope))
        after = rows[-1].seq
    return told
