"""Several sessions on one stream: their frames as they come, each with the cursors of all of them.

An `id:` line becomes the list of all cursors in the order of the sessions, so that one Last-Event-ID resumes
them all. A session is asked for its next page when the one before has been taken; sources that share a gate
(`Log.follow`) hold one page together. Heartbeats of single sessions are left out; there is one when all are
silent. When a session cannot be read any more the stream ends with its error, and the reader comes back with
all its cursors.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

from turnlog.wire.cursor import Cursor

Frames = AsyncGenerator[bytes, None]

_ID = re.compile(rb"^id: ([^\n]*)$", re.MULTILINE)  # data is one line, and begins otherwise


class MergedStream:
    """The frames of some sessions, read together; None is one that has nothing more to come."""

    def __init__(self, sources: Sequence[Frames | None], cursors: Sequence[Cursor]) -> None:
        self._sources = sources
        self._cursors = [str(cursor).encode() for cursor in cursors]
        self._pending_pages: dict[asyncio.Future[bytes], int] = {}

    async def frames(self, heartbeat: bytes, idle_s: float) -> Frames:
        """Pages as they come; an empty one when nobody has said anything for `idle_s`."""
        clock = asyncio.get_running_loop().time
        beat = clock() + idle_s
        try:
            for number in range(len(self._sources)):
                self._pull(number)
            while self._pending_pages:
                for number, page in await self._next_pages(beat - clock()):
                    if said := page.replace(heartbeat, b""):
                        yield said
                        beat = clock() + idle_s if b"data:" in said else beat
                    self._pull(number)
                if clock() >= beat:
                    yield b""
                    beat = clock() + idle_s
        finally:
            for task in self._pending_pages:
                task.cancel()
            await asyncio.gather(*self._pending_pages, return_exceptions=True)
            for source in self._sources:
                if source is not None:
                    await source.aclose()

    def _pull(self, index: int) -> None:
        source = self._sources[index]
        if source is not None:
            self._pending_pages[asyncio.ensure_future(anext(source))] = index

    async def _next_pages(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """What came next, of one session or of several; nothing when the time is over."""
        done, _ = await asyncio.wait(
            self._pending_pages, timeout=max(0.0, timeout_s), return_when=asyncio.FIRST_COMPLETED
        )
        pages = []
        for task in done:
            number = self._pending_pages.pop(task)
            if not isinstance(task.exception(), StopAsyncIteration):
                pages.append((number, self._rewrite_cursors(task.result(), number)))
        return pages

    def _rewrite_cursors(self, page: bytes, index: int) -> bytes:
        """A page of one session with the cursors of all of them."""

        def line(match: re.Match[bytes]) -> bytes:
            self._cursors[index] = match[1]
            return b"id: " + b",".join(self._cursors)

        return _ID.sub(line, page)
