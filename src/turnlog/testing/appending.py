"""What a store promises about appending."""

import asyncio

from turnlog.errors import Conflict, Fenced, NotFound
from turnlog.events import Scope, UiMessage, decode, stamp
from turnlog.log import line_of
from turnlog.testing.factories import began, delta, event, note, notes, over
from turnlog.testing.harness import Make, bench, refused


async def dense_seqs(make: Make) -> None:
    """Seqs are dense from 0, in the order of the appends and inside each; ids are kept."""
    async with bench(make) as b:
        assert await b.add(note("a")) == [0]
        assert await b.add(*notes("b", "c", "d")) == [1, 2, 3]
        assert await b.add() == []
        assert await b.add(note("e")) == [4]
        envelopes = [decode(line_of(row)) for row in await b.rows()]
        assert [envelope.seq for envelope in envelopes] == [0, 1, 2, 3, 4]
        assert [envelope.id for envelope in envelopes] == ["evt_a", "evt_b", "evt_c", "evt_d", "evt_e"]


async def visible_when_acknowledged(make: Make) -> None:
    """What is acknowledged is there for whoever asks next, by every way of asking."""
    async with bench(make) as b:
        for last in range(20):
            assert await b.add(note(str(last))) == [last]
            assert (await b.log.info(b.session)).last == last
            assert (await b.seqs(last - 1), await b.log.holds(b.session, last)) == ([last], True)
            assert [row.seq for row in await b.followed(last)] == list(range(last + 1))


async def bytes_as_stored(make: Make) -> None:
    """A row is one `data:` frame of the stamped envelope: the same bytes for every reader, for any text."""
    async with bench(make) as b:
        texts = ["plain", 'quote " \\ </script>', "\u2028\u2029\x85", "\x00\x1f\x7f", "𝄞é", "z" * 300_000]
        events = [note(str(number), text) for number, text in enumerate(texts)]
        follower = asyncio.create_task(b.followed(len(texts) - 1))
        await b.add(*events)
        lines = [stamp(event, session_id=b.session, seq=n, ts_ms=b.now_ms) for n, event in enumerate(events)]
        wanted = [b"data: " + line + b"\n\n" for line in lines]
        assert [row.frame for row in await b.rows()] == wanted
        assert [row.frame for row in await follower] == wanted


async def what_stands_beside(make: Make) -> None:
    """Beside a frame stand its type, depth and trace, whether it is live, and its rank among durable ones."""
    async with bench(make) as b:
        await b.add(note("a", scope=Scope()), began("x"), delta("x"), over("x"))
        rows = await b.rows()
        assert [row.type for row in rows] == ["assistant.message", "block.start", "block.delta", "block.end"]
        assert [row.live for row in rows] == [False, False, True, False]
        assert [row.rank for row in rows] == [1, 2, 2, 3]
        assert [row.depth for row in rows] == [0, 1, 1, 1]
        assert [row.trace for row in rows] == [None, "tr_1", "tr_1", "tr_1"]


async def all_or_nothing(make: Make) -> None:
    """A batch that is refused leaves nothing of itself, wherever in it the fault is."""
    async with bench(make) as b:
        await b.add(note("a"))
        for place in range(3):
            batch = notes("x", "y")
            batch.insert(place, note("a", "another text"))
            assert (await refused(Conflict, b.add(*batch))).last == 0
        assert await b.seqs() == [0]
        assert await b.add(*notes("x", "y")) == [1, 2]


async def neighbours_unharmed(make: Make) -> None:
    """Appends that wait together are independent: one that is refused takes no other with it."""
    async with bench(make) as b:
        await b.add(note("a"))
        jobs = []
        for number in range(60):
            jobs.append(b.log.submit(b.session, [note(f"good-{number}")]))
            jobs.append(b.log.submit(b.session, [note("a", "another text")]))
            jobs.append(b.log.submit("sess_unknown", [note("a")]))
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        assert outcomes[0::3] == [[seq] for seq in range(1, 61)]
        assert {type(outcome) for outcome in outcomes[1::3]} == {Conflict}
        assert {type(outcome) for outcome in outcomes[2::3]} == {NotFound}
        assert await b.seqs() == list(range(61))


async def cancelled_append(make: Make) -> None:
    """Whoever stops waiting for an append changes nothing about it: readers get it, a retry gets its seq."""
    async with bench(make) as b:
        follower = asyncio.create_task(b.followed(30))
        for number in range(30):
            waiting = asyncio.create_task(b.add(note(str(number))))
            await asyncio.sleep(0)
            waiting.cancel()
        await b.add(note("last"))
        assert await b.seqs() == [row.seq for row in await follower] == list(range(31))
        assert await b.add(note("7")) == [7]


