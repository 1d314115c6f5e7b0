"""CPU time grows like a line: folds, what is kept beside the log, hostile text, a reconnect.

`tests/scale` and `tests/security/test_text.py` count the steps of the same work in Python. Here the work
inside C functions counts too. The least of several runs is compared, in CPU time of this process.
"""

import asyncio
import gc
import re
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tests.scale.test_derived import Derive, all_derived, one_after_the_other
from tests.scale.test_folds import (
    Backward,
    calls_at_once,
    many_turns,
    one_agent_that_never_ends,
    results_of_no_call,
    retries,
)
from tests.scale.test_reconnect import reconnect
from tests.security.test_text import BODIES, EVIL, decoded, parsed
from tests.soak.figures import Measure
from tests.support.folds import apply_events
from tests.support.written_logs import Item
from tests.unit.app.test_derived import filled
from turnlog.log import Log, MemoryStore
from turnlog.state.history import History
from turnlog.state.meters import Meters
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree
from turnlog.team.documents import Documents

FACTOR = 4
MOST_TIMES = 2.5 * FACTOR  # a square takes 16 times


def least_s(work: Callable[[], object], runs: int) -> float:
    """The CPU time of the quickest run, without the garbage collector, which looks at everything there is."""
    times = []
    gc.disable()
    try:
        for _ in range(runs):
            began = process_time()
            work()
            times.append(process_time() - began)
    finally:
        gc.enable()
    return max(min(times), 1e-4)


def folding(kind: Any, items: list[Item]) -> float:
    return least_s(lambda: apply_events(kind(), items), 2)


@pytest.mark.parametrize("shape", [many_turns, one_agent_that_never_ends])
@pytest.mark.parametrize("kind", [Tree, Transcript, Meters, Documents])
def test_folding_100_000_events_takes_time_like_a_line(kind: Any, shape: Any, measure: Measure) -> None:
    large_s, small_s = folding(kind, shape(100_000)), folding(kind, shape(25_000))
    measure("100,000 and 25,000 events", cpu_s=large_s, times=large_s / small_s)
    assert large_s < MOST_TIMES * small_s


@pytest.mark.parametrize("shape", [retries, results_of_no_call, calls_at_once])
def test_a_history_of_2_000_turns_takes_time_like_a_line(shape: Any, measure: Measure) -> None:
    large_s, small_s = folding(History, shape(2_000)), folding(History, shape(500))
    measure("2,000 and 500 turns", cpu_s=large_s, times=large_s / small_s)
    assert large_s < MOST_TIMES * small_s


def test_control_a_fold_that_looks_back_is_seen(measure: Measure) -> None:
    large_s, small_s = folding(Backward, many_turns(8_000)), folding(Backward, many_turns(2_000))
    measure("8,000 and 2,000 events", times=large_s / small_s)
    assert not large_s < MOST_TIMES * small_s


def deriving(events: int, derive: Derive) -> float:
    async def run() -> float:
        log = await filled(Log(MemoryStore(ring_events=1 << 20)), events)
        begun = process_time()
        await derive(log)
        spent = process_time() - begun
        await log.close()
        return spent

    return asyncio.run(run())


def test_deriving_100_000_events_takes_time_like_a_line(measure: Measure) -> None:
    large_s, small_s = deriving(100_000, all_derived), deriving(25_000, all_derived)
    measure("100,000 and 25,000 events", cpu_s=large_s, times=large_s / small_s)
    assert large_s < MOST_TIMES * small_s


def test_control_deriving_from_the_beginning_each_time_is_seen(measure: Measure) -> None:
    large_s, small_s = deriving(6_000, one_after_the_other), deriving(1_000, one_after_the_other)
    measure("6,000 and 1,000 events", times=large_s / small_s)
    assert not large_s < 2.5 * 6 * small_s


def growth(work: Callable[[str], object], make: Callable[[int], str], size: int) -> float:
    """How much longer a text takes that is four times as long."""
    large, small = make(FACTOR * size), make(size)
    return least_s(lambda: work(large), 5) / least_s(lambda: work(small), 5)


@pytest.mark.parametrize("name", EVIL)
def test_model_text_takes_linear_time(name: str, measure: Measure) -> None:
    times = growth(parsed, EVIL[name], 1500)
    measure("6,000 and 1,500 pieces", times=times)
    assert times < 9


@pytest.mark.parametrize("name", BODIES)
def test_bodies_take_linear_time(name: str, measure: Measure) -> None:
    times = growth(decoded, BODIES[name], 2000)
    measure("8,000 and 2,000 pieces", times=times)
    assert times < 9


def test_control_a_pattern_that_looks_ahead_takes_a_square(measure: Measure) -> None:
    pattern = re.compile(r"<agent-event .*?/>", re.DOTALL)
    times = growth(pattern.findall, EVIL["tags without an end"], 400)
    measure("1,600 and 400 pieces", times=times)
    assert times > 9


def test_a_reconnect_after_100_000_events_converts_only_the_open_turn(
    tmp_path: Path, measure: Measure
) -> None:
    measure("100,000 events")
    reconnect(tmp_path, 1_000)
