"""How soon `turnlog tail -f` prints what another process appends: `python -m bench.tail`.

This process writes; `turnlog tail -f --json` reads the same SQLite file in a process of its own and prints
into a pipe. The clock runs from the call of `append`, its fsync included, until the line has come out of the
pipe. Appends come at random moments, so that they do not keep step with the reader's own look at the file.
Goal: an event is seen within 100 ms.
"""

import asyncio
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from statistics import quantiles

from turnlog import event
from turnlog.log import Log, open_log

EVENTS = 50
GOAL_MS = 100.0
PAUSE_S = 0.1  # at most; twice the time between two looks of the reader
TURNLOG = str(Path(sys.executable).parent / "turnlog")


async def seen_ms(log: Log, session: str, tail: Process, text: str) -> float:
    """Append one event and wait until it is printed."""
    assert tail.stdout is not None
    start = time.perf_counter()
    await log.append(session, [event("ui.message", {"text": text})])
    line = await tail.stdout.readline()
    took_ms = (time.perf_counter() - start) * 1000
    assert text.encode() in line, line
    return took_ms


async def measure(folder: str) -> list[float]:
    """Milliseconds from append to print, event by event."""
    url = f"sqlite:///{folder}/log.db"
    log = await open_log(url)
    session = await log.create("bench")
    tail = await asyncio.create_subprocess_exec(
        TURNLOG, "tail", "-f", "--json", "--log", url, session, stdout=PIPE
    )
    try:
        await seen_ms(log, session, tail, "the first one waits for the process to start")
        times = []
        for number in range(EVENTS):
            await asyncio.sleep(random.uniform(0, PAUSE_S))
            times.append(await seen_ms(log, session, tail, f"event {number}"))
        await log.close_session(session)
        await tail.communicate()
        return times
    finally:
        await log.close()


def main() -> int:
    """Print the percentiles; 1 if the goal is missed."""
    with tempfile.TemporaryDirectory(prefix="turnlog-bench-") as folder:
        times = asyncio.run(measure(folder))
    cuts = quantiles(times, n=100, method="inclusive")
    p50, p99 = cuts[49], cuts[98]
    met = p99 <= GOAL_MS
    print(
        f"append to print over {EVENTS} events: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {max(times):.1f} ms"
    )
    print(f"goal {GOAL_MS:.0f} ms, {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
