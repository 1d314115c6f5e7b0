"""Whether a store on another machine answers."""

import asyncio

from tests.support.limited_session import on_clock
from tests.support.manual_clock import move_on
from tests.unit.log.delegates import until
from turnlog.errors import StoreError
from turnlog.log.reach import MAX_SILENCE_S, PING_INTERVAL_S, StoreReach


class Engine:
    """What the pings go to: it answers, refuses, or is silent."""

    def __init__(self) -> None:
        self.pings = 0
        self.error: StoreError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ping(self) -> None:
        self.pings += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error

    async def next_ping(self) -> None:
        """Let the time to the next ping pass, and wait for it."""
        pings = self.pings
        move_on(PING_INTERVAL_S)
        await until(lambda: self.pings > pings)
        await asyncio.sleep(0)


def has_lost(reach: StoreReach) -> bool:
    return reach.is_lost


@on_clock
async def test_a_store_of_this_machine_is_never_asked() -> None:
    engine = Engine()
    reach = StoreReach(False, engine.ping)
    move_on(MAX_SILENCE_S * 2)
    await asyncio.sleep(0)
    assert not reach.is_lost
    assert engine.pings == 0
    await reach.close()


@on_clock
async def test_a_store_that_refuses_is_lost_after_a_while_and_found_with_its_next_answer() -> None:
    engine = Engine()
    reach = StoreReach(True, engine.ping)
    await until(lambda: engine.pings == 1)
    engine.error = StoreError("the engine is away")
    await engine.next_ping()
    assert not reach.is_lost  # a moment without an answer is none
    while not has_lost(reach):
        await engine.next_ping()
    engine.error = None
    await engine.next_ping()
    assert not has_lost(reach)
    await reach.close()


@on_clock
async def test_a_store_that_is_silent_is_lost_while_its_ping_waits() -> None:
    engine = Engine()
    reach = StoreReach(True, engine.ping)
    await until(lambda: engine.pings == 1)
    engine.may_answer.clear()
    await engine.next_ping()
    move_on(MAX_SILENCE_S)
    assert reach.is_lost
    engine.may_answer.set()
    await until(lambda: not reach.is_lost)
    await reach.close()
