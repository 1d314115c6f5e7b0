"""What a request costs: the processor time that its steps take on the event loop, told as they happen.

`metered` awaits a coroutine, step by step as the event loop runs it. Work in threads and tasks that a request
leaves behind is not counted: bodies are paid for by their bytes, turns by the requests that begin them.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")
ChargeSeconds = Callable[[float], None]


class MeteredCoroutine:
    """An awaitable that is a coroutine, and calls `spend` with the seconds of each of its steps."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], charge: ChargeSeconds) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            begun_s = time.thread_time()
            try:
                waiting = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._charge(time.thread_time() - begun_s)
            error = None
            try:
                yield waiting
            except BaseException as raised:  # noqa: BLE001  it is the coroutine's: a cancellation, most often
                error = raised
