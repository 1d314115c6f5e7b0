"""Recorded turns in a log: balanced whatever happens, answered by people, one owner at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.support.limits import HANG_S
from tests.support.scripted_claude import MemoryTranscripts, ScriptedClaude
from turnlog.errors import CallerError, Conflict
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantMessage,
    Entry,
    Event,
    EventDraft,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiCommand,
    UiMessage,
    Usage,
)
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore, open_log
from turnlog.recording import RecordedTurn, RecordingLost, RecordingStopped
from turnlog.testing.runtimes import AgentScript, ScriptInput, ScriptRecord, ScriptReply
from turnlog.testing.runtimes.answering import ONE
from turnlog.vocabularies import FULL_CATALOG


def play(run: Callable[[Log, str], Awaitable[None]]) -> None:
    async def bounded() -> None:
        log = Log(MemoryStore())
        async with asyncio.timeout(HANG_S):
            await run(log, await log.create("x"))
            await log.close()

    asyncio.run(bounded())


async def read(log: Log, session: str) -> list[Entry]:
    return [entry async for entry in log.events(session)]


def build(payload: Any, origin: Any, **scope: Any) -> Event:
    return EventDraft(payload, Scope(**scope), origin).build(FULL_CATALOG, new_id("evt_"))


def payloads(entries: list[Entry], kind: type) -> list[Any]:
    return [entry.payload for entry in entries if isinstance(entry.payload, kind)]


def check_balance(entries: list[Entry]) -> None:
    starts = [entry.agent_id for entry in entries if isinstance(entry.payload, AgentStart)]
    ends = [entry.agent_id for entry in entries if isinstance(entry.payload, AgentEnd)]
    assert sorted(map(str, starts)) == sorted(map(str, ends))
    calls = [(entry.agent_id, item.call_id) for entry, item in pairs(entries, ToolCall)]
    results = [(entry.agent_id, item.call_id) for entry, item in pairs(entries, ToolResult)]
    assert sorted(calls) == sorted(results)
    begun = [entry.payload.block_id for entry in entries if entry.type == "block.start"]  # type: ignore[union-attr]
    ended = [entry.payload.block_id for entry in entries if entry.type == "block.end"]  # type: ignore[union-attr]
    assert sorted(begun) == sorted(ended)


def pairs(entries: list[Entry], kind: type) -> list[tuple[Any, Any]]:
    return [(entry, entry.payload) for entry in entries if isinstance(entry.payload, kind)]


def test_a_turn_has_its_prompt_texts_calls_children_and_usage() -> None:
    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi", name="Support") as turn:
            await turn.think("Hm.")
            await turn.text("Let me look.")
            call = await turn.call("search", '{"q": "grass"}')
            await turn.complete_message(Usage(input_tokens=1, output_tokens=2), model="m")
            await turn.progress(call, "half")
            async with turn.child("Searcher", call_id=call) as searcher:
                await turn.text("Green.", agent=searcher)
            await turn.result(call, {"colour": "green"})
            await turn.text("Wrong.")
            await turn.retract_message()
            await turn.text("It is green.")
            turn.finish("green", "end_turn")
        entries = await read(log, session)
        check_balance(entries)
        assert isinstance(entries[0].payload, UiMessage)
        assert {entry.trace_id for entry in entries} == {turn.turn}
        assert payloads(entries, ToolResult)[0].result == {"colour": "green"}
        assert payloads(entries, AgentEnd)[-1].result == "green"
        assert payloads(entries, AgentEnd)[-1].usage == Usage(input_tokens=1, output_tokens=2)
        assert payloads(entries, AgentStart)[0].recorder is not None
        assert "agent.usage" in [entry.type for entry in entries]
        assert "block.retract" in [entry.type for entry in entries]

    play(run)


@pytest.mark.parametrize("steps", range(5))
def test_an_exception_anywhere_closes_everything_and_says_why(steps: int) -> None:
    async def work(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi") as turn:
            if steps > 0:
                await turn.text("I beg")
            call = await turn.call("search") if steps > 1 else None
            if steps > 2:
                async with turn.child("Searcher", call_id=call) as searcher:
                    if steps > 3:
                        await turn.text("Gre", agent=searcher)
                    raise ValueError("broken")
            raise ValueError("broken")

    async def run(log: Log, session: str) -> None:
        with pytest.raises(ValueError, match="broken"):
            await work(log, session)
        entries = await read(log, session)
        check_balance(entries)
        assert payloads(entries, SessionError)[0].message == "ValueError: broken"
        assert payloads(entries, AgentEnd)[-1].stop_reason == "error"
        async with turnlog.record(log, session):  # the session is free again
            pass

    play(run)


def test_a_cancelled_program_cancels_its_turn() -> None:
    async def run(log: Log, session: str) -> None:
        begun = asyncio.Event()

        async def work() -> None:
            async with turnlog.record(log, session, prompt="Hi") as turn:
                await turn.text("I beg")
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        entries = await read(log, session)
        check_balance(entries)
        assert payloads(entries, AgentEnd)[-1].stop_reason == "cancelled"

    play(run)


def test_a_stop_cancels_the_block_and_only_it() -> None:
    async def work(log: Log, session: str, stop: Stop) -> None:
        async with turnlog.record(log, session, prompt="Hi") as turn:
            await turn.text("I beg")
            other = Stop(turn="tr_other")
            await log.append(session, [build(UiCommand(command=other), "ui")])
            await log.append(session, [build(UiCommand(command=stop), "ui")])
            await asyncio.Event().wait()

    async def run(log: Log, session: str) -> None:
        with pytest.raises(RecordingStopped):
            await work(log, session, Stop())
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        entries = await read(log, session)
        check_balance(entries)
        assert payloads(entries, AgentEnd)[-1].stop_reason == "cancelled"

    play(run)


async def answer(log: Log, session: str, kind: type, make: Callable[[Any], Any], origin: str = "ui") -> None:
    """Append the answer to the first question of a kind, as a server does for a member."""
    async for page in log.follow(session):
        for envelope in page.envelopes():
            entry = FULL_CATALOG.decode_entry(envelope)
            if isinstance(entry.payload, kind):
                scope = {"trace_id": entry.trace_id, "agent_id": entry.agent_id, "depth": entry.depth}
                await log.append(session, [build(make(entry.payload), origin, **scope)])
                return


def decide(decision: Any) -> Callable[[ApprovalRequest], ApprovalDecision]:
    return lambda request: ApprovalDecision(
        call_id=request.call_id, args_hash=request.args_hash, decision=decision
    )


@pytest.mark.parametrize("decision", ["approve", "deny", "expired"])
def test_an_approval_waits_for_a_person(decision: str) -> None:
    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Delete it") as turn:
            call = await turn.call("delete", {"path": "/a"})
            origin = "system" if decision == "expired" else "ui"
            answering = asyncio.create_task(answer(log, session, ApprovalRequest, decide(decision), origin))
            is_approved = await turn.ask_approval(call, risk="high", reason="it is old", roles=("boss",))
            assert is_approved is (decision == "approve")
            if is_approved:
                await turn.result(call, "done")
            await answering
        entries = await read(log, session)
        check_balance(entries)
        assert payloads(entries, ApprovalRequest)[0].risk == "high"
        [result] = payloads(entries, ToolResult)
        assert result.ok is (decision == "approve")

    play(run)


def test_the_page_answers_a_call_or_goes_on_with_a_message() -> None:
    async def run(log: Log, session: str) -> None:
        def pick(awaited: ToolAwait) -> ToolResult:
            [call] = awaited.calls
            return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result="red")

        async with turnlog.record(log, session, prompt="Ask") as turn:
            call = await turn.call("pick", {"question": "Which?"})
            answering = asyncio.create_task(answer(log, session, ToolAwait, pick))
            assert await turn.ask_page(call) == "red"
            await answering
            with pytest.raises(CallerError, match="expected an open call"):
                await turn.ask_page(call)
        check_balance(await read(log, session))

    play(run)


def test_a_message_in_place_of_an_answer_denies_the_question() -> None:
    async def run(log: Log, session: str) -> None:
        def cancel(awaited: ToolAwait) -> ToolResult:
            [call] = awaited.calls
            tool_call = ToolCall(call_id=call.call_id, tool=call.tool, args={}, executor="runtime")
            return ToolResult.cancelled(tool_call, "The user went on with a message.")

        async with turnlog.record(log, session, prompt="Ask") as turn:
            call = await turn.call("pick", {"question": "Which?"})
            answering = asyncio.create_task(answer(log, session, ToolAwait, cancel, "system"))
            with pytest.raises(CallerError, match="went on with a message"):
                await turn.ask_page(call)
            await answering
        check_balance(await read(log, session))

    play(run)


def test_a_session_has_one_recorder_at_a_time() -> None:
    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi"):
            with pytest.raises(Conflict, match="another owner runs"):
                async with turnlog.record(log, session, prompt="Ho"):
                    pass
        check_balance(await read(log, session))

    play(run)


def test_a_recorder_whose_session_was_taken_over_writes_nothing_more() -> None:
    async def work(log: Log, session: str, turn: RecordedTurn) -> None:
        async with turn:
            await turn.text("I beg")
            owner = await log.leases.owner_of(session)
            assert owner is not None
            await log.leases.end(owner)  # as a store does whose lease time is over
            assert await log.leases.claim(session, "thief") is not None
            await turn.text("in", agent=turn.root)
            await turn.call("search")

    async def run(log: Log, session: str) -> None:
        with pytest.raises(RecordingLost):
            await work(log, session, turnlog.record(log, session, prompt="Hi"))
        assert payloads(await read(log, session), AgentEnd) == []

    play(run)


def test_the_next_recorder_closes_what_a_dead_one_left(tmp_path: Path) -> None:
    async def run() -> None:
        address = f"sqlite:///{tmp_path}/log.db"
        log = await open_log(address)
        session = await log.create("x")
        turn = turnlog.record(log, session, prompt="Hi")
        await turn.__aenter__()
        await turn.text("I beg")
        await turn.call("search")
        await turn.complete_message()
        await turn.text("It i")
        for task in turn._tasks:
            task.cancel()
        await log.close()  # nothing was released: the process is dead

        log = await open_log(address)
        async with turnlog.record(log, session, prompt="Ho") as other:
            await other.text("Hello.")
        entries = await read(log, session)
        check_balance(entries)
        first, last = payloads(entries, AgentEnd)
        assert (first.stop_reason, first.reason, last.stop_reason) == ("error", "interrupted", "end_turn")
        await log.close()

    asyncio.run(run())


def test_pydantic_ai_is_recorded_with_its_tools_and_approvals() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    agent = pydantic_ai.Agent(TestModel(), name="Support")

    @agent.tool_plain  # type: ignore[untyped-decorator]
    def look(place: str) -> str:
        return f"grass at {place}"

    @agent.tool_plain(requires_approval=True)  # type: ignore[untyped-decorator]
    def delete(path: str) -> str:
        return f"deleted {path}"

    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi", name="Support") as turn:
            answering = asyncio.create_task(answer(log, session, ApprovalRequest, decide("approve")))
            result = await agent.run("Hi", capabilities=[turn.pydantic_ai()])
            await answering
        entries = await read(log, session)
        check_balance(entries)
        results = {item.tool: item.result for item in payloads(entries, ToolResult)}
        assert results == {"look": "grass at a", "delete": "deleted a"}
        assert payloads(entries, AssistantMessage)[-1].text == result.output
        assert len(payloads(entries, AgentStart)) == 1
        assert payloads(entries, AgentEnd)[0].usage is not None

    play(run)


def test_a_graph_of_langgraph_is_recorded() -> None:
    pytest.importorskip("langgraph")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    model = GenericFakeChatModel(messages=iter([AIMessage("It is green.")]))

    async def answer_node(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("model", answer_node).add_edge(START, "model").compile()

    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi") as turn:
            parts = [part async for part in turn.langgraph(graph, {"messages": [("user", "Hi")]})]
            assert parts
            with pytest.raises(CallerError, match="expected no version"):
                async for _ in turn.langgraph(graph, {}, version="v1"):
                    pass
        entries = await read(log, session)
        check_balance(entries)
        assert [item.text for item in payloads(entries, AssistantMessage)] == ["It is green."]

    play(run)


def test_a_turn_of_the_claude_sdk_is_recorded_and_asks_for_permission() -> None:
    from claude_agent_sdk import AssistantMessage as SdkMessage
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    script_record = ScriptRecord()

    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi", name="Lead") as turn:
            recorder = turn.claude_sdk()
            options = ClaudeAgentOptions(can_use_tool=recorder.can_use_tool, include_partial_messages=True)
            transport = ScriptedClaude(ONE, script_record, MemoryTranscripts(), options)
            answering = asyncio.create_task(answer(log, session, ApprovalRequest, decide("approve")))
            async with ClaudeSDKClient(options, transport) as client:
                await client.query("Hi")
                messages = [message async for message in recorder.watch(client.receive_response())]
            await answering
            assert any(isinstance(message, SdkMessage) for message in messages)
        entries = await read(log, session)
        check_balance(entries)
        assert [item.text for item in payloads(entries, AssistantMessage)] == ["Done."]
        [end] = payloads(entries, AgentEnd)
        assert (end.stop_reason, end.result) == ("end_turn", "Done.")
        assert len(payloads(entries, AgentUsage)) == 2

    play(run)
    assert script_record.effects == ["delete /a"]


def test_a_turn_of_the_claude_sdk_that_fails_is_recorded_as_failed() -> None:
    from claude_agent_sdk import ClaudeAgentOptions, query

    def fail(_: ScriptInput) -> ScriptReply:
        return ScriptReply(("I was about ",), error="connection reset")

    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi", name="Lead") as turn:
            script = AgentScript("Lead", fail)
            transport = ScriptedClaude(script, ScriptRecord(), MemoryTranscripts(), ClaudeAgentOptions())
            messages = query(prompt="Hi", options=ClaudeAgentOptions(), transport=transport)
            async for _ in turn.claude_sdk().watch(messages):
                pass
        entries = await read(log, session)
        check_balance(entries)
        assert [problem.message for problem in payloads(entries, SessionError)] == ["connection reset"]
        assert [end.stop_reason for end in payloads(entries, AgentEnd)] == ["error"]

    play(run)


def test_openai_agents_are_recorded_with_sub_agents_hand_offs_and_approvals() -> None:
    agents = pytest.importorskip("agents")
    from tests.support.runtimes.openai_agents import make_agent
    from turnlog.testing.runtimes import AgentScript, CallAgent, CallTool, HandOff, ScriptRecord, ScriptReply
    from turnlog.testing.runtimes.answering import DELETE
    from turnlog.testing.runtimes.scripts import ScriptInput

    def reply_child(given: ScriptInput) -> ScriptReply:
        if given.new_results:
            return ScriptReply(("It is gone.",))
        return ScriptReply(("Deleting. ",), calls=(CallTool("delete", "/a", "call_a"),))

    def reply_lead(given: ScriptInput) -> ScriptReply:
        if "call_c" in given.new_results:
            return ScriptReply(("Over to you. ",), calls=(HandOff("Closer", "call_h"),))
        return ScriptReply(("Asking. ",), calls=(CallAgent("Child", "Go.", "call_c"),))

    closer = AgentScript("Closer", lambda _: ScriptReply(("Bye.",)))
    child = AgentScript("Child", reply_child, [DELETE])
    record = ScriptRecord()
    agent = make_agent(AgentScript("Lead", reply_lead, agents=[child], hand_offs=[closer]), record)
    config = agents.RunConfig(tracing_disabled=True)

    async def run(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi", name="Lead") as turn:
            answering = asyncio.create_task(answer(log, session, ApprovalRequest, decide("approve")))
            hooks = turn.openai_agents()
            result = await agents.Runner.run(agent, "Hi", hooks=hooks, run_config=config)
            assert result.interruptions
            state = await hooks.answer(result)
            result = await agents.Runner.run(agent, state, hooks=hooks, run_config=config)
            await answering
        # a run after the turn leaves the log as it is
        last_seq = await log.last_seq(session)
        await agents.Runner.run(agent, "Again", hooks=hooks, run_config=config)
        assert await log.last_seq(session) == last_seq

        entries = await read(log, session)
        check_balance(entries)
        texts = [
            (entry.agent_name, entry.payload.text)
            for entry in entries
            if isinstance(entry.payload, AssistantMessage)
        ]
        assert texts == [
            ("Lead", "Asking. "),
            ("Child", "Deleting. "),
            ("Child", "It is gone."),
            ("Lead", "Over to you. "),
            ("Closer", "Bye."),
        ]
        results = {item.call_id: item.result for item in payloads(entries, ToolResult)}
        assert results == {"call_a": "deleted /a", "call_c": "It is gone.", "call_h": None}
        ends = {
            entry.agent_name: entry.payload.stop_reason
            for entry in entries
            if isinstance(entry.payload, AgentEnd)
        }
        assert ends == {"Child": "end_turn", "Lead": "handoff", "Closer": "end_turn"}
        assert len(payloads(entries, AgentUsage)) == 5

    play(run)
    assert record.effects[:1] == ["delete /a"]
