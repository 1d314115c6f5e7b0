"""Contracts of a store: which live events replay leaves out, and what is known of turns."""

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
from turnlog.testing.harness import LogHarness, StoreFactory, next_seqs, open_follower, open_harness


async def replay_seqs(harness: LogHarness, cursor: int) -> list[int]:
    """Return the seqs that a reader with a cursor gets of the history; check small pages, too."""
    seqs = await harness.read_seqs(cursor, replay_from=cursor)
    page_by_page = await harness.read_seqs(cursor, replay_from=cursor, max_bytes=1)
    assert seqs == page_by_page, "the size of pages changes what is left out"
    return seqs


async def replay_skips_finished_blocks(make_store: StoreFactory) -> None:
    """Replay leaves out only live events of blocks that began after the cursor and have ended."""
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        assert await replay_seqs(harness, -1) == [0, 1, 4, 5]
        assert await replay_seqs(harness, 0) == [1, 4, 5]
        assert await harness.read_seqs() == [0, 1, 2, 3, 4, 5]


async def replay_from_inside_block(make_store: StoreFactory) -> None:
    """Replay keeps the live events of a block that began at or before the cursor."""
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            block_start_event("x"),
            block_delta_event("x"),
            block_delta_event("x", 1),
            block_end_event("x"),
            durable_event("b"),
        )
        assert await replay_seqs(harness, 1) == [2, 3, 4, 5]
        assert await replay_seqs(harness, 2) == [3, 4, 5]
        assert await replay_seqs(harness, 3) == [4, 5]


async def replay_open_block(make_store: StoreFactory) -> None:
    """Replay keeps the live events of an open block, and leaves them out once it has ended."""
    async with open_harness(make_store) as harness:
        await harness.append(block_start_event("x"), block_delta_event("x"), block_delta_event("x", 1))
        assert await replay_seqs(harness, -1) == [0, 1, 2]
        await harness.append(block_delta_event("x", 2))
        assert await replay_seqs(harness, -1) == [0, 1, 2, 3]
        await harness.append(block_end_event("x"))
        assert await replay_seqs(harness, -1) == [0, 4]
        assert await replay_seqs(harness, 0) == [1, 2, 3, 4]


async def replay_skips_finished_calls(make_store: StoreFactory) -> None:
    """Replay leaves out the progress of a call that began after the cursor and has a result."""
    async with open_harness(make_store) as harness:
        await harness.append(tool_call_event("c"), tool_progress_event("c"), tool_progress_event("c", 1))
        assert await replay_seqs(harness, -1) == [0, 1, 2]
        await harness.append(tool_result_event("c"))
        assert await replay_seqs(harness, -1) == [0, 3]
        assert await replay_seqs(harness, 0) == [1, 2, 3]
        assert await replay_seqs(harness, 1) == [2, 3]


async def replay_skips_aborted_blocks(make_store: StoreFactory) -> None:
    """An aborted block has ended for replay: its last event has the partial text."""
    async with open_harness(make_store) as harness:
        await harness.append(block_start_event("x"), block_delta_event("x"), block_abort_event("x"))
        assert await replay_seqs(harness, -1) == [0, 2]
        assert await replay_seqs(harness, 0) == [1, 2]


async def replay_interleaved_spans(make_store: StoreFactory) -> None:
    """Replay treats blocks and calls that overlap each by its own start and end."""
    async with open_harness(make_store) as harness:
        await harness.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
            tool_call_event("c"),
            tool_progress_event("c"),
        )  # 0 to 5
        await harness.append(
            block_delta_event("x", 1),
            block_end_event("x"),
            block_delta_event("y", 1),
            tool_result_event("c"),
            block_delta_event("y", 2),
        )  # 6 to 10
        assert await replay_seqs(harness, -1) == [0, 2, 3, 4, 7, 8, 9, 10]
        assert await replay_seqs(harness, 0) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
        await harness.append(block_end_event("y"))
        assert await replay_seqs(harness, 1) == [2, 4, 6, 7, 9, 11]
        assert await replay_seqs(harness, 2) == [3, 4, 6, 7, 8, 9, 10, 11]
        assert await replay_seqs(harness, 4) == [5, 6, 7, 8, 9, 10, 11]


