"""The run of a protocol of another project as a stream that ends: a beginning, the live tail, an end.

The dialect of a run converts everything before the run, and then says how a response begins at this position
(`begin`). What is appended later follows, event by event. The stream ends when the dialect says that nothing
runs any more, but not before the events that the request itself appended. A reader that disconnects stops
nothing.
"""

import asyncio
from contextlib import aclosing

from starlette.requests import Request

from turnlog.app import Membership, Sessions
from turnlog.app.visible_rows import open_row_view
from turnlog.events import Envelope
from turnlog.log import Page, Row, SessionRecord
from turnlog.log.filter import EventFilter
from turnlog.log.subscription import ChargeBytes
from turnlog.server.auth.authentication import get_identity
from turnlog.server.protocols.base import ProtocolServer
from turnlog.server.protocols.run_dialect import RunDialect, ViewedRunDialect
from turnlog.server.streaming.frames import Frames
from turnlog.server.streaming.streams import EventStreamResponse, IteratorSource
from turnlog.wire import sse
from turnlog.wire.dialects.framing import Framing


class RunStream:
    """The frames of one run. `turn` is the turn that is shown; None shows all that the member may see."""

    def __init__(
        self,
        sessions: Sessions,
        membership: Membership,
        record: SessionRecord,
        dialect: RunDialect,
        framing: Framing,
        turn: str | None,
    ) -> None:
        self._log = sessions.log
        self._membership = membership
        self._catalog = membership.app.catalog
        self._record = record
        view = open_row_view(membership)
        self._dialect = dialect if view is None else ViewedRunDialect(dialect, view)
        self._framing = framing
        self._filter = EventFilter(turn=turn, channels=membership.visible_channels)
        self.last_turn: str | None = None  # of the events that were read

    async def read_before(self, first_seq: int, after_last_seq: int, charge: ChargeBytes) -> None:
        """Convert the events from `first_seq` up to `after_last_seq`, which the response does not have."""
        # The deltas of finished turns are left out. A block that was open before `after_last_seq` may have
        # ended since: without its first deltas the response would have only the rest of its text.
        open_seq = await self._log.oldest_open_turn_start(self._record.session_id, after_last_seq - 1)
        await self._read_range(first_seq, min(open_seq, after_last_seq), -1, charge)
        await self._read_range(max(first_seq, open_seq), after_last_seq, None, charge)

    async def _read_range(
        self, first_seq: int, end_seq: int, replay_from: int | None, charge: ChargeBytes
    ) -> None:
        after = first_seq - 1
        while after < end_seq - 1:
            page = await self._log.read(self._record.session_id, after, replay_from=replay_from)
            if not page:
                return
            await charge(page.size_bytes)
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq < end_seq and self._filter.matches_turn_and_channel(row):
                    self._convert(row, envelope)
            after = page.last

    def make_response(
        self,
        server: ProtocolServer,
        request: Request,
        first_seq: int,
        earliest_end_seq: int,
        turn: str | None,
    ) -> EventStreamResponse:
        """Return the response with the frames. Its headers name the session, and the turn if there is one."""
        frames = self.frames(first_seq, earliest_end_seq, server.limits.heartbeat_interval_s)
        headers = [(b"turnlog-session", self._membership.session_id.encode())]
        if turn:
            headers.append((b"turnlog-turn", turn.encode()))
        return server.events.streams.make_response(
            IteratorSource(frames), get_identity(request.scope), [self._membership], self._framing, headers
        )

    async def frames(self, first_seq: int, earliest_end_seq: int, idle_s: float) -> Frames:
        """Yield the beginning, the frames of the events from `first_seq` on, and the end."""
        beginning = self._encode(self._dialect.begin())
        # An empty page is a heartbeat.
        if beginning:
            yield beginning
        if earliest_end_seq < first_seq and self._dialect.is_finished:
            yield self._encode(self._dialect.close())
            return

        clock = asyncio.get_running_loop().time
        beat_s = clock()
        pages = self._log.follow(
            self._record.session_id, first_seq - 1, idle_s=idle_s, epoch=self._record.epoch
        )
        async with aclosing(pages):
            async for page in pages:
                data, is_over = self._convert_page(page, earliest_end_seq)
                if is_over:
                    yield data + self._encode(self._dialect.close())
                    return
                # Events of other turns are a silence for this reader, too.
                if data or not page or clock() - beat_s >= idle_s:
                    yield data
                    beat_s = clock()
        yield self._encode(self._dialect.close())

    def _convert_page(self, page: Page, earliest_end_seq: int) -> tuple[bytes, bool]:
        frames: list[bytes] = []
        for row, envelope in zip(page, page.envelopes(), strict=True):
            if self._filter.matches_turn_and_channel(row):
                messages = self._convert(row, envelope)
            else:
                messages = self._dialect.skip(envelope, self._catalog.decode_payload(envelope))
            frames += self._framing.encode_frames(messages, row.seq, self._record.epoch)
            if row.seq >= earliest_end_seq and not row.live and self._dialect.is_finished:
                return b"".join(frames), True
        return b"".join(frames), False

    def _convert(self, row: Row, envelope: Envelope) -> list[bytes]:
        self.last_turn = row.trace or self.last_turn
        return self._dialect.convert(envelope, self._catalog.decode_payload(envelope))

    def _encode(self, messages: list[bytes]) -> bytes:
        return b"".join([sse.encode(message) for message in messages])
