"""Lists of sessions: what a page costs in SQLite, what a damaged list is, and how it is made anew."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.log.delegates import scenario
from turnlog.log import Log, SessionRecord, SqliteStore
from turnlog.log.records import LISTING_STEP_MS, ListPosition


def fill(store: SqliteStore, sessions: int, *members: str) -> None:
    """Make sessions of the same members, one a second."""
    with store.transaction():
        for number in range(sessions):
            roles: dict[str, tuple[str, ...]] = dict.fromkeys(members, ("owner",))
            at_ms = 1_000 * number
            store.put_record(
                SessionRecord(f"sess_{number:05}", "e", "app", at_ms, updated_ms=at_ms, members=roles)
            )


def page_steps(
    store: SqliteStore, principal: str | None, after: ListPosition | None = None
) -> tuple[int, int]:
    """Return how many instructions SQLite takes for a page of 10, and how many sessions it has."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.listing(principal, None, 1)  # the statement and the schema are read once
    reader = store._reader_connection()
    reader.set_progress_handler(count, 1)
    found = store.listing(principal, after, 10)
    reader.set_progress_handler(None, 0)
    return steps, len(found)


@pytest.mark.parametrize("principal", ["ada", None, "eve"])
def test_page_costs_the_same_whatever_the_number_of_sessions(principal: str | None, tmp_path: Path) -> None:
    costs = []
    for sessions in (30, 600):
        store = SqliteStore(tmp_path / f"{sessions}.db")
        fill(store, sessions, "ada", "bob")
        costs.append(
            [page_steps(store, principal), page_steps(store, principal, ListPosition(20_000, "sess_"))]
        )
        store.close()
    assert costs[0] == costs[1]
    assert {count for _, count in costs[0]} == ({0} if principal == "eve" else {10})


def test_stranger_reads_no_record(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    fill(store, 30, "ada")
    strangers, members = page_steps(store, "eve")[0], page_steps(store, "ada")[0]
    store.close()
    assert strangers * 5 < members


def test_control_reading_every_record_costs_more_with_more_sessions(tmp_path: Path) -> None:
    steps = []
    for sessions in (30, 600):
        store = SqliteStore(tmp_path / f"{sessions}.db")
        fill(store, sessions, "ada")
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        store.sessions()
        store._reader_connection().set_progress_handler(step, 1)
        store.sessions()
        store._reader_connection().set_progress_handler(None, 0)
        store.close()
        steps.append(count)
    assert steps[1] > 10 * steps[0]


def test_session_in_which_much_happens_is_listed_anew_once_in_a_second(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    fill(store, 1, "ada")
    places = []
    for at_ms in range(1_000, 1_000 + 2 * LISTING_STEP_MS, 100):
        with store.transaction():
            head = store.get_record("sess_00000")
            assert head is not None
            store.put_record(head.replace(updated_ms=at_ms))
        places.append(store.listing("ada", None, 1)[0][0].active_ms)
    store.close()
    assert sorted(set(places)) == [1_000, 1_000 + LISTING_STEP_MS]


@pytest.mark.parametrize(
    "damage",
    [
        "delete from listing where list = 'of ada'",
        "update listing set active = active + 1",
        "insert into listing values ('sess_00000', 'of eve', 0)",
    ],
)
@scenario
async def test_list_that_is_damaged_is_found_and_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    fill(store, 1, "ada")
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)
    log = Log(SqliteStore(path))
    [found] = await log.verify()
    assert (found.session_id, found.problem.split(";")[0]) == (
        "sess_00000",
        "the lists of sessions are damaged",
    )
    await log.delete_derived()
    assert await log.verify() == []
    assert [head.session_id for _, head in await log.listing("ada")] == ["sess_00000"]
    assert await log.listing("eve") == []
    await log.close()


@scenario
async def test_record_that_is_damaged_is_repaired_by_the_list_that_meets_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    fill(store, 2, "ada")
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update session set title = 'forged' where name = 'sess_00001'")
    log = Log(SqliteStore(path))
    found = await log.listing(None)
    assert sorted(head.session_id for _, head in found) == ["sess_00000", "sess_00001"]
    assert {head.title for _, head in found} == {""}
    await log.close()