async def follow_replays_like_read(make_store: StoreFactory) -> None:
    """A follower gets its history by the same rule as a read, then all new events."""
    async with open_harness(make_store) as harness:
        await harness.append(
            block_start_event("x"),
            block_delta_event("x"),
            block_end_event("x"),
            block_start_event("y"),
            block_delta_event("y"),
        )
        async with open_follower(harness.log, harness.session, replay_from=-1) as pages:
            assert await next_seqs(pages) == [0, 2, 3, 4]
            await harness.append(block_delta_event("y", 1))
            assert await next_seqs(pages) == [5]
            await harness.append(
                block_end_event("y"), block_start_event("z"), block_delta_event("z"), block_end_event("z")
            )
            assert await next_seqs(pages) == [6, 7, 8, 9]


async def replay_ignores_other_followers(make_store: StoreFactory) -> None:
    """The history of a follower does not depend on other followers of the session."""
    async with (
        open_harness(make_store) as harness,
        open_follower(harness.log, harness.session, idle_s=0.01) as others,
    ):
        assert not await anext(others)
        await harness.append(
            durable_event("a"), block_start_event("x"), block_delta_event("x"), block_end_event("x")
        )
        assert [row.seq for row in await harness.follow_until(3, replay_from=-1)] == [0, 1, 3]
        assert [row.seq for row in await harness.follow_until(3, 1, replay_from=1)] == [2, 3]


async def late_live_events(make_store: StoreFactory) -> None:
    """A live event after the end of its block or call is stored and hides no later event."""
    async with open_harness(make_store) as harness:
        await harness.append(tool_call_event("c"), tool_result_event("c"), tool_progress_event("c"))
        assert await replay_seqs(harness, -1) == [0, 1]
        assert await harness.read_seqs() == [0, 1, 2]
        async with open_follower(harness.log, harness.session, replay_from=-1) as pages:
            assert await next_seqs(pages) == [0, 1]
            await harness.append(durable_event("a"))
            assert await next_seqs(pages) == [3]


async def stray_live_events(make_store: StoreFactory) -> None:
    """Live events and ends of blocks that never started are stored, and replay keeps them."""
    async with open_harness(make_store) as harness:
        await harness.append(block_delta_event("x"), block_end_event("y"), tool_progress_event("c"))
        assert await replay_seqs(harness, -1) == [0, 1, 2]
        assert await harness.closing_event("y") is None


async def open_turn_start(make_store: StoreFactory) -> None:
    """The store finds the start of the oldest turn that is open at a seq, else the next seq."""
    first, second = agent_scope(1, trace=1), agent_scope(2, trace=2)
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            agent_start_event(first),
            block_start_event("x", first),
            block_delta_event("x", 0, first),
        )  # 0 to 3
        await harness.append(
            agent_start_event(second),
            block_end_event("x", first),
            agent_end_event(first),
            tool_call_event("c", second),
        )  # 4 to 7
        await harness.append(
            tool_result_event("c", second), agent_end_event(second), durable_event("b")
        )  # 8 to 10
        starts = [await harness.oldest_open_turn_start(at) for at in range(-1, 11)]
        assert starts == [0, 1, 1, 1, 1, 1, 1, 4, 4, 4, 10, 11]


async def turn_start_with_several_agents(make_store: StoreFactory) -> None:
    """A turn starts with its first agent, even if that one ended before the seq."""
    first, second = agent_scope(1), agent_scope(2)
    async with open_harness(make_store) as harness:
        await harness.append(
            agent_start_event(first),
            durable_event("a"),
            agent_end_event(first),
            agent_start_event(second),
            durable_event("b"),
            agent_end_event(second),
        )
        assert [await harness.oldest_open_turn_start(at) for at in range(-1, 6)] == [
            0,
            0,
            0,
            0,
            0,
            0,
            6,
        ]


async def turn_bounds(make_store: StoreFactory) -> None:
    """The store finds the first and last seq of a turn's agents; the last is None while one is open."""
    first, second = agent_scope(1), agent_scope(2)
    async with open_harness(make_store) as harness:
        await harness.append(
            durable_event("a"),
            agent_start_event(first),
            durable_event("b"),
            agent_start_event(second),
            agent_end_event(second),
        )
        assert await harness.turn_bounds("tr_1") == (1, None)
        await harness.append(agent_end_event(first), durable_event("c"))
        assert await harness.turn_bounds("tr_1") == (1, 5)
        assert await harness.turn_bounds("tr_2") is None
        assert await harness.log.turn_bounds("sess_none", "tr_1") is None


