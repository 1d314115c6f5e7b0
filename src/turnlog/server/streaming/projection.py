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
from turnlog.log import Head, Log, Page, Row
from turnlog.log.filter import EVERYTHING, Choice
from turnlog.log.subscription import FIRST_BYTES, OPEN_GATE, PAGE_BYTES, STEADY_BYTES, Gate, Spend
from turnlog.log.wakeup import Wakeup
from turnlog.server.access_log import places
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import Dialect
from turnlog.wire.dialects.registry import frames as told_frames

log = logging.getLogger("turnlog.server")

WINDOW_BYTES = 1024 * 1024  # and what the newest page has become, so that live readers stay in the window
SPAN_BYTES = 32  # what an event costs where a reader begins in the middle: its block or call is looked at
FRAME_BYTES = 200  # what a frame costs beside its data


class Frame(NamedTuple):
    """Ready bytes, their place (the seq and the number of the message within its event), and their event."""

    seq: int
    number: int
    data: bytes
    type: str
    depth: int


@dataclass(slots=True)
class Private:
    """A reader's own projection, while the window does not reach it. Who takes much gets more at once."""

    dialect: Dialect
    after: int
    spend: Spend | None = None
    done: bool = False
    size_bytes: int = FIRST_BYTES
    taken_bytes: int = 0

    def take(self, size_bytes: int) -> None:
        """The reader has taken so much."""
        self.taken_bytes += size_bytes
        if self.taken_bytes >= STEADY_BYTES:
            self.size_bytes = min(2 * self.size_bytes, PAGE_BYTES)


Place = tuple[float, float]  # a seq, and the number of a message within its event


def place(frame: Frame) -> Place:
    """Where a frame stands."""
    return frame.seq, frame.number


def weight_bytes(frame: Frame) -> int:
    """What a frame holds."""
    return len(frame.data) + FRAME_BYTES


