"""Pydantic AI beyond the contract of runtimes: capabilities given twice, agents in threads, deps."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.unit.adapters.scripted_runner import OneRunner, open_session
from turnlog import adapters
from turnlog.adapters import ForeignAgent, Part
from turnlog.adapters.pydantic_ai_runner import PydanticAiRunner
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    BlockRetract,
    Entry,
    SessionError,
    ToolCall,
    ToolResult,
)


def say(*words: str) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for word in words:
            yield word

    return FunctionModel(stream_function=stream)


def call_once(tool: str, args: str = "{}") -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            yield "Done."
        else:
            yield {0: DeltaToolCall(name=tool, json_args=args, tool_call_id="call_1")}

    return FunctionModel(stream_function=stream)


def run(agent: ForeignAgent, prompt: str = "Hi") -> list[Entry]:
    async def collect() -> list[Entry]:
        return [entry async for entry in agent.run(prompt)]

    return asyncio.run(collect())


def payloads(entries: list[Entry], payload_class: type[Any]) -> list[Any]:
    return [entry.payload for entry in entries if isinstance(entry.payload, payload_class)]


def test_root_that_has_the_capability_already_is_reported_once() -> None:
    agent = Agent(say("Hello ", "world."), name="Lead", capabilities=[adapters.watch_pydantic_ai()])
    entries = run(adapters.pydantic_ai(agent))
    assert [message.text for message in payloads(entries, AssistantMessage)] == ["Hello world."]
    assert len(payloads(entries, AgentStart)) == 1


def test_watched_agent_outside_a_session_runs_as_before() -> None:
    agent = Agent(call_once("look"), name="Lead", capabilities=[adapters.watch_pydantic_ai()])

    @agent.tool_plain
    def look() -> str:
        """Look."""
        return "seen"

    assert asyncio.run(agent.run("Hi")).output == "Done."


def test_agent_that_a_tool_runs_in_a_thread_is_a_sub_agent() -> None:
    child = Agent(say("Hello."), name="Child", capabilities=[adapters.watch_pydantic_ai()])
    lead = Agent(call_once("ask"), name="Lead")

    @lead.tool_plain
    def ask() -> str:
        """Ask in the thread of a tool that is not async."""
        return str(asyncio.run(child.run("Hi")).output)

    entries = run(adapters.pydantic_ai(lead))
    [_, start] = payloads(entries, AgentStart)
    assert (start.name, start.call_id) == ("Child", "call_1")
    assert [message.text for message in payloads(entries, AssistantMessage)] == ["Hello.", "Done."]


def test_deps_may_be_a_function_of_the_part() -> None:
    def make_deps(part: Part) -> str:
        return f"deps for {part.message}"

    lead = Agent(call_once("look"), name="Lead", deps_type=str)

    @lead.tool
    def look(context: RunContext[str]) -> str:
        """Look at the dependencies."""
        return context.deps

    entries = run(adapters.pydantic_ai(lead, deps=make_deps))
    assert [result.result for result in payloads(entries, ToolResult)] == ["deps for Hi"]


def test_output_function_that_runs_an_agent_is_a_call_with_a_sub_agent() -> None:
    billing = Agent(say("Your invoice."), name="Billing", capabilities=[adapters.watch_pydantic_ai()])

    async def to_billing(query: str) -> str:
        """Hand over to billing."""
        return str((await billing.run(query)).output)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        name = info.output_tools[0].name
        yield {0: DeltaToolCall(name=name, json_args='{"query": "invoice"}', tool_call_id="call_1")}

    lead: Agent[None, str] = Agent(
        FunctionModel(stream_function=stream), name="Lead", output_type=[to_billing]
    )
    entries = run(adapters.pydantic_ai(lead))
    [call] = payloads(entries, ToolCall)
    [_, start] = payloads(entries, AgentStart)
    assert (start.name, start.call_id) == ("Billing", call.call_id)
    assert [message.text for message in payloads(entries, AssistantMessage)] == ["Your invoice."]


def test_model_that_has_no_streams_is_read_whole() -> None:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[0], ToolReturnPart):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[TextPart("Let me look."), ToolCallPart("look", {}, "call_1")])

    def watch() -> list[Any]:
        return [adapters.watch_pydantic_ai()]

    agent = Agent(FunctionModel(function=reply), name="Lead", capabilities=watch())

    @agent.tool_plain
    def look() -> str:
        """Look."""
        return "seen"

    entries = run(adapters.pydantic_ai(agent))
    assert [message.text for message in payloads(entries, AssistantMessage)] == ["Let me look.", "Done."]
    assert [result.result for result in payloads(entries, ToolResult)] == ["seen"]
    # outside a session, too: the capability alone makes the framework ask for streams
    assert asyncio.run(agent.run("Hi")).output == "Done."


def test_text_that_an_output_validator_refuses_is_retracted() -> None:
    texts = iter(["First try.", "Second try."])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield next(texts)

    agent = Agent(FunctionModel(stream_function=stream), name="Lead", retries=2)

    @agent.output_validator
    def check(output: str) -> str:
        if output == "First try.":
            raise ModelRetry("Try again.")
        return output

    entries = run(adapters.pydantic_ai(agent))
    messages = payloads(entries, AssistantMessage)
    assert [message.text for message in messages] == ["First try.", "Second try."]
    [retraction] = payloads(entries, BlockRetract)
    assert retraction.block_ids == (messages[0].block_id,)


def test_turn_whose_tool_returns_what_json_cannot_express_is_remembered() -> None:
    seen: list[list[ModelMessage]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        seen.append(list(messages))
        if len(seen) == 1:
            yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="call_1")}
        else:
            yield "A pair, cut in two: \ud83d"
            yield "\ude00"

    agent = Agent(FunctionModel(stream_function=stream), name="Lead")

    @agent.tool_plain
    def look() -> ToolReturn:
        """Look."""
        return ToolReturn("seen", metadata={"frame": object()})

    async def scenario() -> None:
        async with open_session(OneRunner(PydanticAiRunner(agent, None, {}))) as session:
            await session.say("Hi")
            assert await session.find(SessionError) == []
            await session.restart()
            await session.say("And now?")
            assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn", "end_turn"]
            await session.check_laws()

    asyncio.run(scenario())
    texts = [part.content for message in seen[-1] for part in message.parts if isinstance(part, TextPart)]
    assert texts == ["A pair, cut in two: \U0001f600"]


def test_turn_that_fails_over_a_result_that_json_cannot_express_is_remembered() -> None:
    agent = Agent(call_once("look"), name="Lead")

    @agent.tool_plain
    def look() -> object:
        """Look."""
        return object()  # the framework itself cannot send it to a model

    async def scenario() -> None:
        runner = PydanticAiRunner(agent, None, {})
        async with open_session(OneRunner(runner)) as session:
            await session.say("Hi")
            await session.restart()
            await session.say("And now?")
            assert [end.stop_reason for end in await session.find(AgentEnd)] == ["error", "end_turn"]
            await session.check_laws()

    asyncio.run(scenario())
