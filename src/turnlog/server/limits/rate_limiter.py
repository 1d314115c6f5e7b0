"""What each principal has left of its limits (`policy`). Time comes in as an argument.

The cost of a request is known afterwards (`request_cost`, `read_cost`). So time and reads may be overdrawn
once; the next request is refused until the bucket is filled again.
"""

import asyncio
from collections import deque

from turnlog.app import Principal
from turnlog.errors import TurnlogError
from turnlog.server.limits.policy import UNLIMITED, Limits, Rate

MAX_TRACKED_PRINCIPALS = 10_000  # buckets that are stored; a principal without one begins with a full bucket
ANONYMOUS = ""  # the name under which callers that are not signed in are counted; no principal has it
TOTAL = ""  # the name of the budget that all principals share
REFUSAL_RATE = Rate(1.0, 20.0)  # refusals that are sent without a delay
REFUSAL_DELAY_S = 1.0  # the delay of the others: a client that ignores Retry-After waits for the response
MAX_WAITING_REQUESTS = 64  # requests of one principal that wait for its other requests
MAX_DELAYED_REFUSALS = 64  # refusals of one principal that are delayed at the same time


class RateLimitExceeded(TurnlogError):
    """A principal is over one of its limits; the same request may succeed after `retry_after_s`."""

    def __init__(self, problem: str, retry_after_s: float = 1.0) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class TooManyStreams(RateLimitExceeded):
    """A principal has as many streams open as it may."""


class TooManySessions(RateLimitExceeded):
    """A principal has made as many sessions as it may in this hour."""


class TooManyUploads(RateLimitExceeded):
    """A principal has uploaded as many bytes as it may in this hour."""


class ReadLimitExceeded(RateLimitExceeded):
    """A principal has read more bytes than its budget has."""


