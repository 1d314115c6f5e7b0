"""`turnlog backup`: a whole copy of a log that is in use; and a copy without its side files is noticed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.harness import Place, error, no_log, said, turn
from turnlog.log import Log

NO_MARK = (
    "the log: copy.db.mark is missing, as when a log is copied without its files: "
    "a lost end cannot be noticed\n"
)


@pytest.fixture
def filled(place: Place) -> Place:
    place.session("sess_1", turn())
    return place


@pytest.fixture
def copy(tmp_path: Path) -> Place:
    folder = tmp_path / "copies"
    folder.mkdir()
    return Place(folder / "copy.db")


def while_it_is_written(place: Place, act: Callable[[], object]) -> None:
    """Act while a writer has the log open, and its newest events are in the write-ahead log alone."""

    async def write(log: Log) -> None:
        await log.append("sess_1", said("one", "two", first=100))
        await log.put_blob("sess_1", b"picture", "image/png")
        act()

    place.work(write)


def test_backup_of_a_log_in_use_has_every_event_and_blob(filled: Place, copy: Place) -> None:
    def act() -> None:
        result = filled.run("backup", str(copy.path))
        assert (result.exit_code, result.stdout) == (0, f"1 session, 15 events copied to {copy.path}\n")

    while_it_is_written(filled, act)
    assert copy.run("verify").stdout == "no damage found: 1 session, 15 events\n"
    assert copy.run("export").stdout_bytes == filled.run("export").stdout_bytes
    assert copy.work(lambda log: log.blob_names("sess_1")) == filled.work(
        lambda log: log.blob_names("sess_1")
    )


def test_backup_leaves_two_files_for_their_owner_alone(filled: Place, copy: Place) -> None:
    before = os.umask(0o022)
    filled.run("backup", str(copy.path))
    os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in copy.path.parent.iterdir()}
    assert modes == {"copy.db": 0o600, "copy.db.mark": 0o600}


def test_backup_gives_sessions_new_epochs(filled: Place, copy: Place) -> None:
    filled.run("backup", str(copy.path))
    [before], [after] = (place.work(lambda log: log.sessions()) for place in (filled, copy))
    assert before.epoch != after.epoch
    assert (before.last, before.title, before.chain) == (after.last, after.title, after.chain)


def test_restored_backup_takes_events(filled: Place, copy: Place) -> None:
    filled.run("backup", str(copy.path))
    assert copy.work(lambda log: log.append("sess_1", said("more", first=200))).seqs == [13]
    assert copy.run("verify").exit_code == 0


def test_backup_of_a_session_that_lost_its_end_says_so_when_it_is_verified(
    filled: Place, copy: Place
) -> None:
    shutil.copy(filled.path, filled.path.with_name("old.db"))

    async def write(log: Log) -> None:
        await log.append("sess_1", said("one", first=100))

    filled.work(write)
    shutil.copy(filled.path.with_name("old.db"), filled.path)
    filled.run("backup", str(copy.path))
    assert "sess_1 seq 13: the end of the session is missing" in copy.run("verify").stdout


@pytest.mark.parametrize("ending", ["", ".mark"])
def test_backup_to_a_file_that_is_there_is_refused_and_leaves_it(
    filled: Place, copy: Place, ending: str
) -> None:
    file = Path(f"{copy.path}{ending}")
    file.write_text("mine")
    result = filled.run("backup", str(copy.path))
    assert error(result) == f"{file} exists already; choose another file"
    assert [one.read_text() for one in copy.path.parent.iterdir()] == ["mine"]


def test_backup_into_a_folder_that_is_not_there_is_refused(filled: Place, tmp_path: Path) -> None:
    result = filled.run("backup", str(tmp_path / "none" / "copy.db"))
    assert "No such file or directory" in error(result)


def test_backup_of_what_is_no_log_leaves_nothing(place: Place, copy: Place) -> None:
    assert error(place.run("backup", str(copy.path))) == no_log(place)
    place.path.write_bytes(b"this is not a database" * 1000)
    assert "the log cannot be used" in error(place.run("backup", str(copy.path)))
    assert list(copy.path.parent.iterdir()) == []


def test_backup_of_a_log_that_is_no_file_names_export(place: Place, copy: Place) -> None:
    result = place.run("backup", str(copy.path), "--log", "nats://127.0.0.1:4222")
    assert result.exit_code == 2
    assert "only a SQLite log can be copied as a file; use `turnlog export` for other logs" in result.stderr


def test_verify_of_a_database_that_was_copied_alone_says_what_is_missing(filled: Place, copy: Place) -> None:
    while_it_is_written(filled, lambda: shutil.copy(filled.path, copy.path))
    result = copy.run("verify")
    assert (result.exit_code, result.stdout) == (1, NO_MARK)


def test_control_a_database_that_was_copied_alone_lacks_the_newest_events(filled: Place, copy: Place) -> None:
    while_it_is_written(filled, lambda: shutil.copy(filled.path, copy.path))
    copied, whole = (place.run("export").stdout.count("\n") for place in (copy, filled))
    assert copied < whole
