"""1,000,000 events: opening stays quick, memory flat, and a session does not pay for the others."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.large_log import build, name_of
from tests.faults.test_large_log import EVENTS_EACH, Opened, opened, steps
from tests.soak.figures import Measure

SESSIONS, LONG_EVENTS = 10_000, 200_000
SIZE = "1,000,000 events"
OPEN_MS = 250
ROOT = Path(__file__).parent.parent.parent

__all__ = ["opened"]  # a fixture


def measured(command: str, path: Path, *rest: object) -> Any:
    """What a command of `tests.soak.large_log` prints; coverage would be measured too."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    words = [sys.executable, "-m", "tests.soak.large_log", command, str(path), *map(str, rest)]
    ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def million() -> Iterator[Path]:
    """10,001 sessions; 0.4 GB, so it goes when the tests are done."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        measured("build", path, SESSIONS, EVENTS_EACH, LONG_EVENTS)
        yield path


def test_opening_takes_at_most_250_ms(million: Path, measure: Measure) -> None:
    """The best of five: what else runs can only make it longer."""
    open_ms = measured("open", million)
    measure(SIZE, open_ms=open_ms)
    assert open_ms <= OPEN_MS


@pytest.mark.parametrize("origin", [None, -1], ids=["every event", "without live events"])
def test_memory_is_flat_while_a_long_session_is_followed(
    million: Path, origin: int | None, measure: Measure
) -> None:
    grown_kib, events, size = measured("follow", million, *([] if origin is None else [origin]))
    measure(f"{events:,} events", grown_kib=grown_kib, read_mib=size / 2**20)
    assert events == (LONG_EVENTS if origin is None else LONG_EVENTS * 8 // 20)
    assert size > 20 << 20, "too little was read to show anything"
    assert grown_kib < 10 << 10


def test_reading_a_session_takes_the_same_work_alone_and_among_10_000(
    million: Path, tmp_path: Path, opened: Opened, measure: Measure
) -> None:
    build(tmp_path / "log.db", sessions=1, events_each=EVENTS_EACH, long_events=0)
    alone = steps(opened(tmp_path / "log.db"), name_of(0))
    store = opened(million)
    most = max(steps(store, name_of(number)) for number in (0, SESSIONS // 2, SESSIONS - 1))
    measure(SIZE, instructions_alone=alone, among_10_000=most)
    assert most < alone * 1.01  # a neighbour behind it costs a few
