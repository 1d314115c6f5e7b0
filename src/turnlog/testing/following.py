"""What a store promises about reading and following."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from turnlog.log import Log, Page, Row
from turnlog.log.filter import type_matches
from turnlog.log.subscription import MAX_PAGE_BYTES, FollowOptions
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    tool_call_event,
)
from turnlog.testing.harness import LogHarness, StoreFactory, open_follower, open_harness


async def page_size_limits(make: StoreFactory) -> None:
    """A page is in order, never empty while there is more, and at most one event larger than asked."""
    async with open_harness(make) as b:
        await b.append(*[durable_event(str(number), "z" * (number % 40) * 100) for number in range(400)])
        largest = max(len(row.frame) for row in await b.read_rows())
        for limit in (0, 1, 1000, 50_000, 1 << 30):
            found: list[int] = []
            while page := await b.log.read(b.session, len(found) - 1, max_bytes=limit):
                assert sum(len(row.frame) for row in page) <= limit + largest
                found += [row.seq for row in page]
            assert found == list(range(400))
        assert [row.seq for row in await b.follow_until(399, max_bytes=0)] == list(range(400))
        async for data in read_until_idle(b.log.follow_frames(b.session, idle_s=0.01)):
            assert len(data) < MAX_PAGE_BYTES + 2 * largest + data.count(b"\nid: ") * 40


async def follow_from_any_cursor(make: StoreFactory) -> None:
    """A follower gets what is after its cursor, then what comes, each event once, in order."""
    async with open_harness(make) as b:
        await b.append(*durable_events(*range(10)))
        followers = [asyncio.create_task(b.follow_until(19, after)) for after in range(-1, 12)]
        await asyncio.gather(*[b.append(durable_event(str(number))) for number in range(10, 20)])
        for after, follower in zip(range(-1, 12), followers, strict=True):
            assert [row.seq for row in await follower] == list(range(after + 1, 20))


async def replay_live_handover(make: StoreFactory) -> None:
    """Joining while others append: nothing is missed between history and live, and nothing comes twice."""
    async with open_harness(make) as b:
        followers: dict[asyncio.Task[list[Row]], int] = {}
        for number in range(150):
            b.log.submit(b.session, [durable_event(str(number))])
            if number % 3 == 0:
                after = -1 if number % 2 else max(-1, number - 20)
                followers[asyncio.create_task(b.follow_until(149, after))] = after
            if number % 5 == 0:
                await b.log.info(b.session)
        for follower, after in followers.items():
            assert [row.seq for row in await follower] == list(range(after + 1, 150))


async def slow_follower(make: StoreFactory) -> None:
    """A follower that takes a page only now and then gets everything all the same."""
    async with open_harness(make) as b, open_follower(b.log, b.session) as pages:
        found: list[int] = []
        for burst in range(4):
            await b.append(*durable_events(*range(burst * 400, burst * 400 + 400)))
            found += [row.seq for row in await anext(pages)]
        while len(found) < 1600:
            found += [row.seq for row in await anext(pages)]
        assert found == list(range(1600))


async def idle_follower(make: StoreFactory) -> None:
    """A follower that asked for it gets an empty page in the silence, and loses nothing by it."""
    async with open_harness(make) as b, open_follower(b.log, b.session, idle_s=0.01) as pages:
        assert not await anext(pages)
        await b.append(durable_event("a"))
        assert [row.seq for row in await anext(pages)] == [0]
        assert not await anext(pages)


async def wakeups_are_per_session(make: StoreFactory) -> None:
    """An append wakes the followers of its own session, once, and nobody else."""
    async with open_harness(make) as b, open_follower(b.log, b.session) as busy:
        other = await b.log.create("contract")
        idle = asyncio.create_task(read_first_page(b.log, other))
        while other not in b.log.tails:
            await b.log.info(other)
        await b.append(durable_event("a"))
        await anext(busy)
        before = {session: b.log.tails[session].wakeup.count for session in (other, b.session)}
        for number in range(20):
            await b.append(*durable_events(f"{number}-1", f"{number}-2"))
            assert len(await anext(busy)) == 2
        woken = {session: b.log.tails[session].wakeup.count - count for session, count in before.items()}
        assert woken == {other: 0, b.session: 20}
        await b.append(durable_event("b"), session=other)
        assert [row.seq for row in await idle] == [0]


async def frames_match_pages(make: StoreFactory) -> None:
    """What is sent is what is followed, from any cursor, with live events left out or not, then live."""
    async with open_harness(make) as b:
        await b.append(
            *durable_events(*range(3)),
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
        for after in range(-1, 8):
            for origin in (None, after):
                pages, data = b.log.follow(b.session, after, replay_from=origin, idle_s=0.01), b""
                async for page in pages:
                    if not page:
                        break
                    data += page.frames().data
                await pages.aclose()
                frames = b.log.follow_frames(b.session, after, replay_from=origin, idle_s=0.01)
                assert b"".join([part async for part in read_until_idle(frames)]) == data
        frames = b.log.follow_frames(b.session, 7)
        await b.append(durable_event("live"))
        assert b"evt_live" in await anext(frames)
        await frames.aclose()


async def read_until_idle(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """What is sent until there is a silence."""
    async for data in frames:
        if not data:
            break
        yield data
    await frames.aclose()


async def follow_requested_epoch(make: StoreFactory) -> None:
    """A follower that asks for an epoch gets its events, and nothing of another one."""
    async with open_harness(make) as b:
        await b.append(*durable_events(*range(3)))
        epoch = (await b.log.info(b.session)).epoch
        assert [row.seq for row in await b.follow_until(2, epoch=epoch)] == [0, 1, 2]
        async with open_follower(b.log, b.session, epoch="another") as pages:
            assert [page async for page in pages] == []


async def read_first_page(log: Log, session: str) -> Page:
    """The first page a follower gets."""
    async with open_follower(log, session) as pages:
        return await anext(pages)


async def follow_some_types(make: StoreFactory) -> None:
    """A follower of some types gets their rows, and no others, of what was before; its pages say how far."""
    async with open_harness(make) as b:
        for number in range(200):
            await b.append(
                tool_call_event(f"c{number}"),
                durable_event(f"n{number}"),
                block_start_event(f"b{number}"),
                block_delta_event(f"b{number}", number),
            )
        every = await b.read_rows()
        for types in (("tool",), ("tool.call",), ("assistant", "block.start"), ("tool.c",), ("block",)):
            wanted = [row for row in every if any(type_matches(row.type, one) for one in types)]
            for max_bytes in (1, 5_000, 1 << 20):
                found, reached = await read_types_to_end(b, types, max_bytes)
                assert (found, reached) == (wanted, every[-1].seq)


async def read_types_to_end(b: LogHarness, types: tuple[str, ...], max_bytes: int) -> tuple[list[Row], int]:
    """The rows of some types, and how far a follower of them has come."""
    found: list[Row] = []
    last = (await b.log.info(b.session)).last
    async with open_follower(b.log, b.session, max_bytes=max_bytes, options=FollowOptions(types)) as pages:
        async for page in pages:
            found += [row for row in page if any(type_matches(row.type, one) for one in types)]
            reached = page.last if page.upto is None else page.upto
            if reached >= last:
                return found, reached
    raise AssertionError("a follower ended")


async def follow_some_types_live(make: StoreFactory) -> None:
    """A follower of some types gets what is appended, as every follower does."""
    async with open_harness(make) as b:
        await b.append(*durable_events(*range(300)))
        async with open_follower(b.log, b.session, options=FollowOptions(("tool.call",))) as pages:
            while (await anext(pages)).upto != 299:
                pass
            await b.append(durable_event("x"), tool_call_event("c"))
            assert [row.type for row in await anext(pages)] == ["assistant.message", "tool.call"]
