"""One signal for many sleepers: whoever waits is woken by the next change, all at once, with no queue."""

import asyncio


class Wakeup:
    """A change that can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed: asyncio.Event | None = None  # made by the first who sleeps

    def wake(self) -> None:
        """Wake everyone who sleeps now."""
        self.count += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self, idle_s: float | None = None) -> bool:
        """Sleep until the next change; False when `idle_s` passed first."""
        self._changed = changed = self._changed or asyncio.Event()
        if idle_s is None:
            return await changed.wait()
        try:
            async with asyncio.timeout(idle_s):
                return await changed.wait()
        except TimeoutError:
            return False
