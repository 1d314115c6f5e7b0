"""Count the work that a call does, where the time it takes would depend on the machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LINEAR_TIMES = 1.5  # a line grows by 1.0 times its factor; a square of four times the size by 4.0 times


def count_lines(work: Callable[[], object]) -> int:
    """Run a function and return how many lines of Python it has run, those of its loops each time.

    The work inside one call of a C function is one step here; `make soak` measures it as CPU time.
    """
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def is_linear(work: Callable[[int], int], size: int, factor: int = 4) -> bool:
    """Whether work that counts its steps takes about `factor` times the steps for `factor` times the size."""
    small = work(size)
    assert small > size / 10, f"hardly anything was counted: {small} steps for a size of {size}"
    return work(factor * size) <= LINEAR_TIMES * factor * small
