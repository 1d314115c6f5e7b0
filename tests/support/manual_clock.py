"""An event loop whose clock a test moves on: what is due then happens at once, and nobody sleeps."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ClockLoop(asyncio.SelectorEventLoop):
    """The real clock, and as many seconds ahead of it as a test wants."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def move_on(seconds: float) -> None:
    """Let time go by on the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    loop.ahead_s += seconds


def run_on_clock(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something on a loop of its own with such a clock."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        return runner.run(work())
