"""Damage to what stands beside the events: the records of sessions, the index of spans."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.log.damaging import OTHER, ROW, SESSION, edit, fill, opened, readable, seqs
from tests.unit.log.delegates import all_pages, scenario, until
from turnlog.errors import SessionDamaged, StoreError
from turnlog.log import Log, SqliteStore
from turnlog.testing.factories import (
    agent_end_event,
    agent_scope,
    agent_start_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_events,
    tool_call_event,
    tool_result_event,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


# the session's own record

RECORD = {
    "epoch": "'00000000'",
    "app": "'another'",
    "created": "created + 1",
    "first": "first + 1",
    "last": "last - 1",
    "rank": "rank - 1",
    "chain": "x'00'",
    "fence": "fence + 1",
    "pruned": "pruned + 1",
    "crc": "crc + 1",
}


@pytest.mark.parametrize("column", RECORD)
@pytest.mark.parametrize("when", ["closed", "open"])
def test_a_damaged_record_is_told_and_the_events_are_served(path: Path, column: str, when: str) -> None:
    statement = f"update session set {column} = {RECORD[column]} where id = 1"

    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill(log)
            epochs = [head.epoch for head in await log.sessions()]
            if when == "open":
                edit(path, statement)
                assert SESSION in {damage.session_id for damage in await log.verify()}
                await check(log, epochs)
        if when == "closed":
            edit(path, statement)
        async with opened(path) as log:
            if when == "closed":
                await check(log, epochs)
            assert len(await log.damages()) == 1

    async def check(log: Log, epochs: list[str]) -> None:
        head = await log.info(SESSION)
        assert (head.epoch != epochs[0], head.last) == (True, 5)
        assert (await log.info(OTHER)).epoch == epochs[1]
        rows, told = await readable(log)
        assert ([row.seq for row in rows], told) == ([0, 1, 2, 3, 4, 5], [])
        assert (await log.append(SESSION, durable_events("new"))).seqs == [6]
        assert await seqs(log) == [0, 1, 2, 3, 4, 5, 6]
        assert [damage[:3] for damage in await log.damages()] == [(SESSION, -1, -1)]

    run()


@scenario
async def test_a_damaged_record_ends_the_followers(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        follower = asyncio.create_task(all_pages(log, SESSION, 5))
        await until(lambda: SESSION in log.tails)
        edit(path, "update session set app = 'another' where id = 1")
        await log.info(SESSION)
        assert await follower == []


@scenario
async def test_a_damaged_record_does_not_end_appending(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    async with opened(path) as log:
        edit(path, "update session set app = 'another' where id = 1")
        with suppress(StoreError):
            await log.append(SESSION, durable_events("a"))
        assert (await log.append(SESSION, durable_events("b"))).seqs in ([6], [7])


@pytest.mark.parametrize(
    ("column", "value"),
    [("last", "'x'"), ("last", "x'ff'"), ("rank", "'x'"), ("chain", "'x'"), ("fence", "'x'")],
)
def test_a_record_of_the_wrong_kind_does_not_keep_the_log_shut(path: Path, column: str, value: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill(log)
        edit(path, f"update session set {column} = {value} where id = 1")
        async with opened(path) as log:
            assert [damage.session_id for damage in await log.damages()] == [SESSION]
            assert await seqs(log) == [0, 1, 2, 3, 4, 5]
            assert (await log.append(SESSION, durable_events("new"), fence=1)).seqs == [6]
            assert (await log.append(OTHER, durable_events("new"))).seqs == [6]

    run()


@scenario
async def test_a_damaged_last_seq_is_not_believed(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, "update session set last = 1 << 40 where id = 1")
    async with opened(path) as log:
        assert (await log.info(SESSION)).last < 1000


@pytest.mark.parametrize(("column", "value"), [("closed", "1"), ("fence", "1 << 40"), ("pruned", "5")])
def test_nothing_of_a_damaged_record_is_believed(path: Path, column: str, value: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill(log)
        edit(path, f"update session set {column} = {value} where id = 1", f"delete from event {ROW}")
        async with opened(path) as log:
            rows, told = await readable(log)
            assert [row.seq for row in rows] == [0, 1, 3, 4, 5]
            assert [(damage.first, damage.last) for damage in told] == [(2, 2)]
            assert (await log.append(SESSION, durable_events("new"), fence=1)).seqs == [6]

    run()


# the index of spans

SPANS = [
    agent_start_event(agent_scope(1)),
    block_start_event("x"),
    block_delta_event("x"),
    block_end_event("x"),
    tool_call_event("c"),
    tool_result_event("c"),
    block_start_event("y"),
    block_delta_event("y"),
    agent_end_event(agent_scope(1)),
]


async def fill_spans(log: Log) -> None:
    await log.create("t", SESSION)
    await log.append(SESSION, SPANS)
    assert [row.seq for row in await log.read(SESSION, replay_from=-1)] == [0, 1, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("statement", "served"),
    [
        ("update span set first = first + 1", range(9)),
        ("update span set last = last - 1 where last is not null", range(9)),
        ("update span set last = 8 where last is null", [0, 1, 3, 4, 5, 6, 7, 8]),
        ("update span set trace = 'tr_9'", range(9)),
        ("update span set agent = 1 - agent", range(9)),
        ("update span set crc = crc + 1", range(9)),
        ("update span set first = 'x'", range(9)),
    ],
)
def test_a_damaged_index_is_told_and_hides_nothing(path: Path, statement: str, served: Sequence[int]) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill_spans(log)
            edit(path, statement)
            assert [row.seq for row in await log.read(SESSION, replay_from=-1)] == list(served)
            problems = {damage.problem for damage in await log.verify()}
            assert problems == {"the index of blocks and calls is damaged"}

    run()


@pytest.mark.parametrize(
    "statement",
    [
        "update span set trace = 'tr_9'",
        "update span set crc = crc + 1",
        "update span set first = first + 100",
        "update span set last = 0 where last is not null",
    ],
)
def test_a_damaged_index_does_not_move_the_start_of_a_turn(path: Path, statement: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill_spans(log)
            edit(path, statement)
            assert await log.oldest_open_turn_start(SESSION, 5) == 0

    run()


@pytest.mark.parametrize(
    "statement", ["update span set last = last - 1 where last is not null", "delete from event where seq = 5"]
)
def test_what_closed_a_call_is_never_another_event(path: Path, statement: str) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill_spans(log)
            edit(path, statement)
            await readable(log)
            row = None
            with suppress(StoreError):
                row = await log.closing_event(SESSION, "c")
            assert row is None or row.type == "tool.result"

    run()


@pytest.mark.parametrize("seq", [0, 7])
def test_an_event_that_was_moved_into_a_finished_span_is_not_hidden(path: Path, seq: int) -> None:
    @scenario
    async def run() -> None:
        async with opened(path) as log:
            await fill_spans(log)
            edit(path, f"update event set span = (select span from event where seq = 2) where seq = {seq}")
            served: list[int] = []
            with suppress(SessionDamaged):
                served = [row.seq for row in await log.read(SESSION, replay_from=-1)]
            assert seq in served or await log.verify() != [] or await log.damages() != []

    run()


@scenario
async def test_a_lost_delta_is_told_to_a_replay_that_leaves_it_out(path: Path) -> None:
    async with opened(path) as log:
        await fill_spans(log)
        edit(path, "delete from event where seq = 2")
        assert [row.seq for row in await log.read(SESSION, replay_from=-1)] == [0, 1]
        with pytest.raises(SessionDamaged, match="missing"):
            await log.read(SESSION, 1, replay_from=-1)


@scenario
async def test_a_delta_that_became_durable_is_not_left_out(path: Path) -> None:
    async with opened(path) as log:
        await fill_spans(log)
        edit(path, "update event set meta = replace(meta, '|1|', '|0|') where seq = 2")
        assert [row.seq for row in await log.read(SESSION, replay_from=-1)] == [0, 1]
        with pytest.raises(SessionDamaged, match="not what was written"):
            await log.read(SESSION, 1, replay_from=-1)


@scenario
async def test_a_record_that_is_damaged_twice_is_repaired_twice(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        for app in ("another", "a third"):
            edit(path, f"update session set app = '{app}' where id = 1")
            assert (await log.info(SESSION)).last == 5
            assert len(await log.sessions()) == 2
        assert (await log.append(SESSION, durable_events("new"))).seqs == [6]


@scenario
async def test_a_record_with_text_that_cannot_be_decoded_does_not_keep_the_log_shut(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
    edit(path, "update session set app = cast(x'ff' as text) where id = 1")
    async with opened(path) as log:
        assert (await log.append(OTHER, durable_events("new"))).seqs == [6]
        assert await seqs(log) == [0, 1, 2, 3, 4, 5]
        assert [damage.session_id for damage in await log.damages()] == [SESSION]


@scenario
async def test_a_record_whose_name_is_damaged_does_not_hide_the_others(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        name = f"{SESSION}{(await log.info(SESSION)).epoch}".encode()
    flip(path, name)
    async with opened(path) as log:
        assert OTHER in {head.session_id for head in await log.sessions()}
        assert (await log.append(OTHER, durable_events("new"))).seqs == [6]
        assert await log.damages() != []


def flip(path: Path, text: bytes) -> None:
    """Change one bit of a text that stands in the file once: in the table, not in its index."""
    data = bytearray(path.read_bytes())
    assert data.count(text) == 1
    data[data.index(text) + 5] ^= 2
    path.write_bytes(data)


@scenario
async def test_several_damaged_records_do_not_hide_the_list(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, "update session set app = 'another'")
        assert [head.session_id for head in await log.sessions()] == [SESSION, OTHER]


@scenario
async def test_a_damaged_record_does_not_hide_the_others_from_a_reading_process(path: Path) -> None:
    async with opened(path) as log:
        await fill(log)
        edit(path, "update session set app = 'another' where id = 1")
        reader = Log(SqliteStore(path, writable=False), writable=False)
        try:
            assert OTHER in {head.session_id for head in await reader.sessions()}
        finally:
            await reader.close()
