"""What a store promises about appending."""

import asyncio

from turnlog.errors import Conflict, Fenced, NotFound
from turnlog.events import Scope, UiMessage, decode_envelope, encode_envelope
from turnlog.log import envelope_json
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    make_event,
)
from turnlog.testing.harness import StoreFactory, expect_raises, open_harness


async def dense_seqs(make: StoreFactory) -> None:
    """Seqs are dense from 0, in the order of the appends and inside each; ids are kept."""
    async with open_harness(make) as b:
        assert await b.append(durable_event("a")) == [0]
        assert await b.append(*durable_events("b", "c", "d")) == [1, 2, 3]
        assert await b.append() == []
        assert await b.append(durable_event("e")) == [4]
        envelopes = [decode_envelope(envelope_json(row)) for row in await b.read_rows()]
        assert [envelope.seq for envelope in envelopes] == [0, 1, 2, 3, 4]
        assert [envelope.id for envelope in envelopes] == ["evt_a", "evt_b", "evt_c", "evt_d", "evt_e"]


async def visible_when_acknowledged(make: StoreFactory) -> None:
    """What is acknowledged is there for whoever asks next, by every way of asking."""
    async with open_harness(make) as b:
        for last in range(20):
            assert await b.append(durable_event(str(last))) == [last]
            assert (await b.log.info(b.session)).last == last
            assert (await b.read_seqs(last - 1), await b.log.has_event(b.session, last)) == ([last], True)
            assert [row.seq for row in await b.follow_until(last)] == list(range(last + 1))


async def frames_are_byte_exact(make: StoreFactory) -> None:
    """A row is one `data:` frame of the stamped envelope: the same bytes for every reader, for any text."""
    async with open_harness(make) as b:
        texts = ["plain", 'quote " \\ </script>', "\u2028\u2029\x85", "\x00\x1f\x7f", "𝄞é", "z" * 300_000]
        events = [durable_event(str(number), text) for number, text in enumerate(texts)]
        follower = asyncio.create_task(b.follow_until(len(texts) - 1))
        await b.append(*events)
        lines = [
            encode_envelope(event, session_id=b.session, seq=n, ts_ms=b.now_ms)
            for n, event in enumerate(events)
        ]
        wanted = [b"data: " + line + b"\n\n" for line in lines]
        assert [row.frame for row in await b.read_rows()] == wanted
        assert [row.frame for row in await follower] == wanted


async def row_metadata(make: StoreFactory) -> None:
    """Beside a frame stand its type, depth and trace, whether it is live, and its rank among durable ones."""
    async with open_harness(make) as b:
        await b.append(
            durable_event("a", scope=Scope()),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
        )
        rows = await b.read_rows()
        assert [row.type for row in rows] == ["assistant.message", "block.start", "block.delta", "block.end"]
        assert [row.live for row in rows] == [False, False, True, False]
        assert [row.durable_count for row in rows] == [1, 2, 2, 3]
        assert [row.depth for row in rows] == [0, 1, 1, 1]
        assert [row.trace for row in rows] == [None, "tr_1", "tr_1", "tr_1"]


async def batch_is_atomic(make: StoreFactory) -> None:
    """A batch that is refused leaves nothing of itself, wherever in it the fault is."""
    async with open_harness(make) as b:
        await b.append(durable_event("a"))
        for place in range(3):
            batch = durable_events("x", "y")
            batch.insert(place, durable_event("a", "another text"))
            assert (await expect_raises(Conflict, b.append(*batch))).last == 0
        assert await b.read_seqs() == [0]
        assert await b.append(*durable_events("x", "y")) == [1, 2]


async def batch_isolation(make: StoreFactory) -> None:
    """Appends that wait together are independent: one that is refused takes no other with it."""
    async with open_harness(make) as b:
        await b.append(durable_event("a"))
        jobs = []
        for number in range(60):
            jobs.append(b.log.submit(b.session, [durable_event(f"good-{number}")]))
            jobs.append(b.log.submit(b.session, [durable_event("a", "another text")]))
            jobs.append(b.log.submit("sess_unknown", [durable_event("a")]))
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert outcomes[0::3] == [[seq] for seq in range(1, 61)]
        assert {type(outcome) for outcome in outcomes[1::3]} == {Conflict}
        assert {type(outcome) for outcome in outcomes[2::3]} == {NotFound}
        assert await b.read_seqs() == list(range(61))


async def cancelled_append(make: StoreFactory) -> None:
    """Whoever stops waiting for an append changes nothing about it: readers get it, a retry gets its seq."""
    async with open_harness(make) as b:
        follower = asyncio.create_task(b.follow_until(30))
        for number in range(30):
            waiting = asyncio.create_task(b.append(durable_event(str(number))))
            await asyncio.sleep(0)
            waiting.cancel()
        await b.append(durable_event("last"))
        assert await b.read_seqs() == [row.seq for row in await follower] == list(range(31))
        assert await b.append(durable_event("7")) == [7]


