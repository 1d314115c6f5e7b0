"""Contracts of a store: appending."""

import asyncio

from turnlog.errors import Conflict, Fenced, NotFound
from turnlog.events import Scope, UiMessage, decode_envelope, encode_envelope
from turnlog.log import AppendResult, envelope_json
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    make_event,
)
from turnlog.testing.harness import StoreFactory, expect_conflict, expect_raises, open_harness


async def dense_seqs(make_store: StoreFactory) -> None:
    """The store numbers events from 0 without gaps, in the order of appends and within each; ids stay."""
    async with open_harness(make_store) as harness:
        assert await harness.append(durable_event("a")) == [0]
        assert await harness.append(*durable_events("b", "c", "d")) == [1, 2, 3]
        assert await harness.append() == []
        assert await harness.append(durable_event("e")) == [4]
        envelopes = [decode_envelope(envelope_json(row)) for row in await harness.read_rows()]
        assert [envelope.seq for envelope in envelopes] == [0, 1, 2, 3, 4]
        assert [envelope.id for envelope in envelopes] == ["evt_a", "evt_b", "evt_c", "evt_d", "evt_e"]


async def visible_when_acknowledged(make_store: StoreFactory) -> None:
    """Every way of reading returns an event as soon as its append is acknowledged."""
    async with open_harness(make_store) as harness:
        for last in range(20):
            assert await harness.append(durable_event(str(last))) == [last]
            assert (await harness.info()).last == last
            assert await harness.read_seqs(last - 1) == [last]
            assert await harness.log.has_event(harness.session, last)
            assert [row.seq for row in await harness.follow_until(last)] == list(range(last + 1))


async def frames_are_byte_exact(make_store: StoreFactory) -> None:
    """A row is the `data:` frame of the envelope: the same bytes for every reader and any text."""
    async with open_harness(make_store) as harness:
        texts = ["plain", 'quote " \\ </script>', "\u2028\u2029\x85", "\x00\x1f\x7f", "𝄞é", "z" * 300_000]
        events = [durable_event(str(number), text) for number, text in enumerate(texts)]
        follower = asyncio.create_task(harness.follow_until(len(texts) - 1))
        await harness.append(*events)
        lines = [
            encode_envelope(event, session_id=harness.session, seq=n, ts_ms=harness.now_ms)
            for n, event in enumerate(events)
        ]
        frames = [b"data: " + line + b"\n\n" for line in lines]
        assert [row.frame for row in await harness.read_rows()] == frames
        assert [row.frame for row in await follower] == frames


async def row_metadata(make_store: StoreFactory) -> None:
    """A row has the type, depth and trace of its event, whether it is live, and the durable count."""
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a", scope=Scope()),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
        )
        rows = await harness.read_rows()
        assert [row.type for row in rows] == ["assistant.message", "block.start", "block.delta", "block.end"]
        assert [row.live for row in rows] == [False, False, True, False]
        assert [row.durable_count for row in rows] == [1, 2, 2, 3]
        assert [row.depth for row in rows] == [0, 1, 1, 1]
        assert [row.trace for row in rows] == [None, "tr_1", "tr_1", "tr_1"]


async def batch_is_atomic(make_store: StoreFactory) -> None:
    """The store writes nothing of a batch that it refuses, wherever the fault is."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        for index in range(3):
            batch = durable_events("x", "y")
            batch.insert(index, durable_event("a", "another text"))
            assert await expect_conflict(harness.append(*batch)) == 0
        assert await harness.read_seqs() == [0]
        assert await harness.append(*durable_events("x", "y")) == [1, 2]


async def batch_isolation(make_store: StoreFactory) -> None:
    """A refused append does not affect the other appends of its group."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"))
        jobs = []
        for number in range(60):
            jobs.append(harness.log.submit(harness.session, [durable_event(f"good-{number}")]))
            jobs.append(harness.log.submit(harness.session, [durable_event("a", "another text")]))
            jobs.append(harness.log.submit("sess_unknown", [durable_event("a")]))
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert outcomes[0::3] == [AppendResult([seq], seq - 1) for seq in range(1, 61)]
        assert {type(outcome) for outcome in outcomes[1::3]} == {Conflict}
        assert {type(outcome) for outcome in outcomes[2::3]} == {NotFound}
        assert await harness.read_seqs() == list(range(61))


async def cancelled_append(make_store: StoreFactory) -> None:
    """An append whose caller stops waiting is stored: readers get it, and a retry returns its seq."""
    async with open_harness(make_store) as harness:
        follower = asyncio.create_task(harness.follow_until(30))
        for number in range(30):
            waiting = asyncio.create_task(harness.append(durable_event(str(number))))
            await asyncio.sleep(0)
            waiting.cancel()
        await harness.append(durable_event("last"))
        assert await harness.read_seqs() == [row.seq for row in await follower] == list(range(31))
        assert await harness.append(durable_event("7")) == [7]


async def duplicate_returns_old_seq(make_store: StoreFactory) -> None:
    """An event with a known id and the same body returns its old seq and adds nothing."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b", "c"))
        assert await harness.append(durable_event("b")) == [1]
        assert await harness.append(*durable_events("c", "a")) == [2, 0]
        assert (await harness.info()).last == 2


async def duplicates_mixed_with_new(make_store: StoreFactory) -> None:
    """In a batch known events return their old seqs, and new ones are appended in order."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b", "c"))
        assert await harness.append(*durable_events("x", "b", "y", "a")) == [3, 1, 4, 0]
        assert await harness.read_seqs() == [0, 1, 2, 3, 4]


