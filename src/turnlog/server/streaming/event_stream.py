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

from turnlog.app import Membership, Sessions
from turnlog.errors import BadInput, NotFound
from turnlog.events import Envelope, Payload, SessionMember, UnknownPayload
from turnlog.log import Log, Page, SessionRecord
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.push import FrameSink
from turnlog.log.subscription import NO_PAGE_LOCK, ChargeBytes, FollowOptions, PageLock
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.auth.credentials import Identity
from turnlog.server.limits import Limits, RateLimiter
from turnlog.server.metrics import Metrics
from turnlog.server.read_cost import ReadMeter
from turnlog.server.streaming.merged_stream import MergedStream
from turnlog.server.streaming.projection import DialectProjection
from turnlog.server.streaming.query import (
    last_complete_seq,
    parse_cursors,
    parse_dialect_request,
    parse_event_filter,
    parse_session_ids,
    reset_reason,
    with_epoch,
)
from turnlog.server.streaming.streams import (
    HEARTBEAT_FRAME,
    EventStreamResponse,
    IteratorSource,
    StreamRegistry,
)
from turnlog.server.streaming.turn_response import (
    DONE_FRAME,
    HEARTBEAT_INTERVAL_S,
    Frames,
    TurnResponse,
    make_dialect,
    with_heartbeats,
)
from turnlog.state.tree import Tree
from turnlog.wire import sse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.registry import ConfiguredDialectFactory, DialectRequest

FILTERED_PAGE_BYTES = (
    16 * 1024
)  # what a filter passes over is taken by nobody: its pages must not grow with it


