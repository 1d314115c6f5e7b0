"""`Log.events`: the decoded events of a session."""

import asyncio
from pathlib import Path

import pytest

from tests.support.tables import for_each_row
from tests.unit.log.delegates import scenario, soon, until
from turnlog.errors import NotFound
from turnlog.events import (
    CATALOG,
    CORE,
    AssistantMessage,
    Catalog,
    Entry,
    Payload,
    UnknownPayload,
    Vocabulary,
)
from turnlog.log import Log, MemoryStore, SqliteStore
from turnlog.testing.factories import durable_event, durable_events

SESSION = "sess_1"


class OrderPlaced(Payload, frozen=True, kw_only=True):
    """An event of an application."""

    item: str


SHOP = Vocabulary("shop", [OrderPlaced])


async def filled(log: Log, count: int) -> Log:
    await log.create("t", SESSION)
    await log.append(SESSION, durable_events(*range(count)))
    return log


def texts(entries: list[Entry]) -> list[str]:
    return [entry.payload.text for entry in entries if isinstance(entry.payload, AssistantMessage)]


@for_each_row("kind", ["memory", "sqlite"])
def test_events_are_decoded_in_order_up_to_the_present_end(kind: str, tmp_path: Path) -> None:
    @scenario
    async def check() -> None:
        store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / f"{kind}.db")
        log = await filled(Log(store), 3)
        entries = [entry async for entry in log.events(SESSION)]
        assert [(entry.seq, entry.type, entry.id) for entry in entries] == [
            (seq, "assistant.message", f"evt_{seq}") for seq in range(3)
        ]
        assert texts(entries) == ["0", "1", "2"]
        assert entries[0].trace_id == "tr_1"
        assert entries[0].depth == 1
        assert texts([entry async for entry in log.events(SESSION, after=1)]) == ["2"]
        assert [entry async for entry in log.events(SESSION, after=2)] == []
        await log.close()

    check()


@scenario
async def test_events_without_follow_end_though_more_are_appended_meanwhile() -> None:
    log = await filled(Log(MemoryStore()), 2)
    seqs = []
    async for entry in log.events(SESSION):
        seqs.append(entry.seq)
        await log.append(SESSION, [durable_event(f"more-{entry.seq}")])
    assert seqs == [0, 1]
    await log.close()


@scenario
async def test_events_with_follow_wait_for_more_and_end_with_the_session() -> None:
    log = await filled(Log(MemoryStore()), 2)

    async def follow() -> list[Entry]:
        return [entry async for entry in log.events(SESSION, after=0, follow=True)]

    follower = asyncio.create_task(follow())
    await until(lambda: SESSION in log.tails)
    await log.append(SESSION, [durable_event("late")])
    await log.close_session(SESSION)
    assert texts(await soon(follower)) == ["1", "late"]
    await log.close()


@scenario
async def test_events_that_a_reader_leaves_early_release_the_session() -> None:
    log = await filled(Log(MemoryStore()), 2)
    entries = log.events(SESSION, follow=True)
    assert (await anext(entries)).seq == 0
    await entries.aclose()
    assert log.tails == {}
    await log.close()


@scenario
async def test_events_of_an_unknown_session_are_not_found() -> None:
    log = Log(MemoryStore())
    for follow in (False, True):
        with pytest.raises(NotFound):
            await anext(log.events("sess_none", follow=follow))
    await log.close()


@scenario
async def test_events_of_an_application_are_decoded_by_its_catalog() -> None:
    catalog = Catalog(CORE, SHOP)
    log = await filled(Log(MemoryStore()), 0)
    order = catalog.build_event(OrderPlaced(item="tea"), id="evt_order", origin="app")
    await log.append(SESSION, [order])
    [unknown] = [entry async for entry in log.events(SESSION, catalog=CATALOG)]
    assert isinstance(unknown.payload, UnknownPayload)
    [entry] = [entry async for entry in log.events(SESSION, catalog=catalog)]
    assert entry.payload == OrderPlaced(item="tea")
    await log.close()
