"""How much one principal may take: requests, bytes of bodies and of reads, time of the event loop, and more.

Rates are token buckets: `..._per_s`, `..._per_hour` or `..._share` fill them, and their burst is what they
hold. The limits keep one principal from taking everything; pages and executors stay far below them. A guest
has a person's pace, and a twentieth of the event loop. A principal with a server role is an operator or a
program: it has more streams and requests, the event loop without a limit, and an operator makes as many
sessions, and reads as much, as it likes. All principals together have a budget of bytes read, too; while it
is used up, those wait who have used more than half of their own.

What a request has cost is known afterwards (`metering`). So time may be overdrawn once; the next request is
refused until the bucket is filled again.
"""

import asyncio
import math
from collections import deque
from typing import NamedTuple

from turnlog.app import Principal
from turnlog.errors import TurnlogError
from turnlog.server.auth.credentials import is_guest

MAX_TRACKED_PRINCIPALS = (
    10_000  # so many budgets are kept; a principal that was forgotten begins with a full one
)
MIB = 1024 * 1024
ANONYMOUS = ""  # no principal has this name
TOTAL = ""  # the name of the budget of all principals together


class RateLimitExceeded(TurnlogError):
    """A principal is over one of its limits; the same request may succeed after `wait_s`."""

    def __init__(self, problem: str, retry_after_s: float = 1.0) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class TooManyStreams(RateLimitExceeded):
    """A principal has as many streams open as it may."""


class TooManySessions(RateLimitExceeded):
    """A principal has made as many sessions as it may, for now."""


class Rate(NamedTuple):
    """A token bucket: what fills it, and what it holds."""

    per_s: float
    burst: float


UNLIMITED = Rate(math.inf, math.inf)
REFUSAL_RATE = Rate(1.0, 20.0)  # how many refusals are answered at once
REFUSAL_DELAY_S = (
    1.0  # how long the next ones take: who does not wait when it is told to, waits for the answer
)
MAX_WAITING_REQUESTS = 64  # requests of one principal that wait for others of its own
MAX_DELAYED_REFUSALS = 64  # so many answers of one principal are kept back


class Allowance(NamedTuple):
    """What one principal may take. `at_once` are requests that are being answered, without streams."""

    requests: Rate
    body_bytes: Rate
    busy_s: Rate
    concurrent_requests: int
    streams: int


class ReadLimitExceeded(RateLimitExceeded):
    """A principal has read as much as it may, for now."""


class Limits(NamedTuple):
    """What holds for each principal. A stream ends after `life_s`, and its reader comes back.

    `busy_share` is the part of the event loop's time that the requests of one principal may take.
    `anonymous_at_once` holds for all peers together that have not signed in.
    """

    requests_per_s: float = 200.0
    burst: int = 100
    program_burst: int = 1000
    guest_requests_per_s: float = 10.0
    guest_burst: int = 60
    body_bytes_per_s: float = 4.0 * MIB
    burst_bytes: int = 16 * MIB
    guest_body_bytes_per_s: float = MIB / 16
    guest_burst_bytes: int = MIB
    busy_share: float = 0.25
    burst_busy_s: float = 5.0
    guest_busy_share: float = 0.05
    guest_burst_busy_s: float = 0.5
    concurrent_requests: int = 16
    guest_concurrent_requests: int = 4
    program_concurrent_requests: int = 1024
    anonymous_concurrent_requests: int = 256
    read_bytes_per_s: float = 4.0 * MIB
    burst_read_bytes: int = 64 * MIB
    total_read_bytes_per_s: float = 32.0 * MIB
    total_burst_read_bytes: int = 256 * MIB
    sessions_per_hour: int = 1000
    streams: int = 64
    guest_streams: int = 8
    program_streams: int = 1024
    max_stream_age_s: float = 600.0

    @property
    def read_bytes(self) -> Rate:
        return Rate(self.read_bytes_per_s, self.burst_read_bytes)

    @property
    def total_read_bytes(self) -> Rate:
        return Rate(self.total_read_bytes_per_s, self.total_burst_read_bytes)

    def allowance_of(self, principal: Principal) -> Allowance:
        """Return what a principal may take."""
        body_bytes = Rate(self.body_bytes_per_s, self.burst_bytes)
        if principal.server_roles:
            requests = Rate(self.requests_per_s, self.program_burst)
            return Allowance(
                requests, body_bytes, UNLIMITED, self.program_concurrent_requests, self.program_streams
            )
        if not is_guest(principal):
            requests = Rate(self.requests_per_s, self.burst)
            busy_s = Rate(self.busy_share, self.burst_busy_s)
            return Allowance(requests, body_bytes, busy_s, self.concurrent_requests, self.streams)
        return Allowance(
            Rate(self.guest_requests_per_s, self.guest_burst),
            Rate(self.guest_body_bytes_per_s, self.guest_burst_bytes),
            Rate(self.guest_busy_share, self.guest_burst_busy_s),
            self.guest_concurrent_requests,
            self.guest_streams,
        )


