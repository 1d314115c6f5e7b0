"""LangGraph under the contract of runtimes: agents of `create_agent`, and a graph of agents for hand-offs."""

import inspect
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt
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
    ScriptReply,
    ScriptTool,
)
from turnlog.testing.runtimes.scripts import INPUT_TOKENS, MODEL_NAME, OUTPUT_TOKENS, Call

MESSAGE_NUMBERS = count(1)
STEPS_OF_A_COMPLETION = 2  # a model node and a tools node


class LangGraph:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "hand_offs",
            "structured_output",
            "step_limit",
            "completion_usage",
            "approvals",
            "inner_approvals",
            "nested_approvals",
            "page_calls",
            "files",
        }
    )

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        config = None
        if script.max_steps is not None:
            config = {"recursion_limit": script.max_steps * STEPS_OF_A_COMPLETION}
        if script.hand_offs:
            return adapters.langgraph(make_team(script, record), config=config)
        return adapters.langgraph(make_agent(script, record), config=config)


def make_agent(script: AgentScript, record: ScriptRecord, tools: Sequence[BaseTool] = ()) -> Any:
    own_tools = [make_tool(item, record) for item in script.tools]
    own_tools += [make_agent_tool(child, record) for child in script.agents]
    options: dict[str, Any] = {}
    guarded: dict[str, Any] = {item.name: True for item in script.tools if item.needs_approval}
    if guarded:
        options["middleware"] = [HumanInTheLoopMiddleware(interrupt_on=guarded)]
    if script.output_fields:
        fields: dict[str, Any] = dict.fromkeys(script.output_fields, (str, ...))
        options["response_format"] = create_model("Output", **fields)
    model = ScriptedModel(script=script, record=record)
    return create_agent(model, [*own_tools, *tools], name=script.name, **options)


def make_team(script: AgentScript, record: ScriptRecord) -> Any:
    """Make a graph whose nodes are agents; the first one can hand over to the others."""
    graph = StateGraph(MessagesState)
    names = tuple(other.name for other in script.hand_offs)
    transfers = [make_transfer(name) for name in names]
    graph.add_node(script.name, make_agent(script, record, transfers), destinations=names)
    for other in script.hand_offs:
        graph.add_node(other.name, make_agent(other, record))
        graph.add_edge(other.name, END)
    graph.add_edge(START, script.name)
    return graph.compile(name="team")


def make_transfer(name: str) -> BaseTool:
    def transfer(
        state: Annotated[dict[str, Any], InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        """Hand over."""
        result = ToolMessage("Handed over", tool_call_id=tool_call_id)
        return Command(goto=name, graph=Command.PARENT, update={"messages": [*state["messages"], result]})

    return StructuredTool.from_function(transfer, name=f"transfer_to_{name}")


def make_tool(item: ScriptTool, record: ScriptRecord) -> BaseTool:
    async def run(value: str) -> Any:
        """Do something."""
        if item.is_for_page:
            return str(interrupt({"question": value}))
        result = record.run_tool(item, value)
        return await result if inspect.isawaitable(result) else result

    return StructuredTool.from_function(coroutine=run, name=item.name)


def make_agent_tool(script: AgentScript, record: ScriptRecord) -> BaseTool:
    child = make_agent(script, record)

    async def ask(prompt: str) -> str:
        """Ask another agent."""
        result = await child.ainvoke({"messages": [HumanMessage(prompt)]})
        return str(result["messages"][-1].text)

    return StructuredTool.from_function(coroutine=ask, name=get_agent_tool(script.name))


def get_agent_tool(name: str) -> str:
    return f"ask_{name}"


class ScriptedModel(BaseChatModel):
    script: Any
    record: Any

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply: ScriptReply = self.record.choose_reply(self.script, read_history(messages))
        message_id = f"msg_{next(MESSAGE_NUMBERS)}"

        def chunk(content: Any = "", **fields: Any) -> ChatGenerationChunk:
            return ChatGenerationChunk(message=AIMessageChunk(content=content, id=message_id, **fields))

        for piece in reply.thinking:
            yield chunk([{"type": "reasoning", "reasoning": piece, "index": 0}])
        async for piece in self.record.play_text(reply):
            yield chunk([{"type": "text", "text": piece, "index": 1}] if reply.thinking else piece)
        calls = [(get_tool(call), get_args(call), call.call_id) for call in reply.calls]
        if reply.output is not None:
            calls.append(("Output", reply.output, "out_1"))
        for number, (name, call_args, call_id) in enumerate(calls):
            text = json.dumps(call_args)
            yield chunk(tool_call_chunks=[make_piece(number, "", name, call_id)])
            yield chunk(tool_call_chunks=[make_piece(number, text[:3])])
            yield chunk(tool_call_chunks=[make_piece(number, text[3:])])
        self.record.note_completion(self.script, reply)
        total = INPUT_TOKENS + OUTPUT_TOKENS
        yield chunk(
            usage_metadata={
                "input_tokens": INPUT_TOKENS,
                "output_tokens": OUTPUT_TOKENS,
                "total_tokens": total,
            },
            response_metadata={"finish_reason": "tool_calls" if calls else "stop"},
            chunk_position="last",
        )


def make_piece(index: int, args: str, name: str | None = None, call_id: str | None = None) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "index": index, "type": "tool_call_chunk"}


def get_tool(call: Call) -> str:
    if isinstance(call, CallTool):
        return call.tool
    return f"transfer_to_{call.agent}" if isinstance(call, HandOff) else get_agent_tool(call.agent)


def get_args(call: Call) -> dict[str, Any]:
    if isinstance(call, CallTool):
        return {"value": call.value}
    return {"prompt": call.prompt} if isinstance(call, CallAgent) else {}


def read_history(messages: list[BaseMessage]) -> Iterator[HistoryItem]:
    for message in messages:
        if isinstance(message, HumanMessage):
            yield from read_content(message.content)
        elif isinstance(message, ToolMessage):
            yield HistoryItem("result", message.text, message.tool_call_id)
        elif isinstance(message, AIMessage):
            if message.text:
                yield HistoryItem("assistant", message.text)
            for call in message.tool_calls:
                yield HistoryItem("call", call["name"], call["id"] or "")


def read_content(content: Any) -> Iterator[HistoryItem]:
    """Yield a message of the user: its text, then its files."""
    if isinstance(content, str):
        yield HistoryItem("user", content)
        return
    for number, block in enumerate(content):
        if block["type"] == "text":
            yield HistoryItem("file" if number else "user", block["text"])
        else:
            yield HistoryItem("file", f"data:{block['mime_type']};base64,{block['base64']}")
