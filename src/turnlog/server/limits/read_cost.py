"""Bytes that a request reads from the log, charged to its principal's budget (protocol 8.4).

A principal whose budget is overdrawn gets 429. A plain response is charged after its read. A stream and an
export are charged page by page, and wait while the budget is overdrawn by more than its burst.
"""

import asyncio
import time

from turnlog.app import Principal
from turnlog.server.limits.rate_limiter import RateLimiter


class ReadMeter:
    """The read budget of one principal, as one request uses it."""

    def __init__(self, rate_limiter: RateLimiter, principal: Principal) -> None:
        self._rate_limiter = rate_limiter
        self._principal = principal

    def check_budget(self) -> None:
        self._rate_limiter.check_read(self._principal, time.monotonic())

    def charge(self, size_bytes: int) -> None:
        """Take bytes that were read. A response that has begun is sent whole."""
        self._rate_limiter.charge_read(self._principal, size_bytes, time.monotonic())

    async def charge_and_wait(self, size_bytes: int) -> None:
        """Take bytes that were read, and wait while the budget is overdrawn too far."""
        wait_s = self._rate_limiter.charge_read(self._principal, size_bytes, time.monotonic())
        if wait_s:
            await asyncio.sleep(wait_s)