class TokenBuckets:
    """What each principal has left of one thing. Time comes in, and fills them."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str, amount: float, rate: Rate, now_s: float) -> float:
        """Return in how many seconds there is so much; 0 if there is now."""
        missing = amount - self._level_at(name, rate, now_s)
        return max(0.0, missing / rate.per_s)

    def consume(self, name: str, amount: float, rate: Rate, now_s: float) -> None:
        """Take so much, also if it is not there."""
        left = self._level_at(name, rate, now_s) - amount
        self._levels.pop(name, None)  # the dict is in the order of use
        self._levels[name] = (left, now_s)
        if len(self._levels) > MAX_TRACKED_PRINCIPALS:
            del self._levels[next(iter(self._levels))]

    def _level_at(self, name: str, rate: Rate, now_s: float) -> float:
        left, at = self._levels.get(name, (rate.burst, now_s))
        return min(rate.burst, left + max(0.0, now_s - at) * rate.per_s)


class RateLimiter:
    """What each principal has left."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = TokenBuckets()
        self._body_bytes = TokenBuckets()
        self._busy_time = TokenBuckets()
        self._sessions = TokenBuckets()
        self._reads = TokenBuckets()
        self._total_reads = TokenBuckets()
        self._streams: dict[str, int] = {}
        self._open_requests: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._refusals = TokenBuckets()
        self._delayed_refusals: dict[str, int] = {}

    def consume_request(self, principal: Principal, body_bytes: int, now_s: float) -> float:
        """Take one request with its body; return 0, or in how many seconds there is room for it."""
        name, allowed = principal.name, self._limits.allowance_of(principal)
        size = min(body_bytes, allowed.body_bytes.burst)  # a larger one would wait for ever
        wait_s = max(
            self._requests.wait_s(name, 1, allowed.requests, now_s),
            self._body_bytes.wait_s(name, size, allowed.body_bytes, now_s),
            self._busy_time.wait_s(name, 0, allowed.busy_s, now_s),
        )
        # A refused request counts as the last one of its principal, which is then forgotten last.
        self._requests.consume(name, 0 if wait_s else 1, allowed.requests, now_s)
        self._body_bytes.consume(name, 0 if wait_s else size, allowed.body_bytes, now_s)
        return wait_s

    def charge_busy_time(self, principal: Principal, busy_s: float, now_s: float) -> None:
        """Take the time that a request has kept the event loop busy."""
        self._busy_time.consume(principal.name, busy_s, self._limits.allowance_of(principal).busy_s, now_s)

    async def start_request(self, principal: Principal | None) -> bool:
        """Begin to answer a request when there is room for it; False if too many wait for room.

        None is who has not signed in: these do not wait.
        """
        name = principal.name if principal else ANONYMOUS
        most = (
            self._limits.allowance_of(principal).concurrent_requests
            if principal
            else self._limits.anonymous_concurrent_requests
        )
        waiting = self._waiting.setdefault(name, deque())
        try:
            while self._running_count(name) >= most:
                if principal is None or len(waiting) >= MAX_WAITING_REQUESTS:
                    return False
                turn = asyncio.get_running_loop().create_future()
                waiting.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:
                    if not turn.cancelled():  # it was this one's turn, and is the next one's now
                        self._admit_next(name)
                    raise
            self._open_requests[name] = self._open_requests.get(name, 0) + 1
            return True
        finally:
            if not waiting:
                self._waiting.pop(name, None)

    def _running_count(self, name: str) -> int:
        """How many requests are being answered; a stream is not to keep its reader from asking for more."""
        return self._open_requests.get(name, 0) - self._streams.get(name, 0)

    def finish_request(self, principal: Principal | None) -> None:
        """End what `begin` began."""
        name = principal.name if principal else ANONYMOUS
        decrement_count(self._open_requests, name)
        self._admit_next(name)

    def _admit_next(self, name: str) -> None:
        """Let the request go on that has waited longest; one whose peer has left is passed over."""
        waiting = self._waiting.get(name, ())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def delay_refusal(self, principal: Principal, now_s: float) -> None:
        """Take one refusal; wait before it is answered, if the principal has had many."""
        name = principal.name
        wait_s = self._refusals.wait_s(name, 1, REFUSAL_RATE, now_s)
        self._refusals.consume(name, 0 if wait_s else 1, REFUSAL_RATE, now_s)
        if not wait_s or self._delayed_refusals.get(name, 0) >= MAX_DELAYED_REFUSALS:
            return
        self._delayed_refusals[name] = self._delayed_refusals.get(name, 0) + 1
        try:
            await asyncio.sleep(REFUSAL_DELAY_S)
        finally:
            decrement_count(self._delayed_refusals, name)

    def check_read(self, principal: Principal, now_s: float) -> None:
        """Raise `TooMuchRead` for who has read more than there was."""
        if wait_s := self._read_wait_s(principal, 0, now_s):
            raise ReadLimitExceeded("too much was read, wait a little", wait_s)

    def charge_read(self, principal: Principal, size_bytes: int, now_s: float) -> float:
        """Take what was read, also more than is left; return in how many seconds to read on.

        What has begun may overdraw the budget by as much again before it has to wait.
        """
        if principal.is_operator:
            return 0.0
        self._reads.consume(principal.name, size_bytes, self._limits.read_bytes, now_s)
        self._total_reads.consume(TOTAL, size_bytes, self._limits.total_read_bytes, now_s)
        return self._read_wait_s(principal, -1, now_s)

    def _read_wait_s(self, principal: Principal, bursts: int, now_s: float) -> float:
        """Return in how many seconds so many bursts are left, of the principal's and of the common budget."""
        if principal.is_operator:
            return 0.0
        name, own, total = principal.name, self._limits.read_bytes, self._limits.total_read_bytes
        own_s = self._reads.wait_s(name, bursts * own.burst, own, now_s)
        if not self._reads.wait_s(name, own.burst / 2, own, now_s):
            return own_s
        return max(own_s, self._total_reads.wait_s(TOTAL, bursts * total.burst, total, now_s))

    def consume_session(self, principal: Principal, now_s: float) -> None:
        """Take one new session; raise `TooManySessions` if there is none left."""
        if principal.is_operator:
            return
        burst = self._limits.sessions_per_hour
        rate = Rate(burst / 3600, burst)
        if wait_s := self._sessions.wait_s(principal.name, 1, rate, now_s):
            raise TooManySessions(f"too many new sessions, at most {burst} in an hour", wait_s)
        self._sessions.consume(principal.name, 1, rate, now_s)

    def has_free_stream(self, principal: Principal) -> bool:
        """Whether there is a stream left."""
        return self._streams.get(principal.name, 0) < self._limits.allowance_of(principal).streams

    def acquire_stream(self, principal: Principal) -> bool:
        """Take one stream, if there is one left."""
        if not self.has_free_stream(principal):
            return False
        self._streams[principal.name] = self._streams.get(principal.name, 0) + 1
        self._admit_next(principal.name)
        return True

    def release_stream(self, principal: Principal) -> None:
        """Give it back."""
        decrement_count(self._streams, principal.name)


def decrement_count(counts: dict[str, int], name: str) -> None:
    """Count one less; a name with none is forgotten."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
