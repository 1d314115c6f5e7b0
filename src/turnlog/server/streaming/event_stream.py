"""`GET /api/events`: the log of one or several sessions as resumable Server-Sent Events (protocol section 7).

Input: a request with sessions, a cursor, a dialect and filters. Output: a source of frames after the cursor,
which `streams.py` sends. Heartbeats and resets have no id, so the cursor does not move.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from msgspec import structs
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import App, Membership
from turnlog.app.visible_rows import RowView, open_row_view_at
from turnlog.errors import BadInput, NotFound
from turnlog.log import Log, Page, SessionRecord
from turnlog.log.filter import MATCH_ALL, EventFilter
from turnlog.log.subscription import HISTORY_END, NO_PAGE_LOCK, FollowOptions, FrameSink, PageLock
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.auth.credentials import Identity
from turnlog.server.limits.policy import Limits
from turnlog.server.limits.read_cost import ReadMeter
from turnlog.server.metrics import Metrics
from turnlog.server.openapi import Operation, get_route
from turnlog.server.scope_keys import SESSION_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.blob_images import BlobImages
from turnlog.server.streaming.frames import Frames, cursor_line
from turnlog.server.streaming.merged_stream import MergedStream
from turnlog.server.streaming.message_numbers import MessageNumbers, number_frames
from turnlog.server.streaming.projection import DialectProjection
from turnlog.server.streaming.query import (
    is_end,
    last_complete_seq,
    parse_dialect_request,
    parse_event_filter,
    parse_session_ids,
    reset_reason,
    resolve_cursor,
    split_cursors,
)
from turnlog.server.streaming.streams import (
    SSE_MEDIA_TYPE,
    EventStreamResponse,
    FrameSource,
    IteratorSource,
    StreamRegistry,
)
from turnlog.server.streaming.turn_response import TurnResponse, make_resumed_dialect, with_heartbeats
from turnlog.state.tree import Tree
from turnlog.state.visible_events import EventView
from turnlog.wire.cursor import Cursor, parse_request_cursor
from turnlog.wire.dialects.framing import ENVELOPE_FRAMING, Framing, StreamReset
from turnlog.wire.dialects.registry import DialectRegistry, DialectRequest

# Rows that a filter drops are not sent, so no slow reader bounds them: pages of a filter stay small.
FILTERED_PAGE_BYTES = 16 * 1024
EVENTS_QUERY = {
    "session": "the session, or several with commas between them; the caller's own without it",
    "app": "the application whose own session is meant, if none is named",
    "after": "the cursor `<seq>:<epoch>`, a seq, or `end` for new events only; the header Last-Event-ID wins",
    "types": "only these types, or first words of types, with commas between them",
    "depth": "only events of this depth and less",
    "turn": "only this turn, as a response that ends",
    "ids": "seq (default) or dense: messages of office are numbered from 0",
}

ProjectionKey = tuple[str, str, DialectRequest, frozenset[str] | None, EventView]


class Selection(NamedTuple):
    """What a request selects, the meter that is charged for it, and the lock of its pages."""

    dialect_request: DialectRequest
    event_filter: EventFilter
    meter: ReadMeter
    page_lock: PageLock = NO_PAGE_LOCK


class EventStreamRoute:
    """The route, its open streams and the projections that they share."""

    def __init__(
        self,
        access: SessionAccess,
        metrics: Metrics,
        limits: Limits,
        dialects: DialectRegistry,
        default_dialect: str | None,
        is_still_valid: Callable[[Identity], bool],
    ) -> None:
        """`default_dialect` replaces those of the applications; None leaves them."""
        self._access = access
        self.dialects = dialects
        self._default_dialect = default_dialect
        self.heartbeat_s = limits.heartbeat_interval_s
        self.streams = StreamRegistry(access, metrics, limits, is_still_valid)
        self._projections: dict[ProjectionKey, DialectProjection] = {}
        self._numbers = MessageNumbers()

    def operations(self) -> list[Operation]:
        dialect_names = f"without it the application's; one of {', '.join(self.dialects.names)}"
        return [
            get_route(
                "/api/events",
                self.follow_events,
                "Follow a log.",
                query={**EVENTS_QUERY, "dialect": dialect_names},
                media_type=SSE_MEDIA_TYPE,
                bypasses_router=True,
            )
        ]

    def default_request(self, app: App) -> DialectRequest:
        """Return the dialect of readers who name none, with the application's options."""
        return self.dialects.request(self._default_dialect or app.dialect, app.dialect_options)

    def projection_lags(self) -> list[int]:
        return [projection.lag for projection in self._projections.values()]

    def stop(self) -> None:
        self.streams.end_all()

    async def follow_events(self, request: Request) -> Response | EventStreamResponse:
        identity = get_identity(request.scope)
        memberships = await self._find_memberships(request)
        dialect_requests = self._parse_dialect_requests(request.query_params, memberships)
        source = await self._open_source(request, memberships, dialect_requests, identity)
        if source is None:
            return Response(status_code=204)
        return self.streams.make_response(source, identity, memberships, dialect_requests[0].framing)

    async def _find_memberships(self, request: Request) -> list[Membership]:
        query = request.query_params
        sessions = self._access.sessions
        request.scope[SESSION_KEY] = query.get("session", "")[:80]
        if "session" in query:
            principal = get_identity(request.scope).principal
            return [await sessions.get_membership(principal, name) for name in parse_session_ids(query)]

        creator = get_session_creator(request.scope)
        membership = await sessions.ensure_default_session(creator, query.get("app"))
        request.scope[SESSION_KEY] = membership.session_id
        return [membership]

    async def _open_source(
        self,
        request: Request,
        memberships: Sequence[Membership],
        dialect_requests: Sequence[DialectRequest],
        identity: Identity,
    ) -> FrameSource | None:
        """Return the frames that a request wants; None when no more can come."""
        query = request.query_params
        event_filter = parse_event_filter(query)
        meter = ReadMeter(self._access.rate_limiter, identity.principal)
        # The whole log in its own dialect is sent as it is stored, and is not charged.
        if dialect_requests[0].name != "turnlog" or event_filter != MATCH_ALL:
            meter.check_budget()

        text = request.headers.get("last-event-id") or query.get("after") or ""
        texts = split_cursors(text, len(memberships))
        if any(dialect_request.options.ids == "dense" for dialect_request in dialect_requests):
            if len(memberships) > 1 or event_filter != MATCH_ALL:
                raise BadInput("expected one session and no filter with dense ids", "ids")
            if is_end(text):
                raise BadInput("expected a message number with dense ids, got end", "after")
            selection = Selection(dialect_requests[0], event_filter, meter)
            numbered = await self._numbered_frames(memberships[0], parse_request_cursor(text), selection)
            return IteratorSource(numbered) if numbered is not None else None
        if len(memberships) == 1:
            selection = Selection(dialect_requests[0], event_filter, meter)
            _, frames = await self._session_frames(memberships[0], texts[0], selection)
            return IteratorSource(frames) if isinstance(frames, AsyncGenerator) else frames

        if event_filter.turn is not None:
            raise BadInput("expected one session with a turn", "turn")
        # All these sessions hold one page together.
        page_lock = asyncio.Lock()
        cursors: list[Cursor] = []
        sources: list[Frames | None] = []
        for membership, cursor_text, dialect_request in zip(
            memberships, texts, dialect_requests, strict=True
        ):
            selection = Selection(dialect_request, event_filter, meter, page_lock)
            at, frames = await self._session_frames(membership, cursor_text, selection)
            cursors.append(at)
            sources.append(as_frames(frames, page_lock) if frames is not None else None)
        if not any(sources):
            return None
        merged = MergedStream(sources, cursors)
        return IteratorSource(merged.frames(dialect_requests[0].framing, self.heartbeat_s))

    def _parse_dialect_requests(
        self, query: QueryParams, memberships: Sequence[Membership]
    ) -> list[DialectRequest]:
        """Return the dialect of each session: the same one, with options that may differ."""
        requests = [
            parse_dialect_request(query, self.dialects, self.default_request(membership.app))
            for membership in memberships
        ]
        names = sorted({request.name for request in requests})
        if len(names) > 1:
            raise BadInput(
                f"these sessions have different dialects ({', '.join(names)}): name one with dialect=",
                "dialect",
            )
        return requests

    async def _session_frames(
        self, membership: Membership, cursor_text: str, selection: Selection
    ) -> "tuple[Cursor, Frames | LogSource | None]":
        """Return the position that a text names, and the frames of one session after it.

        The frames are None if no more can come: the session is closed, or the turn has ended, and was read.
        """
        sessions = self._access.sessions
        event_filter = selection.event_filter._replace(channels=membership.visible_channels)
        selection = selection._replace(event_filter=event_filter)
        record = await sessions.log.info(membership.session_id)
        at = resolve_cursor(cursor_text, record)
        frames: Frames | LogSource | None
        if event_filter.turn is not None:
            frames = await self._turn_frames(membership, record, at, selection, event_filter.turn)
        elif is_end(cursor_text):
            frames = None if record.closed else self._dialect_frames(membership, record, at, selection)
        else:
            frames = await self._resumed_frames(membership, record, at, selection)

        if is_end(cursor_text) and frames is not None:
            # A reader that is cut off before its first event reconnects here, and not at a later end.
            frames = prepend_frame(cursor_line(at.seq, record.epoch), as_frames(frames, selection.page_lock))
        return at, frames

    async def _resumed_frames(
        self, membership: Membership, record: SessionRecord, at: Cursor, selection: Selection
    ) -> "Frames | LogSource | None":
        """Return the frames after a cursor; None if the session is closed and was read.

        If the cursor cannot be continued, all frames follow a `reset` event.
        """
        reason = reset_reason(at, record)
        may_be_pruned = 0 <= at.seq <= record.pruned_through
        if reason is None and may_be_pruned:
            log = self._access.sessions.log
            reason = None if await log.has_event(record.session_id, at.seq) else "pruned"
        if reason is not None:
            frames = self._dialect_frames(membership, record, Cursor(), selection)
            reset = selection.dialect_request.framing.encode_reset(make_reset(reason, record))
            return prepend_frame(reset, as_frames(frames, selection.page_lock))

        if record.closed and at.seq == record.last and at.chunk is None:
            return None
        return self._dialect_frames(membership, record, at, selection)

    async def _numbered_frames(
        self, membership: Membership, at: Cursor, selection: Selection
    ) -> Frames | None:
        """Return the frames with dense ids after message number `at.seq`; None if no more can come."""
        sessions = self._access.sessions
        record = await sessions.log.info(membership.session_id)
        options = structs.replace(selection.dialect_request.options, ids="seq")
        request = selection.dialect_request._replace(options=options)
        projection = self._shared_projection(membership, request, record)
        key = (record.session_id, record.epoch, membership.visible_channels, membership.event_view)
        find_seq = partial(self._numbers.find_seq, key, projection, charge=selection.meter.charge_and_wait)

        # Without its first events a log cannot be counted again.
        reason = "expired" if at.seq >= 0 and record.first > 0 else None
        if at.epoch is not None and at.epoch != record.epoch:
            reason = "epoch"
        start_seq = None if reason else await find_seq(at.seq)
        if start_seq is None:
            reason = reason or "ahead"
            start_seq = -1
        if reason is None and record.closed and await find_seq(at.seq + 1) is None:
            return None

        last_number = -1 if reason else at.seq
        frames = projection.frames(
            Cursor(start_seq, record.epoch),
            self.heartbeat_s,
            charge=selection.meter.charge_and_wait,
        )
        encode_heartbeat = request.framing.encode_heartbeat
        assert encode_heartbeat is not None, "a dialect with dense ids has heartbeats of its own"
        numbered = number_frames(frames, last_number, record.session_id, encode_heartbeat)
        if reason is None:
            return numbered
        return prepend_frame(request.framing.encode_reset(make_reset(reason, record)), numbered)

    async def _turn_frames(
        self, membership: Membership, record: SessionRecord, at: Cursor, selection: Selection, trace: str
    ) -> Frames | None:
        """Return the frames of one turn as a response that ends; None when it was read to its end.

        A cursor of another epoch begins the turn again. Raise `NotFound` if the member may not see the turn.
        """
        sessions = self._access.sessions
        if reset_reason(at, record) is not None:
            at = Cursor()
        tree = await sessions.tree(membership)
        bounds = await sessions.log.turn_bounds(record.session_id, trace)
        if not await self._may_see_turn(membership, trace, bounds, tree):
            raise NotFound(f"no turn {trace[:80]} in this session")

        # A turn that is queued begins after the last event.
        first_seq, last_seq = bounds or (record.last + 1, None)
        start_seq = min(first_seq, last_complete_seq(at) + 1)
        turn = TurnResponse(
            sessions, membership, record, trace, start_seq, self.heartbeat_s, selection.event_filter
        )
        turn.tree.queued_turns = dict(tree.queued_turns)
        if last_seq is None:
            return await turn.stream_frames(selection.dialect_request, at, max(first_seq, record.last))
        # A turn that has ended is read to its own end, whatever has happened since.
        frames = await turn.stream_frames(selection.dialect_request, at, last_seq)
        return await peek_frames(frames, selection.dialect_request.framing)

    async def _may_see_turn(
        self, membership: Membership, trace: str, bounds: tuple[int, int | None] | None, tree: Tree
    ) -> bool:
        if bounds is None:
            queued = tree.queued_turns.get(trace)
            return queued is not None and membership.may_see(queued.scope.channel)
        rows = await self._access.sessions.log.read(membership.session_id, bounds[0] - 1, max_bytes=1)
        return not rows or membership.may_see(rows[0].channel)

    def _dialect_frames(
        self, membership: Membership, record: SessionRecord, at: Cursor, selection: Selection
    ) -> "Frames | LogSource":
        session_id = record.session_id
        dialect_request, event_filter, meter, page_lock = selection
        if dialect_request.name != "turnlog":
            projection = self._shared_projection(membership, dialect_request, record)
            frames = projection.frames(at, self.heartbeat_s, event_filter, page_lock, meter.charge_and_wait)
            return with_heartbeats(frames, dialect_request, session_id, at)

        log = self._access.sessions.log
        after_seq = last_complete_seq(at)
        if not membership.event_view.shows_all:
            return self._viewed_frames(membership, record, after_seq, selection)
        if event_filter == MATCH_ALL:
            return LogSource(log, session_id, after_seq, record.epoch, self.heartbeat_s)
        pages = log.follow(
            session_id,
            after_seq,
            replay_from=after_seq,
            idle_s=self.heartbeat_s,
            epoch=record.epoch,
            max_bytes=FILTERED_PAGE_BYTES,
            page_lock=page_lock,
            options=FollowOptions(event_filter.types, meter.charge_and_wait, marks_history_end=True),
        )
        return filter_pages(pages, record.epoch, event_filter, self.heartbeat_s)

    async def _viewed_frames(
        self, membership: Membership, record: SessionRecord, after_seq: int, selection: Selection
    ) -> Frames:
        """Yield the frames of a member who does not see everything. The view needs the rows of all types."""
        log = self._access.sessions.log
        pages = log.follow(
            record.session_id,
            after_seq,
            replay_from=after_seq,
            idle_s=self.heartbeat_s,
            epoch=record.epoch,
            max_bytes=FILTERED_PAGE_BYTES,
            page_lock=selection.page_lock,
            options=FollowOptions((), selection.meter.charge_and_wait, marks_history_end=True),
        )
        view = await open_row_view_at(log, membership, after_seq)
        frames = filter_pages(pages, record.epoch, selection.event_filter, self.heartbeat_s, view)
        async with aclosing(frames):
            async for page in frames:
                yield page

    def _shared_projection(
        self, membership: Membership, dialect_request: DialectRequest, record: SessionRecord
    ) -> DialectProjection:
        """Return the projection for these readers. Projections without readers are dropped."""
        self._projections = {
            key: projection for key, projection in self._projections.items() if projection.reader_count
        }
        channels = membership.visible_channels
        key = (record.session_id, record.epoch, dialect_request, channels, membership.event_view)
        if key not in self._projections:
            log = self._access.sessions.log
            make = partial(make_resumed_dialect, log, membership, dialect_request)
            covers = EventFilter(channels=channels).matches_turn_and_channel
            images = BlobImages(log, record.session_id, dialect_request)
            self._projections[key] = DialectProjection(
                log,
                record,
                membership.app.catalog,
                make,
                covers,
                images.resolve,
                dialect_request.framing.encode_frames,
            )
        return self._projections[key]


