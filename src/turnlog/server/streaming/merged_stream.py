"""Several sessions on one stream: their frames as they come, each with the cursors of all sessions.

An id becomes the list of all cursors in the order of the sessions, so one Last-Event-ID resumes all of them.
The next page of a session is read when the one before has been sent; sources that share a page lock
(`Log.follow`) hold one page together. Heartbeats of single sessions are dropped; there is one when all are
silent. The end of the history is told once, when all have told theirs. If a session cannot be read any more,
the stream ends with its error, and the reader reconnects with all its cursors.
"""

import asyncio
from collections.abc import Sequence

from turnlog.server.streaming.frames import Frames, with_all_cursors
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.framing import Framing


class MergedStream:
    """Reads the frames of several sessions. A source of None has nothing more to send."""

    def __init__(self, sources: Sequence[Frames | None], cursors: Sequence[Cursor]) -> None:
        self._sources = sources
        self._cursors = [str(cursor).encode() for cursor in cursors]
        self._pending_pages: dict[asyncio.Future[bytes], int] = {}
        self._catching_up = {index for index, source in enumerate(sources) if source is not None}

    async def frames(self, framing: Framing, idle_s: float) -> Frames:
        """Yield pages as they come, and an empty one when no session has sent data for `idle_s`."""
        clock = asyncio.get_running_loop().time
        beat_s = clock() + idle_s
        try:
            for index in range(len(self._sources)):
                self._pull(index)

            while self._pending_pages:
                for index, page in await self._next_pages(beat_s - clock()):
                    data = self._with_common_end(page.replace(framing.heartbeat, b""), framing, index)
                    if data:
                        yield data
                        if b"data:" in data:
                            beat_s = clock() + idle_s
                    self._pull(index)
                if clock() >= beat_s:
                    yield b""
                    beat_s = clock() + idle_s
        finally:
            for task in self._pending_pages:
                task.cancel()
            await asyncio.gather(*self._pending_pages, return_exceptions=True)
            for source in self._sources:
                if source is not None:
                    await source.aclose()

    def _with_common_end(self, page: bytes, framing: Framing, index: int) -> bytes:
        """Return a page without the end of its session's history, but with that of the last session."""
        if not self._catching_up or framing.caught_up not in page:
            return page
        self._catching_up.discard(index)
        return page if not self._catching_up else page.replace(framing.caught_up, b"")

    def _pull(self, index: int) -> None:
        source = self._sources[index]
        if source is not None:
            self._pending_pages[asyncio.ensure_future(anext(source))] = index

    async def _next_pages(self, timeout_s: float) -> list[tuple[int, bytes]]:
        done, _ = await asyncio.wait(
            self._pending_pages, timeout=max(0.0, timeout_s), return_when=asyncio.FIRST_COMPLETED
        )
        pages = []
        for task in done:
            index = self._pending_pages.pop(task)
            if not isinstance(task.exception(), StopAsyncIteration):
                pages.append((index, with_all_cursors(task.result(), self._cursors, index)))
        return pages
