"""`turnlog verify`: one line if everything is whole, else one line per damage and exit code 1."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.unit.cli.harness import Place, error, said, turn
from turnlog.cli.log_access import format_damage
from turnlog.log import Damage, Log


@pytest.fixture
def filled(place: Place) -> Place:
    place.session("sess_1", turn())
    place.session("sess_2", said("one", "two", "three"))
    return place


def test_a_whole_log_is_said_in_one_line(filled: Place) -> None:
    result = filled.run("verify")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "no damage found: 2 sessions, 16 events\n"


def test_one_is_one(place: Place) -> None:
    place.session("sess_1", said("one"))
    assert place.run("verify").stdout == "no damage found: 1 session, 1 event\n"


def test_an_empty_log_is_whole(place: Place) -> None:
    place.work(lambda log: log.sessions())
    assert place.run("verify").stdout == "no damage found: 0 sessions, 0 events\n"


def test_every_damage_is_a_line(filled: Place) -> None:
    filled.spoil("update event set frame = cast(replace(frame, 'Rome', 'Oslo') as blob) where seq = 0")
    filled.spoil("delete from event where seq = 1 and id = 'evt_1' and session = 2")
    result = filled.run("verify")
    lines = result.stdout.split("\n")[:-1]
    assert (result.exit_code, result.stderr) == (1, "")
    assert "sess_1 seq 0: the event is not what was written" in lines
    assert "sess_2 seq 1: events are missing" in lines
    assert "whole" not in result.stdout


def test_a_known_loss_is_not_whole(filled: Place) -> None:
    filled.lose("sess_2", 3, 5, "the end of the session is missing")
    result = filled.run("verify")
    assert result.exit_code == 1
    assert result.stdout == "sess_2 seq 3 to 5: the end of the session is missing\n"


def test_a_record_that_was_changed_is_a_line(filled: Place) -> None:
    filled.spoil("update session set app = 'other' where name = 'sess_1'")
    result = filled.run("verify")
    assert result.exit_code == 1
    assert "sess_1: the session's own record is not what was written\n" in result.stdout


def test_damage_of_the_file_itself_is_a_line(filled: Place) -> None:
    content = bytearray(filled.path.read_bytes())
    size = 4096
    assert len(content) > 3 * size
    content[2 * size :] = b"\x55" * len(content[2 * size :])
    filled.path.write_bytes(content)
    result = filled.run("verify")
    assert result.exit_code == 1
    assert "the log: SQLite: " in result.stdout
    assert result.stderr == ""


def test_a_log_is_checked_beside_the_one_who_writes(filled: Place) -> None:
    async def checked(log: Log) -> str:
        await log.append("sess_2", said("four", first=3))
        return (await asyncio.to_thread(filled.run, "verify")).stdout

    assert filled.work(checked) == "no damage found: 2 sessions, 17 events\n"


def test_a_log_that_is_pruned_is_whole(filled: Place) -> None:
    assert filled.run("prune", "--older-than", "1s").exit_code == 0
    assert filled.run("verify").stdout == "no damage found: 2 sessions, 16 events\n"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (Damage("", -1, -1, "SQLite: x\ny"), "the log: SQLite: x\\ny"),
        (Damage("sess_1", -1, -1, "x"), "sess_1: x"),
        (Damage("sess_1", 3, 3, "x"), "sess_1 seq 3: x"),
        (Damage("sess_1", 3, 5, "x"), "sess_1 seq 3 to 5: x"),
    ],
)
def test_a_damage_is_one_line(damage: Damage, line: str) -> None:
    assert format_damage(damage) == line


def test_a_newer_log_is_one_line(filled: Place) -> None:
    with closing(sqlite3.connect(filled.path)) as connection:
        connection.execute("pragma user_version = 1000")
    advice = "export it with that version and import it here"
    assert error(filled.run("verify")) == f"log.db was written by a newer Turnlog (schema 1000); {advice}"
