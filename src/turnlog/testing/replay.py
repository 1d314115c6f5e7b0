"""What a store promises about replay: which live events it leaves out, and what it knows of turns."""

from turnlog.events import AgentEnd, Fault, ToolCall, ToolResult
from turnlog.log import line_of
from turnlog.testing.factories import (
    aborted,
    agent,
    answered,
    began,
    called,
    delta,
    ended,
    event,
    message,
    note,
    over,
    progress,
    started,
)
from turnlog.testing.harness import Bench, Make, bench, following


async def replay(b: Bench, cursor: int) -> list[int]:
    """What a reader that comes with a cursor gets of the past."""
    found = await b.seqs(cursor, origin=cursor)
    page_by_page = await b.seqs(cursor, origin=cursor, max_bytes=1)
    assert found == page_by_page, "the size of pages changes what is left out"
    return found


async def left_out(make: Make) -> None:
    """Replay leaves out live events of a block that began after the cursor and has ended; nothing else."""
    async with bench(make) as b:
        await b.add(note("a"), began("x"), delta("x"), delta("x", 1), over("x"), note("b"))
        assert await replay(b, -1) == [0, 1, 4, 5]
        assert await replay(b, 0) == [1, 4, 5]
        assert await b.seqs() == [0, 1, 2, 3, 4, 5]


async def delta_by_delta(make: Make) -> None:
    """A block that began at or before the cursor is replayed delta by delta, ended or not."""
    async with bench(make) as b:
        await b.add(note("a"), began("x"), delta("x"), delta("x", 1), over("x"), note("b"))
        assert await replay(b, 1) == [2, 3, 4, 5]
        assert await replay(b, 2) == [3, 4, 5]
        assert await replay(b, 3) == [4, 5]


async def open_block(make: Make) -> None:
    """The live events of an open block are replayed, and left out from the moment it has ended."""
    async with bench(make) as b:
        await b.add(began("x"), delta("x"), delta("x", 1))
        assert await replay(b, -1) == [0, 1, 2]
        await b.add(delta("x", 2))
        assert await replay(b, -1) == [0, 1, 2, 3]
        await b.add(over("x"))
        assert await replay(b, -1) == [0, 4]
        assert await replay(b, 0) == [1, 2, 3, 4]


async def calls_like_blocks(make: Make) -> None:
    """The progress of a call is left out like the deltas of a block: called after the cursor, answered."""
    async with bench(make) as b:
        await b.add(called("c"), progress("c"), progress("c", 1))
        assert await replay(b, -1) == [0, 1, 2]
        await b.add(answered("c"))
        assert await replay(b, -1) == [0, 3]
        assert await replay(b, 0) == [1, 2, 3]
        assert await replay(b, 1) == [2, 3]


async def aborted_like_complete(make: Make) -> None:
    """A block that was aborted has ended: its last event carries the partial text."""
    async with bench(make) as b:
        await b.add(began("x"), delta("x"), aborted("x"))
        assert await replay(b, -1) == [0, 2]
        assert await replay(b, 0) == [1, 2]


async def interleaved(make: Make) -> None:
    """Blocks and calls that overlap are told apart, each by its own beginning and end."""
    async with bench(make) as b:
        await b.add(began("x"), delta("x"), began("y"), delta("y"), called("c"), progress("c"))  # 0 to 5
        await b.add(delta("x", 1), over("x"), delta("y", 1), answered("c"), delta("y", 2))  # 6 to 10
        assert await replay(b, -1) == [0, 2, 3, 4, 7, 8, 9, 10]
        assert await replay(b, 0) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
        await b.add(over("y"))
        assert await replay(b, 1) == [2, 4, 6, 7, 9, 11]
        assert await replay(b, 2) == [3, 4, 6, 7, 8, 9, 10, 11]
        assert await replay(b, 4) == [5, 6, 7, 8, 9, 10, 11]


async def follow_replays_alike(make: Make) -> None:
    """A follower's history is replayed by the same rule, and what happens later comes live, all of it."""
    async with bench(make) as b:
        await b.add(began("x"), delta("x"), over("x"), began("y"), delta("y"))
        async with following(b.log, b.session, origin=-1) as pages:
            assert [row.seq for row in await anext(pages)] == [0, 2, 3, 4]
            await b.add(delta("y", 1))
            assert [row.seq for row in await anext(pages)] == [5]
            await b.add(over("y"), began("z"), delta("z"), over("z"))
            assert [row.seq for row in await anext(pages)] == [6, 7, 8, 9]


async def alone_or_not(make: Make) -> None:
    """What a follower is replayed does not depend on who else follows the session."""
    async with bench(make) as b, following(b.log, b.session, idle_s=0.01) as others:
        assert not await anext(others)
        await b.add(note("a"), began("x"), delta("x"), over("x"))
        assert [row.seq for row in await b.followed(3, origin=-1)] == [0, 1, 3]
        assert [row.seq for row in await b.followed(3, 1, origin=1)] == [2, 3]


async def late_live_events(make: Make) -> None:
    """A live event after the end of its block or call is stored like others and hides nothing behind it."""
    async with bench(make) as b:
        await b.add(called("c"), answered("c"), progress("c"))
        assert await replay(b, -1) == [0, 1]
        assert await b.seqs() == [0, 1, 2]
        async with following(b.log, b.session, origin=-1) as pages:
            assert [row.seq for row in await anext(pages)] == [0, 1]
            await b.add(note("a"))
            assert [row.seq for row in await anext(pages)] == [3]