class EventStreamRoute:
    """What is asked for, and what projects it. The streams themselves are `readers`."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        metrics: Metrics,
        rate_limiter: RateLimiter,
        limits: Limits,
        dialects: Mapping[str, ConfiguredDialectFactory],
        is_still_valid: Callable[[Identity], bool],
    ) -> None:
        self.sessions = sessions
        self.dialects = dialects
        self._rate_limiter = rate_limiter
        self.streams = StreamRegistry(sessions, metrics, rate_limiter, limits, is_still_valid)
        self._projections: dict[
            tuple[str, str, DialectRequest, frozenset[str] | None], DialectProjection
        ] = {}

    def projection_lags(self) -> list[int]:
        """How many events each shared projection is behind its session."""
        return [shared.lag for shared in self._projections.values()]

    def stop(self) -> None:
        """End every open stream; readers come back with their cursor."""
        self.streams.end_all()

    def observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """When somebody's roles change, their streams end."""
        if isinstance(payload, SessionMember):
            self.streams.on_roles_changed(envelope.session_id, payload)

    async def follow_events(self, request: Request) -> Response | EventStreamResponse:
        """The route."""
        known, seats = get_identity(request.scope), await self._find_memberships(request)
        frames = await self._frames(request, seats, ReadMeter(self._rate_limiter, known.principal))
        if frames is None:
            return Response(status_code=204)
        return self.streams.make_response(
            frames if isinstance(frames, LogSource) else IteratorSource(frames), known, seats
        )

    async def _find_memberships(self, request: Request) -> list[Membership]:
        """The caller's seats in the sessions it names; without a name, where its messages without one go."""
        query, sessions = request.query_params, self.sessions()
        request.scope["turnlog.session"] = query.get("session", "")[:80]
        if "session" in query:
            principal = get_identity(request.scope).principal
            return [await sessions.get_membership(principal, name) for name in parse_session_ids(query)]
        seat = await sessions.ensure_default_session(get_session_creator(request.scope), query.get("app"))
        request.scope["turnlog.session"] = seat.session_id
        return [seat]

    async def _frames(
        self, request: Request, memberships: Sequence[Membership], meter: ReadMeter
    ) -> "Frames | LogSource | None":
        """The frames a request asks for; None when there is nothing more to come."""
        query = request.query_params
        wanted, choice = parse_dialect_request(query, self.dialects), parse_event_filter(query)
        if wanted.name != "turnlog" or choice != MATCH_ALL:
            meter.check_budget()
        text = request.headers.get("last-event-id") or query.get("after") or ""
        parsed = parse_cursors(text, len(memberships))
        cursors = [with_epoch(at, seat.record) for at, seat in zip(parsed, memberships, strict=True)]
        if len(memberships) == 1:
            return await self._session_frames(memberships[0], wanted, choice, cursors[0], meter)
        if choice.turn is not None:
            raise BadInput("expected one session with a turn", "turn")
        gate = asyncio.Lock()  # one page of all these sessions is held at a time
        found = [
            await self._session_frames(seat, wanted, choice, at, meter, gate)
            for seat, at in zip(memberships, cursors, strict=True)
        ]
        if not any(found):
            return None
        sources = [frames.frames(gate) if isinstance(frames, LogSource) else frames for frames in found]
        return MergedStream(sources, cursors).frames(HEARTBEAT_FRAME, HEARTBEAT_INTERVAL_S)

    async def _session_frames(
        self,
        membership: Membership,
        dialect_request: DialectRequest,
        event_filter: EventFilter,
        at: Cursor,
        meter: ReadMeter,
        gate: PageLock = NO_PAGE_LOCK,
    ) -> "Frames | LogSource | None":
        """The frames of one session after a cursor."""
        sessions, event_filter = self.sessions(), event_filter._replace(channels=membership.visible_channels)
        await sessions.ensure_driver(membership)
        head = await sessions.log.info(membership.session_id)
        if event_filter.turn is not None:
            return await self._turn_frames(
                membership, dialect_request, event_filter, event_filter.turn, head, at
            )
        reason = reset_reason(at, head)
        held = (
            at.seq < 0
            or at.seq > head.pruned_through
            or await sessions.log.has_event(membership.session_id, at.seq)
        )
        if reason is None and not held:
            reason = "pruned"
        if reason is None and head.closed and at.seq == head.last and at.chunk is None:
            return None
        start = Cursor() if reason else at
        frames = self._dialect_frames(
            membership, dialect_request, event_filter, head, start, gate, meter.charge_and_wait
        )
        if reason is None:
            return frames
        return prepend_reset_event(
            reason, head, frames.frames(gate) if isinstance(frames, LogSource) else frames
        )

    async def _turn_frames(
        self,
        membership: Membership,
        dialect_request: DialectRequest,
        event_filter: EventFilter,
        trace: str,
        head: SessionRecord,
        at: Cursor,
    ) -> Frames | None:
        """The chosen events of one turn as a response; None when it was read to its end.

        A cursor of another epoch begins it again.
        """
        sessions = self.sessions()
        at = Cursor() if reset_reason(at, head) else at
        tree = await sessions.tree(membership)
        place = await sessions.log.turn_bounds(head.session_id, trace)
        if (place is None and trace not in tree.queued_turns) or not await self._may_see_turn(
            membership, trace, place, tree
        ):
            raise NotFound(f"no turn {trace[:80]} in this session")
        first, last = place or (head.last + 1, None)
        turn = TurnResponse(
            sessions, membership, head, trace, min(first, last_complete_seq(at) + 1), event_filter
        )
        turn.tree.queued_turns = dict(tree.queued_turns)
        # A turn that is over is read to its own end, whatever has happened since.
        frames = await turn.stream_frames(
            dialect_request, at, max(first, head.last) if last is None else last
        )
        return frames if last is None else await peek_frames(frames)

    async def _may_see_turn(
        self, membership: Membership, trace: str, turn_bounds: tuple[int, int | None] | None, tree: Tree
    ) -> bool:
        """Whether a turn is in a channel of the reader's."""
        if turn_bounds is None:
            return membership.may_see(tree.queued_turns[trace].scope.channel)
        rows = await self.sessions().log.read(membership.session_id, turn_bounds[0] - 1, max_bytes=1)
        return not rows or membership.may_see(rows[0].channel)

    def _dialect_frames(
        self,
        membership: Membership,
        dialect_request: DialectRequest,
        event_filter: EventFilter,
        head: SessionRecord,
        at: Cursor,
        gate: PageLock,
        spend: ChargeBytes,
    ) -> "Frames | LogSource":
        if dialect_request.name == "turnlog":
            name, epoch, log = head.session_id, head.epoch, self.sessions().log
            after = last_complete_seq(at)
            if event_filter == MATCH_ALL:
                return LogSource(log, name, after, epoch)
            pages = log.follow(
                name,
                after,
                replay_from=after,
                idle_s=HEARTBEAT_INTERVAL_S,
                epoch=epoch,
                max_bytes=FILTERED_PAGE_BYTES,
                page_lock=gate,
                options=FollowOptions(event_filter.types, spend),
            )
            return filter_pages(pages, epoch, event_filter)
        frames = self._shared_projection(membership, dialect_request, head).frames(
            at, HEARTBEAT_INTERVAL_S, event_filter, gate, spend
        )
        return with_heartbeats(frames, dialect_request, head.session_id, at)

    def _shared_projection(
        self, membership: Membership, dialect_request: DialectRequest, head: SessionRecord
    ) -> DialectProjection:
        """The shared projection; one without readers is made anew."""
        key = (head.session_id, head.epoch, dialect_request, membership.visible_channels)
        self._projections = {k: shared for k, shared in self._projections.items() if shared.reader_count}
        if key not in self._projections:
            log = self.sessions().log
            make = partial(make_dialect, log, membership, dialect_request)
            covers = EventFilter(channels=membership.visible_channels).matches_turn_and_channel
            self._projections[key] = DialectProjection(log, head, membership.app.catalog, make, covers)
        return self._projections[key]