class TokenBuckets:
    """The token buckets of all principals for one resource."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}  # level and time, least recently used first

    def wait_s(self, name: str, amount: float, rate: Rate, now_s: float) -> float:
        missing = amount - self._level_at(name, rate, now_s)
        return max(0.0, missing / rate.per_s)

    def consume(self, name: str, amount: float, rate: Rate, now_s: float) -> None:
        """Take `amount`, also if the bucket holds less."""
        level = self._level_at(name, rate, now_s) - amount
        self._levels.pop(name, None)
        self._levels[name] = (level, now_s)
        if len(self._levels) > MAX_TRACKED_PRINCIPALS:
            del self._levels[next(iter(self._levels))]

    def _level_at(self, name: str, rate: Rate, now_s: float) -> float:
        level, at_s = self._levels.get(name, (rate.burst, now_s))
        return min(rate.burst, level + max(0.0, now_s - at_s) * rate.per_s)


class RateLimiter:
    """Counts what each principal takes, and refuses what is over its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = TokenBuckets()
        self._body_bytes = TokenBuckets()
        self._busy_time = TokenBuckets()
        self._sessions = TokenBuckets()
        self._uploads = TokenBuckets()
        self._reads = TokenBuckets()
        self._total_reads = TokenBuckets()
        self._refusals = TokenBuckets()
        self._delayed_refusals: dict[str, int] = {}
        self._streams: dict[str, int] = {}
        self._open_requests: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    # Requests

    def consume_request(self, principal: Principal, body_bytes: int, now_s: float) -> float:
        """Take one request with its body and return 0, or take nothing and return the seconds to wait."""
        name = principal.name
        allowance = self._limits.allowance_of(principal)
        size_bytes = min(body_bytes, allowance.body_bytes.burst)  # a larger body would wait for ever
        wait_s = max(
            self._requests.wait_s(name, 1, allowance.requests, now_s),
            self._body_bytes.wait_s(name, size_bytes, allowance.body_bytes, now_s),
            self._busy_time.wait_s(name, 0, allowance.busy_s, now_s),
        )
        # A refused request takes 0: its bucket is then the most recently used, and is dropped last.
        self._requests.consume(name, 0 if wait_s else 1, allowance.requests, now_s)
        self._body_bytes.consume(name, 0 if wait_s else size_bytes, allowance.body_bytes, now_s)
        return wait_s

    def has_busy_limit(self, principal: Principal) -> bool:
        return self._limits.allowance_of(principal).busy_s != UNLIMITED

    def charge_busy_time(self, principal: Principal, busy_s: float, now_s: float) -> None:
        self._busy_time.consume(principal.name, busy_s, self._limits.allowance_of(principal).busy_s, now_s)

    async def start_request(self, principal: Principal | None) -> bool:
        """Count a request as running, after waiting for room. Return False if too many wait already.

        None is a caller that is not signed in: its requests do not wait.
        """
        if principal is None:
            name = ANONYMOUS
            max_running = self._limits.anonymous_concurrent_requests
        else:
            name = principal.name
            max_running = self._limits.allowance_of(principal).concurrent_requests

        waiting = self._waiting.setdefault(name, deque())
        try:
            while self._running_count(name) >= max_running:
                if principal is None or len(waiting) >= MAX_WAITING_REQUESTS:
                    return False
                await self._wait_for_room(name, waiting)
            self._open_requests[name] = self._open_requests.get(name, 0) + 1
            return True
        finally:
            if not waiting:
                self._waiting.pop(name, None)

    async def _wait_for_room(self, name: str, waiting: deque[asyncio.Future[None]]) -> None:
        admitted = asyncio.get_running_loop().create_future()
        waiting.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            # The request was admitted and its peer has left: the room goes to the next request.
            if not admitted.cancelled():
                self._admit_next(name)
            raise

    def _running_count(self, name: str) -> int:
        """Return the running requests without streams: an open stream must not block other requests."""
        return self._open_requests.get(name, 0) - self._streams.get(name, 0)

    def finish_request(self, principal: Principal | None) -> None:
        name = principal.name if principal else ANONYMOUS
        decrement_count(self._open_requests, name)
        self._admit_next(name)

    def _admit_next(self, name: str) -> None:
        waiting = self._waiting.get(name, ())
        while waiting:
            admitted = waiting.popleft()
            if not admitted.done():
                admitted.set_result(None)
                return

    async def delay_refusal(self, principal: Principal, now_s: float) -> None:
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

    # Reads

    def check_read(self, principal: Principal, now_s: float) -> None:
        """Raise `ReadLimitExceeded` if the principal's budget is overdrawn."""
        wait_s = self._read_wait_s(principal, 0, now_s)
        if wait_s:
            raise ReadLimitExceeded("too many bytes were read, wait a little", wait_s)

    def charge_read(self, principal: Principal, size_bytes: int, now_s: float) -> float:
        """Take bytes that were read. Return the seconds to wait before the next read.

        A response that has begun may overdraw the budget by its burst before it has to wait.
        """
        if principal.is_operator:
            return 0.0
        self._reads.consume(principal.name, size_bytes, self._limits.read_bytes, now_s)
        self._total_reads.consume(TOTAL, size_bytes, self._limits.total_read_bytes, now_s)
        return self._read_wait_s(principal, -1, now_s)

    def _read_wait_s(self, principal: Principal, bursts: int, now_s: float) -> float:
        """Return the seconds until the principal's and the shared bucket hold so many bursts.

        The shared bucket does not count for a principal that has half of its own burst left.
        """
        if principal.is_operator:
            return 0.0
        own = self._limits.read_bytes
        total = self._limits.total_read_bytes
        own_wait_s = self._reads.wait_s(principal.name, bursts * own.burst, own, now_s)
        if not self._reads.wait_s(principal.name, own.burst / 2, own, now_s):
            return own_wait_s
        total_wait_s = self._total_reads.wait_s(TOTAL, bursts * total.burst, total, now_s)
        return max(own_wait_s, total_wait_s)

    # Sessions and streams

    def consume_session(self, principal: Principal, now_s: float) -> None:
        """Take one new session. Raise `TooManySessions` if the hour's sessions are used up."""
        if principal.is_operator:
            return
        rate = self._limits.new_sessions
        wait_s = self._sessions.wait_s(principal.name, 1, rate, now_s)
        if wait_s:
            raise TooManySessions(f"too many new sessions, at most {rate.burst} in an hour", wait_s)
        self._sessions.consume(principal.name, 1, rate, now_s)

    def consume_upload(self, principal: Principal, size_bytes: int, now_s: float) -> None:
        """Take the bytes of an upload. Raise `TooManyUploads` if the hour's bytes are used up."""
        rate = self._limits.upload_bytes_of(principal)
        wait_s = self._uploads.wait_s(principal.name, size_bytes, rate, now_s)
        if wait_s:
            mib = int(rate.burst) >> 20
            raise TooManyUploads(f"too many uploads, at most {mib} MiB in an hour", wait_s)
        self._uploads.consume(principal.name, size_bytes, rate, now_s)

    def has_free_stream(self, principal: Principal) -> bool:
        return self._streams.get(principal.name, 0) < self._limits.allowance_of(principal).streams

    def acquire_stream(self, principal: Principal) -> bool:
        if not self.has_free_stream(principal):
            return False
        self._streams[principal.name] = self._streams.get(principal.name, 0) + 1
        self._admit_next(principal.name)
        return True

    def release_stream(self, principal: Principal) -> None:
        decrement_count(self._streams, principal.name)


def decrement_count(counts: dict[str, int], name: str) -> None:
    """Subtract one. Remove the name at 0, so that the table does not grow."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
