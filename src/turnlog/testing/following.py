"""What a store promises about reading and following."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from turnlog.log import Log, Page, Row
from turnlog.log.filter import is_a
from turnlog.log.subscription import PAGE_BYTES, Asked
from turnlog.testing.factories import began, called, delta, note, notes, over
from turnlog.testing.harness import Bench, Make, bench, following


async def pages(make: Make) -> None:
    """A page is in order, never empty while there is more, and at most one event larger than asked."""
    async with bench(make) as b:
        await b.add(*[note(str(number), "z" * (number % 40) * 100) for number in range(400)])
        largest = max(len(row.frame) for row in await b.rows())
        for limit in (0, 1, 1000, 50_000, 1 << 30):
            found: list[int] = []
            while page := await b.log.read(b.session, len(found) - 1, max_bytes=limit):
                assert sum(len(row.frame) for row in page) <= limit + largest
                found += [row.seq for row in page]
            assert found == list(range(400))
        assert [row.seq for row in await b.followed(399, max_bytes=0)] == list(range(400))
        async for data in until_silent(b.log.frames(b.session, idle_s=0.01)):
            assert len(data) < PAGE_BYTES + 2 * largest + data.count(b"\nid: ") * 40


async def follow_from_anywhere(make: Make) -> None:
    """A follower gets what is after its cursor, then what comes, each event once, in order."""
    async with bench(make) as b:
        await b.add(*notes(*range(10)))
        followers = [asyncio.create_task(b.followed(19, after)) for after in range(-1, 12)]
        await asyncio.gather(*[b.add(note(str(number))) for number in range(10, 20)])
        for after, follower in zip(range(-1, 12), followers, strict=True):
            assert [row.seq for row in await follower] == list(range(after + 1, 20))


async def no_seam(make: Make) -> None:
    """Joining while others append: nothing is missed between history and live, and nothing comes twice."""
    async with bench(make) as b:
        followers: dict[asyncio.Task[list[Row]], int] = {}
        for number in range(150):
            b.log.submit(b.session, [note(str(number))])
            if number % 3 == 0:
                after = -1 if number % 2 else max(-1, number - 20)
                followers[asyncio.create_task(b.followed(149, after))] = after
            if number % 5 == 0:
                await b.log.info(b.session)
        for follower, after in followers.items():
            assert [row.seq for row in await follower] == list(range(after + 1, 150))


async def slow_follower(make: Make) -> None:
    """A follower that takes a page only now and then gets everything all the same."""
    async with bench(make) as b, following(b.log, b.session) as pages:
        found: list[int] = []
        for burst in range(4):
            await b.add(*notes(*range(burst * 400, burst * 400 + 400)))
            found += [row.seq for row in await anext(pages)]
        while len(found) < 1600:
            found += [row.seq for row in await anext(pages)]
        assert found == list(range(1600))


async def idle_follower(make: Make) -> None:
    """A follower that asked for it gets an empty page in the silence, and loses nothing by it."""
    async with bench(make) as b, following(b.log, b.session, idle_s=0.01) as pages:
        assert not await anext(pages)
        await b.add(note("a"))
        assert [row.seq for row in await anext(pages)] == [0]
        assert not await anext(pages)


async def own_wake_ups(make: Make) -> None:
    """An append wakes the followers of its own session, once, and nobody else."""
    async with bench(make) as b, following(b.log, b.session) as busy:
        other = await b.log.create("contract")
        idle = asyncio.create_task(first_page(b.log, other))
        while other not in b.log.tails:
            await b.log.info(other)
        await b.add(note("a"))
        await anext(busy)
        before = {session: b.log.tails[session].wakeup.count for session in (other, b.session)}
        for number in range(20):
            await b.add(*notes(f"{number}-1", f"{number}-2"))
            assert len(await anext(busy)) == 2
        woken = {session: b.log.tails[session].wakeup.count - count for session, count in before.items()}
        assert woken == {other: 0, b.session: 20}
        await b.add(note("b"), session=other)
        assert [row.seq for row in await idle] == [0]


async def frames_alike(make: Make) -> None:
    """What is sent is what is followed, from any cursor, with live events left out or not, then live."""
    async with bench(make) as b:
        await b.add(*notes(*range(3)), began("x"), delta("x"), over("x"), began("y"), delta("y"))
        for after in range(-1, 8):
            for origin in (None, after):
                pages, data = b.log.follow(b.session, after, origin=origin, idle_s=0.01), b""
                async for page in pages:
                    if not page:
                        break
                    data += page.ready().data
                await pages.aclose()
                frames = b.log.frames(b.session, after, origin=origin, idle_s=0.01)
                assert b"".join([part async for part in until_silent(frames)]) == data
        frames = b.log.frames(b.session, 7)
        await b.add(note("live"))
        assert b"evt_live" in await anext(frames)
        await frames.aclose()


async def until_silent(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """What is sent until there is a silence."""
    async for data in frames:
        if not data:
            break
        yield data
    await frames.aclose()


async def epoch_asked_for(make: Make) -> None:
    """A follower that asks for an epoch gets its events, and nothing of another one."""
    async with bench(make) as b:
        await b.add(*notes(*range(3)))
        epoch = (await b.log.info(b.session)).epoch
        assert [row.seq for row in await b.followed(2, epoch=epoch)] == [0, 1, 2]
        async with following(b.log, b.session, epoch="another") as pages:
            assert [page async for page in pages] == []


async def first_page(log: Log, session: str) -> Page:
    """The first page a follower gets."""
    async with following(log, session) as pages:
        return await anext(pages)


async def some_types(make: Make) -> None:
    """A follower of some types gets their rows, and no others, of what was before; its pages say how far."""
    async with bench(make) as b:
        for number in range(200):
            await b.add(
                called(f"c{number}"), note(f"n{number}"), began(f"b{number}"), delta(f"b{number}", number)
            )
        every = await b.rows()
        for types in (("tool",), ("tool.call",), ("assistant", "block.start"), ("tool.c",), ("block",)):
            wanted = [row for row in every if any(is_a(row.type, one) for one in types)]
            for max_bytes in (1, 5_000, 1 << 20):
                found, reached = await of_types(b, types, max_bytes)
                assert (found, reached) == (wanted, every[-1].seq)


async def of_types(b: Bench, types: tuple[str, ...], max_bytes: int) -> tuple[list[Row], int]:
    """The rows of some types, and how far a follower of them has come."""
    found: list[Row] = []
    last = (await b.log.info(b.session)).last
    async with following(b.log, b.session, max_bytes=max_bytes, asked=Asked(types)) as pages:
        async for page in pages:
            found += [row for row in page if any(is_a(row.type, one) for one in types)]
            reached = page.last if page.upto is None else page.upto
            if reached >= last:
                return found, reached
    raise AssertionError("a follower ended")


async def types_that_come_later(make: Make) -> None:
    """A follower of some types gets what is appended, as every follower does."""
    async with bench(make) as b:
        await b.add(*notes(*range(300)))
        async with following(b.log, b.session, asked=Asked(("tool.call",))) as pages:
            while (await anext(pages)).upto != 299:
                pass
            await b.add(note("x"), called("c"))
            assert [row.type for row in await anext(pages)] == ["assistant.message", "tool.call"]
