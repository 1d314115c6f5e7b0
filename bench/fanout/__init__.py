"""What a delivery costs when many read one session: `python -m bench.fanout`. Linux, with a C compiler.

1,000 readers of `GET /api/events`, in one C process with epoll, the same for every candidate, and the same
frames of about 200 bytes. "C send()" writes each event to each reader and does nothing else: on loopback the
sender also pays for the receiver's TCP, so it is the floor of this set-up. "sse-starlette" has a queue per
reader. Turnlog is the server that `turnlog serve` runs, with appends from inside. Paced: 10 events a second,
slow enough for everyone, so nobody joins them. Bursts: 32 events in one append, all read before the next.
Every round starts every candidate anew, ratios of CPU time are taken inside a round, the table shows medians.
Latency counts from the making of an event, to the millisecond, and moves with whatever else runs. The goals
are on both of Turnlog's logs.
"""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from bench.fanout.control import delta, sent
from bench.fanout.measure import BURST, READERS, Sample, compile_all, measure, python

ROUNDS = 3

FLOOR = "C send()"
MEMORY = "Turnlog, memory"
SQLITE = "Turnlog, SQLite"
QUEUES = "sse-starlette"

Rounds = dict[str, list[Sample]]
Figure = Callable[[Sample], float]


def commands(folder: Path, number: int) -> dict[str, list[str]]:
    """How each candidate is started in a round."""
    found = {
        FLOOR: [str(folder / "floor"), sent(delta(0), 1000).decode()],
        MEMORY: python("served", "memory:"),
        SQLITE: python("served", f"sqlite:///{folder}/log-{number}.db"),
    }
    return {**found, QUEUES: python("queued")} if find_spec("sse_starlette") else found


def run(folder: Path) -> Rounds:
    """All candidates once per round, so that noise hits all alike."""
    rounds: Rounds = {name: [] for name in commands(folder, 0)}
    for number in range(ROUNDS):
        for name, command in commands(folder, number).items():
            rounds[name].append(measure(command, folder))
    return rounds


def paced_us(sample: Sample) -> float:
    return sample.paced_us


def burst_us(sample: Sample) -> float:
    return sample.burst_us


def ratio(rounds: Rounds, figure: Figure, name: str, base: str) -> float:
    """How many times as much as `base`: the median of the rounds' own ratios."""
    pairs = zip(rounds[name], rounds[base], strict=True)
    return median(figure(own) / figure(other) for own, other in pairs)


def beside(rounds: Rounds, figure: Figure, name: str, base: str) -> str:
    """A ratio as it is printed, if there is one."""
    return f"{ratio(rounds, figure, name, base):.3g}" if base in rounds else "-"


def print_table(rounds: Rounds) -> None:
    """Every candidate, medians over the rounds."""
    print(
        f"{READERS:,} readers, frames of {len(sent(delta(0), 1000))} bytes, bursts of {BURST}, server CPU\n"
    )
    print(
        "| candidate | paced µs/delivery | x C | x sse-starlette | burst µs/delivery | x sse-starlette "
        "| writes/delivery in bursts | kB/idle reader | kB/reader at the end | paced p50 ms | p99 ms |"
    )
    print("|---" * 11 + "|")
    for name, samples in rounds.items():
        paced, burst, calls, *others = map(median, zip(*samples, strict=True))
        cells = [
            name,
            f"{paced:.1f}",
            beside(rounds, paced_us, name, FLOOR),
            beside(rounds, paced_us, name, QUEUES),
            f"{burst:.2f}",
            beside(rounds, burst_us, name, QUEUES),
            f"{calls:.3f}",
            *[f"{figure:.1f}" for figure in others],
        ]
        print(f"| {' | '.join(cells)} |")
    print()


def at_most(what: str, value: float, goal: float) -> bool:
    """Print one goal and whether it is met."""
    print(f"{what}: {value:.3g}, goal at most {goal:.3g}, {'met' if value <= goal else 'MISSED'}")
    return value <= goal


def check(rounds: Rounds, name: str) -> int:
    """The goals of one log; the number of missed ones."""
    met = [
        at_most(f"{name}, CPU per paced delivery, of {FLOOR}", ratio(rounds, paced_us, name, FLOOR), 2.5),
        at_most(f"{name}, writes per delivery in bursts", median(s.burst_calls for s in rounds[name]), 0.10),
        at_most(f"{name}, kB per idle reader", median(s.idle_kb for s in rounds[name]), 16),
    ]
    for what, figure, goal in (("paced", paced_us, 0.4), ("burst", burst_us, 1 / 30)):
        if QUEUES in rounds:
            of = f"{name}, CPU per {what} delivery, of {QUEUES}"
            met.append(at_most(of, ratio(rounds, figure, name, QUEUES), goal))
        else:
            print(f"{name}, {what}, of {QUEUES}: pip install 'turnlog[bench]' to measure it")
    return met.count(False)


def main() -> int:
    """Print the table and the goals; the number of missed goals."""
    with tempfile.TemporaryDirectory(prefix="turnlog-bench-") as folder:
        if not compile_all(Path(folder)):
            print("nothing measured: the floor and the readers are C, and there is no cc, gcc or clang here")
            return 1
        rounds = run(Path(folder))
    print_table(rounds)
    return sum(check(rounds, name) for name in (MEMORY, SQLITE))