class LogSource:
    """A whole session in its own dialect, after a cursor: pushed as it is appended, or page by page."""

    __slots__ = ("_after_seq", "_epoch", "_heartbeat_s", "_log", "_session_id")

    def __init__(self, log: Log, session_id: str, after_seq: int, epoch: str, heartbeat_s: float) -> None:
        self._log = log
        self._session_id = session_id
        self._after_seq = after_seq
        self._epoch = epoch
        self._heartbeat_s = heartbeat_s

    def deliver(self, sink: FrameSink) -> Awaitable[None]:
        return self._log.push_frames(
            self._session_id,
            sink,
            self._after_seq,
            replay_from=self._after_seq,
            idle_s=self._heartbeat_s,
            epoch=self._epoch,
            history_end=ENVELOPE_FRAMING.caught_up,
        )

    def frames(self, page_lock: PageLock) -> Frames:
        return self._log.follow_frames(
            self._session_id,
            self._after_seq,
            replay_from=self._after_seq,
            idle_s=self._heartbeat_s,
            epoch=self._epoch,
            page_lock=page_lock,
            history_end=ENVELOPE_FRAMING.caught_up,
        )


def as_frames(source: Frames | LogSource, page_lock: PageLock) -> Frames:
    return source.frames(page_lock) if isinstance(source, LogSource) else source


