"""Rows of some types: what a filter that matches little costs, and what a damaged index changes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.log.delegates import scenario
from turnlog.log import Log, MemoryStore, SqliteStore
from turnlog.log.memory import MAX_PAGE_ROWS
from turnlog.log.records import TypeQuery
from turnlog.log.subscription import FollowOptions
from turnlog.testing.factories import (
    block_delta_event,
    durable_event,
    durable_events,
    tool_call_event,
    tool_result_event,
)
from turnlog.testing.harness import open_follower

SESSION = "sess_1"


async def filled(log: Log, events: int) -> Log:
    """A session of notes with one call at its end."""
    await log.create("t", SESSION)
    await log.append(SESSION, [*durable_events(*range(events)), tool_call_event("c")])
    return log


def steps_of(store: SqliteStore, types: tuple[str, ...]) -> tuple[int, list[int]]:
    """Return how many instructions SQLite takes for the rows of some types, and their seqs."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    asked = TypeQuery(-1, types, 1 << 20)
    store.read_types(SESSION, asked)  # the schema is read once
    store._reader_connection().set_progress_handler(count, 1)
    page = store.read_types(SESSION, asked)
    store._reader_connection().set_progress_handler(None, 0)
    return steps, [row.seq for row in page]


@pytest.mark.parametrize("types", [("nothing",), ("tool.call",), ("tool", "nothing")])
def test_filter_that_matches_little_costs_the_same_in_a_long_session(
    types: tuple[str, ...], tmp_path: Path
) -> None:
    costs = []
    for events in (100, 2_000):
        store = SqliteStore(tmp_path / f"{events}.db")

        @scenario
        async def fill(store: SqliteStore = store, events: int = events) -> None:
            log = await filled(Log(store), events)
            cost, seqs = steps_of(store, types)
            costs.append(cost)
            assert seqs == ([] if types == ("nothing",) else [events])
            await log.close()

        fill()
    assert costs[0] == costs[1]


@scenario
async def test_follower_of_some_types_is_charged_for_these_alone(tmp_path: Path) -> None:
    log = await filled(Log(SqliteStore(tmp_path / "log.db")), 1_000)
    spent: dict[tuple[str, ...], int] = {}
    for types in (("tool.call",), ("assistant.message",)):

        async def spend(size_bytes: int, types: tuple[str, ...] = types) -> None:
            spent[types] = spent.get(types, 0) + size_bytes

        async with open_follower(log, SESSION, options=FollowOptions(types, spend)) as pages:
            while (await anext(pages)).upto != 1_000:
                pass
    assert 0 < spent["tool.call",] < 1_000
    assert spent["assistant.message",] > 100_000
    await log.close()


@scenario
async def test_rows_of_a_type_are_found_where_the_index_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = await filled(Log(SqliteStore(path)), 50)
    await log.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma journal_mode = delete")
        query = "select rootpage from sqlite_schema where name = 'event_type'"
        [(root,)] = connection.execute(query).fetchall()
        [(size,)] = connection.execute("pragma page_size").fetchall()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    store = SqliteStore(path)
    page = store.read_types(SESSION, TypeQuery(-1, ("tool",), 1 << 20))
    assert [row.seq for row in page] == [50]
    store.close()


@scenario
async def test_row_that_is_damaged_comes_after_the_good_ones_as_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = await filled(Log(SqliteStore(path)), 5)
    await log.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update event set frame = 'x' where seq = 3")
    store = SqliteStore(path)
    page = store.read_types(SESSION, TypeQuery(-1, ("assistant",), 1 << 20))
    assert ([row.seq for row in page], page.upto) == ([0, 1, 2], 2)
    with pytest.raises(Exception, match="not what was written"):
        store.read_types(SESSION, TypeQuery(2, ("assistant",), 1 << 20))
    store.close()


@scenario
async def test_type_beside_an_event_that_is_damaged_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = await filled(Log(SqliteStore(path)), 5)
    await log.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update event set type = 'forged' where seq = 3")
    log = Log(SqliteStore(path))
    [damage] = await log.verify()
    assert (damage.first, damage.last) == (3, 3)
    await log.close()


@scenario
async def test_ring_that_lets_go_of_events_forgets_their_types() -> None:
    store = MemoryStore(ring_events=10)
    log = Log(store)
    await log.create("t", SESSION)
    await log.append(SESSION, [tool_call_event("first"), tool_result_event("first")])
    for number in range(50):
        await log.append(SESSION, [durable_event(str(number)), block_delta_event("x", number)])
    head = await log.info(SESSION)
    page = store.read_types(SESSION, TypeQuery(-1, ("tool", "assistant"), 1 << 20))
    assert page.first >= head.first
    assert {row.type for row in page} == {"assistant.message"}
    assert page.upto == head.last
    assert sum(len(seqs) for seqs in store._rings[SESSION].seqs_by_type.values()) == len(page) < MAX_PAGE_ROWS
    assert store.read_types("sess_none", TypeQuery(-1, ("tool",), 1)).epoch == ""
    await log.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_last_of_types_is_found_at_any_distance(kind: str, tmp_path: Path) -> None:
    @scenario
    async def search() -> None:
        log = Log(MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "log.db"))
        await log.create("t", SESSION)
        calls = [
            tool_call_event("a"),
            *durable_events(*range(900)),
            tool_call_event("b"),
            tool_call_event("c"),
        ]
        await log.append(SESSION, calls)

        async def last(before: int, *unwanted: int) -> int | None:
            row = await log.last_of_types(
                SESSION, ("tool.call",), before, lambda row: row.seq not in unwanted
            )
            return row.seq if row else None

        assert [await last(before) for before in (0, 1, 901, 902, 903, 5000)] == [None, 0, 0, 901, 902, 902]
        assert await last(903, 901, 902) == 0
        assert await last(903, 0, 901, 902) is None
        assert await log.last_of_types("sess_none", ("tool.call",), 9, lambda row: True) is None
        notes = await log.last_of_types(SESSION, ("assistant.message",), 903, lambda row: row.seq < 7)
        assert notes is not None
        assert notes.seq == 6, "more rows than fit on a page"
        await log.close()
