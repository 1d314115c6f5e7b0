"""What a store promises about replay: which live events it leaves out, and what it knows of turns."""

from turnlog.events import AgentEnd, ErrorInfo, ToolCall, ToolResult
from turnlog.log import envelope_json
from turnlog.testing.factories import (
    agent_end_event,
    agent_scope,
    agent_start_event,
    block_abort_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    make_event,
    tool_call_event,
    tool_progress_event,
    tool_result_event,
    user_message_event,
)
from turnlog.testing.harness import LogHarness, StoreFactory, open_follower, open_harness


async def replay_seqs(b: LogHarness, cursor: int) -> list[int]:
    """What a reader that comes with a cursor gets of the past."""
    found = await b.read_seqs(cursor, replay_from=cursor)
    page_by_page = await b.read_seqs(cursor, replay_from=cursor, max_bytes=1)
    assert found == page_by_page, "the size of pages changes what is left out"
    return found


async def replay_skips_finished_blocks(make: StoreFactory) -> None:
    """Replay leaves out live events of a block that began after the cursor and has ended; nothing else."""
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        assert await replay_seqs(b, -1) == [0, 1, 4, 5]
        assert await replay_seqs(b, 0) == [1, 4, 5]
        assert await b.read_seqs() == [0, 1, 2, 3, 4, 5]


async def replay_from_inside_block(make: StoreFactory) -> None:
    """A block that began at or before the cursor is replayed delta by delta, ended or not."""
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        assert await replay_seqs(b, 1) == [2, 3, 4, 5]
        assert await replay_seqs(b, 2) == [3, 4, 5]
        assert await replay_seqs(b, 3) == [4, 5]


async def replay_open_block(make: StoreFactory) -> None:
    """The live events of an open block are replayed, and left out from the moment it has ended."""
    async with open_harness(make) as b:
        await b.append(block_start_event("x"), block_delta_event("x"), block_delta_event("x", 1))
        assert await replay_seqs(b, -1) == [0, 1, 2]
        await b.append(block_delta_event("x", 2))
        assert await replay_seqs(b, -1) == [0, 1, 2, 3]
        await b.append(block_end_event("x"))
        assert await replay_seqs(b, -1) == [0, 4]
        assert await replay_seqs(b, 0) == [1, 2, 3, 4]


async def replay_skips_finished_calls(make: StoreFactory) -> None:
    """The progress of a call is left out like the deltas of a block: called after the cursor, answered."""
    async with open_harness(make) as b:
        await b.append(tool_call_event("c"), tool_progress_event("c"), tool_progress_event("c", 1))
        assert await replay_seqs(b, -1) == [0, 1, 2]
        await b.append(tool_result_event("c"))
        assert await replay_seqs(b, -1) == [0, 3]
        assert await replay_seqs(b, 0) == [1, 2, 3]
        assert await replay_seqs(b, 1) == [2, 3]


async def replay_skips_aborted_blocks(make: StoreFactory) -> None:
    """A block that was aborted has ended: its last event carries the partial text."""
    async with open_harness(make) as b:
        await b.append(block_start_event("x"), block_delta_event("x"), block_abort_event("x"))
        assert await replay_seqs(b, -1) == [0, 2]
        assert await replay_seqs(b, 0) == [1, 2]


async def replay_interleaved_spans(make: StoreFactory) -> None:
    """Blocks and calls that overlap are told apart, each by its own beginning and end."""
    async with open_harness(make) as b:
        await b.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
            tool_call_event("c"),
            tool_progress_event("c"),
        )  # 0 to 5
        await b.append(
            block_delta_event("x", 1),
            block_end_event("x"),
            block_delta_event("y", 1),
            tool_result_event("c"),
            block_delta_event("y", 2),
        )  # 6 to 10
        assert await replay_seqs(b, -1) == [0, 2, 3, 4, 7, 8, 9, 10]
        assert await replay_seqs(b, 0) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
        await b.append(block_end_event("y"))
        assert await replay_seqs(b, 1) == [2, 4, 6, 7, 9, 11]
        assert await replay_seqs(b, 2) == [3, 4, 6, 7, 8, 9, 10, 11]
        assert await replay_seqs(b, 4) == [5, 6, 7, 8, 9, 10, 11]


