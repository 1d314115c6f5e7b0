"""How much one principal may ask for: requests, bytes of bodies, sessions and open streams.

Rates are token buckets: `..._per_s` or `..._per_hour` fill them, and their burst is what they hold. The
limits keep one principal from taking everything; pages and executors stay far below them. A principal with a
server role is an operator or a program: it has more streams and requests, and an operator makes as many
sessions as it likes.
"""

from typing import NamedTuple

from turnlog.app import Principal
from turnlog.errors import TurnlogError
from turnlog.server.auth import is_guest

PRINCIPALS = 10_000  # so many budgets are kept; a principal that was forgotten begins with a full one
MIB = 1024 * 1024


class TooMuch(TurnlogError):
    """A principal is over one of its limits; the same request may succeed after `wait_s`."""

    def __init__(self, problem: str, wait_s: float = 1.0) -> None:
        super().__init__(problem)
        self.wait_s = wait_s


class TooManyStreams(TooMuch):
    """A principal has as many streams open as it may."""


class TooManySessions(TooMuch):
    """A principal has made as many sessions as it may, for now."""


class Limits(NamedTuple):
    """What holds for each principal. A stream ends after `life_s`, and its reader comes back."""

    requests_per_s: float = 200.0
    burst: int = 100
    program_burst: int = 1000
    body_bytes_per_s: float = 4.0 * MIB
    burst_bytes: int = 16 * MIB
    sessions_per_hour: int = 1000
    streams: int = 64
    guest_streams: int = 8
    program_streams: int = 1024
    life_s: float = 600.0

    def streams_of(self, principal: Principal) -> int:
        """Return how many streams a principal may have open."""
        if principal.server_roles:
            return self.program_streams
        return self.guest_streams if is_guest(principal) else self.streams


class TokenBuckets:
    """What each principal has left of one thing. Time comes in, and gives back `per_s`."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str, amount: float, burst: float, now_s: float) -> float:
        """Return in how many seconds there is so much; 0 if there is now."""
        missing = amount - self._now(name, burst, now_s)
        return max(0.0, missing / self._per_s)

    def take(self, name: str, amount: float, burst: float, now_s: float) -> None:
        left = self._now(name, burst, now_s) - amount
        self._left.pop(name, None)  # the dict is in the order of use
        self._left[name] = (left, now_s)
        if len(self._left) > PRINCIPALS:
            del self._left[next(iter(self._left))]

    def _now(self, name: str, burst: float, now_s: float) -> float:
        left, at = self._left.get(name, (burst, now_s))
        return min(burst, left + max(0.0, now_s - at) * self._per_s)


class Budgets:
    """What each principal has left."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = TokenBuckets(limits.requests_per_s)
        self._bytes = TokenBuckets(limits.body_bytes_per_s)
        self._sessions = TokenBuckets(limits.sessions_per_hour / 3600)
        self._streams: dict[str, int] = {}

    def request(self, principal: Principal, body_bytes: int, now_s: float) -> float:
        """Take one request with its body; return 0, or in how many seconds there is room for it."""
        name, limits = principal.name, self._limits
        burst = limits.program_burst if principal.server_roles else limits.burst
        size = min(body_bytes, limits.burst_bytes)  # a larger one would wait for ever
        wait_s = max(
            self._requests.wait_s(name, 1, burst, now_s),
            self._bytes.wait_s(name, size, limits.burst_bytes, now_s),
        )
        # A refused request counts as the last one of its principal, which is then forgotten last.
        self._requests.take(name, 0 if wait_s else 1, burst, now_s)
        self._bytes.take(name, 0 if wait_s else size, limits.burst_bytes, now_s)
        return wait_s

    def create_session(self, principal: Principal, now_s: float) -> None:
        """Take one new session; raise `TooManySessions` if there is none left."""
        if principal.is_operator:
            return
        burst = self._limits.sessions_per_hour
        if wait_s := self._sessions.wait_s(principal.name, 1, burst, now_s):
            raise TooManySessions(f"too many new sessions, at most {burst} in an hour", wait_s)
        self._sessions.take(principal.name, 1, burst, now_s)

    def has_stream(self, principal: Principal) -> bool:
        """Whether there is a stream left."""
        return self._streams.get(principal.name, 0) < self._limits.streams_of(principal)

    def open_stream(self, principal: Principal) -> bool:
        """Take one stream, if there is one left."""
        if not self.has_stream(principal):
            return False
        self._streams[principal.name] = self._streams.get(principal.name, 0) + 1
        return True

    def close_stream(self, principal: Principal) -> None:
        """Give it back."""
        name = principal.name
        self._streams[name] -= 1
        if not self._streams[name]:
            del self._streams[name]