async def duplicate_alone(make: Make) -> None:
    """The same id with the same body returns the old seq and adds nothing."""
    async with bench(make) as b:
        await b.add(*notes("a", "b", "c"))
        assert await b.add(note("b")) == [1]
        assert await b.add(*notes("c", "a")) == [2, 0]
        assert (await b.log.info(b.session)).last == 2


async def duplicate_among_new(make: Make) -> None:
    """In a batch the known events return their old seqs, the new ones follow the log, in order."""
    async with bench(make) as b:
        await b.add(*notes("a", "b", "c"))
        assert await b.add(*notes("x", "b", "y", "a")) == [3, 1, 4, 0]
        assert await b.seqs() == [0, 1, 2, 3, 4]


async def what_a_body_is(make: Make) -> None:
    """Type, payload and agent are the body; origin, trace, depth and time do not count."""
    async with bench(make) as b:
        await b.add(*notes("a", "b"))
        b.now_ms += 5000
        same = Scope(trace_id="tr_2", agent_id="agt_1", agent_name="Bob", depth=2)
        assert await b.add(note("a", scope=same)) == [0]
        others = [
            note("a", "another text"),
            note("a", scope=Scope(trace_id="tr_1", agent_id="agt_2", agent_name="Ada", depth=1)),
            event(UiMessage(text="a"), "a"),
        ]
        for other in others:
            assert (await refused(Conflict, b.add(other))).last == 1
        assert await b.seqs() == [0, 1]


async def id_twice_in_a_batch(make: Make) -> None:
    """An id that stands twice in one append is a conflict, whatever the bodies."""
    async with bench(make) as b:
        await refused(Conflict, b.add(*notes("a", "a")))
        assert await b.seqs() == []


async def expected_last(make: Make) -> None:
    """An append that expects another last seq is a conflict that names the real one, and writes nothing."""
    async with bench(make) as b:
        assert await b.add(note("a"), expected_last=-1) == [0]
        assert await b.add(*notes("b", "c"), expected_last=0) == [1, 2]
        for wrong in (-1, 0, 1, 3, 99):
            assert (await refused(Conflict, b.add(note("x"), expected_last=wrong))).last == 2
        assert await b.add(note("x"), expected_last=2) == [3]


async def expected_last_again(make: Make) -> None:
    """A retry of an acknowledged append returns its seqs; with anything new in it, the expectation counts."""
    async with bench(make) as b:
        await b.add(*notes("a", "b"), expected_last=-1)
        await b.add(note("c"))
        assert await b.add(*notes("a", "b"), expected_last=-1) == [0, 1]
        assert (await refused(Conflict, b.add(*notes("b", "x"), expected_last=-1))).last == 2
        assert await b.add(*notes("b", "x"), expected_last=2) == [1, 3]


async def expected_rank(make: Make) -> None:
    """An append with the number of durable events it expects is refused at another; live ones are free."""
    async with bench(make) as b:
        assert await b.add(note("a"), expected_rank=0) == [0]
        await b.add(began("x"), delta("x"), delta("x", 1))
        for wrong in (0, 1, 3, 4):
            assert (await refused(Conflict, b.add(note("y"), expected_rank=wrong))).last == 3
        assert await b.add(note("y"), expected_rank=2) == [4]
        assert await b.add(note("y"), expected_rank=2) == [4]  # again: it is there


async def fences(make: Make) -> None:
    """A fence below the highest one seen is refused and writes nothing; an equal or higher one is taken."""
    async with bench(make) as b:
        assert await b.add(note("a"), fence=0) == [0]
        assert await b.add(note("b"), fence=7) == [1]
        await refused(Fenced, b.add(note("c"), fence=6))
        assert await b.add(note("c"), fence=7) == [2]
        assert await b.add(note("d"), fence=9) == [3]
        await refused(Fenced, b.add(note("e"), fence=8))
        assert await b.add(note("a"), fence=1) == [0]
        assert await b.seqs() == [0, 1, 2, 3]


async def fences_without_news(make: Make) -> None:
    """A higher fence counts though all that came with it was known, or nothing came: an old writer is out."""
    async with bench(make) as b:
        await b.add(note("a"), fence=1)
        assert await b.add(note("a"), fence=2) == [0]
        await refused(Fenced, b.add(note("b"), fence=1))
        assert await b.add(fence=3) == []
        await refused(Fenced, b.add(note("b"), fence=2))
        assert (await b.add(note("b"), fence=3), (await b.log.info(b.session)).fence) == ([1], 3)