async def follow_replays_like_read(make: StoreFactory) -> None:
    """A follower's history is replayed by the same rule, and what happens later comes live, all of it."""
    async with open_harness(make) as b:
        await b.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
        async with open_follower(b.log, b.session, replay_from=-1) as pages:
            assert [row.seq for row in await anext(pages)] == [0, 2, 3, 4]
            await b.append(block_delta_event("y", 1))
            assert [row.seq for row in await anext(pages)] == [5]
            await b.append(
                block_end_event("y"), block_start_event("z"), block_delta_event("z"), block_end_event("z")
            )
            assert [row.seq for row in await anext(pages)] == [6, 7, 8, 9]


async def replay_ignores_other_followers(make: StoreFactory) -> None:
    """What a follower is replayed does not depend on who else follows the session."""
    async with open_harness(make) as b, open_follower(b.log, b.session, idle_s=0.01) as others:
        assert not await anext(others)
        await b.append(
            durable_event("a"), block_start_event("x"), block_delta_event("x"), block_end_event("x")
        )
        assert [row.seq for row in await b.follow_until(3, replay_from=-1)] == [0, 1, 3]
        assert [row.seq for row in await b.follow_until(3, 1, replay_from=1)] == [2, 3]


async def late_live_events(make: StoreFactory) -> None:
    """A live event after the end of its block or call is stored like others and hides nothing behind it."""
    async with open_harness(make) as b:
        await b.append(tool_call_event("c"), tool_result_event("c"), tool_progress_event("c"))
        assert await replay_seqs(b, -1) == [0, 1]
        assert await b.read_seqs() == [0, 1, 2]
        async with open_follower(b.log, b.session, replay_from=-1) as pages:
            assert [row.seq for row in await anext(pages)] == [0, 1]
            await b.append(durable_event("a"))
            assert [row.seq for row in await anext(pages)] == [3]


async def stray_live_events(make: StoreFactory) -> None:
    """Live events of a block nobody began, and ends of such blocks, are kept and always replayed."""
    async with open_harness(make) as b:
        await b.append(block_delta_event("x"), block_end_event("y"), tool_progress_event("c"))
        assert await replay_seqs(b, -1) == [0, 1, 2]
        assert await b.log.closing_event(b.session, "y") is None


async def open_turn_start(make: StoreFactory) -> None:
    """The start of the oldest turn that is open at a cursor, or the next seq when none is."""
    first, second = agent_scope(1, trace=1), agent_scope(2, trace=2)
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            agent_start_event(first),
            block_start_event("x", first),
            block_delta_event("x", 0, first),
        )  # 0 to 3
        await b.append(
            agent_start_event(second),
            block_end_event("x", first),
            agent_end_event(first),
            tool_call_event("c", second),
        )  # 4 to 7
        await b.append(tool_result_event("c", second), agent_end_event(second), durable_event("b"))  # 8 to 10
        starts = [await b.log.oldest_open_turn_start(b.session, at) for at in range(-1, 11)]
        assert starts == [0, 1, 1, 1, 1, 1, 1, 4, 4, 4, 10, 11]


async def turn_start_with_several_agents(make: StoreFactory) -> None:
    """A turn starts where its first agent did, though that one has ended at the cursor or before."""
    first, second = agent_scope(1), agent_scope(2)
    async with open_harness(make) as b:
        await b.append(
            agent_start_event(first),
            durable_event("a"),
            agent_end_event(first),
            agent_start_event(second),
            durable_event("b"),
            agent_end_event(second),
        )
        assert [await b.log.oldest_open_turn_start(b.session, at) for at in range(-1, 6)] == [
            0,
            0,
            0,
            0,
            0,
            0,
            6,
        ]


async def turn_bounds(make: StoreFactory) -> None:
    """The agents of a turn reach from a first seq to a last one, which is open while one of them is."""
    first, second = agent_scope(1), agent_scope(2)
    async with open_harness(make) as b:
        await b.append(
            durable_event("a"),
            agent_start_event(first),
            durable_event("b"),
            agent_start_event(second),
            agent_end_event(second),
        )
        assert await b.log.turn_bounds(b.session, "tr_1") == (1, None)
        await b.append(agent_end_event(first), durable_event("c"))
        assert await b.log.turn_bounds(b.session, "tr_1") == (1, 5)
        assert await b.log.turn_bounds(b.session, "tr_2") is None
        assert await b.log.turn_bounds("sess_nobody", "tr_1") is None


