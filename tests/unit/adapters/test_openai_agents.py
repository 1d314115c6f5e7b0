"""The OpenAI Agents SDK beyond the contract of runtimes: hand-offs, stops, contexts, guardrails, tracing."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
from agents import (
    Agent,
    GuardrailFunctionOutput,
    OpenAIChatCompletionsModel,
    RunContextWrapper,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.run_state import CURRENT_SCHEMA_VERSION
from openai import AsyncOpenAI

from tests.support.runtimes.openai_agents import OpenAiAgents, ScriptedModel, make_agent
from turnlog import adapters
from turnlog.adapters import Part
from turnlog.events import (
    AgentCheckpoint,
    AgentEnd,
    AgentStart,
    AgentUsage,
    AssistantMessage,
    AssistantThinking,
    BlockRetract,
    SessionError,
    ToolCall,
    ToolResult,
)
from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    HandOff,
    ScriptRecord,
    ScriptReply,
    ScriptTool,
)
from turnlog.testing.runtimes.answering import DELETE, ONE, make_nested
from turnlog.testing.runtimes.harness import RuntimeHarness, open_session
from turnlog.testing.runtimes.scripts import ScriptInput
from turnlog.testing.runtimes.talking import DONE, HELLO, call_once

HANG_S = 120.0


class Made:
    """Makes an agent with a function, as `RuntimeUnderTest` does."""

    features = OpenAiAgents.features

    def __init__(self, make: Any) -> None:
        self._make = make

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> Any:
        return self._make(script, record)


def play(work: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await work

    asyncio.run(bounded())


def make_triage() -> AgentScript:
    """Return an agent that hands over at once, to one that deletes something."""

    def reply(given: ScriptInput) -> ScriptReply:
        return ScriptReply(("One moment. ",), calls=(HandOff("Billing", "call_h"),))

    def reply_billing(given: ScriptInput) -> ScriptReply:
        if given.last_user_text != "Delete":
            return ScriptReply(("Your invoice.",))
        if "call_a" in given.new_results:
            return DONE
        return ScriptReply(calls=(CallTool("delete", "/a", "call_a"),))

    billing = AgentScript("Billing", reply_billing, [DELETE])
    return AgentScript("Lead", reply, hand_offs=[billing])


def test_agent_that_took_over_answers_the_next_turn_and_its_approvals_after_a_restart() -> None:
    async def work() -> None:
        async with open_session(OpenAiAgents(), make_triage()) as session:
            await session.say("Hi")
            await session.restart()
            await session.say("Delete")
            await session.check(is_waiting=True)
            await session.restart()
            await session.answer("call_a", True)
            await session.check()
            starts = [(start.name, start.via) for start in await session.find(AgentStart)]
            assert starts == [("Lead", "prompt"), ("Billing", "handoff"), ("Billing", "prompt")]
            assert session.record.effects == ["delete /a"]
            assert session.record.inputs["Billing"][-1].user_texts == ["Hi", "Delete"]

    play(work())


def test_results_of_tools_that_ran_are_in_the_history_after_a_stop() -> None:
    started = asyncio.Event()

    async def hang(value: str) -> str:
        started.set()
        await asyncio.get_running_loop().create_future()
        return value

    def reply(given: ScriptInput) -> ScriptReply:
        if given.last_user_text != "Hi":
            return DONE
        return ScriptReply(
            ("Looking. ",), calls=(CallTool("look", "Oslo", "call_l"), CallTool("hang", "", "call_h"))
        )

    script = AgentScript("Lead", reply, [ScriptTool("look"), ScriptTool("hang", hang)])

    async def work() -> None:
        async with open_session(OpenAiAgents(), script) as session:
            await session.send("Hi")
            await started.wait()
            await session.wait_for(ToolResult)
            await session.stop()
            await session.say("Again")
            await session.check()
            items = session.record.inputs["Lead"][-1].items
            results = [item.text for item in items if item.kind == "result"]
            assert results[0] == "did Oslo"
            assert len(results) == 2
            assert [item.text for item in items if item.kind == "assistant"] == ["Looking. "]

    play(work())


def test_stop_after_an_answer_keeps_the_history_lawful() -> None:
    started = asyncio.Event()

    async def hang(value: str) -> str:
        started.set()
        await asyncio.get_running_loop().create_future()
        return value

    script = AgentScript("Lead", ONE.reply, [ScriptTool("delete", hang, needs_approval=True)])

    async def work() -> None:
        async with open_session(OpenAiAgents(), script) as session:
            await session.say("Hi")
            await session.restart()
            await session.log.append(session.session, await session.build_answer("call_a", True))
            await started.wait()
            await session.stop()
            await session.say("Again")
            await session.check()
            last = session.record.inputs["Lead"][-1]
            assert last.user_texts == ["Hi", "Again"]

    play(work())


def ask_agent(name: str, *calls: CallAgent) -> Callable[[ScriptInput], ScriptReply]:
    def reply(given: ScriptInput) -> ScriptReply:
        return DONE if given.new_results else ScriptReply((f"{name} asks. ",), calls=calls)

    return reply


def test_agents_three_levels_deep_and_side_by_side_wait_over_restarts() -> None:
    def delete(given: ScriptInput) -> ScriptReply:
        path = given.last_user_text
        if given.new_results:
            return ScriptReply((f"{path} is handled.",))
        return ScriptReply((f"Deleting {path}. ",), calls=(CallTool("delete", path, f"call_{path}"),))

    reader = AgentScript("Reader", delete, [DELETE])
    middle = AgentScript(
        "Middle", ask_agent("Middle", CallAgent("Reader", "c", "call_same")), agents=[reader]
    )
    calls = (
        CallAgent("Reader", "a", "call_1"),
        CallAgent("Reader", "b", "call_2"),
        CallAgent("Middle", "m", "call_3"),
    )
    script = AgentScript("Lead", ask_agent("Lead", *calls), agents=[reader, middle])

    async def work() -> None:
        async with open_session(OpenAiAgents(), script) as session:
            await session.say("Hi")
            await session.check(is_waiting=True)
            for call_id, is_approved in (("call_c", True), ("call_a", False), ("call_b", True)):
                await session.restart()
                await session.answer(call_id, is_approved)
            await session.check()
            assert sorted(session.record.effects) == ["delete b", "delete c"]
            assert len(await session.find(AgentStart)) == 5
            results = await session.results()
            assert {key: result.ok for key, result in results.items() if key.startswith("call_")} == {
                "call_a": False,
                "call_b": True,
                "call_c": True,
                "call_same": True,
                "call_1": True,
                "call_2": True,
                "call_3": True,
            }
            assert results["call_3"].result == "Done."
            assert (await session.end_of("Lead")).stop_reason == "end_turn"

    play(work())


def test_results_are_logged_before_the_slowest_tool_of_the_step() -> None:
    release = asyncio.Event()

    async def wait(value: str) -> str:
        await release.wait()
        return value

    calls = (CallTool("wait", "slow", "call_w"), CallTool("look", "", "call_l"))
    script = AgentScript("Lead", call_once(*calls).reply, [ScriptTool("wait", wait), ScriptTool("look")])

    async def work() -> None:
        async with open_session(OpenAiAgents(), script) as session:
            turn = await session.send("Hi")
            result = await session.wait_for(ToolResult)
            assert result.call_id == "call_l"
            release.set()
            await session.wait_settled(turn)
            await session.check()

    play(work())


def test_sub_agent_that_asks_without_being_watched_is_an_error_that_says_what_to_do() -> None:
    def make(script: AgentScript, record: ScriptRecord) -> Any:
        child = make_agent(script.agents[0], record)
        lead = Agent(
            name="Lead", model=ScriptedModel(script, record), tools=[child.as_tool("ask_Child", "Ask.")]
        )
        return adapters.openai_agents(lead)

    async def work() -> None:
        async with open_session(Made(make), make_nested()) as session:
            await session.say("Hi")
            await session.check_laws()
            [error] = await session.find(SessionError)
            assert error.code == "agent_failed"
            assert session.record.effects == []

    play(work())


def test_sub_agent_of_one_that_is_not_watched_is_shown() -> None:
    reader = AgentScript("Reader", lambda _: HELLO)

    def make(script: AgentScript, record: ScriptRecord) -> Any:
        inner = make_agent(reader, record)
        tool = inner.as_tool("look", "Ask.", on_stream=adapters.watch_openai_agents)
        middle_script = AgentScript("Middle", call_once(CallTool("look", "", "call_r")).reply)
        middle = Agent(name="Middle", model=InputModel(middle_script, ScriptRecord()), tools=[tool])
        lead = Agent(name="Lead", model=InputModel(script, record), tools=[middle.as_tool("look", "Ask.")])
        return adapters.openai_agents(lead)

    async def work() -> None:
        async with open_session(Made(make), call_once(CallTool("look"))) as session:
            await session.say("Hi")
            await session.check()
            starts = [(start.name, start.call_id) for start in await session.find(AgentStart)]
            assert starts == [("Lead", None), ("Reader", None)]

    play(work())


class InputModel(ScriptedModel):
    """Calls the tools of agents with an `input`, as they have no `value`."""

    async def stream_response(self, *args: Any, **options: Any) -> Any:
        async for event in super().stream_response(*args, **options):
            item = getattr(event, "item", None)
            items = [item] if item is not None else []
            if event.type == "response.completed":
                items = event.response.output
            for one in items:
                if one.type == "function_call" and one.arguments:
                    one.arguments = json.dumps({"input": "Go."})
            yield event


def test_context_is_made_for_each_part_and_never_stored() -> None:
    parts: list[Part] = []
    secrets: list[str] = []

    @function_tool(needs_approval=True)
    def delete(context: RunContextWrapper[dict[str, str]], value: str) -> str:
        """Delete something."""
        secrets.append(context.context["secret"])
        return f"deleted {value}"

    def make(script: AgentScript, record: ScriptRecord) -> Any:
        def make_context(part: Part) -> dict[str, str]:
            parts.append(part)
            return {"secret": "open sesame"}

        agent: Agent[Any] = Agent(name="Lead", model=ScriptedModel(script, record), tools=[delete])
        return adapters.openai_agents(agent, context=make_context)

    async def work() -> None:
        async with open_session(Made(make), ONE) as session:
            await session.say("Hi")
            for name in await blob_names(session):
                blob = await session.log.get_private_blob(session.session, name)
                assert b"sesame" not in blob.data
            await session.restart()
            await session.answer("call_a", True)
            await session.check()

    play(work())
    assert secrets == ["open sesame"]
    assert [part.message for part in parts] == ["Hi", None]


async def blob_names(session: RuntimeHarness) -> list[str]:
    checkpoints = await session.find(AgentCheckpoint)
    assert checkpoints
    assert {item.version.partition("/")[2] for item in checkpoints} == {CURRENT_SCHEMA_VERSION}
    return [item.blob for item in checkpoints]


def test_guardrail_that_trips_ends_the_turn_with_an_error() -> None:
    @input_guardrail
    async def refuse_hi(context: Any, agent: Any, items: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=items[-1]["content"] == "Hi")

    def make(script: AgentScript, record: ScriptRecord) -> Any:
        model = ScriptedModel(script, record)
        return adapters.openai_agents(Agent(name="Lead", model=model, input_guardrails=[refuse_hi]))

    async def work() -> None:
        async with open_session(Made(make), AgentScript("Lead", lambda _: HELLO)) as session:
            await session.say("Hi")
            await session.check_laws()
            assert [error.code for error in await session.find(SessionError)] == ["guardrail"]
            assert (await session.end_of("Lead")).stop_reason == "error"
            await session.say("Again")
            assert (await session.end_of("Lead")).stop_reason == "end_turn"

    play(work())


def test_failure_of_a_tool_without_a_failure_function_ends_the_turn() -> None:
    @function_tool(failure_error_function=None)
    def fail(value: str) -> str:
        """Fail."""
        raise ValueError("the disk is on fire")

    def make(script: AgentScript, record: ScriptRecord) -> Any:
        return adapters.openai_agents(Agent(name="Lead", model=ScriptedModel(script, record), tools=[fail]))

    async def work() -> None:
        async with open_session(Made(make), call_once(CallTool("fail"))) as session:
            await session.say("Hi")
            await session.check()
            [call] = await session.find(ToolCall)
            result = (await session.results())[call.call_id]
            assert result.error is not None
            assert result.error.code == "CANCELLED"
            assert [end.stop_reason for end in await session.find(AgentEnd)] == ["error"]

    play(work())


CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "small"}


def build_chat_stream(*deltas: dict[str, Any]) -> bytes:
    """Build the stream of an endpoint for chat completions, as most other providers have."""
    chunks: list[dict[str, Any]] = [
        {**CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}
    chunks.append({**CHUNK, "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def call_piece(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": "look"} if fields else {})}
    return {"tool_calls": [{"index": index, "type": "function", "function": function, **fields}]}


def answer_chat(request: httpx2.Request) -> httpx2.Response:
    messages = json.loads(request.content)["messages"]
    if messages[-1]["role"] == "tool":
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "Do"}, {"content": "ne."}]
    else:
        deltas = [
            {"role": "assistant", "reasoning_content": "Hm."},
            {"content": "Looking."},
            call_piece(0, "", id="call_a"),
            call_piece(0, '{"value"'),
            call_piece(0, ': "a"}'),
            call_piece(1, '{"value": "b"}', id="call_b"),
        ]
    content = build_chat_stream(*deltas)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)


def test_model_of_chat_completions_is_streamed_whole_with_the_usage_of_each_completion() -> None:
    @function_tool
    def look(value: str) -> str:
        """Look."""
        return f"saw {value}"

    async def work() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer_chat)) as http_client:
            client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:1/v1", http_client=http_client)
            model = OpenAIChatCompletionsModel("small", client)
            agent = adapters.openai_agents(Agent(name="Lead", model=model, tools=[look]))
            entries = [entry async for entry in agent.run("Hi")]
        found = [entry.payload for entry in entries]
        texts = [item.text for item in found if isinstance(item, AssistantMessage | AssistantThinking)]
        assert texts == ["Hm.", "Looking.", "Done."]
        calls = {item.call_id: item.args for item in found if isinstance(item, ToolCall)}
        assert calls == {"call_a": {"value": "a"}, "call_b": {"value": "b"}}
        results = {item.call_id: item.result for item in found if isinstance(item, ToolResult)}
        assert results == {"call_a": "saw a", "call_b": "saw b"}
        usages = [item.usage for item in found if isinstance(item, AgentUsage)]
        assert [(usage.input_tokens, usage.output_tokens) for usage in usages] == [(50, 9), (50, 9)]

    play(work())


def test_tool_that_returns_bytes_does_not_fail_its_run() -> None:
    @function_tool(name_override="look")
    def look(value: str) -> Any:
        return b"\xff"

    def make(script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        return adapters.openai_agents(Agent(name="Lead", model=ScriptedModel(script, record), tools=[look]))

    async def scenario() -> None:
        script = call_once(CallTool("look", "x", "call_a"))
        async with open_session(Made(make), script) as session:
            await session.say("Hi")
            assert (await session.end_of("Lead")).stop_reason == "end_turn"
            assert (await session.results())["call_a"].result == "_w=="
            await session.check()

    play(scenario())


def test_text_that_an_output_guardrail_refuses_is_taken_back() -> None:
    @output_guardrail
    async def refuse_secret(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in output)

    def make(script: AgentScript, record: ScriptRecord) -> Any:
        model = ScriptedModel(script, record)
        return adapters.openai_agents(Agent(name="Lead", model=model, output_guardrails=[refuse_secret]))

    def reply(given: ScriptInput) -> ScriptReply:
        return (
            ScriptReply(
                ("The ", "secret."),
            )
            if given.last_user_text == "Hi"
            else HELLO
        )

    async def work() -> None:
        async with open_session(Made(make), AgentScript("Lead", reply)) as session:
            await session.say("Hi")
            await session.check_laws()
            assert [error.code for error in await session.find(SessionError)] == ["guardrail"]
            end = await session.end_of("Lead")
            assert (end.stop_reason, end.result) == ("error", None)
            [retract] = await session.find(BlockRetract)
            [message] = await session.find(AssistantMessage)
            assert retract.block_ids == (message.block_id,)

            await session.say("Again")
            assert (await session.end_of("Lead")).stop_reason == "end_turn"
            assert "secret" not in str(session.record.inputs)

    play(work())
