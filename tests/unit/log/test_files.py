"""The files of a SQLite log: who may read them, and what a writer does whose lock is taken away."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from turnlog.errors import StoreError
from turnlog.log import Log, SqliteStore
from turnlog.log.sqlite import files
from turnlog.testing.factories import durable_events

SESSION = "sess_1"
ENDINGS = ("", "-wal", "-shm", ".mark", ".lock")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def work(path: Path, task: Callable[[Log], Awaitable[None]]) -> None:
    """Do something with a log that has a session with two events."""

    async def run() -> None:
        log = Log(SqliteStore(path))
        try:
            await log.create("t", SESSION)
            await log.append(SESSION, durable_events("a", "b"))
            await task(log)
        finally:
            await log.close()

    asyncio.run(run())


async def nothing(_: Log) -> None:
    """Leave a log as it is."""


@pytest.mark.usefixtures("_umask")
def test_files_of_a_new_log_are_for_their_owner_alone(path: Path) -> None:
    modes: dict[str, int] = {}

    async def look(_: Log) -> None:
        modes.update({ending: os.stat(f"{path}{ending}").st_mode & 0o777 for ending in ENDINGS})

    work(path, look)
    assert modes == dict.fromkeys(ENDINGS, 0o600)


@pytest.mark.usefixtures("_umask")
def test_control_files_that_are_made_as_others_are_can_be_read_by_everyone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "create_private_file", lambda path: path.touch())
    work(path, nothing)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("_umask")
def test_mode_of_a_log_that_is_there_stays_as_its_owner_set_it(path: Path) -> None:
    SqliteStore(path).close()
    path.chmod(0o640)
    SqliteStore(path).close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_log_with_a_hard_link_is_not_written_by_either_name(path: Path) -> None:
    SqliteStore(path).close()
    link = path.with_name("link.db")
    os.link(path, link)
    for name in (path, link):
        with pytest.raises(StoreError, match=rf"{name.name} has a second name \(a hard link\)"):
            SqliteStore(name)
    link.unlink()
    SqliteStore(path).close()


def test_hard_link_of_a_log_that_is_written_is_refused_and_the_writer_goes_on(path: Path) -> None:
    async def write(log: Log) -> None:
        os.link(path, path.with_name("link.db"))
        with pytest.raises(StoreError, match="second name"):
            SqliteStore(path.with_name("link.db"))
        assert (await log.append(SESSION, durable_events("c"))).seqs == [2]

    work(path, write)


def replace_database(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))
    path.touch()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.with_name("log.db.lock").unlink(),
        lambda path: path.unlink(),
        replace_database,
    ],
    ids=["lock removed", "database removed", "database replaced"],
)
def test_writer_whose_lock_or_database_is_taken_away_writes_no_more(
    path: Path, change: Callable[[Path], None]
) -> None:
    async def write(log: Log) -> None:
        change(path)
        for _ in range(2):
            with pytest.raises(StoreError, match="removed or replaced, and another process may write it"):
                await log.append(SESSION, durable_events("c"))

    work(path, write)


def test_second_writer_after_the_lock_was_removed_is_the_only_one(path: Path) -> None:
    async def write(log: Log) -> None:
        path.with_name("log.db.lock").unlink()
        second = Log(SqliteStore(path))
        with pytest.raises(StoreError, match="removed or replaced"):
            await log.append(SESSION, durable_events("c"))
        assert (await second.append(SESSION, durable_events("d"))).seqs == [2]
        assert await second.verify() == []
        await second.close()

    work(path, write)


def test_control_a_writer_that_does_not_look_writes_beside_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.WriterLock, "check", lambda _: None)

    async def write(log: Log) -> None:
        path.with_name("log.db.lock").unlink()
        second = Log(SqliteStore(path))
        assert (await log.append(SESSION, durable_events("c"))).seqs == [2]
        await second.close()

    work(path, write)
