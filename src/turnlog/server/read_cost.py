"""What a principal's requests read from the log, charged to its budget (protocol 8.4).

`admit` refuses the next request of a principal that has read more than its budget. A plain answer is charged
for what it has read. A stream and an export are charged page by page, and wait where the budget is overdrawn
by as much as it holds.
"""

import asyncio
import time

from turnlog.app import Principal
from turnlog.server.limits import RateLimiter


class ReadMeter:
    """The budget of one principal, as one request uses it."""

    def __init__(self, rate_limiter: RateLimiter, principal: Principal) -> None:
        self._rate_limiter = rate_limiter
        self._principal = principal

    def check_budget(self) -> None:
        """Raise `TooMuchRead` if the budget is used up."""
        self._rate_limiter.check_read(self._principal, time.monotonic())

    def charge(self, size_bytes: int) -> None:
        """Take what was read; an answer that has begun is given whole."""
        self._rate_limiter.charge_read(self._principal, size_bytes, time.monotonic())

    async def charge_and_wait(self, size_bytes: int) -> None:
        """Take what was read, and wait while the budget is overdrawn too far."""
        wait_s = self._rate_limiter.charge_read(self._principal, size_bytes, time.monotonic())
        if wait_s:
            await asyncio.sleep(wait_s)
