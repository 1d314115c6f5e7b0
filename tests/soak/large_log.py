"""What building, opening and following a large log costs: `python -m tests.soak.large_log`.

The measurements are commands of their own because memory and time are those of a whole process, without the
test run around it. `build` prints seconds, `open PATH` milliseconds, and `follow PATH ORIGIN` KiB of growth,
events and bytes.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from tests.faults.large_log import LONG, build
from turnlog.log import open_log


async def open_ms(path: Path) -> float:
    """Milliseconds until the log can be used."""
    begun = time.perf_counter()
    log = await open_log(f"sqlite:///{path}")
    spent = time.perf_counter() - begun
    await log.close()
    return spent * 1000


async def follow_kib(path: Path, origin: int | None) -> tuple[int, int, int]:
    """How much memory reading the long session to its end takes beyond the first pages; events and bytes."""
    log = await open_log(f"sqlite:///{path}")
    last, events, size, base, pages = (await log.info(LONG)).last, 0, 0, 0, 0
    async for rows in log.follow(LONG, replay_from=origin):
        pages, events, size = pages + 1, events + len(rows), size + sum(len(row.frame) for row in rows)
        if pages == 8:  # they grow up to then
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if rows[-1].seq == last:
            break
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base
    await log.close()
    return grown, events, size


def main(command: str, path: str, *rest: str) -> None:
    begun = time.perf_counter()
    answer: object
    if command == "build":
        sessions, events_each, long_events = map(int, rest)
        build(Path(path), sessions=sessions, events_each=events_each, long_events=long_events)
        answer = time.perf_counter() - begun
    elif command == "open":
        answer = min(asyncio.run(open_ms(Path(path))) for _ in range(5))
    else:
        answer = asyncio.run(follow_kib(Path(path), int(rest[0]) if rest else None))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
