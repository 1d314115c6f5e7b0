"""LangGraph 1: parts of `astream(version="v2", subgraphs=True)` in, calls of the builder out.

`feed` reads one part: `{"type", "ns", "data"}` with the types `messages`, `updates` and `tasks`; others are
dropped. `ns` is the path of tasks, and identifies an agent: `tools:<task>` is one that a call started, any
other `<node>:<task>` is an agent that is a node of a graph. The input of a task names its call. Messages are
known by their id and calls by theirs: a graph that goes on reports both again, and they count once.
An agent that is a node and leaves to another node while a call of it is open has handed over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnlog.events import Usage
from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.foreign.common import INTERRUPT_TOOL, get_text, render_text, to_usage
from turnlog.parse.json_values import get_field
from turnlog.parse.open_agents import put_bounded
from turnlog.parse.reply import MessageStop
from turnlog.parse.runtime_input import AgentInfo, to_call_key

MAX_KNOWN_MESSAGES = 4096  # of one part; a graph repeats those of its last steps
MAX_KNOWN_TASKS = 4096
STOP_REASONS: Mapping[str, MessageStop] = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
}

Path = tuple[str, ...]


@dataclass(slots=True)
class OpenChunks:
    """The chunks of one message: the calls by the index that their pieces have, and the tokens so far."""

    message_id: str
    call_ids: dict[Any, str] = field(default_factory=dict)
    usage: Usage | None = None
    model: str | None = None
    stop_reason: MessageStop = "end_turn"


class PendingInterrupt(NamedTuple):
    """A question of the graph, where it was asked, and by which task."""

    path: Path
    value: Any
    task_id: str | None = None


class InterruptQuestion(NamedTuple):
    """A call that waits for an answer, and which answer the graph expects.

    An interrupt of `is_decision` gets all decisions of its calls in one list, in this order; `is_single` gets
    one decision. Any other gets the value that the page returns. `args` is what the page shows.
    """

    agent: RuntimeAgent
    call_id: str
    interrupt_id: str
    is_decision: bool
    is_single: bool = False
    reason: str | None = None
    args: dict[str, Any] | None = None


class LangGraphTranslator:
    """Translates the parts of one run. `agents` are those that are open already, by their path."""

    def __init__(
        self,
        builder: AgentEventBuilder,
        root: RuntimeAgent,
        agents: Mapping[Path, RuntimeAgent] = {},
        message_ids: Iterable[str] = (),
    ) -> None:
        self._builder = builder
        self._agents: dict[Path, RuntimeAgent] = {**agents, (): root}
        self._open_chunks: dict[str, OpenChunks] = {}  # by agent
        self._known_messages: dict[str, None] = {}
        # a state repeats these, but a model that streams may use their ids again
        self._earlier_messages: dict[str, None] = dict.fromkeys(message_ids)
        self._call_by_task: dict[str, str] = {}
        self._handing_over: dict[Path, tuple[RuntimeAgent, str, Any]] = {}  # by the path of the parent
        self._interrupts: dict[str, PendingInterrupt] = {}

    @property
    def open_paths(self) -> dict[Path, RuntimeAgent]:
        """Return the open agents below the root, by path."""
        return {path: agent for path, agent in self._agents.items() if path and self._builder.is_open(agent)}

    @property
    def message_ids(self) -> list[str]:
        return [*self._earlier_messages, *self._known_messages]

    def feed(self, part: Any) -> None:
        read = PART_READERS.get(get_text(part, "type"))
        if read is None:
            return
        path = tuple(name for name in get_field(part, "ns") or () if isinstance(name, str))
        read(self, path, get_field(part, "data"))

    def finish(self) -> None:
        """End the agents that are nodes: the graph has come to its end."""
        for parent_path in list(self._handing_over):
            self._drop_handover(parent_path)
        for agent in reversed(self.open_paths.values()):
            self._builder.end(agent)

    # agents

    def _agent_at(self, path: Path, name: str = "") -> RuntimeAgent | None:
        """Return the agent of a path, and start it if it is new. None if its call has a result already."""
        agent = self._agents.get(path)
        if agent is not None:
            return agent
        parent = self._agent_at(path[:-1])
        if parent is None:
            return None
        node, _, task_id = path[-1].rpartition(":")
        call_id = self._call_by_task.get(task_id)
        if call_id is not None and not parent.owns_open_call(call_id):
            self._builder.complete_message(parent)
            if not parent.owns_open_call(call_id):
                return None

        info = AgentInfo(name or node or path[-1], source_id="|".join(path))
        leaving = self._handing_over.pop(path[:-1], None)
        if leaving is not None and call_id is None:
            agent = self._builder.hand_off(leaving[0], info, leaving[1], leaving[2])
        else:
            agent = self._builder.start_child(parent, call_id, info)
        self._agents[path] = agent
        return agent

    def _find_owner(self, path: Path, call_id: str) -> tuple[Path, RuntimeAgent] | None:
        """Return the agent that made a call: that of the path, or one below it."""
        for agent_path, agent in self._agents.items():
            if agent_path[: len(path)] != path:
                continue
            if agent.owns_open_call(call_id):
                return agent_path, agent
        return None

    # tasks

    def _read_task(self, path: Path, data: Any) -> None:
        task_id = get_text(data, "id")
        name = get_text(get_field(data, "metadata"), "lc_agent_name")
        has_result = get_field(data, "result") is not None or get_field(data, "error") is not None
        if not has_result and get_field(data, "interrupts") is None:
            if name and path:
                self._agent_at(path, name)
            self._note_call(path, task_id, get_text(data, "name"), get_field(data, "input"))
            return

        interrupts = get_field(data, "interrupts") or ()
        for interrupt in interrupts:
            self._note_interrupt(path, interrupt, task_id)
        if not interrupts:
            self._end_node(path, f"{get_text(data, 'name')}:{task_id}")

    def _note_call(self, path: Path, task_id: str, node: str, task_input: Any) -> None:
        """Note which call a task runs: a task of tools has one call as its input."""
        call = get_field(task_input, "tool_call")
        if isinstance(task_input, list) and len(task_input) == 1:
            call = task_input[0]
        call_id = get_text(call, "id")
        if not call_id and node == "tools" and isinstance(task_input, str):
            call_id = self._next_call_without_task(path)
        if call_id and task_id:
            put_bounded(self._call_by_task, task_id, to_call_key(call_id), MAX_KNOWN_TASKS)

    def _next_call_without_task(self, path: Path) -> str:
        """Return the first open call that no task runs, for an input that cannot be read."""
        agent = self._agents.get(path)
        if agent is None:
            return ""
        self._builder.complete_message(agent)
        taken = set(self._call_by_task.values())
        return next((call_id for call_id in agent.open_calls if call_id not in taken), "")

    def _end_node(self, parent_path: Path, name: str) -> None:
        """End the agent of a node whose task has ended, unless it hands over to another."""
        agent = self._agents.get((*parent_path, name))
        if agent is None or agent.call_id is not None or not self._builder.is_open(agent):
            return
        leaving = self._handing_over.get(parent_path)
        if leaving is None or leaving[0] is not agent:
            self._builder.end(agent)

    # updates

    def _read_update(self, path: Path, data: Any) -> None:
        if not isinstance(data, Mapping):
            return
        for node, update in data.items():
            if node == "__interrupt__":
                for interrupt in update if isinstance(update, list | tuple) else ():
                    self._note_interrupt(path, interrupt)
                continue
            messages = get_field(update, "messages")
            for message in messages if isinstance(messages, list) else ():
                self._read_message_value(path, message, is_update=True)

    # messages

    def _read_message(self, path: Path, data: Any) -> None:
        if not isinstance(data, list | tuple) or len(data) != 2:
            return
        message, metadata = data
        name = get_text(metadata, "lc_agent_name")
        inner_path = self._inner_path(path, metadata)
        if inner_path != path:
            name = ""
        if get_text(message, "type") == "AIMessageChunk":
            agent = self._agent_at(inner_path, name)
            if agent is not None:
                self._read_chunk(agent, message)
        else:
            if path and name:
                self._agent_at(path, name)
            self._read_message_value(inner_path, message)

    def _inner_path(self, path: Path, metadata: Any) -> Path:
        """Return the path of a model that a tool calls itself: such a tool is an agent of its call."""
        task = get_text(metadata, "langgraph_checkpoint_ns").rpartition("|")[2]
        task_id = task.rpartition(":")[2]
        if task_id in self._call_by_task and (not path or path[-1] != task):
            return (*path, task)
        return path

    def _read_chunk(self, agent: RuntimeAgent, message: Any) -> None:
        message_id = get_text(message, "id")
        chunks = self._open_chunks.get(agent.agent_id)
        if chunks is None or chunks.message_id != message_id:
            if message_id in self._known_messages:
                return
            chunks = OpenChunks(message_id)
            self._open_chunks[agent.agent_id] = chunks
            self._builder.begin_message(agent, None, message_id or None)
            put_bounded(self._known_messages, message_id, None, MAX_KNOWN_MESSAGES)
            self._earlier_messages.pop(message_id, None)
        self._add_content(agent, message)
        for piece in get_field(message, "tool_call_chunks") or ():
            self._add_call_piece(agent, chunks, piece)

        usage = read_usage(message)
        if usage is not None:
            chunks.usage = usage if chunks.usage is None else chunks.usage + usage
        response = get_field(message, "response_metadata")
        chunks.model = get_text(response, "model_name") or get_text(response, "model") or chunks.model
        chunks.stop_reason = read_stop_reason(response) or chunks.stop_reason
        if get_field(message, "chunk_position") == "last":
            self._complete(agent, chunks.usage, chunks.model, chunks.stop_reason)

    def _add_content(self, agent: RuntimeAgent, message: Any) -> None:
        reasoning = get_text(get_field(message, "additional_kwargs"), "reasoning_content")
        if reasoning:
            self._builder.think(agent, reasoning)
        content = get_field(message, "content")
        for block in [content] if isinstance(content, str) else content or ():
            if isinstance(block, str):
                self._add_text(agent, block)
                continue
            read = BLOCK_READERS.get(get_text(block, "type"))
            if read is not None:
                read(self, agent, block)

    def _add_text(self, agent: RuntimeAgent, text: str) -> None:
        if text:
            self._builder.text(agent, text)

    def _read_text_block(self, agent: RuntimeAgent, block: Any) -> None:
        self._add_text(agent, get_text(block, "text"))

    def _read_reasoning_block(self, agent: RuntimeAgent, block: Any) -> None:
        text = get_text(block, "reasoning") or get_text(block, "thinking")
        signature = get_text(block, "signature")
        if text:
            self._builder.think(agent, text)
        if signature:
            self._builder.sign(agent, signature)

    def _add_call_piece(self, agent: RuntimeAgent, chunks: OpenChunks, piece: Any) -> None:
        index = get_field(piece, "index")
        key = index if isinstance(index, int | str) else None
        call_id = get_text(piece, "id")
        if call_id and key not in chunks.call_ids:
            self._builder.reuse_call_id(agent, call_id)
            chunks.call_ids[key] = self._builder.start_call(agent, get_text(piece, "name"), call_id)
        args = get_text(piece, "args")
        if args and key in chunks.call_ids:
            self._builder.arguments(agent, chunks.call_ids[key], args)

    def _read_message_value(self, path: Path, message: Any, *, is_update: bool = False) -> None:
        """Read a whole message: the end of a streamed one, one that was not streamed, or a result."""
        kind = get_text(message, "type")
        if kind == "tool":
            self._read_result(path, message)
        elif kind == "ai":
            self._read_whole_message(path, message, is_update=is_update)

    def _read_whole_message(self, path: Path, message: Any, *, is_update: bool) -> None:
        message_id = get_text(message, "id")
        response = get_field(message, "response_metadata")
        model = get_text(response, "model_name") or None
        stop_reason = read_stop_reason(response) or "end_turn"
        if message_id in self._known_messages:
            # a model that does not mark its last chunk
            for agent in self._agents.values():
                chunks = self._open_chunks.get(agent.agent_id)
                if chunks is not None and chunks.message_id == message_id:
                    self._complete(agent, chunks.usage or read_usage(message), model, stop_reason)
            return
        if message_id in self._earlier_messages:
            return
        calls = get_field(message, "tool_calls") or ()
        # an update of a node that is a graph repeats the messages of its agents
        if is_update and not self._is_new_message(path, message_id, calls):
            return
        owner = self._agent_at(path)
        if owner is None:
            return
        put_bounded(self._known_messages, message_id, None, MAX_KNOWN_MESSAGES)
        self._builder.begin_message(owner, model, message_id or None)
        self._add_content(owner, message)
        for call in calls:
            call_id = get_text(call, "id") or None
            self._builder.reuse_call_id(owner, call_id)
            self._builder.call(owner, get_text(call, "name"), get_field(call, "args"), call_id)
        self._complete(owner, read_usage(message), model, stop_reason)

    def _is_new_message(self, path: Path, message_id: str, calls: Iterable[Any]) -> bool:
        if not message_id:
            return False
        return not any(
            self._find_owner(path, to_call_key(get_text(call, "id"))) is not None for call in calls
        )

    def _complete(
        self, agent: RuntimeAgent, usage: Usage | None, model: str | None, stop_reason: MessageStop
    ) -> None:
        self._builder.complete_message(agent, usage, model, stop_reason=stop_reason)
        self._open_chunks.pop(agent.agent_id, None)

    def _read_result(self, path: Path, message: Any) -> None:
        call_id = to_call_key(get_text(message, "tool_call_id"))
        agent = self._agents.get(path)
        if agent is not None:
            self._builder.complete_message(agent)
            self._open_chunks.pop(agent.agent_id, None)
        owner = self._find_owner(path, call_id)
        if owner is None:
            return  # reported before, or a message of an earlier turn
        owner_path, agent = owner
        content = get_field(message, "content")
        if len(owner_path) == len(path) + 1 and agent.call_id is None:
            # the graph around the agent has its result, and the agent has not: it left to another node
            self._handing_over[path] = (agent, call_id, content)
        elif get_text(message, "status") == "error":
            self._builder.fail(agent, call_id, "EXECUTION_ERROR", render_text(content))
        else:
            self._builder.result(agent, call_id, content)

    def _drop_handover(self, parent_path: Path) -> None:
        agent, call_id, value = self._handing_over.pop(parent_path)
        self._builder.result(agent, call_id, value)

    # questions

    def _note_interrupt(self, path: Path, interrupt: Any, task_id: str | None = None) -> None:
        interrupt_id = get_text(interrupt, "id")
        known = self._interrupts.get(interrupt_id)
        # a question of an inner graph is reported by the graphs around it, too
        if known is not None and len(known.path) > len(path):
            return
        if known is not None and task_id is None:
            task_id = known.task_id
        self._interrupts[interrupt_id] = PendingInterrupt(path, get_field(interrupt, "value"), task_id)

    def list_questions(self, interrupt_ids: Collection[str]) -> list[InterruptQuestion]:
        """Return the questions of the interrupts with these ids. Each interrupt has at least one."""
        questions: list[InterruptQuestion] = []
        for interrupt_id in interrupt_ids:
            pending = self._interrupts.get(interrupt_id, PendingInterrupt((), None))
            agent = self._agent_at(pending.path) or self._agents[()]
            self._builder.complete_message(agent)
            found = self._find_decisions(agent, interrupt_id, pending.value)
            questions += found or [self._find_value_question(agent, interrupt_id, pending)]
        return questions

    def _find_decisions(self, agent: RuntimeAgent, interrupt_id: str, value: Any) -> list[InterruptQuestion]:
        """Return the approvals that LangChain's middleware asks for; none for another interrupt.

        Their requests have names and arguments, and only with `interrupt_mode="per_call"` the id of the call.
        """
        call_id = get_text(value, "tool_call_id")
        if call_id and agent.owns_open_call(to_call_key(call_id)):
            reason = get_text(value, "description") or None
            return [
                InterruptQuestion(
                    agent, to_call_key(call_id), interrupt_id, True, is_single=True, reason=reason
                )
            ]
        questions: list[InterruptQuestion] = []
        taken: set[str] = set()
        for request in get_field(value, "action_requests") or ():
            key = self._match_call(agent, request, taken)
            if key is None:
                return []
            taken.add(key)
            reason = get_text(request, "description") or None
            questions.append(InterruptQuestion(agent, key, interrupt_id, True, reason=reason))
        return questions

    def _match_call(self, agent: RuntimeAgent, request: Any, taken: Collection[str]) -> str | None:
        name = get_text(request, "name")
        args = get_field(request, "args")
        for key, call in agent.open_calls.items():
            if key not in taken and call.tool == name and call.args == args:
                return key
        return None

    def _find_value_question(
        self, agent: RuntimeAgent, interrupt_id: str, pending: PendingInterrupt
    ) -> InterruptQuestion:
        """Return the question of an `interrupt` in a tool, which is that of its call, or in another node."""
        value = pending.value
        args = dict(value) if isinstance(value, Mapping) else {"question": value}
        key = self._call_by_task.get(pending.task_id or "")
        if key is None or not agent.owns_open_call(key):
            key = self._builder.call(agent, INTERRUPT_TOOL, args, interrupt_id)
            self._builder.complete_message(agent)
        return InterruptQuestion(agent, key, interrupt_id, False, args=args)


def read_usage(message: Any) -> Usage | None:
    usage = get_field(message, "usage_metadata")
    if usage is None:
        return None
    details = get_field(usage, "input_token_details")
    return to_usage(
        get_field(usage, "input_tokens"),
        get_field(usage, "output_tokens"),
        get_field(details, "cache_read"),
        get_field(details, "cache_creation"),
    )


def read_stop_reason(response_metadata: Any) -> MessageStop | None:
    name = get_text(response_metadata, "finish_reason") or get_text(response_metadata, "stop_reason")
    return STOP_REASONS.get(name)


PART_READERS: Mapping[str, Callable[[LangGraphTranslator, Path, Any], None]] = {
    "messages": LangGraphTranslator._read_message,
    "updates": LangGraphTranslator._read_update,
    "tasks": LangGraphTranslator._read_task,
}
BLOCK_READERS: Mapping[str, Callable[[LangGraphTranslator, RuntimeAgent, Any], None]] = {
    "text": LangGraphTranslator._read_text_block,
    "reasoning": LangGraphTranslator._read_reasoning_block,
    "thinking": LangGraphTranslator._read_reasoning_block,
}
