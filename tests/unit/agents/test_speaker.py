"""What an agent says reaches the log in order, merged only while a write is under way."""

import asyncio
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.agents.runtime.delta_writer import MAX_PENDING_CHARS, DeltaWriter, PendingBatch
from turnlog.events import BlockDelta, BlockStart, Payload


class Writes:
    """An append that takes as long as the test wants."""

    def __init__(self) -> None:
        self.batches: list[list[Payload]] = []
        self.go_on = asyncio.Event()

    def __call__(self, batch: list[Payload]) -> asyncio.Future[Any]:
        self.batches.append(batch)
        return asyncio.ensure_future(self.go_on.wait())


def delta(text: str, block_id: str = "blk_1") -> BlockDelta:
    return BlockDelta(block_id=block_id, text=text)


def test_the_first_delta_goes_at_once_and_the_rest_is_merged() -> None:
    async def speak() -> list[list[Payload]]:
        writes = Writes()
        speaker = DeltaWriter(writes)
        await speaker.write([BlockStart(block_id="blk_1", kind="text"), delta("one")])
        await asyncio.sleep(0)
        assert len(writes.batches) == 1
        for text in (" two", " three"):
            await speaker.write([delta(text)])
        await speaker.write([delta("other", "blk_2")])
        writes.go_on.set()
        await speaker.flush()
        return writes.batches

    batches = asyncio.run(speak())
    assert batches == [
        [BlockStart(block_id="blk_1", kind="text"), delta("one")],
        [delta(" two three"), delta("other", "blk_2")],
    ]


PAYLOADS = st.lists(
    st.builds(delta, st.text("ab", max_size=3), st.sampled_from(["blk_1", "blk_2"]))
    | st.just(BlockStart(block_id="blk_1", kind="text"))
)


def delta_block(payload: Payload) -> str | None:
    return payload.block_id if isinstance(payload, BlockDelta) else None


@given(PAYLOADS)
def test_a_batch_joins_neighbouring_deltas_of_a_block_and_nothing_else(payloads: list[Payload]) -> None:
    expected: list[Payload] = []
    for block_id, group in groupby(payloads, delta_block):
        if block_id is None:
            expected += group
        else:
            text = "".join(payload.text for payload in group if isinstance(payload, BlockDelta))
            expected.append(delta(text, block_id))

    batch = PendingBatch()
    for payload in payloads:
        batch.add(payload)
    assert bool(batch) == bool(payloads)
    assert batch.chars == sum(len(payload.text) for payload in payloads if isinstance(payload, BlockDelta))
    assert batch.take() == expected
    assert (bool(batch), batch.chars, batch.take()) == (False, 0, [])


def test_a_model_that_outruns_the_disk_has_to_wait() -> None:
    async def speak() -> None:
        writes = Writes()
        speaker = DeltaWriter(writes)
        await speaker.write([delta("a")])
        await asyncio.sleep(0)
        much = asyncio.create_task(speaker.write([delta("b" * (MAX_PENDING_CHARS + 1))]))
        await asyncio.sleep(0)
        assert not much.done()
        writes.go_on.set()
        await much

    asyncio.run(speak())


def test_a_failed_write_reaches_the_speaker() -> None:
    async def late() -> None:
        raise OSError("the disk is full")

    async def speak() -> None:
        speaker = DeltaWriter(lambda _: asyncio.ensure_future(late()))
        await speaker.write([delta("a")])
        with pytest.raises(OSError, match="the disk is full"):
            await speaker.flush()
        with pytest.raises(OSError, match="the disk is full"):
            await speaker.write([delta("b")])

    asyncio.run(speak())


def test_a_write_that_cannot_begin_reaches_the_speaker_at_once_or_after_the_one_before() -> None:
    begun = list[list[Payload]]()

    async def speak() -> None:
        go_on = asyncio.Event()

        def append(batch: list[Payload]) -> asyncio.Future[Any]:
            begun.append(batch)
            if len(begun) == 2:
                raise ValueError("no event of ours")
            return asyncio.ensure_future(go_on.wait())

        speaker = DeltaWriter(append)
        await speaker.write([delta("a")])
        await speaker.write([delta("b")])
        go_on.set()
        with pytest.raises(ValueError, match="no event of ours"):
            await speaker.flush()
        with pytest.raises(ValueError, match="no event of ours"):
            await speaker.write([delta("c")])

    asyncio.run(speak())
    assert begun == [[delta("a")], [delta("b")]]


def test_a_write_that_was_called_off_is_not_taken_for_done() -> None:
    async def speak() -> None:
        writes = Writes()
        speaker = DeltaWriter(writes)
        await speaker.write([delta("a")])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await speaker.flush()

    asyncio.run(speak())
