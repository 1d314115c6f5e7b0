"""Remote executors for every session of an application, those that are made later too.

The server is asked every second for the sessions that were active last, now and then for all of them, and
each open one of the application gets a `RemoteExecutor`. One that fails is begun anew as long as its session
is listed. Which sessions that are, the server says: those in which the token's principal is a member, or all
if it has its role everywhere. An application that the server does not serve is a `PeerError`; a session in
which the principal has no role that answers calls is reported once and left alone.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TypeVar
from urllib.parse import quote_plus

import msgspec

from turnlog.agents.remote.executor import RemoteExecutor, Sleep, backoff_s, check_status
from turnlog.agents.remote.http_client import GONE, Door
from turnlog.agents.runtime.executor import HungTools
from turnlog.agents.tools import Tool
from turnlog.errors import PeerError, quote
from turnlog.events.roles import EXECUTOR, OPERATOR, OWNER

T = TypeVar("T")

log = logging.getLogger("turnlog.agents")

ANSWERING_ROLES = frozenset({EXECUTOR, OPERATOR, OWNER})  # roles whose results the server takes
POLL_INTERVAL_S = 1.0  # nobody comes to the first call of a session sooner
PAGE_SESSIONS = 500
FULL_POLL_EVERY = 30  # so often every page is read: an executor that failed in a quiet session begins anew
MAX_LIST_BYTES = 4 << 20  # a page has some 100 KiB


class ListedSession(msgspec.Struct):
    """What matters of a session."""

    session_id: str
    app: str
    state: str
    roles: tuple[str, ...] = ()


class SessionPage(msgspec.Struct):
    """What the server says."""

    sessions: list[ListedSession]
    next: str | None = None


class TokenInfo(msgspec.Struct):
    """What the token is on the server: its roles in every session, and the applications that are served."""

    roles: tuple[str, ...]
    apps: tuple[str, ...]


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
    ) -> None:
        self._http = Door(url, token)
        self._app = app
        self._sleep = sleep
        tools = tuple(tools)
        self._make_executor = partial(
            RemoteExecutor, url, tools=tools, token=token, sleep=sleep, hung=HungTools()
        )
        self._make_executor("")  # what is wrong with the tools is said now
        self._running: dict[str, asyncio.Task[None]] = {}
        self._server_roles: tuple[str, ...] | None = None
        self._without_role: set[str] = set()
        self._poll_count = 0

    async def run(self) -> None:
        """Answer calls until it is cancelled, or the server says that it will not be asked."""
        failures = 0
        try:
            while True:
                try:
                    await self._check_server()
                    await self._poll_sessions()
                    failures = 0
                except GONE as error:
                    failures += 1
                    log.warning("the sessions are not known yet: %r", error)
                await self._sleep(backoff_s(failures) if failures else POLL_INTERVAL_S)
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_server(self) -> None:
        """Ask once what the token may do, and whether the server serves the application."""
        if self._server_roles is not None:
            return
        me = await self._get_json("/api/me", TokenInfo)
        if self._app not in me.apps:
            names = ", ".join(me.apps)
            raise PeerError(f"the server has no application {quote(self._app)}; it serves {names}")
        self._server_roles = me.roles

    async def _poll_sessions(self) -> None:
        """Begin what is new. A new session, and one in which something happens, is on the first page."""
        is_full, path = self._poll_count % FULL_POLL_EVERY == 0, f"/api/sessions?limit={PAGE_SESSIONS}"
        page = await self._get_json(path, SessionPage)
        self._start_listed(page)
        while is_full and page.next is not None:
            page = await self._get_json(f"{path}&after={quote_plus(page.next)}", SessionPage)
            self._start_listed(page)
        self._poll_count += 1

    def _start_listed(self, page: SessionPage) -> None:
        for session in page.sessions:
            mine = session.app == self._app and session.state != "closed"
            if mine and session.session_id not in self._running and self._may_answer(session):
                self._start_executor(session.session_id)

    def _may_answer(self, session: ListedSession) -> bool:
        """Whether the server takes results from this process; a session where it does not is reported."""
        roles = {*(self._server_roles or ()), *session.roles}
        if not ANSWERING_ROLES.isdisjoint(roles):
            self._without_role.discard(session.session_id)
            return True
        if session.session_id not in self._without_role:
            self._without_role.add(session.session_id)
            found = ", ".join(sorted(roles)) or "none"
            log.warning("%s: expected the role executor for this token, got %s", session.session_id, found)
        return False

    async def _get_json(self, path: str, kind: type[T]) -> T:
        async with self._http.get(path, {"connection": "close"}) as answer:
            body = await answer.body(MAX_LIST_BYTES)
        check_status(answer.status, body)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise PeerError(f"expected an answer to {path}: {error}") from None

    def _start_executor(self, session_id: str) -> None:
        task = asyncio.create_task(self._make_executor(session_id).run())
        self._running[session_id] = task
        task.add_done_callback(partial(self._on_executor_done, session_id))

    def _on_executor_done(self, session_id: str, task: asyncio.Task[None]) -> None:
        del self._running[session_id]
        if not task.cancelled() and (error := task.exception()):
            log.warning("the executor of %s has ended: %s", session_id, error)
