"""Watches: the folds of sessions that a process looks at. They write nothing, and unused ones are dropped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.limited_session import on_clock
from tests.support.limits import HANG_S
from tests.support.manual_clock import move_on
from tests.unit.log.delegates import until
from turnlog.agents.runtime.session_folds import YIELD_EVERY_EVENTS, SessionFolds
from turnlog.agents.runtime.session_watch import SessionWatch, WatchPool
from turnlog.errors import SessionDamaged, Unavailable
from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentStart,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Origin,
    Payload,
    Scope,
    UiMessage,
)
from turnlog.log import Damage, Log, MemoryStore, Page, SessionRecord
from turnlog.log.jobs import QuarantineDamage

QUIET_S = 3600.0  # passes only when a test moves the clock
TURN = Scope(trace_id="tr_1")
AGENT = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Guide", depth=0)
START = AgentStart(name="Guide", via="prompt")


class Gallery:
    """A log with a session, and a pool of watches."""

    def __init__(self, log: Log, session_id: str) -> None:
        self.log = log
        self.session_id = session_id
        self.watches = WatchPool(log, self.make_folds, QUIET_S)
        self._appended = 0

    def make_folds(self, record: SessionRecord) -> SessionFolds:
        return SessionFolds(self.log, record.session_id, CATALOG)

    async def record(self) -> SessionRecord:
        return await self.log.info(self.session_id)

    async def folds(self) -> SessionFolds:
        return await self.watches.synced_folds(await self.record())

    async def append(self, *payloads: Payload, scope: Scope = AGENT) -> list[int]:
        events: list[Event] = []
        for payload in payloads:
            self._appended += 1
            origin: Origin = "model" if isinstance(payload, BlockStart | BlockDelta | BlockEnd) else "system"
            if isinstance(payload, UiMessage):
                origin = "ui"
            event_id = f"evt_{self._appended}"
            events.append(CATALOG.build_event(payload, id=event_id, origin=origin, scope=scope))
        return (await self.log.append(self.session_id, events)).seqs

    async def damage(self, seq: int) -> None:
        """Record a damage of the session: it has another epoch."""
        await self.log.run_job(QuarantineDamage(Damage(self.session_id, seq, seq, "broken")))


@asynccontextmanager
async def opened(store: MemoryStore | None = None) -> AsyncIterator[Gallery]:
    log = Log(store or MemoryStore())
    gallery = Gallery(log, await log.create("plain"))
    try:
        yield gallery
    finally:
        gallery.watches.close()
        await log.close()


# watches


@on_clock
async def test_watch_has_what_is_in_the_log_at_each_use() -> None:
    async with opened() as gallery:
        assert (await gallery.folds()).last_seq == -1
        await gallery.append(START)
        folds = await gallery.folds()
        assert (folds.last_seq, list(folds.tree.open), folds.durable_count) == (0, ["agt_1"], 1)
        await gallery.append(AgentEnd(stop_reason="end_turn"))
        assert await gallery.folds() is folds
        assert (folds.last_seq, folds.tree.open, len(gallery.watches)) == (1, {}, 1)


@on_clock
async def test_watch_skips_live_events_and_lets_others_run() -> None:
    async with opened() as gallery:
        deltas = [BlockDelta(block_id="b1", text="x ") for _ in range(2 * YIELD_EVERY_EVENTS)]
        await gallery.append(START, BlockStart(block_id="b1", kind="text"))
        for delta in deltas:
            await gallery.append(delta)
        folds = await gallery.folds()
        assert folds.last_seq == len(deltas) + 1
        assert folds.tree.open["agt_1"].blocks == {"b1": []}


@on_clock
async def test_uses_at_once_share_one_watch_and_fold_each_event_once() -> None:
    async with opened() as gallery:
        await gallery.append(START)
        record = await gallery.record()
        found = await asyncio.gather(*[gallery.watches.synced_folds(record) for _ in range(5)])
        assert len({id(folds) for folds in found}) == 1
        assert found[0].tree.agent_counts == {"tr_1": 1}


@on_clock
async def test_watch_that_is_not_used_for_the_quiet_time_is_dropped() -> None:
    async with opened() as gallery:
        first = await gallery.folds()
        other = await gallery.log.create("plain")
        move_on(QUIET_S * 0.6)
        await gallery.watches.synced_folds(await gallery.log.info(other))
        move_on(QUIET_S * 0.6)
        await until(lambda: len(gallery.watches) == 1)
        assert await gallery.folds() is not first, "it was the older one"
        move_on(2 * QUIET_S)
        await until(lambda: len(gallery.watches) == 0)
        assert gallery.watches._sweep_timer is None


@on_clock
async def test_watch_that_is_used_stays() -> None:
    async with opened() as gallery:
        first = await gallery.folds()
        for _ in range(4):
            move_on(QUIET_S * 0.6)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert await gallery.folds() is first


@on_clock
async def test_watch_that_is_brought_up_to_date_is_not_dropped() -> None:
    async with opened() as gallery:
        await gallery.folds()
        [watch] = gallery.watches._watches.values()
        async with watch.lock:
            move_on(2 * QUIET_S)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(gallery.watches) == 1
        move_on(2 * QUIET_S)
        await until(lambda: len(gallery.watches) == 0)


@on_clock
async def test_watch_of_another_epoch_is_not_used() -> None:
    async with opened() as gallery:
        await gallery.append(START)
        await gallery.append(UiMessage(text="Hello"), scope=TURN)
        first = await gallery.folds()
        await gallery.damage(0)
        second = await gallery.folds()
        assert second is not first
        assert second.last_seq == 1
        assert second.epoch == (await gallery.record()).epoch != first.epoch


@on_clock
async def test_watch_is_dropped_by_name_and_when_the_pool_closes() -> None:
    async with opened() as gallery:
        await gallery.folds()
        gallery.watches.drop(gallery.session_id)
        gallery.watches.drop("sess_unknown")
        assert len(gallery.watches) == 0
        await gallery.folds()
        gallery.watches.close()
        assert len(gallery.watches) == 0


class BrokenStore(MemoryStore):
    """A store whose next reads meet damages."""

    def __init__(self) -> None:
        super().__init__()
        self.damages_left: list[int] = []

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        if self.damages_left:
            seq = self.damages_left.pop(0)
            raise SessionDamaged(session_id, seq, seq, "broken")
        return super().read(session_id, after, replay_from, limit_bytes)


@on_clock
async def test_watch_reads_on_after_a_damage() -> None:
    store = BrokenStore()
    async with opened(store) as gallery:
        await gallery.append(UiMessage(text="One"), scope=TURN)
        await gallery.append(START)
        epoch = (await gallery.record()).epoch
        store.damages_left = [0]
        folds = await gallery.folds()
        assert list(folds.tree.open) == ["agt_1"]
        assert folds.epoch == (await gallery.record()).epoch != epoch


@on_clock
async def test_watch_of_a_session_that_stays_damaged_raises() -> None:
    store = BrokenStore()
    async with opened(store) as gallery:
        await gallery.append(START)
        store.damages_left = [0] * 20
        with pytest.raises(SessionDamaged):
            await gallery.folds()
        assert len(gallery.watches) == 0


class ShortStore(MemoryStore):
    """A store that returns nothing, although its record says that there is more."""

    is_short = False

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        page = super().read(session_id, after, replay_from, limit_bytes)
        return Page((), page.epoch) if self.is_short else page


@on_clock
async def test_watch_of_a_log_that_ends_early_returns_what_there_is() -> None:
    store = ShortStore()
    async with opened(store) as gallery:
        await gallery.append(START, BlockStart(block_id="b1", kind="text"))
        folds = await gallery.folds()
        await gallery.append(BlockDelta(block_id="b1", text="x"))
        store.is_short = True
        assert (await gallery.folds()).last_seq == 1
        await folds.load_open_texts()
        assert folds.tree.open["agt_1"].blocks == {"b1": []}


# waiting for a turn


@on_clock
async def test_wait_for_a_turn_ends_with_it() -> None:
    async with opened() as gallery:
        await gallery.append(START)
        record = await gallery.record()
        waiting = asyncio.create_task(
            gallery.watches.wait_until_settled(record, "tr_1", HANG_S, lambda: None)
        )
        await until(lambda: bool(gallery.log.tails))
        await gallery.append(BlockStart(block_id="b1", kind="text"))
        await gallery.append(BlockEnd(block_id="b1", status="aborted"))
        assert not waiting.done()
        await gallery.append(AgentEnd(stop_reason="end_turn"))
        await waiting
        await gallery.watches.wait_until_settled(record, "tr_1", HANG_S, lambda: None)
        assert gallery.log.tails == {}


@on_clock
async def test_wait_for_a_turn_checks_its_owner_in_the_silence() -> None:
    def fail() -> None:
        raise Unavailable("the runner has stopped")

    async with opened() as gallery:
        await gallery.append(START)
        with pytest.raises(Unavailable, match="has stopped"):
            await gallery.watches.wait_until_settled(await gallery.record(), "tr_1", 0.01, fail)


@on_clock
async def test_wait_for_a_turn_of_a_session_that_is_closed_raises() -> None:
    async with opened() as gallery:
        await gallery.append(START)
        record = await gallery.record()
        waiting = asyncio.create_task(
            gallery.watches.wait_until_settled(record, "tr_1", HANG_S, lambda: None)
        )
        await until(lambda: bool(gallery.log.tails))
        await gallery.log.close_session(gallery.session_id)
        with pytest.raises(Unavailable, match="ended before the turn"):
            await waiting


@on_clock
async def test_watch_takes_pages_that_overlap_with_what_it_has() -> None:
    async with opened() as gallery:
        await gallery.append(START)
        page = await gallery.log.read(gallery.session_id)
        watch = SessionWatch(gallery.log, gallery.make_folds(await gallery.record()))
        await watch.take_page(page)
        await watch.take_page(page)
        assert watch.folds.tree.agent_counts == {"tr_1": 1}


# the texts of open blocks


@on_clock
async def test_texts_of_open_blocks_are_read_up_to_the_position_of_the_folds() -> None:
    async with opened() as gallery:
        await gallery.append(START, BlockStart(block_id="b1", kind="text"))
        await gallery.append(BlockDelta(block_id="b1", text="One "))
        await gallery.append(BlockEnd(block_id="b1", status="aborted", text="One "))
        await gallery.append(BlockStart(block_id="b2", kind="text"))
        await gallery.append(BlockDelta(block_id="b2", text="Two "))
        await gallery.append(UiMessage(text="Meanwhile"), scope=Scope(trace_id="tr_2"))
        await gallery.append(BlockStart(block_id="b3", kind="thinking"))
        await gallery.append(BlockDelta(block_id="b2", text="three."))
        folds = await gallery.folds()
        await gallery.append(BlockDelta(block_id="b2", text=" Later."))
        for _ in range(2):
            await folds.load_open_texts()
            assert folds.tree.open["agt_1"].blocks == {"b2": ["Two ", "three."], "b3": []}


@on_clock
async def test_texts_are_not_read_if_no_block_is_open() -> None:
    store = ShortStore()
    async with opened(store) as gallery:
        await gallery.append(START)
        folds = await gallery.folds()
        store.read = None  # type: ignore[assignment,method-assign]
        await folds.load_open_texts()


@on_clock
async def test_texts_of_a_long_block_are_read_in_pages() -> None:
    async with opened() as gallery:
        await gallery.append(START, BlockStart(block_id="b1", kind="text"))
        piece = "x" * 60_000
        for _ in range(40):
            await gallery.append(BlockDelta(block_id="b1", text=piece))
        folds = await gallery.folds()
        await folds.load_open_texts()
        assert "".join(folds.tree.open["agt_1"].blocks["b1"]) == 40 * piece