class Projection:
    """The shared projection of one session in one dialect. `make` gives a dialect that can begin at a seq."""

    def __init__(
        self,
        log: Log,
        head: Head,
        catalog: Catalog,
        make: Callable[[int], Awaitable[Dialect]],
        covers: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        self._log = log
        self._head = head
        self._catalog = catalog
        self._make = make
        self._covers = covers
        self._window: deque[Frame] = deque()
        self._window_bytes = 0
        self._base: Place = (math.inf, math.inf)  # every frame after this place is in the window
        self._over = False  # the session is closed, and everything of it is in the window
        self._failed = False
        self._wakeup = Wakeup()
        self._pump: asyncio.Task[None] | None = None
        self.readers = 0
        self.converted = 0
        self._reached = head.last

    async def frames(
        self,
        at: Cursor,
        idle_s: float,
        choice: Choice = EVERYTHING,
        gate: Gate = OPEN_GATE,
        spend: Spend | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the wanted frames after a cursor, joined as they come; an empty page after a silence.

        Before that comes an `id:` line if something has happened that has no frame for this reader. `gate` is
        that of `Log.follow`; `spend` is told what is read for this reader alone.
        """
        seen: Place = (at.seq, math.inf if at.chunk is None else at.chunk)
        sent = at.seq  # where the reader's own cursor is: it does not move over frames that are not wanted
        private: Private | None = None
        clock = asyncio.get_running_loop().time
        beat_s = clock() + idle_s
        with self._reader():
            while not self._failed:
                async with gate:
                    frames, private = await self._next(seen, private, spend)
                    if private:
                        seen = max(seen, (private.after, math.inf))
                    has_passed = bool(frames)
                    if frames:
                        seen = max(seen, place(frames[-1]))
                        frames = [frame for frame in frames if choice.wants(frame.type, frame.depth)]

                    if frames:
                        sent = frames[-1].seq
                        data = b"".join([frame.data for frame in frames])
                        frames = []  # it may be long until the reader has taken what is sent
                        yield data
                        beat_s = clock() + idle_s
                        if private:
                            private.take(len(data))
                        continue
                if has_passed or (private is not None and (self._over or not private.done)):
                    is_due = clock() >= beat_s
                elif self._over:  # what has no frame is behind the reader too
                    yield self._line()
                    return
                else:
                    is_due = not await self._wakeup.wait(idle_s)
                if is_due:
                    if self._is_behind(seen, sent):
                        seen, sent = (self._reached, math.inf), self._reached
                        yield self._line()
                    yield b""
                    beat_s = clock() + idle_s

    async def _next(
        self, seen: Place, private: "Private | None", spend: Spend | None
    ) -> "tuple[list[Frame], Private | None]":
        """Return the next frames after a place, from the window or from the reader's own projection."""
        if seen >= self._base:
            return self._after(seen), None
        private = private or await self._private(seen, spend)
        return [frame for frame in await self.read(private) if place(frame) > seen], private

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """One more reader; the first starts the pump, and the last stops it."""
        self.readers += 1
        if self._pump is None:
            self._start()
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers and self._pump is not None:
                self._pump.cancel()
                self._pump = None  # whoever holds this projection and has not begun starts it again
                self._window.clear()  # nobody may come for long
                self._window_bytes = 0

    @property
    def lag(self) -> int:
        """How many events it is behind its session."""
        tail = self._log.tails.get(self._head.session_id)
        return max(0, tail.last - self._reached) if tail else 0

    @property
    def held_bytes(self) -> int:
        """What the window holds."""
        return self._window_bytes

    def _is_behind(self, seen: Place, sent: int) -> bool:
        """Whether something has happened after the seq `sent`, and nothing after `seen` has a frame."""
        return seen >= self._base and self._reached > sent and not self._after(seen)

    def _line(self) -> bytes:
        """What moves a cursor to where the projection is."""
        return f"id: {Cursor(self._reached, self._head.epoch)}\n\n".encode()

    def _start(self) -> None:
        self._base, self._over, self._failed = (math.inf, math.inf), False, False
        self._pump = asyncio.create_task(self._follow())

    def _after(self, seen: Place) -> list[Frame]:
        """The next frames of the window after a place, a page of them at most."""
        fresh = len(self._window) - bisect_right(self._window, seen, key=place)
        newest = list(islice(reversed(self._window), fresh))  # few: who is live stands near the end
        frames, size_bytes = list[Frame](), 0
        while newest and size_bytes < FIRST_BYTES:
            frames.append(newest.pop())
            size_bytes += len(frames[-1].data)
        return frames

    async def _private(self, seen: Place, spend: Spend | None) -> "Private":
        whole = int(seen[0]) if seen[1] == math.inf else int(seen[0]) - 1
        start = await self._log.turn_start(self._head.session_id, whole)
        if spend is not None and 0 <= whole < self._head.last:
            await spend(SPAN_BYTES * (whole + 1))
        return Private(await self._make(start), start - 1, spend)

    async def read(self, private: "Private") -> list[Frame]:
        """The next frames of a reader's own projection."""
        rows = await self._log.read(self._head.session_id, private.after, max_bytes=private.size_bytes)
        if private.spend is not None:
            await private.spend(rows.size_bytes)
        private.done = not rows
        private.after = rows[-1].seq if rows else private.after
        return self._convert(private.dialect, rows)

    async def _follow(self) -> None:
        try:
            await self._fill()
            self._over = True
        except TurnlogError as error:  # the readers end, come back, and are told
            log.error("a projection ended: %s", error)
            self._failed = True
        except Exception as error:  # noqa: BLE001  a bug: the readers end, too, and do not wait for ever
            log.error("a projection failed", extra={"exception": "".join(places(error))})
            self._failed = True
        self._wakeup.wake()

    async def _fill(self) -> None:
        start = await self._log.turn_start(self._head.session_id, self._head.last)
        dialect = await self._make(start)
        self._reached = start - 1  # a silence before the first rows must not move a cursor past them
        self._base = (start - 1, math.inf)
        self._wakeup.wake()
        async for rows in self._log.follow(self._head.session_id, start - 1, epoch=self._head.epoch):
            frames = self._convert(dialect, rows)
            self._extend(frames)
            self._reached = rows.last
            if frames:  # else it is silent for the readers, and their heartbeats go on
                self._wakeup.wake()

    def _extend(self, frames: list[Frame]) -> None:
        """Put new frames into the window, and drop the oldest while it is too large."""
        self._window.extend(frames)
        self._window_bytes += sum(map(weight_bytes, frames))
        while self._window_bytes > WINDOW_BYTES and len(self._window) > len(frames):
            oldest = self._window.popleft()
            self._window_bytes -= weight_bytes(oldest)
            self._base = (oldest.seq, math.inf)

    def _convert(self, dialect: Dialect, rows: Page) -> list[Frame]:
        frames = []
        for row, envelope in zip(rows, rows.envelopes(), strict=True):
            if not self._covers(row):
                continue
            messages = dialect.convert(envelope, self._catalog.payload(envelope))
            self.converted += 1
            ready = told_frames(messages, row.seq, self._head.epoch)
            name = intern(row.type)  # every row has its own copy
            frames += [Frame(row.seq, number, data, name, row.depth) for number, data in enumerate(ready)]
        return frames
