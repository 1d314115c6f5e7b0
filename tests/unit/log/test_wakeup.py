"""One signal for many: who is told, how often, and that nobody is left behind in it."""

import asyncio

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

    wakeup.add(look)
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

    wakeup.add(look)
    wakeup.wake()
    wakeup.discard(look)
    await asyncio.sleep(0)
    assert told == []


@scenario
async def test_a_silence_is_told_again_and_again_and_a_change_puts_it_off() -> None:
    wakeup = Wakeup()
    assert not await soon(wakeup.wait(0.001))
    assert not await soon(wakeup.wait(0.001))
    loop, told = asyncio.get_running_loop(), asyncio.Queue[tuple[bool, float]]()

    def look(changed: bool) -> bool:
        told.put_nowait((changed, loop.time()))
        return True

    wakeup.add(look, 0.05)
    await asyncio.sleep(0)
    wakeup.wake()
    change, first, second = [await soon(told.get()) for _ in range(3)]
    assert (change[0], first[0], second[0]) == (True, False, False)
    assert first[1] - change[1] >= 0.049
    assert second[1] - first[1] >= 0.049
    wakeup.discard(look, 0.05)


@scenario
async def test_who_is_cancelled_is_forgotten() -> None:
    wakeup = Wakeup()
    tasks = await sleeping(wakeup, 2, 60.0)
    tasks[0].cancel()
    wakeup.wake()  # told while it is on its way out
    assert await soon(asyncio.gather(*tasks, return_exceptions=True)) != [True, True]
    assert not any(waiting.looks for waiting in wakeup._waiting.values())
