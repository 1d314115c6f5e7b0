"""Run a graph of LangGraph: `turnlog.adapters.langgraph(graph)`. Imports the framework.

A session's channel is a thread. A graph with a checkpointer keeps it; for one without, the checkpoints are
the state of the session itself (`langgraph_saver`). Before a message goes to a thread whose last step has
open calls, they get results that say why they did not run: providers refuse a history with open calls.
"""

import asyncio
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.types import Command, StreamMode

from turnlog.adapters.answers import to_decision, to_value
from turnlog.adapters.frameworks import LANGGRAPH
from turnlog.adapters.langgraph_saver import SavedThread, load_thread, save_thread
from turnlog.adapters.part_files import PartFile
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import (
    Denied,
    Finished,
    Part,
    Paused,
    Question,
    UnreadableState,
)
from turnlog.errors import CallerError
from turnlog.events.agent import StopReason
from turnlog.parse import AgentInfo
from turnlog.parse.foreign.common import render_text
from turnlog.parse.foreign.langgraph import InterruptQuestion, LangGraphTranslator

SOURCE = "langgraph"
STREAM_MODES: list[StreamMode] = ["messages", "updates", "tasks"]
MAX_SAVED_MESSAGE_IDS = 256  # of the last messages: a graph that goes on repeats those of its last step
DEFAULT_NAME = "LangGraph"  # what an unnamed graph is called by the framework


class VolatileCheckpointer(UserWarning):
    """The checkpointer of a graph loses its threads when the process ends."""


class SavedQuestion(msgspec.Struct):
    agent_id: str
    call_id: str
    interrupt_id: str
    is_decision: bool
    is_single: bool


class GraphState(msgspec.Struct):
    """The state of a checkpoint. `thread` is None if the graph has its own checkpointer."""

    thread: SavedThread | None = None
    questions: list[SavedQuestion] = []
    agents: list[tuple[list[str], str]] = []  # paths and ids of the open agents below the root
    message_ids: list[str] = []


class LangGraphRunner:
    """Runs one graph. `config` and `context` are values, or functions of the `Part`."""

    source = SOURCE

    def __init__(
        self,
        graph: Any,
        name: str | None,
        config: Any,
        context: Any,
        make_input: Callable[[Part], Any] | None,
    ) -> None:
        if not isinstance(graph, Pregel):
            raise CallerError(f"expected a compiled graph of LangGraph, got {type(graph).__name__}")
        if isinstance(graph.checkpointer, InMemorySaver):
            message = "the graph's checkpointer is in memory: questions that wait are lost with the process"
            advice = "leave the checkpointer out, and the session keeps its checkpoints"
            warnings.warn(f"{message}; {advice}", VolatileCheckpointer, stacklevel=4)
        self._graph = graph
        self._name = name
        self._make_config: Callable[[Part], Any] = config if callable(config) else lambda _: config
        self._make_context: Callable[[Part], Any] = context if callable(context) else lambda _: context
        self._make_input = make_input or make_message_input
        self.version = LANGGRAPH.version

    @property
    def name(self) -> str:
        return self._name or self._graph.name or DEFAULT_NAME

    def can_read(self, version: str) -> bool:
        return LANGGRAPH.has_same_major(version)

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        state = read_state(part.state)
        thread_id = part.conversation_key
        graph = self._graph
        saver: InMemorySaver | None = None
        if graph.checkpointer is None:
            saver = load_thread(thread_id, state.thread)
            graph = graph.copy({"checkpointer": saver})
        config = self._thread_config(part, thread_id)
        translator = self._make_translator(output, state)

        if part.message is None:
            graph_input: Any = Command(resume=build_resume(part, state))
        else:
            await close_open_calls(graph, config, part)
            graph_input = self._make_input(part)
        reason: StopReason = "end_turn"
        try:
            async for chunk in graph.astream(
                graph_input,
                config,
                context=self._make_context(part),
                stream_mode=STREAM_MODES,
                subgraphs=True,
                version="v2",
            ):
                await output.report(translator.feed, chunk)
        except GraphRecursionError:
            reason = "max_steps"
        except (Exception, asyncio.CancelledError):
            output.save_state(self._dump_state(translator, saver, thread_id, [], is_paused=False))
            raise

        snapshot = await graph.aget_state(config)
        if snapshot.interrupts and reason == "end_turn":
            ids = [interrupt.id for interrupt in snapshot.interrupts]
            questions = translator.list_questions(ids)
            saved = self._dump_state(translator, saver, thread_id, questions, is_paused=True)
            return Paused(saved, [to_question(question) for question in questions])
        translator.finish()
        saved = self._dump_state(translator, saver, thread_id, [], is_paused=False)
        return Finished(
            saved, describe_result(snapshot.values), "max_steps" if reason == "max_steps" else "end_turn"
        )

    def _thread_config(self, part: Part, thread_id: str) -> RunnableConfig:
        config = dict(self._make_config(part) or {})
        configurable = dict(config.get("configurable") or {})
        configurable["thread_id"] = thread_id
        config["configurable"] = configurable
        return RunnableConfig(**config)  # type: ignore[typeddict-item]

    def _make_translator(self, output: PartOutput, state: GraphState) -> LangGraphTranslator:
        agents = {}
        for path, agent_id in state.agents:
            agent = output.find_agent(agent_id)
            if agent is not None:
                agents[tuple(path)] = agent
        return LangGraphTranslator(output.builder, output.root, agents, state.message_ids)

    def _dump_state(
        self,
        translator: LangGraphTranslator,
        saver: InMemorySaver | None,
        thread_id: str,
        questions: list[InterruptQuestion],
        *,
        is_paused: bool,
    ) -> bytes:
        state = GraphState(message_ids=translator.message_ids[-MAX_SAVED_MESSAGE_IDS:])
        if saver is not None:
            state.thread = save_thread(saver, thread_id, self._graph.channels, is_paused=is_paused)
        for question in questions:
            saved = SavedQuestion(
                question.agent.agent_id,
                question.call_id,
                question.interrupt_id,
                question.is_decision,
                question.is_single,
            )
            state.questions.append(saved)
        if is_paused:
            state.agents = [(list(path), agent.agent_id) for path, agent in translator.open_paths.items()]
        return msgspec.msgpack.encode(state)


