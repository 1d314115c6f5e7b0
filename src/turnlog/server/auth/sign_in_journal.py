"""Sign-ins over all servers of a shared log: used codes and signed-out cookies, in a session of their own.

A code is used by appending its event: the log stores an id once, so one server alone is told that it was new.
Each server follows the session, and refuses a cookie within a moment of its sign-out anywhere. The session
belongs to no application that is served: no member can read it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from turnlog.errors import Conflict, StoreError
from turnlog.events import Catalog, Payload, Scope
from turnlog.events.server import SERVER, ServerCodeUse, ServerSignOut
from turnlog.log import Log, Page
from turnlog.server.auth.revocation import Revocation

log = logging.getLogger("turnlog.server")

SERVER_APP = "turnlog-server"  # no application of this name is served
SERVER_SESSION = "sess_turnlog_server"
RETRY_S = 1.0
CATALOG = Catalog(SERVER)


class SignInJournal:
    """The journal of one server. `on_sign_out` is called with every sign-out, here or on another server."""

    def __init__(self, log: Log, on_sign_out: Callable[[Revocation], None]) -> None:
        self._log = log
        self._on_sign_out = on_sign_out
        self._last = -1
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read all sign-outs so far, and follow the next ones."""
        with suppress(Conflict):  # another server has created it
            await self._log.create(SERVER_APP, SERVER_SESSION)
        while page := await self._log.read(SERVER_SESSION, self._last):
            self._apply(page)
        self._task = asyncio.create_task(self._follow())

    async def use_code(self, number: str, until: int) -> bool:
        """Return whether no server has accepted this code before."""
        return await self._append(ServerCodeUse(number=number, until=until), f"code:{number}")

    async def revoke(self, record: Revocation) -> None:
        """Store a sign-out; all servers hear of it."""
        payload = ServerSignOut(
            principal=record.name, cookie_id=record.id or None, made_ms=record.made_ms, until=record.until
        )
        await self._append(payload, f"sign-out:{record.name}:{record.id}:{record.made_ms}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _append(self, payload: Payload, key: str) -> bool:
        event_id = "evt_" + sha256(key.encode(errors="surrogateescape")).hexdigest()
        event = CATALOG.build_event(payload, id=event_id, origin="system", scope=Scope())
        try:
            result = await self._log.append(SERVER_SESSION, [event])
        except Conflict:
            return False  # the same code or cookie, with another expiry
        return all(result.new)

    def _apply(self, page: Page) -> None:
        for envelope in page.envelopes():
            payload = CATALOG.decode_payload(envelope)
            if isinstance(payload, ServerSignOut):
                self._on_sign_out(
                    Revocation(payload.principal, payload.until, payload.cookie_id or "", payload.made_ms)
                )
        self._last = page.last

    async def _follow(self) -> None:
        while True:
            try:
                async for page in self._log.follow(SERVER_SESSION, self._last):
                    self._apply(page)
            except StoreError as error:
                log.warning("sign-outs on other servers are not heard now: %s", error)
            await asyncio.sleep(RETRY_S)
