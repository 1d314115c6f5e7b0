"""Tests that repeat a covered path many times pause coverage, whose tracer makes them three times slower."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_coverage() -> Iterator[None]:
    """Pause coverage's tracer. Also a decorator, for tests and laws."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