async def agent_starts(make_store: StoreFactory) -> None:
    """The store finds an agent by its id in every session that started it, with the start event."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        await harness.append(
            durable_event("a"),
            agent_start_event(agent_scope(1)),
            agent_end_event(agent_scope(1)),
            tool_call_event("agt_3"),
        )
        await harness.append(
            agent_start_event(agent_scope(1)), agent_start_event(agent_scope(2)), session=other
        )
        starts = {name: row.seq for name, row in await harness.log.agent_starts("agt_1")}
        assert starts == {harness.session: 1, other: 0}
        assert [name for name, _ in await harness.log.agent_starts("agt_2")] == [other]
        assert await harness.log.agent_starts("agt_3") == []


async def closing_event(make_store: StoreFactory) -> None:
    """The store finds the event that ended a block, a call or an agent; None while it is open."""
    async with open_harness(make_store) as harness:
        await harness.append(agent_start_event(agent_scope(1)), block_start_event("x"), tool_call_event("c"))
        for key in ("x", "c", "agt_1", "unheard-of"):
            assert await harness.closing_event(key) is None
        closing = [tool_result_event("c"), block_end_event("x"), agent_end_event(agent_scope(1))]
        await harness.append(*closing)
        for key, event in zip(("c", "x", "agt_1"), closing, strict=True):
            row = await harness.closing_event(key)
            assert row is not None
            assert event.id.encode() in envelope_json(row)


async def first_end_wins(make_store: StoreFactory) -> None:
    """The first end of a span counts, whatever turn a second end has; a span may start again."""
    async with open_harness(make_store) as harness:
        await harness.append(
            agent_start_event(agent_scope(1)),
            tool_call_event("c"),
            tool_progress_event("c"),
            tool_result_event("c"),
            agent_end_event(agent_scope(1)),
        )  # 0 to 4
        late = make_event(AgentEnd(stop_reason="error"), "late-end", agent_scope(1, trace=2))
        fault = ErrorInfo(code="EXECUTION_ERROR", message="late")
        late_result = make_event(ToolResult(call_id="c", tool="t", ok=False, error=fault), "late")
        await harness.append(late_result, durable_event("a"), late)
        row = await harness.closing_event("c")
        assert row is not None
        assert row.seq == 3
        assert await harness.turn_bounds("tr_1") == (0, 4)
        await harness.append(make_event(ToolCall(call_id="c", tool="t", args={}), "again"))
        assert await harness.closing_event("c") is None


async def sessions_with_open_agents(make_store: StoreFactory) -> None:
    """The store finds sessions with an open agent; open blocks and calls do not count."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        await harness.append(user_message_event("m"), block_start_event("x"), tool_call_event("c"))
        assert await harness.log.sessions_with_open_agents() == []
        await harness.append(agent_start_event(agent_scope(1)), agent_start_event(agent_scope(2)))
        await harness.append(agent_start_event(agent_scope(1)), session=other)
        assert await harness.log.sessions_with_open_agents() == [harness.session, other]
        await harness.append(agent_end_event(agent_scope(1)))
        assert await harness.log.sessions_with_open_agents() == [harness.session, other]
        await harness.append(agent_end_event(agent_scope(2)))
        assert await harness.log.sessions_with_open_agents() == [other]


async def span_keys_by_kind(make_store: StoreFactory) -> None:
    """A block, a call and an agent with the same id are different spans."""
    async with open_harness(make_store) as harness:
        await harness.append(
            agent_start_event(agent_scope(1)),
            block_start_event("agt_1"),
            block_delta_event("agt_1"),
            block_end_event("agt_1"),
            tool_call_event("agt_1"),
        )
        assert await harness.log.sessions_with_open_agents() == [harness.session]
        assert await replay_seqs(harness, -1) == [0, 1, 3, 4]
        assert await replay_seqs(harness, 1) == [2, 3, 4]
