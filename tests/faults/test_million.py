"""1,000,000 events: opening stays quick, memory flat, and a session does not pay for the others."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.million import build, name_of
from turnlog.log import Row, SqliteStore

SESSIONS, EVENTS_EACH, LONG_EVENTS = 10_000, 80, 200_000
ROOT = Path(__file__).parent.parent.parent


def measured(command: str, path: Path, *rest: object) -> Any:
    """What a command of `tests.faults.million` says; coverage would be measured too."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    words = [sys.executable, "-m", "tests.faults.million", command, str(path), *map(str, rest)]
    ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=environment, timeout=100)
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def million() -> Iterator[Path]:
    """10,001 sessions; 0.4 GB, so it goes when the tests are done."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        measured("build", path, SESSIONS, EVENTS_EACH, LONG_EVENTS)
        yield path


@pytest.fixture
def opened() -> Iterator[Callable[[Path], SqliteStore]]:
    stores: list[SqliteStore] = []

    def open_store(path: Path) -> SqliteStore:
        stores.append(SqliteStore(path))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def test_opening_takes_at_most_250_ms(million: Path) -> None:
    """The best of five: what else runs can only make it longer."""
    assert measured("open", million) <= 250


@pytest.mark.parametrize("origin", [None, -1], ids=["every event", "without live events"])
def test_memory_is_flat_while_a_long_session_is_followed(million: Path, origin: int | None) -> None:
    grown_kib, events, size = measured("follow", million, *([] if origin is None else [origin]))
    assert events == (LONG_EVENTS if origin is None else LONG_EVENTS * 8 // 20)
    assert size > 20 << 20, "too little was read to show anything"
    assert grown_kib < 10 << 10


def reader_of(store: SqliteStore) -> sqlite3.Connection:
    """The connection on which this thread reads: only there can its work be counted."""
    return store._reader()


def read_all(store: SqliteStore, session: str, origin: int | None) -> list[Row]:
    rows: list[Row] = []
    while page := store.read(session, rows[-1].seq if rows else -1, origin, 4096):
        rows += page
    return rows


def ask_everything(store: SqliteStore, session: str) -> int:
    """Everything that can be asked about one session; how many rows came."""
    store.info(session)
    rows = len(read_all(store, session, None)) + len(read_all(store, session, -1))
    for seq in (0, 33, 79):
        store.holds(session, seq)
        store.turn_start(session, seq)
    store.span_end(session, "blk_000001")
    return rows


def steps(store: SqliteStore, session: str) -> int:
    """How many instructions SQLite runs to answer."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    ask_everything(store, session)  # what is done once per connection is done
    reader_of(store).set_progress_handler(count, 1)
    assert ask_everything(store, session) == EVENTS_EACH + EVENTS_EACH * 8 // 20
    reader_of(store).set_progress_handler(None, 0)
    return counted


def test_reading_a_session_takes_the_same_work_alone_and_among_10_000(
    million: Path, tmp_path: Path, opened: Callable[[Path], SqliteStore]
) -> None:
    build(tmp_path / "log.db", sessions=1, events_each=EVENTS_EACH, long_events=0)
    alone = steps(opened(tmp_path / "log.db"), name_of(0))
    store = opened(million)
    assert alone > 1000, "nothing was counted"
    for number in (0, SESSIONS // 2, SESSIONS - 1):
        assert steps(store, name_of(number)) < alone * 1.01  # a neighbour behind it costs a few


def test_every_question_about_a_session_is_answered_from_an_index(
    million: Path, opened: Callable[[Path], SqliteStore]
) -> None:
    store, asked = opened(million), set[str]()
    reader = reader_of(store)
    reader.set_trace_callback(asked.add)
    ask_everything(store, name_of(7))
    reader.set_trace_callback(None)
    questions = [text for text in asked if text.lstrip().lower().startswith("select")]
    assert len(questions) >= 6
    for question in questions:
        plan = [row[3] for row in reader.execute(f"explain query plan {question}")]
        scans = [step for step in plan if step.startswith("SCAN") and "damage" not in step]
        assert not scans, f"{question}: {plan}"
