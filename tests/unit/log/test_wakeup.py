"""One signal for many: who is told, how often, and that nobody is left behind in it."""

import asyncio

from tests.support.manual_clock import move_on, run_on_clock
from tests.unit.log.delegates import scenario, soon
from turnlog.log.wakeup import Wakeup


async def sleeping(wakeup: Wakeup, count: int, idle_s: float | None = None) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(wakeup.wait(idle_s)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@scenario
async def test_a_change_wakes_everyone_who_sleeps_and_nobody_twice() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    tasks = await sleeping(wakeup, 3) + await sleeping(wakeup, 2, 60.0)
    wakeup.wake()
    assert await soon(asyncio.gather(*tasks)) == [True] * 5
    late = await sleeping(wakeup, 1)
    await asyncio.sleep(0)
    assert not late[0].done()
    wakeup.wake()
    assert await soon(late[0])
    assert wakeup.count == 3


@scenario
async def test_a_function_is_told_of_the_changes_of_a_turn_at_once_until_it_goes() -> None:
    wakeup, told, stays = Wakeup(), list[bool](), [True, False]

    def look(changed: bool) -> bool:
        told.append(changed)
        return stays.pop(0)

    wakeup.add_listener(look)
    for told_so_far in (1, 2, 2):
        for _ in range(3):
            wakeup.wake()
        await asyncio.sleep(0)
        assert told == [True] * told_so_far


@scenario
async def test_a_function_that_was_taken_off_is_not_told() -> None:
    wakeup, told = Wakeup(), list[bool]()

    def look(changed: bool) -> bool:
        told.append(changed)
        return True

    wakeup.add_listener(look)
    wakeup.wake()
    wakeup.remove_listener(look)
    await asyncio.sleep(0)
    assert told == []


@scenario
async def test_wait_without_a_change_returns_false_each_time() -> None:
    wakeup = Wakeup()
    assert not await soon(wakeup.wait(0.001))
    assert not await soon(wakeup.wait(0.001))


def test_a_silence_is_reported_again_and_again_and_a_change_puts_it_off() -> None:
    async def run() -> None:
        wakeup, reports = Wakeup(), list[bool]()

        def look(changed: bool) -> bool:
            reports.append(changed)
            return True

        async def pass_time(seconds: float) -> None:
            move_on(seconds)
            for _ in range(3):  # the loop finds the timer, rings it, and runs what that calls
                await asyncio.sleep(0)

        wakeup.add_listener(look, 3600.0)
        await pass_time(3000)
        wakeup.wake()
        await pass_time(0)
        await pass_time(3000)
        assert reports == [True], "the silence began anew with the change"
        await pass_time(3000)
        assert reports == [True, False]
        await pass_time(3600)
        assert reports == [True, False, False]
        wakeup.remove_listener(look, 3600.0)

    run_on_clock(run)


@scenario
async def test_who_is_cancelled_is_forgotten() -> None:
    wakeup = Wakeup()
    tasks = await sleeping(wakeup, 2, 60.0)
    tasks[0].cancel()
    wakeup.wake()  # told while it is on its way out
    assert await soon(asyncio.gather(*tasks, return_exceptions=True)) != [True, True]
    assert not any(waiting.listeners for waiting in wakeup._idle_groups.values())
