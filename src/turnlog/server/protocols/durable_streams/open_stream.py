"""One stream of this process: its state, and the only place that writes its events.

Requests that arrive while an append is under way are planned together, on one copy of the state, and appended
as one batch. With many writers a batch is half of their requests, so that the server answers one half while
the disk stores the other. The batch is refused if the log has moved since the state was read, for example
because another server has written. Then the state is read again and the batch is planned again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import NamedTuple

import msgspec

from turnlog.errors import Conflict, NotFound, SessionClosed, Unavailable
from turnlog.events import Event, Payload, Scope
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, SessionRecord
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.durable_streams.state import StreamDecision, StreamState, plan_touch

MIN_BATCH_EVENTS = 8  # fewer are not halved: a commit costs more than it would overlap
MAX_BATCH_EVENTS = 256
MAX_BATCH_BYTES = 4 << 20
MAX_ATTEMPTS = 16  # batches in a row that other servers have overtaken
# A stream is opened from a snapshot and at most so many events, or bytes. The memory store keeps more.
SNAPSHOT_EVENTS = 1000
SNAPSHOT_BYTES = 4 << 20
SNAPSHOT_NAME = "durable-stream"
SNAPSHOT_VERSION = "1"

Plan = Callable[[StreamState, int], StreamDecision]
"""Decides a request from a state and a time in ms. It may be called again with a later state."""


class PendingRequest(NamedTuple):
    """A request that waits for its decision."""

    plan: Plan
    event_id: str
    size_bytes: int
    decision: asyncio.Future[StreamDecision]


class OpenStream:
    """A stream: its session, its state as of the last durable event, and the requests that wait."""

    def __init__(self, log: Log, session_id: str, actor: str) -> None:
        self.session_id = session_id
        self.state = StreamState()
        self.record = SessionRecord(session_id, epoch="", app="")
        self._log = log
        self._scope = Scope(actor=actor)
        self._lock = asyncio.Lock()
        self._pending: deque[PendingRequest] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._is_stale = True
        self._id_prefix = new_id("evt_")  # of the events of requests that have no id of their own
        self._request_count = 0
        self._last_batch_size = 0
        self._snapshot_seq = -1
        self._snapshot_bytes = 0  # appended since the snapshot

    @property
    def is_busy(self) -> bool:
        return bool(self._pending) or self._writer is not None

    def offset_at(self, position: int) -> str:
        return self.state.offset_at(position, self.record.epoch)

    # reading

    async def refresh(self) -> StreamState:
        """Return the state as of the last event of the log. Raise `NotFound` if there is no session."""
        record = await self._log.info(self.session_id)
        has_moved = record.last > self.state.last or record.epoch != self.record.epoch
        if self._is_stale or has_moved or record.is_erased != self.record.is_erased:
            async with self._lock:
                await self._load()
        else:
            self.record = record
        return self.state

    async def _load(self) -> None:
        """Read the events that the state lacks, or all of them if it may be wrong."""
        record = await self._log.info(self.session_id)
        if record.is_erased:
            self.state = StreamState(last=record.last, is_deleted=True)
            self.record = record
            self._is_stale = False
            return
        state = self.state.copy()
        if self._is_stale or record.epoch != self.record.epoch:
            state = await self._load_snapshot(record)
        while state.last < record.last:
            page = await self._log.read(self.session_id, state.last)
            if not page:
                break  # the rest was lost
            for envelope in page.envelopes():
                ts_ms = parse_timestamp_ms(envelope.ts)
                state.apply(FULL_CATALOG.decode_payload(envelope), envelope.seq, ts_ms)
        if not state.path:
            raise NotFound(f"{self.session_id} is not a stream")

        self.state = state
        self.record = record
        self._is_stale = False

    async def _load_snapshot(self, record: SessionRecord) -> StreamState:
        stored = await self._log.snapshot(self.session_id, SNAPSHOT_NAME, record.last, SNAPSHOT_VERSION)
        if stored is None:
            return StreamState()
        self._snapshot_seq, body = stored
        return msgspec.json.decode(body, type=StreamState)

    # writing

    async def run_request(
        self, plan: Plan, event_id: str | None = None, size_bytes: int = 0
    ) -> StreamDecision:
        """Return the decision about a request when what it appends, about `size_bytes`, is durable."""
        decision: asyncio.Future[StreamDecision] = asyncio.get_running_loop().create_future()
        self._request_count += 1
        event_id = event_id or f"{self._id_prefix}-{self._request_count}"
        self._pending.append(PendingRequest(plan, event_id, size_bytes, decision))
        if self._writer is None:
            # The batch has requests of several clients: it must not end with one of them.
            self._writer = asyncio.create_task(self._write_batches(), context=Context())
        return await decision

    async def touch(self) -> None:
        """Record that the stream is used, if its TTL needs it."""
        if self.state.needs_touch(now_ms()):
            await self.run_request(plan_touch)

    async def _write_batches(self) -> None:
        try:
            while self._pending:
                batch = self._take_batch()
                try:
                    decisions = await self._write_batch(batch)
                except Exception as error:  # noqa: BLE001  raised in each request
                    self._is_stale = True
                    fail_requests(batch, error)
                    continue
                for request, decision in zip(batch, decisions, strict=True):
                    if not request.decision.done():
                        request.decision.set_result(decision)
        finally:
            self._writer = None

    def _take_batch(self) -> list[PendingRequest]:
        """Return the oldest requests: one at least, and no more than a batch may have.

        Many writers are served in two halves. Requests of the batch before count as under way: their writers
        get their responses now, and send again.
        """
        half = (len(self._pending) + self._last_batch_size + 1) // 2
        max_events = min(max(half, MIN_BATCH_EVENTS), MAX_BATCH_EVENTS)
        batch = [self._pending.popleft()]
        left_bytes = MAX_BATCH_BYTES - batch[0].size_bytes
        while self._pending and len(batch) < max_events:
            left_bytes -= self._pending[0].size_bytes
            if left_bytes < 0:
                break
            batch.append(self._pending.popleft())
        self._last_batch_size = len(batch)
        return batch

    async def _write_batch(self, batch: list[PendingRequest]) -> list[StreamDecision]:
        for _ in range(MAX_ATTEMPTS):
            async with self._lock:
                if self._is_stale:
                    await self._load()
                decisions = await self._try_batch(batch)
            if decisions is not None:
                return decisions
        raise Unavailable("other servers write to this stream without a pause, try again")

    async def _try_batch(self, batch: list[PendingRequest]) -> list[StreamDecision] | None:
        """Plan and append a batch. Return None, with a stale state, if the log has moved on."""
        ts_ms = now_ms()
        state = self.state.copy()
        events: list[Event] = []
        decisions: list[StreamDecision] = []
        for request in batch:
            decision = request.plan(state, ts_ms)
            decisions.append(decision)
            if decision.payload is not None:
                events.append(self._build_event(decision.payload, request.event_id))
                state.apply(decision.payload, state.last + 1, ts_ms)
        if not events:
            return await self._confirm(decisions)

        try:
            result = await self._log.append(self.session_id, events, expected_last=self.state.last)
        except (Conflict, SessionClosed):  # it moved on, or it was erased
            self._is_stale = True
            return None
        if not all(result.new):  # another server has appended the same requests
            self._is_stale = True
            return None
        self.state = state
        self._snapshot_bytes += sum(len(event.body) for event in events)
        await self._save_snapshot()
        return decisions

    async def _confirm(self, decisions: list[StreamDecision]) -> list[StreamDecision] | None:
        """Return refusals if the log has not moved on since they were made: nothing else would notice."""
        record = await self._log.info(self.session_id)
        if record.last == self.state.last and record.epoch == self.record.epoch:
            return decisions
        self._is_stale = True
        return None

    def _build_event(self, payload: Payload, event_id: str) -> Event:
        return FULL_CATALOG.build_event(payload, id=event_id, origin="system", scope=self._scope)

    async def _save_snapshot(self) -> None:
        seq = self.state.last
        if seq - self._snapshot_seq < SNAPSHOT_EVENTS and self._snapshot_bytes < SNAPSHOT_BYTES:
            return
        body = msgspec.json.encode(self.state)
        await self._log.put_snapshot(self.session_id, SNAPSHOT_NAME, seq, body, SNAPSHOT_VERSION)
        await self._log.drop_snapshots(self.session_id, SNAPSHOT_NAME, 0, seq - 1, SNAPSHOT_VERSION)
        self._snapshot_seq = seq
        self._snapshot_bytes = 0


def fail_requests(batch: list[PendingRequest], error: Exception) -> None:
    for request in batch:
        if not request.decision.done():
            request.decision.set_exception(error)
