"""Whether the store of a log answers: a read every `PING_INTERVAL_S`, for stores on other machines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from turnlog.errors import StoreError

log = logging.getLogger("turnlog.log")

PING_INTERVAL_S = 2.0
# Longer than a pause of the network, and shorter than people wait before they reload a page.
MAX_SILENCE_S = 10.0


class StoreReach:
    """The time of the last answer. A store of this machine always answers: it is not asked."""

    def __init__(self, is_remote: bool, ping: Callable[[], Awaitable[Any]]) -> None:
        self._ping = ping
        self._last_answer_s = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run()) if is_remote else None

    @property
    def is_lost(self) -> bool:
        """Return whether the store has not answered for `MAX_SILENCE_S`."""
        if self._task is None:
            return False
        return asyncio.get_running_loop().time() - self._last_answer_s > MAX_SILENCE_S

    async def _run(self) -> None:
        while True:
            try:
                await self._ping()
                self._last_answer_s = asyncio.get_running_loop().time()
            except StoreError as error:
                log.warning("the store does not answer: %s", error)
            await asyncio.sleep(PING_INTERVAL_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
