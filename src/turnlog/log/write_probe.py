"""A write every `PROBE_INTERVAL_S` while writes fail, until one is stored.

A load balancer sends no requests to an unhealthy server, so no request would prove that it is healthy again.
In go outcomes of writes (`WriteHealth`), out come jobs that rewrite the record of a session as it is.

Invariant: a write is tried only after one has failed, by one task at a time, and never after `close`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from turnlog.errors import StoreError
from turnlog.log.jobs import Job, RewriteRecord
from turnlog.log.records import SessionRecord
from turnlog.log.writer import WriteHealth

PROBE_INTERVAL_S = 1.0  # how often a write is tried while writes fail


class WriteProbe:
    """The health of a log's writes, and the task that tries to write while they fail."""

    def __init__(
        self,
        list_sessions: Callable[[], Awaitable[Sequence[SessionRecord]]],
        run_job: Callable[[Job], Awaitable[Any]],
    ) -> None:
        self.health = WriteHealth(self._start)
        self._list_sessions = list_sessions
        self._run_job = run_job
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_until_stored())

    async def _write_until_stored(self) -> None:
        """Rewrite the record of a session until a write succeeds."""
        session_id: str | None = None
        while self.health.is_failing and not self._closed:
            await asyncio.sleep(PROBE_INTERVAL_S)
            try:
                if session_id is None:
                    session_id = next((record.session_id for record in await self._list_sessions()), None)
                if session_id is not None:
                    await self._run_job(RewriteRecord(session_id))
            except StoreError:
                continue

    async def close(self) -> None:
        # The last jobs of the log may still fail, and start the task again: it ends at once then.
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
