"""A dialect with state, projected once per session and options and shared by all its readers.

The projection follows the log and keeps a window of ready frames, which is bounded in bytes. A reader inside
the window takes frames from it; one that is further back projects for itself, from the start of the oldest
turn open at its cursor, until it has caught up. Both give the same frames, because converting is pure. A
filter of types and depth is a reader's own: it chooses among the frames, so that filters share a projection.
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
from turnlog.events import Catalog
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
from turnlog.server.access_log import format_traceback_without_messages
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.registry import encode_frames as told_frames

log = logging.getLogger("turnlog.server")

MAX_WINDOW_BYTES = 1024 * 1024  # and what the newest page has become, so that live readers stay in the window
LOOKUP_COST_BYTES = (
    32  # what an event costs where a reader begins in the middle: its block or call is looked at
)
FRAME_OVERHEAD_BYTES = 200  # what a frame costs beside its data


class Frame(NamedTuple):
    """Ready bytes, their place (the seq and the number of the message within its event), and their event."""

    seq: int
    chunk: int
    data: bytes
    type: str
    depth: int


@dataclass(slots=True)
class CatchUpProjection:
    """A reader's own projection, while the window does not reach it. Who takes much gets more at once."""

    dialect: Dialect
    after: int
    spend: ChargeBytes | None = None
    is_caught_up: bool = False
    page_bytes: int = FIRST_PAGE_BYTES
    delivered_bytes: int = 0

    def record_delivery(self, size_bytes: int) -> None:
        """The reader has taken so much."""
        self.delivered_bytes += size_bytes
        if self.delivered_bytes >= GROW_AFTER_BYTES:
            self.page_bytes = min(2 * self.page_bytes, MAX_PAGE_BYTES)


FramePosition = tuple[float, float]  # a seq, and the number of a message within its event


def frame_position(frame: Frame) -> FramePosition:
    """Where a frame stands."""
    return frame.seq, frame.chunk


def frame_size_bytes(frame: Frame) -> int:
    """What a frame holds."""
    return len(frame.data) + FRAME_OVERHEAD_BYTES


