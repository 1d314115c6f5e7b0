"""A log on a read-only file system, a real one: it can be read, and what cannot be read says why."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sample import turn
from tests.support.disks import mounted_disk
from tests.unit.cli.harness import Place, error
from turnlog.log import Log, SqliteStore

SESSION = "sess_1"
READ = ("tail", "verify", "export", "sessions")


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    """A file system that `protect` makes read-only."""
    with mounted_disk(tmp_path / "medium", 8 << 20) as folder:
        yield folder


def protect(medium: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(medium)], check=True)


async def write(path: Path, copy: Path | None = None, *endings: str) -> None:
    """Write a log; copy some of its files while it is open."""
    log = Log(SqliteStore(path))
    await log.create("faults", SESSION)
    await log.append(SESSION, turn("first"))
    for ending in endings:
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    await log.close()


@pytest.mark.parametrize("command", READ)
def test_log_on_a_read_only_medium_can_be_read(medium: Path, command: str) -> None:
    place = Place(medium / "log.db")
    asyncio.run(write(place.path))
    before = place.run(command).stdout
    protect(medium)
    result = place.run(command)
    assert (result.exit_code, result.stdout) == (0, before)


def test_log_with_its_write_ahead_log_and_index_on_a_read_only_medium_can_be_read(
    medium: Path, tmp_path: Path
) -> None:
    place = Place(medium / "log.db")
    asyncio.run(write(tmp_path / "log.db", place.path, "", "-wal", "-shm", ".mark"))
    protect(medium)
    result = place.run("verify")
    size = len(turn("first"))
    assert result.stdout == f"no damage found: 1 session, {size} events\n"


@pytest.mark.parametrize("command", READ)
def test_log_whose_events_cannot_be_read_on_a_read_only_medium_says_what_to_do(
    medium: Path, tmp_path: Path, command: str
) -> None:
    place = Place(medium / "log.db")
    asyncio.run(write(tmp_path / "log.db", place.path, "", "-wal", ".mark"))
    protect(medium)
    assert error(place.run(command)) == (
        "log.db-wal has events, and SQLite cannot read it in a folder that cannot be written; "
        "copy log.db and the files beside it to another folder"
    )


def test_control_opened_as_a_log_that_may_change_it_cannot_be_read(
    medium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(medium / "log.db")
    asyncio.run(write(place.path))
    protect(medium)
    monkeypatch.setattr("turnlog.log.sqlite.store.reading_mode", lambda path: "mode=ro")
    assert place.run("verify").exit_code == 1
