"""A dialect with state, converted once per session and options and shared by all its readers.

The projection follows the log and stores a window of encoded frames, which is bounded in bytes. A reader
inside the window gets frames from it. A reader that is further behind converts for itself, from the start of
the oldest turn that is open at its cursor, until it has caught up. Both give the same frames, because
converting is pure. Filters of types and depth select among the frames, so readers with different filters
share a projection.
"""

import asyncio
import logging
import math
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from sys import intern
from typing import NamedTuple

from turnlog.errors import TurnlogError
from turnlog.events import Catalog, Payload, UnknownPayload
from turnlog.log import Log, Page, Row, SessionRecord
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.subscription import (
    FIRST_PAGE_BYTES,
    GROW_AFTER_BYTES,
    MAX_PAGE_BYTES,
    NO_PAGE_LOCK,
    ChargeBytes,
    PageLock,
)
from turnlog.log.wakeup import Wakeup
from turnlog.server.log_format import format_traceback_without_messages
from turnlog.server.streaming.frames import FramePosition, Frames, cursor_line, position_of
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.framing import EncodeFrames, encode_frames

log = logging.getLogger("turnlog.server")

MAX_WINDOW_BYTES = 1024 * 1024  # plus the frames of the newest page, so that live readers stay in the window
LOOKUP_COST_BYTES = 32  # charged per event before the cursor: the spans of each are looked up
LARGE_FRAME_BYTES = 4096  # such a frame has an image from the blob store, which is charged too
MAX_CONVERTED_BYTES = 4 * 1024 * 1024  # of one step; a page of rows has at most 1 MiB, its images have more
FRAME_OVERHEAD_BYTES = 200  # memory of a frame beside its data
ResolvePayload = Callable[[Payload | UnknownPayload], Awaitable[Payload | UnknownPayload]]
START_UNKNOWN: FramePosition = (math.inf, math.inf)


class Frame(NamedTuple):
    """Encoded bytes, their position (the seq and the index of the message in its event), and their event."""

    seq: int
    chunk: int
    data: bytes
    type: str
    depth: int


@dataclass(slots=True)
class CatchUpProjection:
    """A reader's own projection, while it is behind the window. Its pages grow with the bytes delivered."""

    dialect: Dialect
    after_seq: int
    charge: ChargeBytes | None = None
    is_caught_up: bool = False
    page_bytes: int = FIRST_PAGE_BYTES
    delivered_bytes: int = 0

    def record_delivery(self, size_bytes: int) -> None:
        self.delivered_bytes += size_bytes
        if self.delivered_bytes >= GROW_AFTER_BYTES:
            self.page_bytes = min(2 * self.page_bytes, MAX_PAGE_BYTES)


def frame_position(frame: Frame) -> FramePosition:
    return frame.seq, frame.chunk


def frame_size_bytes(frame: Frame) -> int:
    return len(frame.data) + FRAME_OVERHEAD_BYTES


