"""The session drivers of this process: at most one for each session, opened with its first use.

Opening a driver closes what a dead process left running. A driver that has ended by itself is replaced with
the next use, or when the store accepts writes again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context

from turnlog.agents.runtime.drivers import SessionDriver, make_driver
from turnlog.agents.runtime.executor import DescribeError, HungTools
from turnlog.app.app import App
from turnlog.app.app_state import SessionAppState
from turnlog.errors import SessionDamaged, TurnlogError
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.log import Log, SessionRecord

Observe = Callable[[Envelope, Payload | UnknownPayload], None]


class DriverRegistry:
    """Opens, keeps and closes the drivers of all sessions."""

    def __init__(
        self, log: Log, apps: Mapping[str, App], pid: int, observe: Observe, describe: DescribeError
    ) -> None:
        self._log = log
        self._apps = apps
        self._pid = pid
        self._observe = observe
        self._describe = describe
        self._hung_tools = HungTools()
        self._drivers: dict[str, asyncio.Task[SessionDriver]] = {}
        self._recovery: asyncio.Task[None] | None = None

    def has_driver(self, session_id: str) -> bool:
        return session_id in self._drivers

    async def get(self, record: SessionRecord) -> SessionDriver:
        """Return the driver of a session. Open it if there is none, or if it has ended."""
        session_id = record.session_id
        task = self._drivers.get(session_id)
        if task is None or has_driver_ended(task):
            # an empty context: the driver keeps nothing of the request that happened to open it
            opening = self._open(session_id, self._apps[record.app], task)
            task = asyncio.create_task(opening, context=Context())
            self._drivers[session_id] = task
        try:
            return await asyncio.shield(task)
        except Exception:
            # the next use tries again
            if self._drivers.get(session_id) is task:
                del self._drivers[session_id]
            raise

    async def _open(
        self, session_id: str, app: App, ended_driver: asyncio.Task[SessionDriver] | None
    ) -> SessionDriver:
        if ended_driver is not None:
            with suppress(TurnlogError):  # the new driver closes what this one could not
                await ended_driver.result().close()
        last_damage: SessionDamaged | None = None
        while True:
            driver = make_driver(
                app.runtime,
                self._log,
                session_id,
                app.catalog,
                app.vocabulary,
                describe=self._describe,
                hung=self._hung_tools,
                observe=self._observe,
                turn_limit_s=app.turn_limit_s,
                app_state=SessionAppState(app, session_id),
            )
            try:
                await driver.open(self._pid)
            except SessionDamaged as damage:
                # the damage is recorded now, and the next read skips it; the same damage again is final
                if last_damage is not None and last_damage.args == damage.args:
                    raise
                last_damage = damage
            else:
                return driver

    # recovery

    async def recover(self) -> None:
        for session_id in await self._log.sessions_with_open_agents():
            record = await self._log.info(session_id)
            if record.app in self._apps:
                await self.get(record)
        self._log.health.on_recovery = self._begin_recovery

    def _begin_recovery(self) -> None:
        """End the turns whose end could not be written, now that the store accepts writes again."""
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._reopen_ended(), context=Context())

    async def _reopen_ended(self) -> None:
        ended = [session_id for session_id, task in self._drivers.items() if has_driver_ended(task)]
        with suppress(TurnlogError):  # the next recovery, or the next use, tries again
            for session_id in ended:
                await self.get(await self._log.info(session_id))

    async def close(self) -> None:
        self._log.health.on_recovery = lambda: None
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        drivers = await asyncio.gather(*self._drivers.values(), return_exceptions=True)
        closing = [driver.close() for driver in drivers if not isinstance(driver, BaseException)]
        for error in await asyncio.gather(*closing, return_exceptions=True):
            if error is not None:
                raise error


def has_driver_ended(driver_task: asyncio.Task[SessionDriver]) -> bool:
    if not driver_task.done() or driver_task.cancelled() or driver_task.exception():
        return False
    return driver_task.result().has_ended
