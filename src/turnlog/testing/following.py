"""Contracts of a store: reading and following."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from turnlog.log import Log, Page, Row
from turnlog.log.filter import matches_any_type
from turnlog.log.subscription import MAX_PAGE_BYTES, FollowOptions
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    tool_call_event,
)
from turnlog.testing.harness import LogHarness, StoreFactory, next_seqs, open_follower, open_harness


async def page_size_limits(make_store: StoreFactory) -> None:
    """A page is in order, exceeds its limit by at most one event and is empty only at the end."""
    async with open_harness(make_store) as harness:
        await harness.append(
            *[durable_event(str(number), "z" * (number % 40) * 100) for number in range(400)]
        )
        largest = max(len(row.frame) for row in await harness.read_rows())
        for limit in (0, 1, 1000, 50_000, 1 << 30):
            seqs: list[int] = []
            while page := await harness.log.read(harness.session, len(seqs) - 1, max_bytes=limit):
                assert sum(len(row.frame) for row in page) <= limit + largest
                seqs += [row.seq for row in page]
            assert seqs == list(range(400))
        assert [row.seq for row in await harness.follow_until(399, max_bytes=0)] == list(range(400))
        async for data in read_until_idle(harness.log.follow_frames(harness.session, idle_s=0.01)):
            assert len(data) < MAX_PAGE_BYTES + 2 * largest + data.count(b"\nid: ") * 40


async def follow_from_any_cursor(make_store: StoreFactory) -> None:
    """A follower gets the events after its cursor, then new ones, each once and in order."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events(*range(10)))
        followers = [asyncio.create_task(harness.follow_until(19, after)) for after in range(-1, 12)]
        await asyncio.gather(*[harness.append(durable_event(str(number))) for number in range(10, 20)])
        for after, follower in zip(range(-1, 12), followers, strict=True):
            assert [row.seq for row in await follower] == list(range(after + 1, 20))


async def replay_live_handover(make_store: StoreFactory) -> None:
    """A follower that joins during appends gets every event once, history and new ones."""
    async with open_harness(make_store) as harness:
        followers: dict[asyncio.Task[list[Row]], int] = {}
        for number in range(150):
            harness.log.submit(harness.session, [durable_event(str(number))])
            if number % 3 == 0:
                after = -1 if number % 2 else max(-1, number - 20)
                followers[asyncio.create_task(harness.follow_until(149, after))] = after
            if number % 5 == 0:
                await harness.info()
        for follower, after in followers.items():
            assert [row.seq for row in await follower] == list(range(after + 1, 150))


async def slow_follower(make_store: StoreFactory) -> None:
    """A follower that takes a page only now and then gets every event."""
    async with open_harness(make_store) as harness, open_follower(harness.log, harness.session) as pages:
        seqs: list[int] = []
        for burst in range(4):
            await harness.append(*durable_events(*range(burst * 400, burst * 400 + 400)))
            seqs += await next_seqs(pages)
        while len(seqs) < 1600:
            seqs += await next_seqs(pages)
        assert seqs == list(range(1600))


async def idle_follower(make_store: StoreFactory) -> None:
    """A follower with `idle_s` gets an empty page after that time, and loses no event."""
    async with (
        open_harness(make_store) as harness,
        open_follower(harness.log, harness.session, idle_s=0.01) as pages,
    ):
        assert not await anext(pages)
        await harness.append(durable_event("a"))
        assert await next_seqs(pages) == [0]
        assert not await anext(pages)


async def wakeups_are_per_session(make_store: StoreFactory) -> None:
    """An append wakes the followers of its own session once, and no other follower."""
    async with open_harness(make_store) as harness, open_follower(harness.log, harness.session) as busy:
        other = await harness.log.create("contract")
        idle = asyncio.create_task(read_first_page(harness.log, other))
        while other not in harness.log.tails:
            await harness.log.info(other)
        await harness.append(durable_event("a"))
        await anext(busy)
        before = {session: harness.log.tails[session].wakeup.count for session in (other, harness.session)}
        for number in range(20):
            await harness.append(*durable_events(f"{number}-1", f"{number}-2"))
            assert len(await anext(busy)) == 2
        woken = {
            session: harness.log.tails[session].wakeup.count - count for session, count in before.items()
        }
        assert woken == {other: 0, harness.session: 20}
        await harness.append(durable_event("b"), session=other)
        assert [row.seq for row in await idle] == [0]


