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

from turnlog.app import Seat, Sessions
from turnlog.events import decode
from turnlog.ids import now_ms
from turnlog.log import Head, Log, Page, Row, line_of
from turnlog.log.filter import EVERYTHING, Choice
from turnlog.server.streaming.query import whole
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor, parse
from turnlog.wire.dialects.base import DONE, Dialect, untold
from turnlog.wire.dialects.registry import HEARTBEATS, Told, Wanted
from turnlog.wire.dialects.registry import frames as told_frames

HEARTBEAT_S = 15.0
ENDING = sse.encode(DONE)
_ID = re.compile(rb"^id: ([^\n]*)$", re.MULTILINE)  # data is one line, and begins otherwise

Frames = AsyncGenerator[bytes, None]
Place = tuple[int, float]  # a seq, and the number of a message within its event


class Turn:
    """One turn while it is told, from a seq at or before its first agent."""

    def __init__(
        self, sessions: Sessions, seat: Seat, head: Head, trace: str, start: int, choice: Choice = EVERYTHING
    ) -> None:
        self._sessions = sessions
        self._seat = seat
        self._head = head
        self._trace = trace
        self._start = start
        self._choice = choice._replace(turn=trace, channels=seat.sees)
        self._dialect: Dialect | None = None  # None: the envelopes themselves
        self.tree = Tree()

    async def response(self, wanted: Wanted, at: Cursor, begun: int) -> Frames:
        """The frames of the turn after a cursor, until it rests at or after the seq `begun`."""
        seen: Place = (at.seq, math.inf if at.chunk is None else at.chunk)
        if wanted.name == "turnlog":
            seen = (whole(at), math.inf)
        else:
            self._dialect = await make_dialect(self._sessions.log, self._seat, wanted, self._start)
        return beating(self._frames(seen, begun), wanted, self._head.session_id, at)

    async def _frames(self, seen: Place, begun: int) -> Frames:
        follow, clock = self._sessions.log.follow, asyncio.get_running_loop().time
        head, start, beat = self._head, self._start, clock()
        async with aclosing(
            follow(head.session_id, start - 1, idle_s=HEARTBEAT_S, epoch=head.epoch)
        ) as pages:
            async for page in pages:
                frames: list[bytes] = []
                for row in page:
                    frames += self._tell(row, seen)
                    if row.seq >= begun and self.tree.rests(self._trace):
                        yield b"".join(frames) + self._close()
                        return
                if frames or not page or clock() - beat >= HEARTBEAT_S:  # other turns are silence, too
                    yield b"".join(frames)
                    beat = clock()

    def _tell(self, row: Row, seen: Place) -> list[bytes]:
        """The frames of one event after a place."""
        envelope = decode(line_of(row))
        payload = self._seat.app.catalog.payload(envelope)
        self.tree.apply(envelope, payload)
        if not self._choice.covers(row):
            return []
        wants = self._choice.wants(row.type, row.depth)
        if self._dialect is None:
            is_new = wants and (row.seq, 0.0) > seen
            return [Page([row], self._head.epoch).ready().data] if is_new else []
        messages = self._dialect.convert(envelope, payload)
        if not wants:
            return []
        ready = told_frames(messages, row.seq, self._head.epoch)
        return [frame for number, frame in enumerate(ready) if (row.seq, float(number)) > seen]

    def _close(self) -> bytes:
        """What ends the response."""
        messages = self._dialect.close() if self._dialect else [DONE]
        return b"".join([sse.encode(message) for message in messages])


def beating(frames: Frames, wanted: Wanted, session_id: str, at: Cursor) -> Frames:
    """The frames of a dialect, with heartbeats of its own if it has them."""
    return own_beats(frames, wanted.name, session_id, at.seq) if wanted.name in HEARTBEATS else frames


async def own_beats(frames: Frames, name: str, session_id: str, seq: int) -> Frames:
    """Frames whose silences say the seq that the reader is at."""
    async with aclosing(frames):
        async for page in frames:
            if cursors := _ID.findall(page):
                seq = parse(cursors[-1].decode()).seq
            yield page or sse.encode(HEARTBEATS[name](seq, now_ms(), session_id))


async def make_dialect(log: Log, seat: Seat, wanted: Wanted, start: int) -> Dialect:
    """A dialect that begins at a seq; the histories it tells are of what this member sees before it."""
    if not wanted.options.stream_meta_history_and_tool_results:
        return wanted.dialect(untold)
    told = Told(wanted)
    after = -1
    while after < start - 1 and (rows := await log.read(seat.session_id, after, origin=-1)):
        for row in rows:
            if row.seq < start and seat.may_see(row.channel):
                envelope = decode(line_of(row))
                told.history.apply(envelope, seat.app.catalog.payload(envelope))
        after = rows[-1].seq
    return told