async def duplicate_returns_old_seq(make: StoreFactory) -> None:
    """The same id with the same body returns the old seq and adds nothing."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b", "c"))
        assert await b.append(durable_event("b")) == [1]
        assert await b.append(*durable_events("c", "a")) == [2, 0]
        assert (await b.log.info(b.session)).last == 2


async def duplicates_mixed_with_new(make: StoreFactory) -> None:
    """In a batch the known events return their old seqs, the new ones follow the log, in order."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b", "c"))
        assert await b.append(*durable_events("x", "b", "y", "a")) == [3, 1, 4, 0]
        assert await b.read_seqs() == [0, 1, 2, 3, 4]


async def dedupe_body(make: StoreFactory) -> None:
    """Type, payload and agent are the body; origin, trace, depth and time do not count."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b"))
        b.now_ms += 5000
        same = Scope(trace_id="tr_2", agent_id="agt_1", agent_name="Bob", depth=2)
        assert await b.append(durable_event("a", scope=same)) == [0]
        others = [
            durable_event("a", "another text"),
            durable_event("a", scope=Scope(trace_id="tr_1", agent_id="agt_2", agent_name="Ada", depth=1)),
            make_event(UiMessage(text="a"), "a"),
        ]
        for other in others:
            assert (await expect_raises(Conflict, b.append(other))).last == 1
        assert await b.read_seqs() == [0, 1]


async def duplicate_id_in_batch(make: StoreFactory) -> None:
    """An id that stands twice in one append is a conflict, whatever the bodies."""
    async with open_harness(make) as b:
        await expect_raises(Conflict, b.append(*durable_events("a", "a")))
        assert await b.read_seqs() == []


async def expected_last(make: StoreFactory) -> None:
    """An append that expects another last seq is a conflict that names the real one, and writes nothing."""
    async with open_harness(make) as b:
        assert await b.append(durable_event("a"), expected_last=-1) == [0]
        assert await b.append(*durable_events("b", "c"), expected_last=0) == [1, 2]
        for wrong in (-1, 0, 1, 3, 99):
            assert (
                await expect_raises(Conflict, b.append(durable_event("x"), expected_last=wrong))
            ).last == 2
        assert await b.append(durable_event("x"), expected_last=2) == [3]


async def expected_last_on_retry(make: StoreFactory) -> None:
    """A retry of an acknowledged append returns its seqs; with anything new in it, the expectation counts."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b"), expected_last=-1)
        await b.append(durable_event("c"))
        assert await b.append(*durable_events("a", "b"), expected_last=-1) == [0, 1]
        assert (
            await expect_raises(Conflict, b.append(*durable_events("b", "x"), expected_last=-1))
        ).last == 2
        assert await b.append(*durable_events("b", "x"), expected_last=2) == [1, 3]


async def expected_durable_count(make: StoreFactory) -> None:
    """An append with the number of durable events it expects is refused at another; live ones are free."""
    async with open_harness(make) as b:
        assert await b.append(durable_event("a"), expected_durable_count=0) == [0]
        await b.append(block_start_event("x"), block_delta_event("x"), block_delta_event("x", 1))
        for wrong in (0, 1, 3, 4):
            assert (
                await expect_raises(Conflict, b.append(durable_event("y"), expected_durable_count=wrong))
            ).last == 3
        assert await b.append(durable_event("y"), expected_durable_count=2) == [4]
        assert await b.append(durable_event("y"), expected_durable_count=2) == [4]  # again: it is there


async def stale_fence_is_rejected(make: StoreFactory) -> None:
    """A fence below the highest one seen is refused and writes nothing; an equal or higher one is taken."""
    async with open_harness(make) as b:
        assert await b.append(durable_event("a"), fence=0) == [0]
        assert await b.append(durable_event("b"), fence=7) == [1]
        await expect_raises(Fenced, b.append(durable_event("c"), fence=6))
        assert await b.append(durable_event("c"), fence=7) == [2]
        assert await b.append(durable_event("d"), fence=9) == [3]
        await expect_raises(Fenced, b.append(durable_event("e"), fence=8))
        assert await b.append(durable_event("a"), fence=1) == [0]
        assert await b.read_seqs() == [0, 1, 2, 3]


async def fence_rises_without_new_events(make: StoreFactory) -> None:
    """A higher fence counts though all that came with it was known, or nothing came: an old writer is out."""
    async with open_harness(make) as b:
        await b.append(durable_event("a"), fence=1)
        assert await b.append(durable_event("a"), fence=2) == [0]
        await expect_raises(Fenced, b.append(durable_event("b"), fence=1))
        assert await b.append(fence=3) == []
        await expect_raises(Fenced, b.append(durable_event("b"), fence=2))
        assert (await b.append(durable_event("b"), fence=3), (await b.log.info(b.session)).fence) == ([1], 3)
