"""One signal for many: whoever waits is told of the next change, all in one turn of the loop, with no queue.

There are two ways to wait. `wait` puts a task to sleep and wakes it. `add` leaves a function that is called
for every change until it goes: a thousand of them cost no task, no timer and no allocation. Changes within
one turn of the loop are one change. A silence is that of the signal: one timer serves all who want to hear of
the same length of it, and whoever came late hears of it with the others.
"""

import asyncio
from collections.abc import Callable
from functools import partial

Look = Callable[
    [bool], bool
]  # gets True for a change, False for a silence; says whether it stays; never raises


class Wakeup:
    """A change that can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[float | None, Waiting] = {}

    def wake(self) -> None:
        """Tell everyone who waits."""
        self.count += 1
        for waiting in self._waiting.values():
            waiting.wake()

    async def wait(self, idle_s: float | None = None) -> bool:
        """Sleep until the next change; False when `idle_s` passed first."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        look = partial(resolve, woken)
        self.add(look, idle_s)
        try:
            return await woken
        finally:
            self.discard(look, idle_s)

    def add(self, look: Look, idle_s: float | None = None) -> None:
        """Call a function from now on."""
        if idle_s not in self._waiting:
            self._waiting[idle_s] = Waiting(idle_s)
        self._waiting[idle_s].add(look)

    def discard(self, look: Look, idle_s: float | None = None) -> None:
        """Call it no more, if it has not gone by itself."""
        self._waiting[idle_s].looks.pop(look, None)


class Waiting:
    """Those who want to hear of the same length of silence."""

    def __init__(self, idle_s: float | None) -> None:
        self.looks: dict[Look, None] = {}
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._called = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = 0.0

    def add(self, look: Look) -> None:
        self.looks[look] = None
        if self._timer is None and self._idle_s is not None:
            self._heard_s = self._loop.time()
            self._timer = self._loop.call_later(self._idle_s, self._ring, self._idle_s)

    def wake(self) -> None:
        """Tell them, once all that happens in this turn of the loop has happened."""
        if self.looks and not self._called:
            self._called = True
            self._loop.call_soon(self._tell_change)

    def _tell_change(self) -> None:
        self._called = False
        self._heard_s = self._loop.time()
        self._tell(True)

    def _tell(self, changed: bool) -> None:
        for look in list(self.looks):
            if not look(changed):
                self.looks.pop(look, None)

    def _ring(self, idle_s: float) -> None:
        """A change does not move the timer, which would cost more than the change: the timer looks back."""
        left_s = self._heard_s + idle_s - self._loop.time()
        if left_s <= 0:
            self._heard_s, left_s = self._loop.time(), idle_s
            self._tell(False)
        self._timer = self._loop.call_later(left_s, self._ring, idle_s) if self.looks else None


def resolve(woken: asyncio.Future[bool], changed: bool) -> bool:
    """Wake one who sleeps; it goes."""
    if not woken.done():
        woken.set_result(changed)
    return False
