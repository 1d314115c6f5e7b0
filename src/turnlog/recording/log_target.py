"""A recording into a log that this process has open: `turnlog.record(log, session, prompt="Hi")`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress

from msgspec import structs

from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import RECORDER_LOST_MESSAGE
from turnlog.errors import Conflict, Fenced, StoreError
from turnlog.events import AgentStart, Catalog, Entry, Event, EventDraft, decode_envelope
from turnlog.ids import new_id, new_process_id
from turnlog.log import Lease, Log, envelope_json
from turnlog.recording.target import RecordingLost
from turnlog.recording.turn import RecordedTurn
from turnlog.state.closing import build_recording_closings
from turnlog.vocabularies import FULL_CATALOG


def record(
    log: Log,
    session: str,
    *,
    prompt: str | None = None,
    name: str = "Agent",
    model: str | None = None,
    channel: str | None = None,
) -> RecordedTurn:
    """Record one turn of an agent of this process: `async with record(log, session) as turn`.

    The session is owned by the recording until the block ends. Raise `Conflict` if a turn runs in it. See
    `RecordedTurn` for what the block may do.
    """
    return RecordedTurn(LogTarget(log, session), prompt=prompt, name=name, model=model, channel=channel)


class LogTarget:
    """A session of a log, owned by a recording of this process."""

    def __init__(self, log: Log, session_id: str, catalog: Catalog = FULL_CATALOG) -> None:
        self._log = log
        self._session_id = session_id
        self._catalog = catalog
        self._owner = f"rec-{new_process_id()}"
        self._lease: Lease | None = None

    @property
    def lease_s(self) -> float | None:
        return self._log.leases.lease_s

    async def open(self) -> int:
        lease = await self._log.leases.claim(self._session_id, self._owner)
        if lease is None:
            problem = f"another owner runs {self._session_id}"
            raise Conflict(problem, await self._log.last_seq(self._session_id))
        self._lease = lease
        await self._close_leftovers()
        return await self._log.last_seq(self._session_id)

    async def _close_leftovers(self) -> None:
        """Close the agents of a recording whose process has died."""
        folds = SessionFolds(self._log, self._session_id, self._catalog)
        while page := await self._log.read(self._session_id, folds.last_seq, replay_from=folds.last_seq):
            for row in page:
                if row.live:
                    folds.skip_live(row)
                else:
                    folds.apply(row, *folds.decode(row))
        await folds.load_open_texts()
        items = build_recording_closings(folds.tree, RECORDER_LOST_MESSAGE)
        if items:
            await self.append(items)

    async def append(self, items: Sequence[EventDraft]) -> None:
        assert self._lease is not None, "the recording is not open"
        events = [self._build(item) for item in items]
        try:
            await self._log.append(self._session_id, events, fence=self._lease.fence)
        except Fenced:
            raise RecordingLost(f"another owner has {self._session_id} now") from None

    def _build(self, item: EventDraft) -> Event:
        if isinstance(item.payload, AgentStart):
            item = structs.replace(item, payload=structs.replace(item.payload, recorder=self._owner))
        return item.build(self._catalog, new_id("evt_"))

    async def renew(self) -> None:
        assert self._lease is not None, "the recording is not open"
        await self._log.leases.renew(self._owner)
        try:
            await self._log.leases.confirm(self._lease)
        except Fenced:
            raise RecordingLost(f"another owner has {self._session_id} now") from None

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        async with aclosing(self._log.follow(self._session_id, after)) as pages:
            async for page in pages:
                for row in page:
                    if not row.live:
                        yield self._catalog.decode_entry(decode_envelope(envelope_json(row)))

    async def release(self, *, is_complete: bool) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        with suppress(StoreError):  # a log that is closed has ended its leases
            # `seen` is that of the owner before: messages that arrived meanwhile are for the next one
            wake_at_ms = lease.wake_at_ms if is_complete else self._log.now_ms()
            await self._log.leases.release(lease, lease.seen, wake_at_ms)
            await self._log.leases.end(self._owner)
