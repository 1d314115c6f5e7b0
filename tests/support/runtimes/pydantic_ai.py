"""Pydantic AI under the contract of runtimes."""

import inspect
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import create_model
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.usage import RequestUsage

from turnlog import adapters
from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    Feature,
    HistoryItem,
    ScriptRecord,
    ScriptTool,
)
from turnlog.testing.runtimes.scripts import INPUT_TOKENS, MODEL_NAME, OUTPUT_TOKENS, Call


class PydanticAi:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "structured_output",
            "step_limit",
            "completion_usage",
            "approvals",
            "inner_approvals",
            "page_calls",
            "files",
        }
    )

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        options: dict[str, Any] = {}
        if script.max_steps is not None:
            options["usage_limits"] = UsageLimits(request_limit=script.max_steps)
        return adapters.pydantic_ai(make_agent(script, record), **options)


def make_agent(
    script: AgentScript, record: ScriptRecord, capabilities: Iterable[Any] = ()
) -> Agent[None, Any]:
    options: dict[str, Any] = {}
    page_tools = [item for item in script.tools if item.is_for_page]
    if page_tools:
        options["toolsets"] = [ExternalToolset([define_page_tool(item) for item in page_tools])]
    if script.output_fields:
        fields: dict[str, Any] = dict.fromkeys(script.output_fields, (str, ...))
        options["output_type"] = create_model("Output", **fields)
    agent = Agent(make_model(script, record), name=script.name, capabilities=list(capabilities), **options)
    for item in script.tools:
        if not item.is_for_page:
            add_tool(agent, item, record)
    for child in script.agents:
        add_sub_agent(agent, child, record)
    return agent


def define_page_tool(item: ScriptTool) -> ToolDefinition:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    return ToolDefinition(name=item.name, description="Ask the person.", parameters_json_schema=schema)


def add_tool(agent: Agent[None, Any], item: ScriptTool, record: ScriptRecord) -> None:
    async def run(value: str) -> Any:
        """Do something."""
        result = record.run_tool(item, value)
        return await result if inspect.isawaitable(result) else result

    agent.tool_plain(name=item.name, requires_approval=item.needs_approval)(run)


def add_sub_agent(agent: Agent[None, Any], script: AgentScript, record: ScriptRecord) -> None:
    child = make_agent(script, record, [adapters.watch_pydantic_ai()])

    async def ask(prompt: str) -> Any:
        """Ask another agent."""
        return (await child.run(prompt)).output

    agent.tool_plain(name=get_agent_tool(script.name))(ask)


def get_agent_tool(name: str) -> str:
    return f"ask_{name}"


class CountingModel(FunctionModel):
    """A function model whose completions all have the same tokens: the real one estimates them."""

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async with super().request_stream(*args, **options) as response:
            usage = RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
            response.__class__ = type(
                "CountedResponse", (type(response),), {"usage": property(lambda _: usage)}
            )
            yield response


def make_model(script: AgentScript, record: ScriptRecord) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        reply = record.choose_reply(script, read_history(messages))
        for piece in reply.thinking:
            yield {0: DeltaThinkingPart(content=piece)}
        async for piece in record.play_text(reply):
            yield piece
        if reply.output is not None:
            name = info.output_tools[0].name
            yield {1: DeltaToolCall(name=name, tool_call_id="out_1", json_args=json.dumps(reply.output))}
        for number, call in enumerate(reply.calls, 1):
            text = json.dumps(get_args(call))
            yield {number: DeltaToolCall(name=get_tool(call), tool_call_id=call.call_id)}
            yield {number: DeltaToolCall(json_args=text[:3])}
            yield {number: DeltaToolCall(json_args=text[3:])}
        record.note_completion(script, reply)

    return CountingModel(stream_function=stream, model_name=MODEL_NAME)


def get_tool(call: Call) -> str:
    if isinstance(call, CallTool):
        return call.tool
    return get_agent_tool(call.agent)


def get_args(call: Call) -> dict[str, Any]:
    if isinstance(call, CallTool):
        return {"value": call.value}
    assert isinstance(call, CallAgent)
    return {"prompt": call.prompt}


def read_history(messages: list[ModelMessage]) -> Iterator[HistoryItem]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                yield from read_content(part.content)
            elif isinstance(part, TextPart):
                yield HistoryItem("assistant", part.content)
            elif isinstance(part, ToolCallPart):
                yield HistoryItem("call", part.tool_name, part.tool_call_id)
            elif isinstance(part, ToolReturnPart):
                yield HistoryItem("result", part.model_response_str(), part.tool_call_id)
            elif isinstance(part, RetryPromptPart):
                yield HistoryItem("result", part.model_response(), part.tool_call_id)


def read_content(content: Any) -> Iterator[HistoryItem]:
    """Yield a message of the user: its text, then its files."""
    if isinstance(content, str):
        yield HistoryItem("user", content)
        return
    for number, part in enumerate(content):
        if isinstance(part, BinaryContent):
            is_text = part.media_type.startswith("text/")
            yield HistoryItem("file", part.data.decode() if is_text else part.data_uri)
        else:
            yield HistoryItem("file" if number else "user", str(part))
