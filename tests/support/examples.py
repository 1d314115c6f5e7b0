"""How many random examples a property is tried with, and that none of them is timed.

`make test` tries each property with the same few examples every time. `make soak` sets EXAMPLES_TIMES, which
multiplies them, and lets chance choose.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))
UNTIMED = settings(
    deadline=None,  # the time that an example takes depends on the machine
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=TIMES == 1,
    database=None,
    max_examples=30 * TIMES,
)


def examples(count: int) -> settings:
    """Settings with so many examples, or as many times more as the environment asks for."""
    return settings(UNTIMED, max_examples=count * TIMES)