class DialectProjection:
    """The shared projection of one session in one dialect.

    `make_dialect(seq)` returns a dialect that can begin at this seq. `covers` selects the rows to convert.
    `resolve` completes an event before it is converted, `encode` makes frames of its messages.
    """

    def __init__(
        self,
        log: Log,
        record: SessionRecord,
        catalog: Catalog,
        make_dialect: Callable[[int], Awaitable[Dialect]],
        covers: Callable[[Row], bool] = lambda _: True,
        resolve: ResolvePayload | None = None,
        encode: EncodeFrames = encode_frames,
    ) -> None:
        self._log = log
        self._record = record
        self._catalog = catalog
        self._make_dialect = make_dialect
        self._covers = covers
        self._resolve = resolve
        self._encode = encode
        self._window: deque[Frame] = deque()
        self._window_bytes = 0
        self._window_start = START_UNKNOWN  # every frame after this position is in the window
        self._is_complete = False  # the session is closed, and the window has its last frame
        self._has_failed = False
        self._wakeup = Wakeup()
        self._follow_task: asyncio.Task[None] | None = None
        self.reader_count = 0
        self.converted_count = 0
        self._last_seq = record.last

    async def frames(
        self,
        at: Cursor,
        idle_s: float,
        event_filter: EventFilter = MATCH_ALL,
        page_lock: PageLock = NO_PAGE_LOCK,
        charge: ChargeBytes | None = None,
    ) -> Frames:
        """Yield the matching frames after a cursor, joined as they come, and an empty page after a silence.

        Before an empty page comes an `id:` line if events passed that have no frame for this reader.
        `page_lock` is that of `Log.follow`. `charge` gets the bytes that are read for this reader alone.
        """
        seen = position_of(at)
        sent_seq = at.seq  # the reader's own cursor: it does not move over frames that do not match
        catch_up: CatchUpProjection | None = None
        clock = asyncio.get_running_loop().time
        beat_s = clock() + idle_s
        with self._count_reader():
            while not self._has_failed:
                async with page_lock:
                    frames, catch_up = await self._next_frames(seen, catch_up, charge)
                    if catch_up:
                        seen = max(seen, (catch_up.after_seq, math.inf))
                    had_frames = bool(frames)
                    if frames:
                        seen = max(seen, frame_position(frames[-1]))
                        frames = [
                            frame
                            for frame in frames
                            if event_filter.matches_type_and_depth(frame.type, frame.depth)
                        ]

                    if frames:
                        sent_seq = frames[-1].seq
                        data = b"".join([frame.data for frame in frames])
                        frames = []  # a slow reader must not keep them alive
                        yield data
                        beat_s = clock() + idle_s
                        if catch_up:
                            catch_up.record_delivery(len(data))
                        continue

                is_catching_up = catch_up is not None and (self._is_complete or not catch_up.is_caught_up)
                if had_frames or is_catching_up:
                    is_idle = clock() >= beat_s
                elif self._is_complete:
                    # The last events may have no frame: the cursor moves over them.
                    yield self._cursor_line()
                    return
                else:
                    is_idle = not await self._wakeup.wait(idle_s)

                if is_idle:
                    if self._has_passed_events(seen, sent_seq):
                        seen = (self._last_seq, math.inf)
                        sent_seq = self._last_seq
                        yield self._cursor_line()
                    yield b""
                    beat_s = clock() + idle_s

    async def _next_frames(
        self, seen: FramePosition, catch_up: CatchUpProjection | None, charge: ChargeBytes | None
    ) -> tuple[list[Frame], CatchUpProjection | None]:
        """Return the next frames after a position, from the window (None) or a reader's own projection."""
        if seen >= self._window_start:
            return self._frames_after(seen), None
        if catch_up is None:
            catch_up = await self._start_catch_up(seen, charge)
        frames = await self.read_catch_up(catch_up)
        return [frame for frame in frames if frame_position(frame) > seen], catch_up

    @contextmanager
    def _count_reader(self) -> Iterator[None]:
        """Start following the log with the first reader, and stop with the last one."""
        self.reader_count += 1
        if self._follow_task is None:
            self._start()
        try:
            yield
        finally:
            self.reader_count -= 1
            if not self.reader_count and self._follow_task is not None:
                self._follow_task.cancel()
                self._follow_task = None  # a reader that has this projection and begins later starts it again
                self._window.clear()
                self._window_bytes = 0

    @property
    def lag(self) -> int:
        tail = self._log.tails.get(self._record.session_id)
        return max(0, tail.last - self._last_seq) if tail else 0

    @property
    def window_bytes(self) -> int:
        return self._window_bytes

    def _has_passed_events(self, seen: FramePosition, sent_seq: int) -> bool:
        return seen >= self._window_start and self._last_seq > sent_seq and not self._frames_after(seen)

    def _cursor_line(self) -> bytes:
        return cursor_line(self._last_seq, self._record.epoch)

    def _start(self) -> None:
        self._window_start = START_UNKNOWN
        self._is_complete = False
        self._has_failed = False
        self._follow_task = asyncio.create_task(self._follow())

    def _frames_after(self, seen: FramePosition) -> list[Frame]:
        new_count = len(self._window) - bisect_right(self._window, seen, key=frame_position)
        newest_first = list(islice(reversed(self._window), new_count))  # few: a live reader is near the end
        frames: list[Frame] = []
        size_bytes = 0
        while newest_first and size_bytes < FIRST_PAGE_BYTES:
            frame = newest_first.pop()
            frames.append(frame)
            size_bytes += len(frame.data)
        return frames

    async def _start_catch_up(self, seen: FramePosition, charge: ChargeBytes | None) -> CatchUpProjection:
        seq, chunk = seen
        complete_seq = int(seq) if chunk == math.inf else int(seq) - 1
        start_seq = await self._log.oldest_open_turn_start(self._record.session_id, complete_seq)
        if charge is not None and 0 <= complete_seq < self._record.last:
            await charge(LOOKUP_COST_BYTES * (complete_seq + 1))
        return CatchUpProjection(await self._make_dialect(start_seq), start_seq - 1, charge)

    async def iter_frames(self, after_seq: int, charge: ChargeBytes) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames after a seq up to the end of the log, converted for this caller alone."""
        catch_up = await self._start_catch_up((after_seq, math.inf), charge)
        while not catch_up.is_caught_up:
            frames = [frame for frame in await self.read_catch_up(catch_up) if frame.seq > after_seq]
            yield frames
            catch_up.record_delivery(sum(len(frame.data) for frame in frames))

    async def read_catch_up(self, catch_up: CatchUpProjection) -> list[Frame]:
        rows = await self._log.read(
            self._record.session_id, catch_up.after_seq, max_bytes=catch_up.page_bytes
        )
        if catch_up.charge is not None:
            await catch_up.charge(rows.size_bytes)
        catch_up.is_caught_up = not rows
        frames, converted = await self._convert(catch_up.dialect, rows, 0)
        if converted:
            catch_up.after_seq = rows[converted - 1].seq
        if catch_up.charge is not None:
            large_frames = [len(frame.data) for frame in frames if len(frame.data) > LARGE_FRAME_BYTES]
            await catch_up.charge(sum(large_frames))
        return frames

    async def _follow(self) -> None:
        """Fill the window until the session is closed. An error ends the readers, which reconnect."""
        try:
            await self._fill()
            self._is_complete = True
        except TurnlogError as error:
            log.error("a projection ended: %s", error)
            self._has_failed = True
        except Exception as error:  # noqa: BLE001  a bug: the readers must not wait for ever
            exception = "".join(format_traceback_without_messages(error))
            log.error("a projection failed", extra={"exception": exception})
            self._has_failed = True
        self._wakeup.wake()

    async def _fill(self) -> None:
        session_id = self._record.session_id
        start_seq = await self._log.oldest_open_turn_start(session_id, self._record.last)
        dialect = await self._make_dialect(start_seq)
        self._last_seq = start_seq - 1  # a silence before the first rows must not move a cursor past them
        self._window_start = (start_seq - 1, math.inf)
        self._wakeup.wake()
        async for rows in self._log.follow(session_id, start_seq - 1, epoch=self._record.epoch):
            converted = 0
            while converted < len(rows):
                frames, converted = await self._convert(dialect, rows, converted)
                self._extend(frames)
                self._last_seq = rows[converted - 1].seq
                # Rows without frames are a silence for the readers: their heartbeats continue.
                if frames:
                    self._wakeup.wake()
            self._last_seq = rows.last

    def _extend(self, frames: list[Frame]) -> None:
        self._window.extend(frames)
        self._window_bytes += sum(map(frame_size_bytes, frames))
        while self._window_bytes > MAX_WINDOW_BYTES and len(self._window) > len(frames):
            oldest = self._window.popleft()
            self._window_bytes -= frame_size_bytes(oldest)
            self._window_start = (oldest.seq, math.inf)

    async def _convert(self, dialect: Dialect, rows: Page, start: int) -> tuple[list[Frame], int]:
        """Convert the rows from an index on. Return their frames and the index of the next row.

        It stops when the frames are large, because each image of a row may have some MiB.
        """
        frames: list[Frame] = []
        size_bytes = 0
        pairs = zip(rows, rows.envelopes(), strict=True)
        for index, (row, envelope) in enumerate(islice(pairs, start, None), start):
            if not self._covers(row):
                continue
            payload = self._catalog.decode_payload(envelope)
            if self._resolve is not None:
                payload = await self._resolve(payload)
            messages = dialect.convert(envelope, payload)
            self.converted_count += 1
            type_name = intern(row.type)  # every row has its own copy
            for chunk, data in enumerate(self._encode(messages, row.seq, self._record.epoch)):
                frames.append(Frame(row.seq, chunk, data, type_name, row.depth))
                size_bytes += len(data)
            if size_bytes > MAX_CONVERTED_BYTES:
                return frames, index + 1
        return frames, len(rows)
