"""A response: one turn as a stream that ends (protocol section 8).

It begins at the event that opened the turn or went on with it, tells only that turn, and ends when the turn
is over or everyone in it waits; in the block dialects `[DONE]` is its last message and has no id. Cutting it
stops nothing: its headers name session and turn.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from turnlog.app import Sessions
from turnlog.events import decode
from turnlog.log import Head, Page, Row, line_of
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialect import Dialect
from turnlog.wire.telling import frames as told_frames

Place = tuple[int, float]  # a seq, and the number of a message within its event


class Turn:
    """One turn while it is told: what is open in it, and its dialect (None: the envelopes themselves)."""

    def __init__(self, sessions: Sessions, head: Head, turn: str, dialect: Dialect | None) -> None:
        self._catalog = sessions.app.catalog
        self._epoch = head.epoch
        self._turn = turn
        self._dialect = dialect
        self.tree = Tree()

    @property
    def rests(self) -> bool:
        """Whether there is nothing more to tell for now."""
        return self.tree.rests(self._turn)

    def tell(self, row: Row, seen: Place) -> list[bytes]:
        """The frames of one event after a place."""
        envelope = decode(line_of(row))
        payload = self._catalog.payload(envelope)
        self.tree.apply(envelope, payload)
        if row.trace != self._turn:
            return []
        if self._dialect is None:
            return [Page([row], self._epoch).ready()] if (row.seq, 0.0) > seen else []
        ready = told_frames(self._dialect.convert(envelope, payload), row.seq, self._epoch)
        return [frame for number, frame in enumerate(ready) if (row.seq, float(number)) > seen]

    def close(self) -> bytes:
        """What ends the response."""
        return b"".join([sse.encode(message) for message in self._dialect.close()]) if self._dialect else b""


async def response(
    pages: AsyncGenerator[Page, None], turn: Turn, at: Cursor, begun: int
) -> AsyncIterator[bytes]:
    """The frames of a turn after a cursor, until it rests at or after the seq `begun`."""
    seen = (at.seq, float("inf") if at.chunk is None else float(at.chunk))
    async with aclosing(pages):
        async for page in pages:
            frames: list[bytes] = []
            for row in page:
                frames += turn.tell(row, seen)
                if turn.rests and row.seq >= begun:
                    yield b"".join(frames) + turn.close()
                    return
            if frames or not page:
                yield b"".join(frames)
