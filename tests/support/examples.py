"""How many random examples a property is tried with, and that none of them is timed.

`make test` tries each property with the same few examples every time: 60 % of the count that it asks for,
because vectors check most of the laws too. `make soak` sets EXAMPLES_TIMES, which multiplies the count, and
lets chance choose.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))


def scale(count: int) -> int:
    return count * TIMES if TIMES > 1 else max(2, count * 3 // 5)


UNTIMED = settings(
    deadline=None,  # the time that an example takes depends on the machine
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=TIMES == 1,
    database=None,
    max_examples=scale(30),
)


def examples(count: int) -> settings:
    """Return settings for a property that asks for this number of examples."""
    return settings(UNTIMED, max_examples=scale(count))
