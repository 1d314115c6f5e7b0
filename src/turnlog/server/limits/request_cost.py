"""The processor time of a request: the time that its steps take on the event loop, charged step by step.

Work in threads, and tasks that a request leaves behind, are not charged: bodies are charged by their bytes,
turns by the requests that begin them.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")
ChargeSeconds = Callable[[float], None]


class MeteredCoroutine:
    """Awaits a coroutine and calls `charge` with the seconds of each of its steps."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], charge: ChargeSeconds) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            started_s = time.thread_time()
            try:
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._charge(time.thread_time() - started_s)

            error = None
            try:
                yield awaited
            except BaseException as raised:  # noqa: BLE001  the coroutine's own: most often a cancellation
                error = raised
