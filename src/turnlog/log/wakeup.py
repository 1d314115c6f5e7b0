"""One signal for many: whoever waits is told of the next change, all in one turn of the loop, with no queue.

There are two ways to wait. `wait` puts a task to sleep and wakes it. `add` leaves a function that is called
for every change until it goes: a thousand of them cost no task, no timer and no allocation. Changes within
one turn of the loop are one change. A silence is that of the signal: one timer serves all who want to hear of
the same length of it, and whoever came late hears of it with the others.
"""

import asyncio
from collections.abc import Callable
from functools import partial

WakeupListener = Callable[
    [bool], bool
]  # gets True for a change, False for a silence; says whether it stays; never raises


class Wakeup:
    """A change that can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._idle_groups: dict[float | None, IdleGroup] = {}

    def wake(self) -> None:
        """Tell everyone who waits."""
        self.count += 1
        for waiting in self._idle_groups.values():
            waiting.wake()

    async def wait(self, idle_s: float | None = None) -> bool:
        """Sleep until the next change; False when `idle_s` passed first."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        look = partial(wake_future, woken)
        self.add_listener(look, idle_s)
        try:
            return await woken
        finally:
            self.remove_listener(look, idle_s)

    def add_listener(self, listener: WakeupListener, idle_s: float | None = None) -> None:
        """Call a function from now on."""
        if idle_s not in self._idle_groups:
            self._idle_groups[idle_s] = IdleGroup(idle_s)
        self._idle_groups[idle_s].add(listener)

    def remove_listener(self, listener: WakeupListener, idle_s: float | None = None) -> None:
        """Call it no more, if it has not gone by itself."""
        self._idle_groups[idle_s].listeners.pop(listener, None)


class IdleGroup:
    """Those who want to hear of the same length of silence."""

    def __init__(self, idle_s: float | None) -> None:
        self.listeners: dict[WakeupListener, None] = {}
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_change_s = 0.0

    def add(self, listener: WakeupListener) -> None:
        self.listeners[listener] = None
        if self._timer is None and self._idle_s is not None:
            self._last_change_s = self._loop.time()
            self._timer = self._loop.call_later(self._idle_s, self._on_idle_timer, self._idle_s)

    def wake(self) -> None:
        """Tell them, once all that happens in this turn of the loop has happened."""
        if self.listeners and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._notify_change)

    def _notify_change(self) -> None:
        self._is_scheduled = False
        self._last_change_s = self._loop.time()
        self._notify(True)

    def _notify(self, changed: bool) -> None:
        for look in list(self.listeners):
            if not look(changed):
                self.listeners.pop(look, None)

    def _on_idle_timer(self, idle_s: float) -> None:
        """A change does not move the timer, which would cost more than the change: the timer looks back."""
        left_s = self._last_change_s + idle_s - self._loop.time()
        if left_s <= 0:
            self._last_change_s, left_s = self._loop.time(), idle_s
            self._notify(False)
        self._timer = self._loop.call_later(left_s, self._on_idle_timer, idle_s) if self.listeners else None


def wake_future(future: asyncio.Future[bool], changed: bool) -> bool:
    """Wake one who sleeps; it goes."""
    if not future.done():
        future.set_result(changed)
    return False
