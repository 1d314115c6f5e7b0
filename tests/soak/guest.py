"""A guest that does its worst, as a program.

It reads one line of JSON (the fields of `Guest`, and `seconds`), attacks for so long, and prints one line:
the statuses of its answers, by what it asked for.
"""

import asyncio
import json
import sys
import time

from tests.support.hostile_guest import PHASES, GoesOn, Guest, attack


def main() -> None:
    order = json.loads(sys.stdin.readline())
    phase_s = order.pop("seconds") / len(PHASES)

    def begin_phase() -> GoesOn:
        end_s = time.monotonic() + phase_s
        return lambda rounds: time.monotonic() < end_s

    sys.stdout.write(json.dumps(asyncio.run(attack(Guest(**order), begin_phase))) + "\n")


if __name__ == "__main__":
    main()