class DialectProjection:
    """The shared projection of one session in one dialect. `make` gives a dialect that can begin at a seq."""

    def __init__(
        self,
        log: Log,
        head: SessionRecord,
        catalog: Catalog,
        make_dialect: Callable[[int], Awaitable[Dialect]],
        covers: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        self._log = log
        self._head = head
        self._catalog = catalog
        self._make_dialect = make_dialect
        self._covers = covers
        self._window: deque[Frame] = deque()
        self._window_bytes = 0
        self._window_start: FramePosition = (
            math.inf,
            math.inf,
        )  # every frame after this place is in the window
        self._is_complete = False  # the session is closed, and everything of it is in the window
        self._has_failed = False
        self._wakeup = Wakeup()
        self._follow_task: asyncio.Task[None] | None = None
        self.reader_count = 0
        self.converted_count = 0
        self._last_seq = head.last

    async def frames(
        self,
        at: Cursor,
        idle_s: float,
        event_filter: EventFilter = MATCH_ALL,
        gate: PageLock = NO_PAGE_LOCK,
        spend: ChargeBytes | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the wanted frames after a cursor, joined as they come; an empty page after a silence.

        Before that comes an `id:` line if something has happened that has no frame for this reader. `gate` is
        that of `Log.follow`; `spend` is told what is read for this reader alone.
        """
        seen: FramePosition = (at.seq, math.inf if at.chunk is None else at.chunk)
        sent = at.seq  # where the reader's own cursor is: it does not move over frames that are not wanted
        private: CatchUpProjection | None = None
        clock = asyncio.get_running_loop().time
        beat_s = clock() + idle_s
        with self._count_reader():
            while not self._has_failed:
                async with gate:
                    frames, private = await self._next_frames(seen, private, spend)
                    if private:
                        seen = max(seen, (private.after, math.inf))
                    has_passed = bool(frames)
                    if frames:
                        seen = max(seen, frame_position(frames[-1]))
                        frames = [
                            frame
                            for frame in frames
                            if event_filter.matches_type_and_depth(frame.type, frame.depth)
                        ]

                    if frames:
                        sent = frames[-1].seq
                        data = b"".join([frame.data for frame in frames])
                        frames = []  # it may be long until the reader has taken what is sent
                        yield data
                        beat_s = clock() + idle_s
                        if private:
                            private.record_delivery(len(data))
                        continue
                if has_passed or (private is not None and (self._is_complete or not private.is_caught_up)):
                    is_due = clock() >= beat_s
                elif self._is_complete:  # what has no frame is behind the reader too
                    yield self._cursor_line()
                    return
                else:
                    is_due = not await self._wakeup.wait(idle_s)
                if is_due:
                    if self._is_behind(seen, sent):
                        seen, sent = (self._last_seq, math.inf), self._last_seq
                        yield self._cursor_line()
                    yield b""
                    beat_s = clock() + idle_s

    async def _next_frames(
        self, seen: FramePosition, catch_up: "CatchUpProjection | None", spend: ChargeBytes | None
    ) -> "tuple[list[Frame], CatchUpProjection | None]":
        """Return the next frames after a place, from the window or from the reader's own projection."""
        if seen >= self._window_start:
            return self._frames_after(seen), None
        catch_up = catch_up or await self._start_catch_up(seen, spend)
        return [
            frame for frame in await self.read_catch_up(catch_up) if frame_position(frame) > seen
        ], catch_up

    @contextmanager
    def _count_reader(self) -> Iterator[None]:
        """One more reader; the first starts the pump, and the last stops it."""
        self.reader_count += 1
        if self._follow_task is None:
            self._start()
        try:
            yield
        finally:
            self.reader_count -= 1
            if not self.reader_count and self._follow_task is not None:
                self._follow_task.cancel()
                self._follow_task = None  # whoever holds this projection and has not begun starts it again
                self._window.clear()  # nobody may come for long
                self._window_bytes = 0

    @property
    def lag(self) -> int:
        """How many events it is behind its session."""
        tail = self._log.tails.get(self._head.session_id)
        return max(0, tail.last - self._last_seq) if tail else 0

    @property
    def window_bytes(self) -> int:
        """What the window holds."""
        return self._window_bytes

    def _is_behind(self, seen: FramePosition, sent: int) -> bool:
        """Whether something has happened after the seq `sent`, and nothing after `seen` has a frame."""
        return seen >= self._window_start and self._last_seq > sent and not self._frames_after(seen)

    def _cursor_line(self) -> bytes:
        """What moves a cursor to where the projection is."""
        return f"id: {Cursor(self._last_seq, self._head.epoch)}\n\n".encode()

    def _start(self) -> None:
        self._window_start, self._is_complete, self._has_failed = (math.inf, math.inf), False, False
        self._follow_task = asyncio.create_task(self._follow())

    def _frames_after(self, seen: FramePosition) -> list[Frame]:
        """The next frames of the window after a place, a page of them at most."""
        fresh = len(self._window) - bisect_right(self._window, seen, key=frame_position)
        newest = list(islice(reversed(self._window), fresh))  # few: who is live stands near the end
        frames, size_bytes = list[Frame](), 0
        while newest and size_bytes < FIRST_PAGE_BYTES:
            frames.append(newest.pop())
            size_bytes += len(frames[-1].data)
        return frames

    async def _start_catch_up(self, seen: FramePosition, spend: ChargeBytes | None) -> "CatchUpProjection":
        whole = int(seen[0]) if seen[1] == math.inf else int(seen[0]) - 1
        start = await self._log.oldest_open_turn_start(self._head.session_id, whole)
        if spend is not None and 0 <= whole < self._head.last:
            await spend(LOOKUP_COST_BYTES * (whole + 1))
        return CatchUpProjection(await self._make_dialect(start), start - 1, spend)

    async def read_catch_up(self, catch_up: "CatchUpProjection") -> list[Frame]:
        """The next frames of a reader's own projection."""
        rows = await self._log.read(self._head.session_id, catch_up.after, max_bytes=catch_up.page_bytes)
        if catch_up.spend is not None:
            await catch_up.spend(rows.size_bytes)
        catch_up.is_caught_up = not rows
        catch_up.after = rows[-1].seq if rows else catch_up.after
        return self._convert(catch_up.dialect, rows)

    async def _follow(self) -> None:
        try:
            await self._fill()
            self._is_complete = True
        except TurnlogError as error:  # the readers end, come back, and are told
            log.error("a projection ended: %s", error)
            self._has_failed = True
        except Exception as error:  # noqa: BLE001  a bug: the readers end, too, and do not wait for ever
            log.error(
                "a projection failed", extra={"exception": "".join(format_traceback_without_messages(error))}
            )
            self._has_failed = True
        self._wakeup.wake()

    async def _fill(self) -> None:
        start = await self._log.oldest_open_turn_start(self._head.session_id, self._head.last)
        dialect = await self._make_dialect(start)
        self._last_seq = start - 1  # a silence before the first rows must not move a cursor past them
        self._window_start = (start - 1, math.inf)
        self._wakeup.wake()
        async for rows in self._log.follow(self._head.session_id, start - 1, epoch=self._head.epoch):
            frames = self._convert(dialect, rows)
            self._extend(frames)
            self._last_seq = rows.last
            if frames:  # else it is silent for the readers, and their heartbeats go on
                self._wakeup.wake()

    def _extend(self, frames: list[Frame]) -> None:
        """Put new frames into the window, and drop the oldest while it is too large."""
        self._window.extend(frames)
        self._window_bytes += sum(map(frame_size_bytes, frames))
        while self._window_bytes > MAX_WINDOW_BYTES and len(self._window) > len(frames):
            oldest = self._window.popleft()
            self._window_bytes -= frame_size_bytes(oldest)
            self._window_start = (oldest.seq, math.inf)

    def _convert(self, dialect: Dialect, rows: Page) -> list[Frame]:
        frames = []
        for row, envelope in zip(rows, rows.envelopes(), strict=True):
            if not self._covers(row):
                continue
            messages = dialect.convert(envelope, self._catalog.decode_payload(envelope))
            self.converted_count += 1
            ready = told_frames(messages, row.seq, self._head.epoch)
            name = intern(row.type)  # every row has its own copy
            frames += [Frame(row.seq, number, data, name, row.depth) for number, data in enumerate(ready)]
        return frames
