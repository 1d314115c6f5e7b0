"""One signal for many sleepers: whoever waits is woken by the next change, all at once, with no queue."""

import asyncio


class Wakeup:
    """A change that can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Wake everyone who sleeps now."""
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, idle_s: float | None = None) -> bool:
        """Sleep until the next change; False when `idle_s` passed first."""
        try:
            async with asyncio.timeout(idle_s):
                return await self._changed.wait()
        except TimeoutError:
            return False
