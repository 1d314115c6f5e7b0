"""Remote executors for every session of an application, also for those that are created later.

The pool polls the server every second for the sessions that were active last, and now and then for all of
them. A session of the application in which something runs, or has happened since the last poll, gets a
`RemoteExecutor`; one that fails is started again at the next poll. The executor of a session that has been
idle for `IDLE_S` is ended, so the number of streams follows activity. The server lists the sessions in which
the token's principal is a member, or all if it has a server role. A server that does not serve the
application raises `PeerError`. A session in which the principal has no role that may answer calls is logged
once and skipped.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote_plus

import msgspec

from turnlog.agents.remote.executor import RECONNECT, RemoteExecutor, Sleep
from turnlog.agents.remote.server_client import ServerClient, ServerUnavailable, check_status
from turnlog.agents.runtime.executor import HungTools
from turnlog.agents.tools import Tool
from turnlog.errors import PeerError, quote
from turnlog.events.roles import EXECUTOR, OPERATOR, OWNER

T = TypeVar("T")

log = logging.getLogger("turnlog.agents")

ANSWERING_ROLES = frozenset({EXECUTOR, OPERATOR, OWNER})  # roles whose results the server accepts
POLL_INTERVAL_S = 1.0  # a new session waits at most this long for its executor
PAGE_SESSIONS = 500
IDLE_S = 60.0  # as long as a person reads before the next message
FULL_POLL_EVERY = 30  # polls; a full poll restarts an executor that failed in an inactive session
MAX_LIST_BYTES = 4 << 20  # a page has some 100 KiB


class ListedSession(msgspec.Struct):
    """The fields of a listed session that matter here."""

    session_id: str
    app: str
    state: str
    last_activity: str = ""
    roles: tuple[str, ...] = ()


class SessionPage(msgspec.Struct):
    """The response of `/api/sessions`."""

    sessions: list[ListedSession]
    next: str | None = None


class TokenInfo(msgspec.Struct):
    """The response of `/api/me`: the token's server roles and the served applications."""

    roles: tuple[str, ...]
    apps: tuple[str, ...]


@dataclass(slots=True)
class RunningExecutor:
    """An executor, its task, and when something last happened in its session, by the loop's clock."""

    executor: RemoteExecutor
    task: asyncio.Task[None]
    active_at_s: float = 0.0


class RemoteExecutorPool:
    """Runs the remote calls of all sessions of an application whose tools it has."""

    def __init__(
        self,
        url: str,
        app: str,
        tools: Iterable[Tool],
        token: str | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        trust_env: bool = False,
    ) -> None:
        self._client = ServerClient(url, token, trust_env=trust_env)
        self._app = app
        self._sleep = sleep
        self._make_executor = partial(
            RemoteExecutor, url, tools=tuple(tools), sleep=sleep, hung=HungTools(), client=self._client
        )
        self._make_executor("")  # raises now for tools that cannot be used
        self._running: dict[str, RunningExecutor] = {}
        self._activity: dict[str, str] = {}  # when something happened last, on the first page
        self._server_roles: tuple[str, ...] | None = None  # None: the server was not asked yet
        self._without_role: set[str] = set()
        self._poll_count = 0

    async def run(self) -> None:
        """Answer calls until it is cancelled. Raise `PeerError` if the server refuses the token."""
        failures = 0
        try:
            while True:
                delay_s = POLL_INTERVAL_S
                try:
                    await self._check_server()
                    await self._poll_sessions()
                    failures = 0
                except ServerUnavailable as error:
                    failures += 1
                    delay_s = RECONNECT.delay_s(failures)
                    log.warning("the sessions could not be listed yet: %s", error)
                await self._sleep(delay_s)
        finally:
            tasks = [running.task for running in self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.aclose()

    async def _check_server(self) -> None:
        if self._server_roles is not None:
            return
        token_info = await self._get_json("/api/me", TokenInfo)
        if self._app not in token_info.apps:
            names = ", ".join(token_info.apps)
            raise PeerError(f"the server has no application {quote(self._app)}; it serves {names}")
        self._server_roles = token_info.roles

    async def _poll_sessions(self) -> None:
        # a new session, and one in which something happens, is on the first page
        path = f"/api/sessions?limit={PAGE_SESSIONS}"
        is_full = self._poll_count % FULL_POLL_EVERY == 0
        page = await self._get_json(path, SessionPage)
        self._start_listed(page)
        self._activity = {item.session_id: item.last_activity for item in page.sessions}
        while is_full and page.next is not None:
            page = await self._get_json(f"{path}&after={quote_plus(page.next)}", SessionPage)
            self._start_listed(page)
        self._poll_count += 1
        self._end_idle()

    def _start_listed(self, page: SessionPage) -> None:
        now_s = asyncio.get_running_loop().time()
        for session in page.sessions:
            if session.app != self._app or not self._is_active(session) or not self._may_answer(session):
                continue
            running = self._running.get(session.session_id)
            if running is None:
                running = self._start_executor(session.session_id)
            running.active_at_s = now_s

    def _is_active(self, session: ListedSession) -> bool:
        """Return whether something runs in a session, or has happened since the last poll."""
        if session.state == "closed":
            return False
        if session.state != "idle":
            return True
        known = self._activity.get(session.session_id)
        return known != session.last_activity and self._poll_count > 0

    def _end_idle(self) -> None:
        oldest_s = asyncio.get_running_loop().time() - IDLE_S
        for running in self._running.values():
            if running.active_at_s < oldest_s and running.executor.is_idle:
                running.task.cancel()

    def _may_answer(self, session: ListedSession) -> bool:
        roles = {*(self._server_roles or ()), *session.roles}
        if not ANSWERING_ROLES.isdisjoint(roles):
            self._without_role.discard(session.session_id)
            return True
        if session.session_id not in self._without_role:
            self._without_role.add(session.session_id)
            names = ", ".join(sorted(roles)) or "none"
            log.warning("%s: expected the role executor for this token, got %s", session.session_id, names)
        return False

    async def _get_json(self, path: str, type_: type[T]) -> T:
        status, body = await self._client.get(path, MAX_LIST_BYTES)
        check_status(status, body)
        try:
            return msgspec.json.decode(body, type=type_)
        except msgspec.DecodeError as error:
            raise PeerError(f"expected an answer to {path}: {error}") from None

    def _start_executor(self, session_id: str) -> "RunningExecutor":
        executor = self._make_executor(session_id)
        task = asyncio.create_task(executor.run())
        running = RunningExecutor(executor, task)
        self._running[session_id] = running
        task.add_done_callback(partial(self._on_executor_done, session_id))
        return running

    def _on_executor_done(self, session_id: str, task: asyncio.Task[None]) -> None:
        del self._running[session_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("the executor of %s has ended: %s", session_id, error)
