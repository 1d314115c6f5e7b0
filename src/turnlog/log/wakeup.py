"""One signal for many followers: all are notified of a change in one turn of the event loop, without a queue.

`wait` suspends a task until the next change. `add_listener` registers a function that is called for every
change: a thousand listeners cost no task, no timer and no allocation. Changes within one turn of the loop
count as one. Idle time is that of the signal: listeners with the same `idle_s` share one timer, and one that
joined late is notified together with the others.
"""

import asyncio
from collections.abc import Callable
from functools import partial

WakeupListener = Callable[[bool], bool]
"""Gets True for a change, False after an idle time. Returns False to be removed. Must not raise."""


class Wakeup:
    """A signal that tasks and listeners wait for."""

    def __init__(self) -> None:
        self.count = 0
        self._idle_groups: dict[float | None, IdleGroup] = {}

    def wake(self) -> None:
        self.count += 1
        for group in self._idle_groups.values():
            group.wake()

    async def wait(self, idle_s: float | None = None) -> bool:
        """Wait for the next change. Return False if `idle_s` passed first."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        listener = partial(wake_future, future)
        self.add_listener(listener, idle_s)
        try:
            return await future
        finally:
            self.remove_listener(listener, idle_s)

    def add_listener(self, listener: WakeupListener, idle_s: float | None = None) -> None:
        if idle_s not in self._idle_groups:
            self._idle_groups[idle_s] = IdleGroup(idle_s)
        self._idle_groups[idle_s].add(listener)

    def remove_listener(self, listener: WakeupListener, idle_s: float | None = None) -> None:
        """Remove a listener. One that has removed itself is ignored."""
        self._idle_groups[idle_s].listeners.pop(listener, None)


class IdleGroup:
    """The listeners with the same idle time, and their timer."""

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
        if self.listeners and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._notify_change)

    def _notify_change(self) -> None:
        self._is_scheduled = False
        self._last_change_s = self._loop.time()
        self._notify(True)

    def _notify(self, changed: bool) -> None:
        for listener in list(self.listeners):
            if not listener(changed):
                self.listeners.pop(listener, None)

    def _on_idle_timer(self, idle_s: float) -> None:
        # A change does not move the timer: that would cost more than the change itself. So the timer looks
        # when the last change was, and sleeps for the rest of the idle time.
        left_s = self._last_change_s + idle_s - self._loop.time()
        if left_s <= 0:
            self._last_change_s = self._loop.time()
            left_s = idle_s
            self._notify(False)

        self._timer = None
        if self.listeners:
            self._timer = self._loop.call_later(left_s, self._on_idle_timer, idle_s)


def wake_future(future: asyncio.Future[bool], changed: bool) -> bool:
    if not future.done():
        future.set_result(changed)
    return False
