"""What a request costs: every step of its coroutine is told, and nothing else about it changes."""

import asyncio

import pytest

from turnlog.server.limits.request_cost import MeteredCoroutine


class Work:
    """A coroutine that waits so many times, and what was told of it."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.begun = asyncio.Event()

    async def waits(self, times: int) -> str:
        for _ in range(times):
            await asyncio.sleep(0)
        return "done"

    async def waits_for_ever(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    async def fails(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")


def test_metered_work_tells_each_of_its_steps_and_returns_its_value() -> None:
    async def scenario() -> None:
        work = Work()
        assert await MeteredCoroutine(work.waits(3), work.steps.append) == "done"
        assert len(work.steps) == 4
        assert min(work.steps) >= 0

    asyncio.run(scenario())


def test_metered_work_that_fails_tells_the_step_and_raises() -> None:
    async def scenario() -> None:
        work = Work()
        with pytest.raises(ValueError, match="wrong"):
            await MeteredCoroutine(work.fails(), work.steps.append)
        assert len(work.steps) == 2

    asyncio.run(scenario())


def test_metered_work_that_is_cancelled_ends_with_its_task() -> None:
    async def scenario() -> None:
        work = Work()

        async def answer() -> None:
            await MeteredCoroutine(work.waits_for_ever(), work.steps.append)

        task = asyncio.create_task(answer())
        await work.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(work.steps) == 2

    asyncio.run(scenario())