def make_message_input(part: Part) -> Any:
    if not part.files:
        return {"messages": [HumanMessage(part.message or "")]}
    blocks: list[str | dict[str, Any]] = [{"type": "text", "text": part.message or ""}]
    blocks += [make_file_block(file) for file in part.files]
    return {"messages": [HumanMessage(blocks)]}


def make_file_block(file: PartFile) -> dict[str, Any]:
    """Return a file as a standard content block of LangChain."""
    if file.is_text:
        return {"type": "text", "text": file.describe_text()}
    kind = "image" if file.is_image else "file"
    return {"type": kind, "base64": file.to_base64(), "mime_type": file.media_type}


def read_state(state: bytes | None) -> GraphState:
    if state is None:
        return GraphState()
    try:
        return msgspec.msgpack.decode(state, type=GraphState)
    except msgspec.DecodeError as error:
        raise UnreadableState(f"the stored thread is not of this version: {str(error)[:80]}") from error


def build_resume(part: Part, state: GraphState) -> dict[str, Any]:
    """Return the answers by interrupt, in the form that each expects."""
    resume: dict[str, Any] = {}
    for question in state.questions:
        answer = part.answers.get((question.agent_id, question.call_id), Denied(part.denial_of(("", ""))))
        if not question.is_decision:
            resume[question.interrupt_id] = to_value(answer)
        elif question.is_single:
            resume[question.interrupt_id] = to_decision(answer)
        else:
            decisions = resume.setdefault(question.interrupt_id, {"decisions": []})
            decisions["decisions"].append(to_decision(answer))
    return resume


def to_question(question: InterruptQuestion) -> Question:
    return Question(
        question.agent, question.call_id, not question.is_decision, question.reason, question.args
    )


async def close_open_calls(graph: Any, config: RunnableConfig, part: Part) -> None:
    """Add results for the calls of the last message that have none."""
    snapshot = await graph.aget_state(config)
    messages = snapshot.values.get("messages") if isinstance(snapshot.values, Mapping) else None
    if not isinstance(messages, list):
        return
    results: list[ToolMessage] = []
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    reasons = {
        call_id: answer.reason for (_, call_id), answer in part.answers.items() if isinstance(answer, Denied)
    }
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    for call in last.tool_calls if last is not None else ():
        call_id = call["id"] or ""
        if call_id not in answered:
            reason = reasons.get(call_id) or part.denial_of(("", call_id))
            results.append(ToolMessage(reason, tool_call_id=call_id, name=call["name"], status="error"))
    if results:
        node = "tools" if "tools" in graph.nodes else None
        # `values` has what the finished tasks of an unfinished step have written, and the update drops it
        messages = [*list_finished_results(snapshot), *results]
        await graph.aupdate_state(config, {"messages": messages}, as_node=node)


def list_finished_results(snapshot: Any) -> list[ToolMessage]:
    """Return the results of the tasks that finished before another task of their step failed or asked."""
    results: list[ToolMessage] = []
    for task in snapshot.tasks:
        written = task.result.get("messages") if isinstance(task.result, Mapping) else None
        if isinstance(written, list):
            results += [message for message in written if isinstance(message, ToolMessage)]
    return results


def describe_result(values: Any) -> str | None:
    """Return the structured response of an agent as JSON, or the text of its last message."""
    if not isinstance(values, Mapping):
        return None
    response = values.get("structured_response")
    if response is not None:
        dump = getattr(response, "model_dump", None)
        return render_text(dump(mode="json") if dump is not None else response)
    messages = values.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last.text if isinstance(last, AIMessage) else None
