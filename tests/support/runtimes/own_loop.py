"""The turn loop of this package under the contract of runtimes."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from turnlog import Agent
from turnlog.agents import ReplyBuilder, Request, Tool, tool
from turnlog.agents.models.messages import build_messages_body
from turnlog.agents.retry import RetryPolicy
from turnlog.events import Payload, Usage
from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    Feature,
    HandOff,
    HistoryItem,
    ScriptRecord,
    ScriptTool,
)
from turnlog.testing.runtimes.scripts import INPUT_TOKENS, MODEL_NAME, OUTPUT_TOKENS, Call

FILE_TYPES = frozenset({"image", "document"})


class OwnLoop:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "hand_offs",
            "step_limit",
            "completion_usage",
            "approvals",
            "inner_approvals",
            "nested_approvals",
            "page_calls",
            "files",
        }
    )

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> Agent:
        options: dict[str, Any] = {}
        if script.max_steps is not None:
            options["max_steps"] = script.max_steps
        return Agent(
            script.name,
            "Answer.",
            model=ScriptedModel(script, record),
            tools=[make_tool(item, record) for item in script.tools],
            agents=[self.make_agent(child, record) for child in script.agents],
            handoffs=[self.make_agent(other, record) for other in script.hand_offs],
            retry=RetryPolicy(max_attempts=1),
            **options,
        )


def make_tool(item: ScriptTool, record: ScriptRecord) -> Tool:
    async def run(value: str = "") -> Any:
        """Do something."""
        result = record.run_tool(item, value)
        return await result if inspect.isawaitable(result) else result

    run.__name__ = item.name
    if item.is_for_page:
        return tool(executor="frontend")(run)
    return tool(kind="write", approval=item.needs_approval)(run)


class ScriptedModel:
    name = MODEL_NAME

    def __init__(self, script: AgentScript, record: ScriptRecord) -> None:
        self._script = script
        self._transcript = record

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        body = await build_messages_body(request)  # as a provider gets it
        chosen = self._transcript.choose_reply(self._script, read_history(body["messages"]))
        yield reply.begin(MODEL_NAME)
        for piece in chosen.thinking:
            yield reply.think(piece)
        async for piece in self._transcript.play_text(chosen):
            yield reply.text(piece)
        for call in chosen.calls:
            yield reply.call(get_tool_name(call), get_args(call), call.call_id)
        self._transcript.note_completion(self._script, chosen)
        usage = Usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        yield reply.done("tool_use" if chosen.calls else "end_turn", usage)


def read_history(messages: list[dict[str, Any]]) -> Iterator[HistoryItem]:
    for message in messages:
        # behind the text of a message with files, other texts are files of it, too
        has_files = any(part["type"] in FILE_TYPES for part in message["content"])
        texts = 0
        for part in message["content"]:
            if part["type"] == "text" and message["role"] == "user":
                yield HistoryItem("file" if has_files and texts else "user", part["text"])
                texts += 1
            elif part["type"] == "text":
                yield HistoryItem("assistant", part["text"])
            elif part["type"] in FILE_TYPES:
                source = part["source"]
                uri = f"data:{source['media_type']};base64,{source['data']}"
                yield HistoryItem("file", source["data"] if source["type"] == "text" else uri)
            elif part["type"] == "tool_use":
                yield HistoryItem("call", part["name"], part["id"])
            elif part["type"] == "tool_result":
                yield HistoryItem("result", str(part["content"]), part["tool_use_id"])


TOOL_NAMES: dict[type, Callable[[Any], str]] = {
    CallTool: lambda call: str(call.tool),
    CallAgent: lambda call: str(call.agent).lower(),
    HandOff: lambda call: f"handoff_to_{call.agent.lower()}",
}


def get_tool_name(call: Call) -> str:
    return TOOL_NAMES[type(call)](call)


def get_args(call: Call) -> dict[str, Any]:
    return (
        {"value": call.value} if isinstance(call, CallTool) else {"prompt": getattr(call, "prompt", "Go on.")}
    )