async def frames_match_pages(make_store: StoreFactory) -> None:
    """Frames have the same bytes as pages, from any cursor, with and without replay, then live."""
    async with open_harness(make_store) as harness:
        await harness.append(
            *durable_events(*range(3)),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
        for after in range(-1, 8):
            for origin in (None, after):
                pages, data = harness.log.follow(harness.session, after, replay_from=origin, idle_s=0.01), b""
                async for page in pages:
                    if not page:
                        break
                    data += page.frames().data
                await pages.aclose()
                frames = harness.log.follow_frames(harness.session, after, replay_from=origin, idle_s=0.01)
                assert b"".join([part async for part in read_until_idle(frames)]) == data
        frames = harness.log.follow_frames(harness.session, 7)
        await harness.append(durable_event("live"))
        assert b"evt_live" in await anext(frames)
        await frames.aclose()


async def read_until_idle(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async for data in frames:
        if not data:
            break
        yield data
    await frames.aclose()


async def follow_requested_epoch(make_store: StoreFactory) -> None:
    """A follower that names an epoch gets its events, and none of another epoch."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events(*range(3)))
        epoch = (await harness.info()).epoch
        assert [row.seq for row in await harness.follow_until(2, epoch=epoch)] == [0, 1, 2]
        async with open_follower(harness.log, harness.session, epoch="another") as pages:
            assert [page async for page in pages] == []


async def read_first_page(log: Log, session: str) -> Page:
    async with open_follower(log, session) as pages:
        return await anext(pages)


async def follow_some_types(make_store: StoreFactory) -> None:
    """A follower of some types gets a history of their rows only; pages have the seq they reach."""
    async with open_harness(make_store) as harness:
        for number in range(200):
            await harness.append(
                tool_call_event(f"c{number}"),
                durable_event(f"n{number}"),
                block_start_event(f"b{number}"),
                block_delta_event(f"b{number}", number),
            )
        rows = await harness.read_rows()
        for types in (("tool",), ("tool.call",), ("assistant", "block.start"), ("tool.c",), ("block",)):
            expected = [row for row in rows if matches_any_type(row.type, types)]
            for max_bytes in (1, 5_000, 1 << 20):
                matching, reached = await read_types_to_end(harness, types, max_bytes)
                assert matching == expected
                assert reached == rows[-1].seq


async def read_types_to_end(
    harness: LogHarness, types: tuple[str, ...], max_bytes: int
) -> tuple[list[Row], int]:
    """Return the rows of some types, and the seq that a follower of them has reached."""
    matching: list[Row] = []
    last = (await harness.info()).last
    async with open_follower(
        harness.log, harness.session, max_bytes=max_bytes, options=FollowOptions(types)
    ) as pages:
        async for page in pages:
            matching += [row for row in page if matches_any_type(row.type, types)]
            reached = page.last if page.upto is None else page.upto
            if reached >= last:
                return matching, reached
    raise AssertionError("a follower ended")


async def follow_some_types_live(make_store: StoreFactory) -> None:
    """A follower of some types gets all new events, like every follower."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events(*range(300)))
        async with open_follower(
            harness.log, harness.session, options=FollowOptions(("tool.call",))
        ) as pages:
            while (await anext(pages)).upto != 299:
                pass
            await harness.append(durable_event("x"), tool_call_event("c"))
            assert [row.type for row in await anext(pages)] == ["assistant.message", "tool.call"]


async def info_of_followed_session(make_store: StoreFactory) -> None:
    """The record of a followed session is that of the last acknowledged change, whatever changed it."""
    async with open_harness(make_store) as harness:
        async with open_follower(harness.log, harness.session, idle_s=0.01) as pages:
            assert await next_seqs(pages) == []
            for number in range(10):
                await harness.append(durable_event(str(number)))
                assert (await harness.info()).last == number
            lease = await harness.log.leases.claim(harness.session, "one")
            assert lease is not None
            assert (await harness.info()).fence == lease.fence
            harness.now_ms += 1
            await harness.append(block_start_event("x"), block_delta_event("x"), block_end_event("x"))
            assert await harness.prune(harness.now_ms + 1) == 1
            assert (await harness.info()).pruned_through == 11
            await harness.close_session()
            assert (await harness.info()).closed
        assert (await harness.info()).closed