class LogSource:
    """A session whole, in its own dialect, after a cursor: handed on as it is appended, or page by page."""

    __slots__ = ("_after", "_epoch", "_log", "_session_id")

    def __init__(self, log: Log, session_id: str, after: int, epoch: str) -> None:
        self._log = log
        self._session_id = session_id
        self._after = after
        self._epoch = epoch

    def deliver(self, sink: FrameSink) -> Awaitable[None]:
        """What there is, and what comes."""
        at, log = self._after, self._log
        return log.push_frames(
            self._session_id, sink, at, replay_from=at, idle_s=HEARTBEAT_INTERVAL_S, epoch=self._epoch
        )

    def frames(self, gate: PageLock) -> Frames:
        at, log = self._after, self._log
        return log.follow_frames(
            self._session_id,
            at,
            replay_from=at,
            idle_s=HEARTBEAT_INTERVAL_S,
            epoch=self._epoch,
            page_lock=gate,
        )


async def prepend_reset_event(reason: str, head: SessionRecord, frames: Frames) -> Frames:
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


async def peek_frames(frames: Frames) -> Frames | None:
    """The frames of a turn that is over; None if only its end is left."""
    begin = await anext(frames, DONE_FRAME)
    if begin == DONE_FRAME:
        return None

    async def all_frames() -> Frames:
        async with aclosing(frames):
            yield begin
            async for page in frames:
                yield page

    return all_frames()


def encode_matching_rows(page: Page, epoch: str, event_filter: EventFilter) -> tuple[bytes, int]:
    """What is wanted of a page, as it is sent, and its last seq."""
    rows = [row for row in page if event_filter.matches(row)]
    return (Page(rows, epoch).frames().data, rows[-1].seq) if rows else (b"", -1)


async def filter_pages(pages: AsyncGenerator[Page, None], epoch: str, event_filter: EventFilter) -> Frames:
    """The wanted events; what is passed over moves the cursor with the next heartbeat."""
    seen, told, clock = -1, -1, asyncio.get_running_loop().time
    beat = clock()
    async with aclosing(pages):
        async for page in pages:
            data, last = encode_matching_rows(page, epoch, event_filter)
            silent = not page and page.upto is None
            if page.upto is not None:
                seen = page.upto
            elif page:
                seen = page.last
            del page  # a reader that does not take what is sent holds on to nothing else
            if data:
                yield data
                told, beat = last, clock()
            elif silent or clock() - beat >= HEARTBEAT_INTERVAL_S:
                line = f"id: {Cursor(seen, epoch)}\n\n".encode() if seen > told else b""
                yield HEARTBEAT_FRAME + line
                told, beat = seen, clock()
    if seen > told:  # the session is closed, and who comes back is told so
        yield f"id: {Cursor(seen, epoch)}\n\n".encode()