def make_reset(reason: str, record: SessionRecord) -> StreamReset:
    return StreamReset(reason, record.session_id, record.epoch, record.first, record.last)


async def prepend_frame(frame: bytes, frames: Frames) -> Frames:
    async with aclosing(frames):
        yield frame
        async for page in frames:
            yield page


async def peek_frames(frames: Frames, framing: Framing) -> Frames | None:
    """Return the frames of a turn that has ended; None if only the end is left."""
    first_page = await anext(frames, framing.end)
    if first_page == framing.end:
        return None

    async def all_frames() -> Frames:
        async with aclosing(frames):
            yield first_page
            async for page in frames:
                yield page

    return all_frames()


def encode_matching_rows(
    page: Page, epoch: str, event_filter: EventFilter, view: RowView | None
) -> tuple[bytes, int]:
    """Return the frames of the matching rows and their last seq; no bytes and -1 if there is none."""
    visible_rows = page if view is None else filter(None, map(view.project_row, page))
    rows = [row for row in visible_rows if event_filter.matches(row)]
    if not rows:
        return b"", -1
    return Page(rows, epoch).frames().data, rows[-1].seq


async def filter_pages(
    pages: AsyncGenerator[Page, None],
    epoch: str,
    event_filter: EventFilter,
    idle_s: float,
    view: RowView | None = None,
) -> Frames:
    """Yield the frames of matching rows. A heartbeat moves the cursor over the rows that do not match."""
    clock = asyncio.get_running_loop().time
    beat_s = clock()
    read_seq = -1
    sent_seq = -1
    async with aclosing(pages):
        async for page in pages:
            if page is HISTORY_END:
                line = cursor_line(read_seq, epoch) if read_seq > sent_seq else b""
                yield ENVELOPE_FRAMING.caught_up + line
                sent_seq = max(sent_seq, read_seq)
                continue
            data, last_seq = encode_matching_rows(page, epoch, event_filter, view)
            is_silent = not page and page.upto is None
            if page.upto is not None:
                read_seq = page.upto
            elif page:
                read_seq = page.last
            del page  # a slow reader must not keep it alive
            if data:
                yield data
                sent_seq = last_seq
                beat_s = clock()
            elif is_silent or clock() - beat_s >= idle_s:
                line = cursor_line(read_seq, epoch) if read_seq > sent_seq else b""
                yield ENVELOPE_FRAMING.heartbeat + line
                sent_seq = read_seq
                beat_s = clock()
    # The session is closed. A reader that reconnects at its end gets 204.
    if read_seq > sent_seq:
        yield cursor_line(read_seq, epoch)