async def dedupe_body(make_store: StoreFactory) -> None:
    """The body is type, payload and agent; origin, trace, depth and time may differ in a retry."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b"))
        harness.now_ms += 5000
        same = Scope(trace_id="tr_2", agent_id="agt_1", agent_name="Bob", depth=2)
        assert await harness.append(durable_event("a", scope=same)) == [0]
        others = [
            durable_event("a", "another text"),
            durable_event("a", scope=Scope(trace_id="tr_1", agent_id="agt_2", agent_name="Ada", depth=1)),
            make_event(UiMessage(text="a"), "a"),
        ]
        for other in others:
            assert await expect_conflict(harness.append(other)) == 1
        assert await harness.read_seqs() == [0, 1]


async def duplicate_id_in_batch(make_store: StoreFactory) -> None:
    """An id that occurs twice in one append is a conflict, even with equal bodies."""
    async with open_harness(make_store) as harness:
        await expect_raises(Conflict, harness.append(*durable_events("a", "a")))
        assert await harness.read_seqs() == []


async def expected_last(make_store: StoreFactory) -> None:
    """An append with another `expected_last` writes nothing; its conflict has the real last seq."""
    async with open_harness(make_store) as harness:
        assert await harness.append(durable_event("a"), expected_last=-1) == [0]
        assert await harness.append(*durable_events("b", "c"), expected_last=0) == [1, 2]
        for wrong in (-1, 0, 1, 3, 99):
            assert await expect_conflict(harness.append(durable_event("x"), expected_last=wrong)) == 2
        assert await harness.append(durable_event("x"), expected_last=2) == [3]


async def expected_last_on_retry(make_store: StoreFactory) -> None:
    """A retry of stored events ignores `expected_last`; one with a new event does not."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b"), expected_last=-1)
        await harness.append(durable_event("c"))
        assert await harness.append(*durable_events("a", "b"), expected_last=-1) == [0, 1]
        assert await expect_conflict(harness.append(*durable_events("b", "x"), expected_last=-1)) == 2
        assert await harness.append(*durable_events("b", "x"), expected_last=2) == [1, 3]


async def expected_durable_count(make_store: StoreFactory) -> None:
    """An append with another `expected_durable_count` is refused; live events do not count."""
    async with open_harness(make_store) as harness:
        assert await harness.append(durable_event("a"), expected_durable_count=0) == [0]
        await harness.append(block_start_event("x"), block_delta_event("x"), block_delta_event("x", 1))
        for wrong in (0, 1, 3, 4):
            conflict = await expect_conflict(harness.append(durable_event("y"), expected_durable_count=wrong))
            assert conflict == 3
        assert await harness.append(durable_event("y"), expected_durable_count=2) == [4]
        assert await harness.append(durable_event("y"), expected_durable_count=2) == [4]  # a retry


async def stale_fence_is_rejected(make_store: StoreFactory) -> None:
    """The store refuses a fence below the highest one so far and accepts an equal or higher one."""
    async with open_harness(make_store) as harness:
        assert await harness.append(durable_event("a"), fence=0) == [0]
        assert await harness.append(durable_event("b"), fence=7) == [1]
        await expect_raises(Fenced, harness.append(durable_event("c"), fence=6))
        assert await harness.append(durable_event("c"), fence=7) == [2]
        assert await harness.append(durable_event("d"), fence=9) == [3]
        await expect_raises(Fenced, harness.append(durable_event("e"), fence=8))
        assert await harness.append(durable_event("a"), fence=1) == [0]
        assert await harness.read_seqs() == [0, 1, 2, 3]


async def fence_rises_without_new_events(make_store: StoreFactory) -> None:
    """A higher fence counts even if its append adds no event: then an old writer is refused."""
    async with open_harness(make_store) as harness:
        await harness.append(durable_event("a"), fence=1)
        assert await harness.append(durable_event("a"), fence=2) == [0]
        await expect_raises(Fenced, harness.append(durable_event("b"), fence=1))
        assert await harness.append(fence=3) == []
        await expect_raises(Fenced, harness.append(durable_event("b"), fence=2))
        assert await harness.append(durable_event("b"), fence=3) == [1]
        assert (await harness.info()).fence == 3


async def new_events_are_named(make_store: StoreFactory) -> None:
    """An append says which of its events were new; a retry has none."""
    async with open_harness(make_store) as harness:
        log = harness.log
        assert (await log.append(harness.session, durable_events("a", "b"))).new == [True, True]
        assert (await log.append(harness.session, durable_events("a", "b"))).new == [False, False]
        mixed = await log.append(harness.session, durable_events("b", "c", "a", "d"))
        assert (mixed.seqs, mixed.new) == ([1, 2, 0, 3], [False, True, False, True])
        assert (await log.append(harness.session, [])).new == []


async def repeated_key(make_store: StoreFactory) -> None:
    """An append whose key is stored adds nothing, whatever its other events are and wherever the log ends."""
    async with open_harness(make_store) as harness:
        log = harness.log
        key = durable_event("b").id
        first = await log.append(harness.session, durable_events("a", "b"), key=key)
        assert (first.seqs, first.new) == ([0, 1], [True, True])
        repeated = await log.append(
            harness.session, durable_events("c", "b", "d"), key=key, expected_durable_count=7
        )
        assert (repeated.seqs, repeated.new) == ([-1, 1, -1], [False, False, False])
        assert await harness.read_seqs() == [0, 1]
        assert await harness.append(durable_event("c")) == [2]
