"""How much one principal may ask for: requests per second with a burst, and streams that are open.

The limits keep one that runs wild from taking everything; they are far above what pages do.
"""

from typing import NamedTuple

from turnlog.errors import TurnlogError

PRINCIPALS = 10_000  # so many budgets are kept; a principal that was forgotten begins with a full one


class TooManyStreams(TurnlogError):
    """A principal has as many streams open as it may."""


class Limits(NamedTuple):
    """What holds for each principal. A stream ends after `life_s`, and its reader comes back."""

    requests_per_s: float = 200.0
    burst: int = 4000
    streams: int = 4000
    life_s: float = 600.0


class Budgets:
    """What each principal has left."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: dict[str, tuple[float, float]] = {}
        self._streams: dict[str, int] = {}

    def request(self, name: str, now_s: float) -> float:
        """Take one request; 0, or in how many seconds there is one again."""
        rate, burst = self._limits.requests_per_s, self._limits.burst
        left, at = self._left.pop(name, (float(burst), now_s))
        left = min(burst, left + max(0.0, now_s - at) * rate)
        granted = left >= 1
        self._left[name] = (left - granted, now_s)
        if len(self._left) > PRINCIPALS:
            del self._left[next(iter(self._left))]
        return 0.0 if granted else (1 - left) / rate

    def has_stream(self, name: str) -> bool:
        """Whether there is a stream left."""
        return self._streams.get(name, 0) < self._limits.streams

    def open_stream(self, name: str) -> bool:
        """Take one stream, if there is one left."""
        if not self.has_stream(name):
            return False
        self._streams[name] = self._streams.get(name, 0) + 1
        return True

    def close_stream(self, name: str) -> None:
        """Give it back."""
        self._streams[name] -= 1
        if not self._streams[name]:
            del self._streams[name]