async def agent_starts(make: StoreFactory) -> None:
    """An agent is found by its id, in every session in which it began, with the event that began it."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        await b.append(
            durable_event("a"),
            agent_start_event(agent_scope(1)),
            agent_end_event(agent_scope(1)),
            tool_call_event("agt_3"),
        )
        await b.append(agent_start_event(agent_scope(1)), agent_start_event(agent_scope(2)), session=other)
        found = {name: row.seq for name, row in await b.log.agent_starts("agt_1")}
        assert found == {b.session: 1, other: 0}
        assert [name for name, _ in await b.log.agent_starts("agt_2")] == [other]
        assert await b.log.agent_starts("agt_3") == []


async def closing_event(make: StoreFactory) -> None:
    """The event that closed a block, a call or an agent can be asked for; None while it is open."""
    async with open_harness(make) as b:
        await b.append(agent_start_event(agent_scope(1)), block_start_event("x"), tool_call_event("c"))
        for key in ("x", "c", "agt_1", "unheard-of"):
            assert await b.log.closing_event(b.session, key) is None
        closing = [tool_result_event("c"), block_end_event("x"), agent_end_event(agent_scope(1))]
        await b.append(*closing)
        for key, wanted in zip(("c", "x", "agt_1"), closing, strict=True):
            row = await b.log.closing_event(b.session, key)
            assert row is not None
            assert wanted.id.encode() in envelope_json(row)


async def first_end_wins(make: StoreFactory) -> None:
    """What has ended stays so: a second end changes nothing, in whatever turn it comes; it may begin anew."""
    async with open_harness(make) as b:
        await b.append(
            agent_start_event(agent_scope(1)),
            tool_call_event("c"),
            tool_progress_event("c"),
            tool_result_event("c"),
            agent_end_event(agent_scope(1)),
        )  # 0 to 4
        late = make_event(AgentEnd(stop_reason="error"), "late-end", agent_scope(1, trace=2))
        fault = ErrorInfo(code="EXECUTION_ERROR", message="late")
        late_result = make_event(ToolResult(call_id="c", tool="t", ok=False, error=fault), "late")
        await b.append(late_result, durable_event("a"), late)
        row = await b.log.closing_event(b.session, "c")
        assert row is not None
        assert (row.seq, await b.log.turn_bounds(b.session, "tr_1")) == (3, (0, 4))
        await b.append(make_event(ToolCall(call_id="c", tool="t", args={}), "again"))
        assert await b.log.closing_event(b.session, "c") is None


async def sessions_with_open_agents(make: StoreFactory) -> None:
    """Sessions in which an agent is open are found; open blocks and calls alone do not count."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        await b.append(user_message_event("m"), block_start_event("x"), tool_call_event("c"))
        assert await b.log.sessions_with_open_agents() == []
        await b.append(agent_start_event(agent_scope(1)), agent_start_event(agent_scope(2)))
        await b.append(agent_start_event(agent_scope(1)), session=other)
        assert await b.log.sessions_with_open_agents() == [b.session, other]
        await b.append(agent_end_event(agent_scope(1)))
        assert await b.log.sessions_with_open_agents() == [b.session, other]
        await b.append(agent_end_event(agent_scope(2)))
        assert await b.log.sessions_with_open_agents() == [other]


async def span_keys_by_kind(make: StoreFactory) -> None:
    """A block, a call and an agent may bear the same name and are not mistaken for each other."""
    async with open_harness(make) as b:
        await b.append(
            agent_start_event(agent_scope(1)),
            block_start_event("agt_1"),
            block_delta_event("agt_1"),
            block_end_event("agt_1"),
            tool_call_event("agt_1"),
        )
        assert await b.log.sessions_with_open_agents() == [b.session]
        assert await replay_seqs(b, -1) == [0, 1, 3, 4]
        assert await replay_seqs(b, 1) == [2, 3, 4]
