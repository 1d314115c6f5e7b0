"""The OpenAI Agents SDK under the contract of runtimes."""

import inspect
import json
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import create_model

from turnlog import adapters
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

ITEM_NUMBERS = count(1)


class OpenAiAgents:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "hand_offs",
            "structured_output",
            "step_limit",
            "approvals",
            "inner_approvals",
            "nested_approvals",
            "files",
        }
    )

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        options: dict[str, Any] = {}
        if script.max_steps is not None:
            options["max_turns"] = script.max_steps
        return adapters.openai_agents(make_agent(script, record), **options)


def make_agent(script: AgentScript, record: ScriptRecord) -> Agent[Any]:
    options: dict[str, Any] = {}
    if script.output_fields:
        fields: dict[str, Any] = dict.fromkeys(script.output_fields, (str, ...))
        options["output_type"] = create_model("Output", **fields)
    tools = [make_tool(item, record) for item in script.tools]
    tools += [make_agent_tool(child, record) for child in script.agents]
    handoffs = [make_agent(other, record) for other in script.hand_offs]
    model = ScriptedModel(script, record)
    return Agent(name=script.name, model=model, tools=list(tools), handoffs=list(handoffs), **options)


def make_tool(item: ScriptTool, record: ScriptRecord) -> FunctionTool:
    async def run(value: str) -> Any:
        """Do something."""
        result = record.run_tool(item, value)
        return await result if inspect.isawaitable(result) else result

    return function_tool(run, name_override=item.name, needs_approval=item.needs_approval)


def make_agent_tool(script: AgentScript, record: ScriptRecord) -> FunctionTool:
    child = make_agent(script, record)
    name = get_agent_tool(script.name)
    return child.as_tool(name, "Ask another agent.", on_stream=adapters.watch_openai_agents)


def get_agent_tool(name: str) -> str:
    return f"ask_{name}"


def make_id(prefix: str) -> str:
    return f"{prefix}_{next(ITEM_NUMBERS)}"


class ScriptedModel(Model):
    def __init__(self, script: AgentScript, record: ScriptRecord) -> None:
        self._script = script
        self._record = record

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        async for event in self.stream_response(*args, **options):
            if event.type == "response.completed":
                tokens = Usage(requests=1, input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
                return ModelResponse(event.response.output, tokens, event.response.id)
        raise AssertionError

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        reply = self._record.choose_reply(self._script, read_history(input))
        writer = ResponseWriter()
        yield writer.make(
            ResponseCreatedEvent, "response.created", response=writer.make_response("in_progress")
        )
        if reply.thinking:
            for event in writer.think(reply.thinking):
                yield event
        if reply.output is not None:
            reply = reply._replace(text=(json.dumps(reply.output),))
        if reply.text:
            message_id = make_id("msg")
            yield writer.start(make_message(message_id, ""))
            async for piece in self._record.play_text(reply):
                yield writer.make_delta(
                    ResponseTextDeltaEvent, "output_text", piece, message_id, content_index=0
                )
            yield writer.end(make_message(message_id, "".join(reply.text)))
        for call in reply.calls:
            for event in writer.call(call):
                yield event
        self._record.note_completion(self._script, reply)
        yield writer.make(
            ResponseCompletedEvent, "response.completed", response=writer.make_response("completed")
        )


class ResponseWriter:
    """Makes the events of one response."""

    def __init__(self) -> None:
        self._id = make_id("resp")
        self._output: list[Any] = []

    def make(self, kind: Any, name: str, **fields: Any) -> Any:
        return kind(type=name, sequence_number=0, **fields)

    def make_response(self, status: Any) -> Response:
        usage = ResponseUsage(
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
            input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        return Response(
            id=self._id,
            created_at=0,
            model=MODEL_NAME,
            object="response",
            output=list(self._output),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            status=status,
            usage=usage,
        )

    def start(self, item: Any) -> Any:
        return self.make(
            ResponseOutputItemAddedEvent,
            "response.output_item.added",
            item=item,
            output_index=len(self._output),
        )

    def make_delta(self, kind: Any, name: str, piece: str, item_id: str, **fields: Any) -> Any:
        if kind is ResponseTextDeltaEvent:
            fields["logprobs"] = []
        return self.make(
            kind,
            f"response.{name}.delta",
            delta=piece,
            item_id=item_id,
            output_index=len(self._output),
            **fields,
        )

    def end(self, item: Any) -> Any:
        self._output.append(item)
        index = len(self._output) - 1
        return self.make(
            ResponseOutputItemDoneEvent, "response.output_item.done", item=item, output_index=index
        )

    def think(self, pieces: tuple[str, ...]) -> Iterator[Any]:
        item_id = make_id("rs")
        yield self.start(ResponseReasoningItem(id=item_id, type="reasoning", summary=[]))
        for piece in pieces:
            kind = ResponseReasoningSummaryTextDeltaEvent
            yield self.make_delta(kind, "reasoning_summary_text", piece, item_id, summary_index=0)
        summary = [Summary(text="".join(pieces), type="summary_text")]
        yield self.end(ResponseReasoningItem(id=item_id, type="reasoning", summary=summary))

    def call(self, call: Call) -> Iterator[Any]:
        item_id = make_id("fc")
        name = get_tool(call)
        text = json.dumps(get_args(call))

        def make_item(arguments: str) -> ResponseFunctionToolCall:
            return ResponseFunctionToolCall(
                id=item_id, call_id=call.call_id, name=name, arguments=arguments, type="function_call"
            )

        yield self.start(make_item(""))
        for piece in (text[:3], text[3:]):
            kind = ResponseFunctionCallArgumentsDeltaEvent
            yield self.make_delta(kind, "function_call_arguments", piece, item_id)
        yield self.end(make_item(text))


def make_message(message_id: str, text: str) -> ResponseOutputMessage:
    content = [ResponseOutputText(annotations=[], text=text, type="output_text")]
    return ResponseOutputMessage(
        id=message_id,
        content=list(content) if text else [],
        role="assistant",
        status="completed",
        type="message",
    )


def get_tool(call: Call) -> str:
    if isinstance(call, CallTool):
        return call.tool
    return f"transfer_to_{call.agent.lower()}" if isinstance(call, HandOff) else get_agent_tool(call.agent)


def get_args(call: Call) -> dict[str, Any]:
    if isinstance(call, CallTool):
        return {"value": call.value}
    return {"input": call.prompt} if isinstance(call, CallAgent) else {}


def read_history(items: Any) -> Iterator[HistoryItem]:
    if isinstance(items, str):
        yield HistoryItem("user", items)
        return
    for item in items:
        kind = item.get("type", "message")
        if item.get("role") == "user":
            yield from read_content(item["content"])
        elif kind == "message":
            yield HistoryItem("assistant", "".join(part["text"] for part in item["content"]))
        elif kind == "function_call":
            yield HistoryItem("call", item["name"], item["call_id"])
        elif kind == "function_call_output":
            yield HistoryItem("result", str(item["output"]), item["call_id"])


def read_content(content: Any) -> Iterator[HistoryItem]:
    """Yield a message of the user: its text, then its files."""
    if isinstance(content, str):
        yield HistoryItem("user", content)
        return
    for number, part in enumerate(content):
        if part["type"] == "input_text":
            yield HistoryItem("file" if number else "user", part["text"])
        else:
            yield HistoryItem("file", part.get("image_url") or part["file_data"])