async def stray_live_events(make: Make) -> None:
    """Live events of a block nobody began, and ends of such blocks, are kept and always replayed."""
    async with bench(make) as b:
        await b.add(delta("x"), over("y"), progress("c"))
        assert await replay(b, -1) == [0, 1, 2]
        assert await b.log.ended(b.session, "y") is None


async def where_turns_start(make: Make) -> None:
    """The start of the oldest turn that is open at a cursor, or the next seq when none is."""
    first, second = agent(1, trace=1), agent(2, trace=2)
    async with bench(make) as b:
        await b.add(note("a"), started(first), began("x", first), delta("x", 0, first))  # 0 to 3
        await b.add(started(second), over("x", first), ended(first), called("c", second))  # 4 to 7
        await b.add(answered("c", second), ended(second), note("b"))  # 8 to 10
        starts = [await b.log.turn_start(b.session, at) for at in range(-1, 11)]
        assert starts == [0, 1, 1, 1, 1, 1, 1, 4, 4, 4, 10, 11]


async def turns_of_several_agents(make: Make) -> None:
    """A turn starts where its first agent did, though that one has ended at the cursor or before."""
    first, second = agent(1), agent(2)
    async with bench(make) as b:
        await b.add(started(first), note("a"), ended(first), started(second), note("b"), ended(second))
        assert [await b.log.turn_start(b.session, at) for at in range(-1, 6)] == [0, 0, 0, 0, 0, 0, 6]


async def where_a_turn_is(make: Make) -> None:
    """The agents of a turn reach from a first seq to a last one, which is open while one of them is."""
    first, second = agent(1), agent(2)
    async with bench(make) as b:
        await b.add(note("a"), started(first), note("b"), started(second), ended(second))
        assert await b.log.turn(b.session, "tr_1") == (1, None)
        await b.add(ended(first), note("c"))
        assert await b.log.turn(b.session, "tr_1") == (1, 5)
        assert await b.log.turn(b.session, "tr_2") is None
        assert await b.log.turn("sess_nobody", "tr_1") is None


async def where_an_agent_began(make: Make) -> None:
    """An agent is found by its id, in every session in which it began, with the event that began it."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        await b.add(note("a"), started(agent(1)), ended(agent(1)), called("agt_3"))
        await b.add(started(agent(1)), started(agent(2)), session=other)
        found = {name: row.seq for name, row in await b.log.agent_starts("agt_1")}
        assert found == {b.session: 1, other: 0}
        assert [name for name, _ in await b.log.agent_starts("agt_2")] == [other]
        assert await b.log.agent_starts("agt_3") == []


async def what_closed_it(make: Make) -> None:
    """The event that closed a block, a call or an agent can be asked for; None while it is open."""
    async with bench(make) as b:
        await b.add(started(agent(1)), began("x"), called("c"))
        for key in ("x", "c", "agt_1", "unheard-of"):
            assert await b.log.ended(b.session, key) is None
        closing = [answered("c"), over("x"), ended(agent(1))]
        await b.add(*closing)
        for key, wanted in zip(("c", "x", "agt_1"), closing, strict=True):
            row = await b.log.ended(b.session, key)
            assert row is not None
            assert wanted.id.encode() in line_of(row)


async def first_end_counts(make: Make) -> None:
    """What has ended stays so: a second end changes nothing, in whatever turn it comes; it may begin anew."""
    async with bench(make) as b:
        await b.add(started(agent(1)), called("c"), progress("c"), answered("c"), ended(agent(1)))  # 0 to 4
        late = event(AgentEnd(stop_reason="error"), "late-end", agent(1, trace=2))
        fault = Fault(code="EXECUTION_ERROR", message="late")
        late_result = event(ToolResult(call_id="c", tool="t", ok=False, error=fault), "late")
        await b.add(late_result, note("a"), late)
        row = await b.log.ended(b.session, "c")
        assert row is not None
        assert (row.seq, await b.log.turn(b.session, "tr_1")) == (3, (0, 4))
        await b.add(event(ToolCall(call_id="c", tool="t", args={}), "again"))
        assert await b.log.ended(b.session, "c") is None


async def unfinished_sessions(make: Make) -> None:
    """Sessions in which an agent is open are found; open blocks and calls alone do not count."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        await b.add(message("m"), began("x"), called("c"))
        assert await b.log.unfinished() == []
        await b.add(started(agent(1)), started(agent(2)))
        await b.add(started(agent(1)), session=other)
        assert await b.log.unfinished() == [b.session, other]
        await b.add(ended(agent(1)))
        assert await b.log.unfinished() == [b.session, other]
        await b.add(ended(agent(2)))
        assert await b.log.unfinished() == [other]


async def keys_of_different_kinds(make: Make) -> None:
    """A block, a call and an agent may bear the same name and are not mistaken for each other."""
    async with bench(make) as b:
        await b.add(started(agent(1)), began("agt_1"), delta("agt_1"), over("agt_1"), called("agt_1"))
        assert await b.log.unfinished() == [b.session]
        assert await replay(b, -1) == [0, 1, 3, 4]
        assert await replay(b, 1) == [2, 3, 4]
