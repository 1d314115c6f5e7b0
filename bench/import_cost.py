"""What `import turnlog` costs beside `import msgspec`, its only dependency; each in fresh interpreters.

The runs alternate, so that a busy machine slows both, and the best of each counts: the rest is noise.
"""

import os
import subprocess
import sys

RUNS = 7
MOST_TIMES = 2.0
CHILD = """
from time import perf_counter
start = perf_counter()
import {module}
print((perf_counter() - start) * 1000)
"""


def plain_environment() -> dict[str, str]:
    """This environment without coverage, which would be measured too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def import_ms(module: str) -> float:
    """Milliseconds of one import in a fresh interpreter."""
    command = [sys.executable, "-c", CHILD.format(module=module)]
    return float(subprocess.run(command, env=plain_environment(), check=True, capture_output=True).stdout)


def measure() -> tuple[float, float]:
    """The best times of `import turnlog` and `import msgspec`, in milliseconds."""
    pairs = [(import_ms("turnlog"), import_ms("msgspec")) for _ in range(RUNS)]
    return min(ours for ours, _ in pairs), min(theirs for _, theirs in pairs)


def main() -> int:
    """Print both times; 1 if the goal is missed."""
    turnlog_ms, msgspec_ms = measure()
    ratio = turnlog_ms / msgspec_ms
    met = ratio <= MOST_TIMES
    print(f"import turnlog {turnlog_ms:.1f} ms, import msgspec {msgspec_ms:.1f} ms: {ratio:.2f} times")
    print(f"goal at most {MOST_TIMES:g} times, {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
