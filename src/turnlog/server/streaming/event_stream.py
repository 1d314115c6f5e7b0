"""`GET /api/events`: a session's log as Server-Sent Events, resumable (protocol section 7).

What a request asks for becomes the frames of one session or of several, after a cursor; `streams.py`
sends them. Heartbeats and `reset` are named events without an id, so they reach pages and move no cursor.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Seat, Sessions
from turnlog.errors import BadInput, NotFound
from turnlog.events import Envelope, Payload, SessionMember, Unknown
from turnlog.log import Head, Log, Page
from turnlog.log.filter import EVERYTHING, Choice
from turnlog.log.push import Take
from turnlog.log.subscription import OPEN_GATE, Asked, Gate, Spend
from turnlog.server.auth.authentication import known_of, maker_of
from turnlog.server.auth.credentials import Known
from turnlog.server.limits import Budgets, Limits
from turnlog.server.metrics import Metrics
from turnlog.server.read_cost import ReadMeter
from turnlog.server.streaming.merged_stream import Merged
from turnlog.server.streaming.projection import Projection
from turnlog.server.streaming.query import (
    in_epoch,
    reset_reason,
    wanted_cursors,
    wanted_dialect,
    wanted_events,
    wanted_sessions,
    whole,
)
from turnlog.server.streaming.streams import HEARTBEAT, Pages, Reader, Readers
from turnlog.server.streaming.turn_response import ENDING, HEARTBEAT_S, Frames, Turn, beating, make_dialect
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.registry import Make, Wanted

FILTERED_BYTES = 16 * 1024  # what a filter passes over is taken by nobody: its pages must not grow with it


class EventStream:
    """What is asked for, and what projects it. The streams themselves are `readers`."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        metrics: Metrics,
        budgets: Budgets,
        limits: Limits,
        dialects: Mapping[str, Make],
        holds: Callable[[Known], bool],
    ) -> None:
        self.sessions = sessions
        self.dialects = dialects
        self._budgets = budgets
        self.readers = Readers(sessions, metrics, budgets, limits, holds)
        self._projections: dict[tuple[str, str, Wanted, frozenset[str] | None], Projection] = {}

    def lags(self) -> list[int]:
        """How many events each shared projection is behind its session."""
        return [shared.lag for shared in self._projections.values()]

    def stop(self) -> None:
        """End every open stream; readers come back with their cursor."""
        self.readers.stop()

    def observe(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """When somebody's roles change, their streams end."""
        if isinstance(payload, SessionMember):
            self.readers.change(envelope.session_id, payload)

    async def events(self, request: Request) -> Response | Reader:
        """The route."""
        known, seats = known_of(request.scope), await self._seats(request)
        frames = await self._frames(request, seats, ReadMeter(self._budgets, known.principal))
        if frames is None:
            return Response(status_code=204)
        return self.readers.response(frames if isinstance(frames, Whole) else Pages(frames), known, seats)

    async def _seats(self, request: Request) -> list[Seat]:
        """The caller's seats in the sessions it names; without a name, where its messages without one go."""
        query, sessions = request.query_params, self.sessions()
        request.scope["turnlog.session"] = query.get("session", "")[:80]
        if "session" in query:
            principal = known_of(request.scope).principal
            return [await sessions.seat(principal, name) for name in wanted_sessions(query)]
        seat = await sessions.default(maker_of(request.scope), query.get("app"))
        request.scope["turnlog.session"] = seat.session_id
        return [seat]

    async def _frames(
        self, request: Request, seats: Sequence[Seat], meter: ReadMeter
    ) -> "Frames | Whole | None":
        """The frames a request asks for; None when there is nothing more to come."""
        query = request.query_params
        wanted, choice = wanted_dialect(query, self.dialects), wanted_events(query)
        if wanted.name != "turnlog" or choice != EVERYTHING:
            meter.admit()
        text = request.headers.get("last-event-id") or query.get("after") or ""
        parsed = wanted_cursors(text, len(seats))
        cursors = [in_epoch(at, seat.head) for at, seat in zip(parsed, seats, strict=True)]
        if len(seats) == 1:
            return await self._session_frames(seats[0], wanted, choice, cursors[0], meter)
        if choice.turn is not None:
            raise BadInput("expected one session with a turn", "turn")
        gate = asyncio.Lock()  # one page of all these sessions is held at a time
        found = [
            await self._session_frames(seat, wanted, choice, at, meter, gate)
            for seat, at in zip(seats, cursors, strict=True)
        ]
        if not any(found):
            return None
        sources = [frames.frames(gate) if isinstance(frames, Whole) else frames for frames in found]
        return Merged(sources, cursors).frames(HEARTBEAT, HEARTBEAT_S)

    async def _session_frames(
        self,
        seat: Seat,
        wanted: Wanted,
        choice: Choice,
        at: Cursor,
        meter: ReadMeter,
        gate: Gate = OPEN_GATE,
    ) -> "Frames | Whole | None":
        """The frames of one session after a cursor."""
        sessions, choice = self.sessions(), choice._replace(channels=seat.sees)
        await sessions.touch(seat)
        head = await sessions.log.info(seat.session_id)
        if choice.turn is not None:
            return await self._turn_frames(seat, wanted, choice, choice.turn, head, at)
        reason = reset_reason(at, head)
        held = at.seq < 0 or at.seq > head.pruned or await sessions.log.holds(seat.session_id, at.seq)
        if reason is None and not held:
            reason = "pruned"
        if reason is None and head.closed and at.seq == head.last and at.chunk is None:
            return None
        start = Cursor() if reason else at
        frames = self._dialect_frames(seat, wanted, choice, head, start, gate, meter.spend)
        if reason is None:
            return frames
        return after_reset(reason, head, frames.frames(gate) if isinstance(frames, Whole) else frames)

    async def _turn_frames(
        self, seat: Seat, wanted: Wanted, choice: Choice, trace: str, head: Head, at: Cursor
    ) -> Frames | None:
        """The chosen events of one turn as a response; None when it was read to its end.

        A cursor of another epoch begins it again.
        """
        sessions = self.sessions()
        at = Cursor() if reset_reason(at, head) else at
        tree = await sessions.tree(seat)
        place = await sessions.log.turn(head.session_id, trace)
        if (place is None and trace not in tree.queue) or not await self._may_see(seat, trace, place, tree):
            raise NotFound(f"no turn {trace[:80]} in this session")
        first, last = place or (head.last + 1, None)
        turn = Turn(sessions, seat, head, trace, min(first, whole(at) + 1), choice)
        turn.tree.queue = dict(tree.queue)
        # A turn that is over is read to its own end, whatever has happened since.
        frames = await turn.response(wanted, at, max(first, head.last) if last is None else last)
        return frames if last is None else await unless_empty(frames)

    async def _may_see(
        self, seat: Seat, trace: str, place: tuple[int, int | None] | None, tree: Tree
    ) -> bool:
        """Whether a turn is in a channel of the reader's."""
        if place is None:
            return seat.may_see(tree.queue[trace].scope.channel)
        rows = await self.sessions().log.read(seat.session_id, place[0] - 1, max_bytes=1)
        return not rows or seat.may_see(rows[0].channel)

    def _dialect_frames(
        self,
        seat: Seat,
        wanted: Wanted,
        choice: Choice,
        head: Head,
        at: Cursor,
        gate: Gate,
        spend: Spend,
    ) -> "Frames | Whole":
        if wanted.name == "turnlog":
            name, epoch, log = head.session_id, head.epoch, self.sessions().log
            after = whole(at)
            if choice == EVERYTHING:
                return Whole(log, name, after, epoch)
            pages = log.follow(
                name,
                after,
                origin=after,
                idle_s=HEARTBEAT_S,
                epoch=epoch,
                max_bytes=FILTERED_BYTES,
                gate=gate,
                asked=Asked(choice.types, spend),
            )
            return chosen(pages, epoch, choice)
        frames = self._projection(seat, wanted, head).frames(at, HEARTBEAT_S, choice, gate, spend)
        return beating(frames, wanted, head.session_id, at)

    def _projection(self, seat: Seat, wanted: Wanted, head: Head) -> Projection:
        """The shared projection; one without readers is made anew."""
        key = (head.session_id, head.epoch, wanted, seat.sees)
        self._projections = {k: shared for k, shared in self._projections.items() if shared.readers}
        if key not in self._projections:
            log = self.sessions().log
            make = partial(make_dialect, log, seat, wanted)
            covers = Choice(channels=seat.sees).covers
            self._projections[key] = Projection(log, head, seat.app.catalog, make, covers)
        return self._projections[key]


class Whole:
    """A session whole, in its own dialect, after a cursor: handed on as it is appended, or page by page."""

    __slots__ = ("_after", "_epoch", "_log", "_session_id")

    def __init__(self, log: Log, session_id: str, after: int, epoch: str) -> None:
        self._log = log
        self._session_id = session_id
        self._after = after
        self._epoch = epoch

    def deliver(self, take: Take) -> Awaitable[None]:
        """What there is, and what comes."""
        at, log = self._after, self._log
        return log.deliver(self._session_id, take, at, origin=at, idle_s=HEARTBEAT_S, epoch=self._epoch)

    def frames(self, gate: Gate) -> Frames:
        at, log = self._after, self._log
        return log.frames(self._session_id, at, origin=at, idle_s=HEARTBEAT_S, epoch=self._epoch, gate=gate)


async def after_reset(reason: str, head: Head, frames: Frames) -> Frames:
    """Say that the cursor cannot be continued, then what there is."""
    reset = {
        "type": "reset",
        "agent": "",  # these three are of every line of `blocks` (protocol 7.4)
        "final": True,
        "delta": "",
        "reason": reason,
        "session_id": head.session_id,
        "epoch": head.epoch,
        "first": head.first,
        "last": head.last,
    }
    async with aclosing(frames):
        yield sse.encode(json.encode(reset), event="reset")
        async for page in frames:
            yield page


async def unless_empty(frames: Frames) -> Frames | None:
    """The frames of a turn that is over; None if only its end is left."""
    begin = await anext(frames, ENDING)
    if begin == ENDING:
        return None

    async def all_frames() -> Frames:
        async with aclosing(frames):
            yield begin
            async for page in frames:
                yield page

    return all_frames()


def told_of(page: Page, epoch: str, choice: Choice) -> tuple[bytes, int]:
    """What is wanted of a page, as it is sent, and its last seq."""
    rows = [row for row in page if choice.takes(row)]
    return (Page(rows, epoch).ready().data, rows[-1].seq) if rows else (b"", -1)


async def chosen(pages: AsyncGenerator[Page, None], epoch: str, choice: Choice) -> Frames:
    """The wanted events; what is passed over moves the cursor with the next heartbeat."""
    seen, told, clock = -1, -1, asyncio.get_running_loop().time
    beat = clock()
    async with aclosing(pages):
        async for page in pages:
            data, last = told_of(page, epoch, choice)
            silent = not page and page.upto is None
            if page.upto is not None:
                seen = page.upto
            elif page:
                seen = page.last
            del page  # a reader that does not take what is sent holds on to nothing else
            if data:
                yield data
                told, beat = last, clock()
            elif silent or clock() - beat >= HEARTBEAT_S:
                line = f"id: {Cursor(seen, epoch)}\n\n".encode() if seen > told else b""
                yield HEARTBEAT + line
                told, beat = seen, clock()
    if seen > told:  # the session is closed, and who comes back is told so
        yield f"id: {Cursor(seen, epoch)}\n\n".encode()
