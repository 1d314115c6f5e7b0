"""A recording on a server, through `POST /api/record`: `server.record(session, prompt="Hi")`.

A batch is sent again until the server answers, with the same event ids: it is stored once. While the server
cannot be reached, the recording waits; when it answers that the lease was over, `RecordingLost` is raised.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from turnlog.agents.remote.server_client import ServerUnavailable
from turnlog.connection.event_follower import EventFollower
from turnlog.connection.json_requests import JsonRequests, ServerRefused
from turnlog.errors import Conflict, PeerError
from turnlog.events import Catalog, Entry, EventDraft
from turnlog.ids import new_id, new_process_id
from turnlog.recording.target import RecordingLost

log = logging.getLogger("turnlog.connection")

MAX_EVENTS_PER_REQUEST = 100  # the server refuses more
MIN_DELTA_INTERVAL_S = 0.05  # twenty requests a second are smooth to read, and a tenth of the server's limit
CONFLICT = 409
GONE = 410
LAST_SEQ = "; the last seq is "  # how a `Conflict` ends
# what answers a question, and what stops a turn
FOLLOWED_TYPES = ("tool.result", "approval.decision", "ui.command")


class RecordAnswer(msgspec.Struct):
    """The response of `/api/record`."""

    fence: int
    last: int
    lease_s: float


class ServerTarget:
    """A session of a server, owned by a recording of this process."""

    def __init__(self, requests: JsonRequests, catalog: Catalog, session_id: str) -> None:
        self._requests = requests
        self._catalog = catalog
        self._session_id = session_id
        self._recorder = f"rec-{new_process_id()}"
        self._fence: int | None = None
        self._lease_s: float | None = None
        self._sent_at_s = 0.0

    @property
    def lease_s(self) -> float | None:
        return self._lease_s

    async def open(self) -> int:
        try:
            answer = await self._post({})
        except ServerRefused as refusal:
            if refusal.status == CONFLICT:
                problem, _, last = refusal.problem.partition(LAST_SEQ)
                raise Conflict(problem, int(last) if last.isdigit() else -1) from None
            raise
        self._fence = answer.fence
        self._lease_s = answer.lease_s
        return answer.last

    async def append(self, items: Sequence[EventDraft]) -> None:
        events = [encode_recorded_event(self._catalog, item) for item in items]
        if all(item.payload.LIVE for item in items):
            # deltas that arrive meanwhile go with the next request
            await asyncio.sleep(self._sent_at_s + MIN_DELTA_INTERVAL_S - now_s())
        self._sent_at_s = now_s()
        for start in range(0, len(events), MAX_EVENTS_PER_REQUEST):
            await self._post_until_answered({"events": events[start : start + MAX_EVENTS_PER_REQUEST]})

    async def renew(self) -> None:
        await self._post_until_answered({})

    async def _post_until_answered(self, fields: dict[str, Any]) -> None:
        while True:
            try:
                await self._post({"fence": self._fence, **fields})
            except ServerUnavailable as error:
                log.warning("the recording of %s waits for the server: %s", self._session_id, error)
            except ServerRefused as refusal:
                if refusal.status == GONE:
                    raise RecordingLost(refusal.problem) from None
                raise
            else:
                return

    async def _post(self, fields: dict[str, Any]) -> RecordAnswer:
        body = {"session": self._session_id, "recorder": self._recorder, **fields}
        return await self._requests.post("/api/record", body, RecordAnswer)

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        cursor = after if after >= 0 else None
        follower = EventFollower(self._requests, self._catalog, self._session_id, cursor, FOLLOWED_TYPES)
        async for item in follower:
            if isinstance(item, Entry):
                yield item

    async def release(self, *, is_complete: bool) -> None:
        if self._fence is None:
            return
        # a server that cannot be told closes the recording when its lease is over
        with suppress(ServerUnavailable, PeerError):
            await self._post({"fence": self._fence, "release": True})


def encode_recorded_event(catalog: Catalog, item: EventDraft) -> dict[str, Any]:
    """Return an event as the server expects it. Its id stays the same when it is sent again."""
    event = item.build(catalog, new_id("evt_"))
    fields = {"type": event.type, "id": event.id, "payload": msgspec.Raw(event.body)}
    scope = {
        "agent_id": item.scope.agent_id,
        "trace_id": item.scope.trace_id,
        "channel": item.scope.channel,
    }
    return fields | {name: value for name, value in scope.items() if value is not None}


def now_s() -> float:
    return asyncio.get_running_loop().time()
