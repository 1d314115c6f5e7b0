"""Remote executors for every session of an application, those that are made later too.

The server is asked for its sessions every second, and each open one of the application gets a
`RemoteExecutor`. One that fails is begun anew as long as its session is listed. Which sessions that are, the
server says: those in which the token's principal is a member, or all if it has its role everywhere.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

import msgspec

from turnlog.agents.door import GONE, Door
from turnlog.agents.remote import RemoteExecutor, Sleep, check_status, pause_s
from turnlog.agents.tools import Tool
from turnlog.errors import PeerError

log = logging.getLogger("turnlog.agents")

LOOK_S = 1.0  # nobody comes to the first call of a session sooner
LIST_BYTES = 16 << 20  # some 60,000 sessions; a server gives nobody as many streams


class Session(msgspec.Struct):
    """What matters of a session."""

    session_id: str
    app: str
    state: str


class Sessions(msgspec.Struct):
    """What the server says."""

    sessions: list[Session]


class RemoteExecutors:
    """Runs the remote calls of all sessions of an application whose tools it has."""

    def __init__(
        self,
        url: str,
        app: str,
        tools: Iterable[Tool],
        token: str | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._door = Door(url, token)
        self._app = app
        self._sleep = sleep
        tools = tuple(tools)
        self._executor = partial(RemoteExecutor, url, tools=tools, token=token, sleep=sleep)
        self._executor("")  # what is wrong with the tools is said now
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer calls until it is cancelled, or the server says that it will not be asked."""
        failures = 0
        try:
            while True:
                try:
                    await self._look()
                    failures = 0
                except GONE as error:
                    failures += 1
                    log.warning("the sessions are not known yet: %r", error)
                await self._sleep(pause_s(failures) if failures else LOOK_S)
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        async with self._door.get("/api/sessions", {"connection": "close"}) as answer:
            body = await answer.body(LIST_BYTES)
        check_status(answer.status, body)
        try:
            listed = msgspec.json.decode(body, type=Sessions).sessions
        except msgspec.DecodeError as error:
            raise PeerError(f"expected a list of sessions: {error}") from None
        for session in listed:
            mine = session.app == self._app and session.state != "closed"
            if mine and session.session_id not in self._running:
                self._begin(session.session_id)

    def _begin(self, session_id: str) -> None:
        task = asyncio.create_task(self._executor(session_id).run())
        self._running[session_id] = task
        task.add_done_callback(partial(self._ended, session_id))

    def _ended(self, session_id: str, task: asyncio.Task[None]) -> None:
        del self._running[session_id]
        if not task.cancelled() and (error := task.exception()):
            log.warning("the executor of %s has ended: %s", session_id, error)
