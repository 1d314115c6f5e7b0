"""`GET /api/events`: a session's log as Server-Sent Events, resumable (protocol section 7). Raw ASGI.

A subscriber is a cursor: it pulls pages from the log and sends each page with one write. The stream ends when
the client leaves or the server stops; neither touches the session. Heartbeats and `reset` are named events
without an id, so they reach pages and move no cursor.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnlog.app import Sessions
from turnlog.errors import Damaged, NotFound
from turnlog.log import Head, Page
from turnlog.log.choice import EVERYTHING, Choice
from turnlog.server.metrics import Metrics
from turnlog.server.projection import Projection
from turnlog.server.response import ENDING, HEARTBEAT_S, Frames, Turn, make_dialect
from turnlog.server.wanted import wanted_dialect, wanted_events
from turnlog.wire import cursor, sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.telling import Wanted

HEARTBEAT = sse.encode(b'{"type":"heartbeat"}', event="heartbeat")
RETRY = b"retry: 1000\n\n"
HEADERS: "Headers" = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]

Headers = list[tuple[bytes, bytes]]


class EventStream:
    """The ASGI endpoint, and the streams that are open on it."""

    def __init__(self, sessions: Callable[[], Sessions], metrics: Metrics) -> None:
        self.sessions = sessions
        self._metrics = metrics
        self._open: set[asyncio.Task[None]] = set()
        self._projections: dict[tuple[str, str, Wanted, Choice], Projection] = {}

    def lags(self) -> list[int]:
        """How many events each shared projection is behind its session."""
        return [shared.lag for shared in self._projections.values()]

    def stop(self) -> None:
        """End every open stream; readers come back with their cursor."""
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        frames = await self._frames(Request(scope, receive))
        if frames is None:
            await Response(status_code=204)(scope, receive, send)
        else:
            await self.serve(frames, HEADERS, receive, send)

    async def serve(self, frames: Frames, headers: Headers, receive: Receive, send: Send) -> None:
        """Send frames until they end, the client leaves or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pump = asyncio.create_task(pump_frames(frames, send, self._metrics))
        self._open.add(pump)
        self._metrics.subscribers += 1
        gone = asyncio.create_task(left(receive))
        gone.add_done_callback(lambda _: pump.cancel())
        try:
            await asyncio.wait({pump})
        finally:
            self._open.discard(pump)
            self._metrics.subscribers -= 1
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _frames(self, request: Request) -> Frames | None:
        """The frames a request asks for; None when there is nothing more to come."""
        sessions, query = self.sessions(), request.query_params
        session_id, wanted, choice = query.get("session", ""), wanted_dialect(query), wanted_events(query)
        at = cursor.parse(request.headers.get("last-event-id") or query.get("after") or "")
        await sessions.driver(session_id)
        head = await sessions.log.info(session_id)
        if choice.turn is not None:
            return await self._turn_frames(wanted, choice.turn, sessions, head, at)
        reason = reset_reason(at, head)
        if reason is None and 0 <= at.seq <= head.pruned and not await sessions.log.holds(session_id, at.seq):
            reason = "pruned"
        if reason is None and head.closed and at.seq == head.last:
            return None
        frames = self._dialect_frames(wanted, choice, sessions, head, Cursor() if reason else at)
        return after_reset(reason, head, frames) if reason else frames

    async def _turn_frames(
        self, wanted: Wanted, trace: str, sessions: Sessions, head: Head, at: Cursor
    ) -> Frames | None:
        """One turn as a response; None when it was read to its end. Another epoch begins it again."""
        at = Cursor() if reset_reason(at, head) else at
        tree = await sessions.tree(head.session_id)
        place = await sessions.log.turn(head.session_id, trace)
        if place is None and trace not in tree.queue:
            raise NotFound(f"no turn {trace[:80]} in this session")
        first, last = place or (head.last + 1, None)
        turn = Turn(sessions, head, trace, min(first, at.seq + 1))
        turn.tree.queue = dict(tree.queue)
        frames = await turn.response(wanted, at, max(first, head.last))
        return frames if last is None else await unless_empty(frames)

    def _dialect_frames(
        self, wanted: Wanted, choice: Choice, sessions: Sessions, head: Head, at: Cursor
    ) -> Frames:
        if wanted.name == "turnlog":
            after = at.seq if at.chunk is None else at.seq - 1  # a chunk of another dialect: the event again
            asked: dict[str, Any] = {"origin": after, "idle_s": HEARTBEAT_S, "epoch": head.epoch}
            if choice == EVERYTHING:
                return sessions.log.frames(head.session_id, after, **asked)
            return chosen(sessions.log.follow(head.session_id, after, **asked), head.epoch, choice)
        return self._projection(wanted, choice, sessions, head).frames(at, HEARTBEAT_S)

    def _projection(self, wanted: Wanted, choice: Choice, sessions: Sessions, head: Head) -> Projection:
        """The shared projection; one without readers is made anew."""
        key = (head.session_id, head.epoch, wanted, choice)
        self._projections = {k: shared for k, shared in self._projections.items() if shared.readers}
        if key not in self._projections:
            make = partial(make_dialect, sessions, head.session_id, wanted)
            takes = None if choice == EVERYTHING else choice.takes
            self._projections[key] = Projection(sessions.log, head, sessions.app.catalog, make, takes)
        return self._projections[key]


async def pump_frames(frames: Frames, send: Send, metrics: Metrics) -> None:
    """Send page after page; each is one write."""
    await send({"type": "http.response.body", "body": RETRY, "more_body": True})
    try:
        async for page in frames:
            await send({"type": "http.response.body", "body": page or HEARTBEAT, "more_body": True})
            metrics.delivered(len(page))
    except Damaged:
        return  # the session has a new epoch now: the reader comes back and is told


async def left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def reset_reason(at: Cursor, head: Head) -> str | None:
    """Why a cursor cannot be continued, if it cannot."""
    if at.epoch is not None and at.epoch != head.epoch:
        return "epoch"
    if at.seq > head.last:
        return "ahead"
    return "expired" if at.seq < head.first - 1 else None


async def after_reset(reason: str, head: Head, frames: Frames) -> Frames:
    """Say that the cursor cannot be continued, then what there is."""
    reset = {"type": "reset", "reason": reason, "epoch": head.epoch, "first": head.first, "last": head.last}
    yield sse.encode(json.encode(reset), event="reset")
    async for page in frames:
        yield page


async def unless_empty(frames: Frames) -> Frames | None:
    """The frames of a turn that is over; None if only its end is left."""
    begin = await anext(frames, ENDING)
    if begin == ENDING:
        return None

    async def all_frames() -> Frames:
        yield begin
        async for page in frames:
            yield page

    return all_frames()


async def chosen(pages: AsyncGenerator[Page, None], epoch: str, choice: Choice) -> Frames:
    """The wanted events; what is passed over moves the cursor with the next heartbeat."""
    seen, told, clock = -1, -1, asyncio.get_running_loop().time
    beat = clock()
    async with aclosing(pages):
        async for page in pages:
            rows = [row for row in page if choice.takes(row)]
            seen = page[-1].seq if page else seen
            if rows:
                yield Page(rows, epoch).ready().data
                told, beat = rows[-1].seq, clock()
            elif not page or clock() - beat >= HEARTBEAT_S:
                line = f"id: {Cursor(seen, epoch)}\n\n".encode() if seen > told else b""
                yield HEARTBEAT + line
                told, beat = seen, clock()
