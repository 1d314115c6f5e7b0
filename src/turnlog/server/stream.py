"""`GET /api/events`: a session's log as Server-Sent Events, resumable (protocol section 7). Raw ASGI.

A subscriber is a cursor: it pulls pages from the log and sends each page with one write. The stream ends when
the client leaves or the server stops; neither touches the session. Heartbeats and `reset` are named events
without an id, so they reach pages and move no cursor.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnlog.app import Seat, Sessions
from turnlog.errors import BadInput, Damaged, NotFound, TurnlogError
from turnlog.events import Envelope, Payload, SessionMember, Unknown
from turnlog.log import Head, Page
from turnlog.log.choice import EVERYTHING, Choice
from turnlog.server.auth import Known
from turnlog.server.entry import known_of
from turnlog.server.limits import Budgets, Limits
from turnlog.server.merge import Merged
from turnlog.server.metrics import Metrics
from turnlog.server.projection import Projection
from turnlog.server.response import ENDING, HEARTBEAT_S, Frames, Turn, make_dialect
from turnlog.server.wanted import (
    reset_reason,
    wanted_cursors,
    wanted_dialect,
    wanted_events,
    wanted_sessions,
)
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.telling import Wanted

HEARTBEAT = sse.encode(b'{"type":"heartbeat"}', event="heartbeat")
RETRY = b"retry: 1000\n\n"
HEADERS: "Headers" = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

Headers = list[tuple[bytes, bytes]]


class TooManyStreams(TurnlogError):
    """A principal has as many streams open as it may."""


class Open(NamedTuple):
    """A stream that is open, and the seats it is read from."""

    known: Known
    seats: Sequence[Seat]


class EventStream:
    """The ASGI endpoint, and the streams that are open on it."""

    def __init__(
        self, sessions: Callable[[], Sessions], metrics: Metrics, budgets: Budgets, limits: Limits
    ) -> None:
        self.sessions = sessions
        self._metrics = metrics
        self._budgets = budgets
        self._life_s = limits.life_s
        self._open: dict[asyncio.Task[None], Open] = {}
        self._projections: dict[tuple[str, str, Wanted, Choice], Projection] = {}

    def lags(self) -> list[int]:
        """How many events each shared projection is behind its session."""
        return [shared.lag for shared in self._projections.values()]

    def stop(self) -> None:
        """End every open stream; readers come back with their cursor."""
        for task in self._open:
            task.cancel()

    def observe(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """When somebody's roles change, their streams end; they come back if they still may."""
        if isinstance(payload, SessionMember):
            for task, (_, seats) in self._open.items():
                if any(changes(seat, envelope.session_id, payload) for seat in seats):
                    task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        principal, query = known_of(scope).principal, request.query_params
        scope["turnlog.session"] = query.get("session", "")[:80]
        seats = [await self.sessions().seat(principal, name) for name in wanted_sessions(query)]
        frames = await self._frames(request, seats)
        if frames is None:
            await Response(status_code=204)(scope, receive, send)
        else:
            await self.serve(frames, seats, HEADERS, request, send)

    async def serve(
        self, frames: Frames, seats: Sequence[Seat], headers: Headers, request: Request, send: Send
    ) -> None:
        """Send frames until they end, the client leaves, its time is over or the server stops."""
        known = known_of(request.scope)
        if not self._budgets.open_stream(known.principal.name):
            raise TooManyStreams("too many open streams, close some")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._pump(frames, Open(known, seats), request.receive, send)
        finally:
            self._budgets.close_stream(known.principal.name)
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, frames: Frames, opened: Open, receive: Receive, send: Send) -> None:
        pump = asyncio.create_task(self._tell(frames, opened, send))
        self._open[pump] = opened
        self._metrics.subscribers += 1
        gone = asyncio.create_task(left(receive))
        gone.add_done_callback(lambda _: pump.cancel())
        end = asyncio.get_running_loop().call_later(self._remaining_s(opened.known), pump.cancel)
        try:
            await asyncio.wait({pump})
        finally:
            pump.cancel()
            del self._open[pump]
            self._metrics.subscribers -= 1
            end.cancel()
            gone.cancel()

    async def _tell(self, frames: Frames, opened: Open, send: Send) -> None:
        """Send, unless roles changed since they were looked up; from here on `observe` hears of changes."""
        for seat in opened.seats:
            members = (await self.sessions().log.info(seat.session_id)).members
            if seat.principal.roles | frozenset(members.get(seat.principal.name, ())) != seat.roles:
                return
        await pump_frames(frames, send, self._metrics)

    def _remaining_s(self, known: Known) -> float:
        """How long a stream lives: until its reader has to show again that it may read."""
        left_s = math.inf if known.until is None else max(0.0, known.until - time.time())
        return min(self._life_s * random.uniform(0.9, 1.0), left_s)  # not all come back at once

    async def _frames(self, request: Request, seats: Sequence[Seat]) -> Frames | None:
        """The frames a request asks for; None when there is nothing more to come."""
        query = request.query_params
        wanted, choice = wanted_dialect(query), wanted_events(query)
        text = request.headers.get("last-event-id") or query.get("after") or ""
        cursors = wanted_cursors(text, len(seats))
        if len(seats) == 1:
            return await self._session_frames(seats[0], wanted, choice, cursors[0])
        if choice.turn is not None:
            raise BadInput("expected one session with a turn", "turn")
        sources = [
            await self._session_frames(seat, wanted, choice, at)
            for seat, at in zip(seats, cursors, strict=True)
        ]
        if all(source is None for source in sources):
            return None
        return Merged(sources, cursors).frames(HEARTBEAT, HEARTBEAT_S)

    async def _session_frames(self, seat: Seat, wanted: Wanted, choice: Choice, at: Cursor) -> Frames | None:
        """The frames of one session after a cursor."""
        sessions, choice = self.sessions(), choice._replace(channels=seat.sees)
        await sessions.touch(seat)
        head = await sessions.log.info(seat.session_id)
        if choice.turn is not None:
            return await self._turn_frames(seat, wanted, choice.turn, head, at)
        reason = reset_reason(at, head)
        held = at.seq < 0 or at.seq > head.pruned or await sessions.log.holds(seat.session_id, at.seq)
        if reason is None and not held:
            reason = "pruned"
        if reason is None and head.closed and at.seq == head.last:
            return None
        frames = self._dialect_frames(seat, wanted, choice, head, Cursor() if reason else at)
        return after_reset(reason, head, frames) if reason else frames

    async def _turn_frames(
        self, seat: Seat, wanted: Wanted, trace: str, head: Head, at: Cursor
    ) -> Frames | None:
        """One turn as a response; None when it was read to its end. Another epoch begins it again."""
        sessions = self.sessions()
        at = Cursor() if reset_reason(at, head) else at
        tree = await sessions.tree(seat)
        place = await sessions.log.turn(head.session_id, trace)
        if (place is None and trace not in tree.queue) or not await self._may_see(seat, trace, place, tree):
            raise NotFound(f"no turn {trace[:80]} in this session")
        first, last = place or (head.last + 1, None)
        turn = Turn(sessions, seat, head, trace, min(first, at.seq + 1))
        turn.tree.queue = dict(tree.queue)
        frames = await turn.response(wanted, at, max(first, head.last))
        return frames if last is None else await unless_empty(frames)

    async def _may_see(
        self, seat: Seat, trace: str, place: tuple[int, int | None] | None, tree: Tree
    ) -> bool:
        """Whether a turn is in a channel of the reader's."""
        if place is None:
            return seat.may_see(tree.queue[trace].scope.channel)
        rows = await self.sessions().log.read(seat.session_id, place[0] - 1, max_bytes=1)
        return not rows or seat.may_see(rows[0].channel)

    def _dialect_frames(self, seat: Seat, wanted: Wanted, choice: Choice, head: Head, at: Cursor) -> Frames:
        sessions = self.sessions()
        if wanted.name == "turnlog":
            after = at.seq if at.chunk is None else at.seq - 1  # a chunk of another dialect: the event again
            asked: dict[str, Any] = {"origin": after, "idle_s": HEARTBEAT_S, "epoch": head.epoch}
            if choice == EVERYTHING:
                return sessions.log.frames(head.session_id, after, **asked)
            return chosen(sessions.log.follow(head.session_id, after, **asked), head.epoch, choice)
        return self._projection(seat, wanted, choice, head).frames(at, HEARTBEAT_S)

    def _projection(self, seat: Seat, wanted: Wanted, choice: Choice, head: Head) -> Projection:
        """The shared projection; one without readers is made anew."""
        key = (head.session_id, head.epoch, wanted, choice)
        self._projections = {k: shared for k, shared in self._projections.items() if shared.readers}
        if key not in self._projections:
            log = self.sessions().log
            make = partial(make_dialect, log, seat, wanted)
            takes = None if choice == EVERYTHING else choice.takes
            self._projections[key] = Projection(log, head, seat.app.catalog, make, takes)
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


def changes(seat: Seat, session_id: str, payload: SessionMember) -> bool:
    """Whether somebody's roles in a session are others now."""
    if (seat.session_id, seat.principal.name) != (session_id, payload.principal):
        return False
    return seat.principal.roles | frozenset(payload.roles) != seat.roles


async def after_reset(reason: str, head: Head, frames: Frames) -> Frames:
    """Say that the cursor cannot be continued, then what there is."""
    reset = {
        "type": "reset",
        "reason": reason,
        "session_id": head.session_id,
        "epoch": head.epoch,
        "first": head.first,
        "last": head.last,
    }
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
    if seen > told:  # the session is closed, and who comes back is told so
        yield f"id: {Cursor(seen, epoch)}\n\n".encode()
