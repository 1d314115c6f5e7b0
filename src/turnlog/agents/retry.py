"""`RetryPolicy`: how often a failed request is sent again, and after which delay."""

import random
from dataclasses import dataclass

MAX_DOUBLINGS = 32  # of a delay; by then every delay has reached its maximum, and a float does not overflow


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter, at least as long as the peer's Retry-After."""

    max_attempts: int = 5
    initial_delay_s: float = 0.5
    max_delay_s: float = 30.0

    def delay_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the delay after so many failures in a row, the first of which is 1."""
        doublings = min(failures - 1, MAX_DOUBLINGS)
        jitter = 1 + random.random()
        backoff_s = self.initial_delay_s * 2.0**doublings * jitter
        return min(max(backoff_s, retry_after_s or 0.0), self.max_delay_s)
