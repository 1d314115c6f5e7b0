"""What an agent says reaches the log in order, merged only while a write is under way."""

import asyncio

import pytest

from turnlog.agents.speaker import WAITING_CHARS, Speaker
from turnlog.events import BlockDelta, BlockStart, Payload


class Writes:
    """An append that takes as long as the test wants."""

    def __init__(self) -> None:
        self.batches: list[list[Payload]] = []
        self.go_on = asyncio.Event()

    async def __call__(self, batch: list[Payload]) -> None:
        self.batches.append(batch)
        await self.go_on.wait()


def delta(text: str, block_id: str = "blk_1") -> BlockDelta:
    return BlockDelta(block_id=block_id, text=text)


def test_the_first_delta_goes_at_once_and_the_rest_is_merged() -> None:
    async def speak() -> list[list[Payload]]:
        writes = Writes()
        speaker = Speaker(writes)
        await speaker.say([BlockStart(block_id="blk_1", kind="text"), delta("one")])
        await asyncio.sleep(0)
        assert len(writes.batches) == 1
        for text in (" two", " three"):
            await speaker.say([delta(text)])
        await speaker.say([delta("other", "blk_2")])
        writes.go_on.set()
        await speaker.finish()
        return writes.batches

    batches = asyncio.run(speak())
    assert batches == [
        [BlockStart(block_id="blk_1", kind="text"), delta("one")],
        [delta(" two three"), delta("other", "blk_2")],
    ]


def test_a_model_that_outruns_the_disk_has_to_wait() -> None:
    async def speak() -> None:
        writes = Writes()
        speaker = Speaker(writes)
        await speaker.say([delta("a")])
        await asyncio.sleep(0)
        much = asyncio.create_task(speaker.say([delta("b" * (WAITING_CHARS + 1))]))
        await asyncio.sleep(0)
        assert not much.done()
        writes.go_on.set()
        await much

    asyncio.run(speak())


def test_a_failed_write_reaches_the_speaker() -> None:
    async def fail(_: list[Payload]) -> None:
        raise OSError("the disk is full")

    async def speak() -> None:
        speaker = Speaker(fail)
        await speaker.say([delta("a")])
        with pytest.raises(OSError, match="the disk is full"):
            await speaker.finish()
        with pytest.raises(OSError, match="the disk is full"):
            await speaker.say([delta("b")])

    asyncio.run(speak())


def test_after_stop_nothing_more_is_said() -> None:
    async def speak() -> list[list[Payload]]:
        writes = Writes()
        speaker = Speaker(writes)
        speaker.stop()
        await speaker.finish()
        await speaker.say([delta("a")])
        await asyncio.sleep(0)
        await speaker.say([delta("b")])
        speaker.stop()
        writes.go_on.set()
        return writes.batches

    assert asyncio.run(speak()) == [[delta("a")]]
