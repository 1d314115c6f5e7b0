"""Balanced events of any runtime: what its agents do goes in, event drafts come out (docs/protocol.md 5.13).

    builder = AgentEventBuilder(new_id)
    agent = builder.start(AgentInfo("Support", prompt="Hi"), "tr_1")
    builder.text(agent, "Let me look.")
    builder.call(agent, "search", {"q": "grass"}, "call_1")
    builder.result(agent, "call_1", "green")          its message is complete: the call is emitted first
    builder.end(agent)
    append(builder.take_output())                     one append

Pure, linear, never raises. Wrong input leaves a `parse.reject`, and what a runtime reports twice counts once.
Limits: those of `open_agents` and `reply`. `flush` closes everything, children before their parents.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import structs

from turnlog.errors import BadInput
from turnlog.events import (
    AgentCheckpoint,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalRequest,
    AwaitedCall,
    Citation,
    Cost,
    ErrorInfo,
    EventDraft,
    Image,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    Usage,
)
from turnlog.events.agent import CompletionTotals, StopReason
from turnlog.events.tool import ExecutorKind
from turnlog.parse.blocks import CallBlock
from turnlog.parse.json_values import JsonObject, as_name, printable_name, to_json_value
from turnlog.parse.messages_api import bounded_text
from turnlog.parse.open_agents import (
    FAILED_REASONS,
    MAX_KNOWN_CALLERS,
    OpenAgent,
    OpenAgents,
    put_bounded,
)
from turnlog.parse.rejects import make_reject
from turnlog.parse.reply import (
    MessageStop,
    ReplyBuilder,
    TextParserFactory,
    sanitize_record,
    tag_parser_factory,
    to_json_object,
)
from turnlog.parse.runtime_input import (
    AgentInfo,
    RuntimeMessage,
    clean_text,
    get_agent_name,
    make_start,
    to_call_key,
)

UNKNOWN_NAME = "unknown"  # of a model, a framework or a version


def always_runtime(tool: str) -> ExecutorKind:
    return "runtime"


RuntimeAgent = OpenAgent[RuntimeMessage]


class LineReader(Protocol):
    """Parses the lines of a program. It shares the agents of the builder, and so its output."""

    def is_of(self, agent: RuntimeAgent) -> bool:
        """Return whether an agent is the main agent of the program."""
        ...

    def feed(self, line: JsonObject, child_ids: Sequence[str]) -> None: ...

    def take_child_ids(self) -> list[str]:
        """Return the ids of the agents that have started since the last time."""
        ...


class AgentEventBuilder:
    """Builds the events of the agents of one runtime. `take_output` returns those that are new."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        make_text_parser: TextParserFactory = tag_parser_factory(None),  # noqa: B008
        executor_for: Callable[[str], ExecutorKind] = always_runtime,
    ) -> None:
        self._output: list[EventDraft] = []
        self._agents: OpenAgents[RuntimeMessage] = OpenAgents(self._output, new_id)
        self._new_id = new_id
        self._make_text_parser = make_text_parser
        self._executor_for = executor_for
        self._page_tools: frozenset[str] = frozenset()
        self._known_calls: dict[tuple[str, str], None] = {}
        self._line_reader: LineReader | None = None

    @property
    def agents(self) -> OpenAgents[RuntimeMessage]:
        return self._agents

    @property
    def new_id(self) -> Callable[[Any], str]:
        return self._new_id

    @property
    def make_text_parser(self) -> TextParserFactory:
        return self._make_text_parser

    @property
    def executor_for(self) -> Callable[[str], ExecutorKind]:
        return self._executor_for

    @property
    def open_agents(self) -> list[RuntimeAgent]:
        """Return the open agents in the order of their starts."""
        return list(self._agents.by_id.values())

    def is_open(self, agent: RuntimeAgent) -> bool:
        return self._agents.is_open(agent)

    def answered_calls_of(self, agent: RuntimeAgent) -> list[str]:
        """Return the calls of an agent that are known and not open: the runtime may report them again."""
        keys = [key for agent_id, key in self._known_calls if agent_id == agent.agent_id]
        return [key for key in keys if key not in agent.open_calls]

    def take_output(self) -> list[EventDraft]:
        """Return the new events, for one append."""
        output = self._output.copy()
        self._output.clear()
        return output

    def offer_page_tools(self, names: Iterable[str]) -> None:
        """Say which tools the page runs, from the next message on."""
        self._page_tools = frozenset(names)

    def _find_executor(self, tool: str) -> ExecutorKind:
        return "frontend" if tool in self._page_tools else self._executor_for(tool)

    # Agents

    def start(
        self, info: AgentInfo, trace_id: str, channel: str | None = None, speaker: str | None = None
    ) -> RuntimeAgent:
        """Start the agent that answers a turn. `trace_id` and `channel` are those of the turn."""
        scope = self._agents.new_scope(get_agent_name(info), trace_id, 0, channel)
        agent = RuntimeAgent(scope, speaker=speaker, source_id=info.source_id)
        return self._begin(agent, info, make_start(info, via="prompt"))

    def start_child(
        self,
        parent: RuntimeAgent,
        call_id: object,
        info: AgentInfo,
        *,
        is_background: bool = False,
        agent_id: str | None = None,
    ) -> RuntimeAgent:
        """Start an agent inside another. Return the open one if the runtime reports it again.

        `call_id` is None for an agent that no call started: `source_id` identifies it. At the limit of open
        agents, or if the parent has ended, the agent that is returned is not open. `agent_id` is the id of
        the new agent, if another process has chosen it.
        """
        key = None if call_id is None else to_call_key(call_id)
        self._complete(parent)
        known = self._find_child(parent, key, info.source_id)
        if known is not None:
            return known

        name = get_agent_name(info)
        depth = (parent.scope.depth or 0) + 1
        trace_id = parent.scope.trace_id or ""
        scope = self._agents.new_scope(name, trace_id, depth, parent.scope.channel, agent_id)
        agent = RuntimeAgent(scope, parent, key, source_id=info.source_id)
        self._agents.update(agent, is_background=is_background)
        start = make_start(info, via="call", parent_id=parent.agent_id, call_id=key)
        if not self._accepts(parent, info):
            return agent
        return self._begin(agent, info, start)

    def _find_child(
        self, parent: RuntimeAgent, key: str | None, source_id: str | None
    ) -> RuntimeAgent | None:
        if key is not None:
            return self._agents.find_child(parent, key)
        child = self._agents.find_by_source_id(source_id)
        return child if child is not None and child.caller is parent else None

    def _begin(self, agent: RuntimeAgent, info: AgentInfo, start: AgentStart) -> RuntimeAgent:
        if self._agents.is_full:
            self._agents.reject_input(agent, "too_many_agents", info)
        else:
            self._agents.begin(start, agent)
        return agent

    def hand_off(
        self,
        agent: RuntimeAgent,
        info: AgentInfo,
        call_id: object = None,
        value: Any = None,
        *,
        agent_id: str | None = None,
    ) -> RuntimeAgent:
        """End an agent and start its successor, with the caller and the depth of the first.

        `call_id` is the call that handed over, and `value` its result. All other open calls are cancelled.
        `agent_id` is the id of the successor, if another process has chosen it.
        """
        name = get_agent_name(info)
        old = agent.scope
        scope = self._agents.new_scope(name, old.trace_id or "", old.depth or 0, old.channel, agent_id)
        successor = RuntimeAgent(scope, agent.caller, agent.call_id, agent.speaker, info.source_id)
        self._agents.update(successor, is_background=agent.is_background)
        if not self._accepts(agent, info):
            return successor

        self._complete(agent)
        if call_id is not None:
            self.result(agent, call_id, value)
        self._agents.close_contents(agent, "handoff")
        self._agents.emit(agent, AgentHandoff(to=name, to_agent_id=successor.agent_id))
        self._agents.end(agent, "handoff")

        parent_id = agent.caller.agent_id if agent.caller else None
        start = make_start(info, via="handoff", parent_id=parent_id, call_id=agent.call_id)
        self._agents.begin(start, successor)
        return successor

    def restore(
        self,
        start: AgentStart,
        scope: Scope,
        calls: Iterable[ToolCall] = (),
        answered_call_ids: Iterable[str] = (),
        totals: CompletionTotals = CompletionTotals(),  # noqa: B008
    ) -> RuntimeAgent:
        """Add an agent that is open in the log, parents first. Nothing is emitted.

        `calls` are open. A runtime that goes on may report them, and the answered ones, again.
        """
        parent = self._agents.by_id.get(start.parent_id or "")
        agent = RuntimeAgent(scope, parent, start.call_id)
        self._agents.restore(start, agent, calls, totals)
        for call_id in (*agent.open_calls, *answered_call_ids):
            self._add_known_call(agent, call_id)
        return agent

    def end(
        self,
        agent: RuntimeAgent,
        reason: StopReason = "end_turn",
        result: str | None = None,
        cost: Cost | None = None,
    ) -> None:
        """End an agent. `result` is its last text if it is None. Ending it twice changes nothing.

        `cost` is that of the whole invocation; None if it is the sum of the completions.
        """
        if not self.is_open(agent):
            return
        if reason not in FAILED_REASONS:
            self._complete(agent)
        end_fields = {} if cost is None else {"cost": cost}
        self._agents.end(agent, reason, clean_text(result) or agent.last_text, **end_fields)

    def flush(self, reason: StopReason = "error") -> None:
        """End all open agents: the runtime is gone."""
        self._agents.end_all(reason)

    # Messages

    def begin_message(
        self, agent: RuntimeAgent, model: str | None = None, message_id: str | None = None
    ) -> None:
        """Begin a message. The one before it is complete. Without this call the first content begins one."""
        if self._accepts(agent, message_id):
            self._complete(agent)
            self._open_message(agent).reply.begin(model, message_id)

    def _open_message(self, agent: RuntimeAgent) -> RuntimeMessage:
        message = agent.message
        if message is None or not message.is_open:
            reply = ReplyBuilder(self._new_id, self._make_text_parser, self._find_executor)
            message = RuntimeMessage(reply)
            self._agents.begin_message(agent, message)
        return message

    def text(self, agent: RuntimeAgent, piece: str) -> None:
        if self._accepts_text(agent, piece):
            message = self._open_message(agent)
            message.call_blocks.clear()
            self._agents.emit(agent, *message.reply.text(piece))

    def cite(self, agent: RuntimeAgent, citation: Citation) -> None:
        if not self._accepts(agent, citation):
            return
        if agent.message is not None and agent.message.is_open:
            self._agents.emit(agent, *agent.message.reply.cite(citation))
        else:
            self._agents.emit(agent, make_reject("citation_without_text", citation))

    def think(self, agent: RuntimeAgent, piece: str) -> None:
        if self._accepts_text(agent, piece):
            message = self._open_message(agent)
            message.call_blocks.clear()
            self._agents.emit(agent, *message.reply.think(piece))

    def sign(self, agent: RuntimeAgent, signature: str) -> None:
        """Sign the open thinking, or a new one without a text."""
        if self._accepts_text(agent, signature):
            message = self._open_message(agent)
            message.call_blocks.clear()
            self._agents.emit(agent, *message.reply.sign(signature))

    def other(self, agent: RuntimeAgent, kind: str, data: dict[str, Any]) -> None:
        """Add a block that has no event of its own, complete and unchanged."""
        if not self._accepts(agent, data):
            return
        message = self._open_message(agent)
        batch = message.end_blocks()
        fields = to_json_object(data)
        name = as_name(kind)
        block = None
        if fields is not None and name is not None:
            block = message.reply.open_other(name, fields)
        if block is None:
            batch.append(make_reject("bad_block", data, kind))
        else:
            batch += block.start() + message.reply.close(block)
        self._agents.emit(agent, *batch)

    def complete_message(
        self,
        agent: RuntimeAgent,
        usage: Usage | None = None,
        model: str | None = None,
        cost: Cost | None = None,
        duration_ms: int | None = None,
        stop_reason: MessageStop = "end_turn",
    ) -> None:
        """Complete the open message and emit its calls. `usage` is that of this completion alone.

        After `refusal` the calls of the message are aborted: they must not run.
        """
        if not self._accepts(agent, usage):
            return
        self._complete(agent, stop_reason)
        if usage is None:
            return
        reply_model = agent.message.reply.model if agent.message else None
        event = AgentUsage(
            model=as_name(model) or reply_model or agent.model or UNKNOWN_NAME,
            usage=usage,
            cost=cost,
            duration_ms=duration_ms,
        )
        self._emit_record(agent, event, "bad_usage")

    def _complete(self, agent: RuntimeAgent, stop_reason: MessageStop = "end_turn") -> None:
        message = agent.message
        if message is not None and message.is_open:
            self._agents.emit(agent, *message.complete(stop_reason))

    def retract_message(self, agent: RuntimeAgent, reason: str) -> None:
        """Retract the blocks of the last message, finished ones too: the runtime asks the model again."""
        message = agent.message
        if not self._accepts(agent, reason) or message is None:
            return
        self._agents.drop_message(agent)
        block_ids = list(message.reply.block_ids)
        self._agents.retract_blocks(agent, block_ids, printable_name(reason) or "retry")
        # The model may use the same ids again.
        for call_id in message.call_ids:
            self._known_calls.pop((agent.agent_id, call_id), None)

    # Calls

    def start_call(self, agent: RuntimeAgent, tool: str, call_id: object = None) -> str:
        """Begin a call whose arguments follow in pieces, also between those of others. Return its id."""
        key = self._new_id("call_") if call_id is None else to_call_key(call_id)
        if not self._accepts(agent, tool) or self._is_known_call(agent, key):
            return key

        message = self._open_message(agent)
        batch = [] if message.call_blocks else message.end_blocks()
        block = self._open_call(agent, message, tool, key)
        if block is None:
            batch.append(make_reject("too_long", tool))
        else:
            message.call_blocks[key] = block
            batch += block.start()
        self._agents.emit(agent, *batch)
        return key

    def reuse_call_id(self, agent: RuntimeAgent, call_id: object) -> None:
        """Let a new message of the model use the id of an answered call again. Without it, the call that
        follows counts as one that the runtime reports again."""
        key = to_call_key(call_id)
        is_streaming = agent.message is not None and agent.message.is_open and key in agent.message.call_ids
        if not agent.owns_open_call(key) and not is_streaming:
            self._known_calls.pop((agent.agent_id, key), None)

    def arguments(self, agent: RuntimeAgent, call_id: object, piece: str) -> None:
        """Add a piece to the arguments of a call. All pieces together are one JSON object."""
        if not self._accepts_text(agent, piece):
            return
        key = to_call_key(call_id)
        block = None
        if agent.message is not None and agent.message.is_open:
            block = agent.message.call_blocks.get(key)
        if block is not None:
            self._agents.emit(agent, *block.feed(piece))
        elif not self._is_known_call(agent, key):
            self._agents.emit(agent, make_reject("arguments_without_call", piece))

    def call(self, agent: RuntimeAgent, tool: str, args: Any = None, call_id: object = None) -> str:
        """Add a complete call. `args` is an object, its JSON as text, or None. Return the id of the call."""
        key = self._new_id("call_") if call_id is None else to_call_key(call_id)
        if not self._accepts(agent, tool) or self._is_known_call(agent, key):
            return key

        message = self._open_message(agent)
        batch = message.end_blocks()
        args_object: dict[str, Any] = {}
        args_text = ""
        if isinstance(args, str):
            args_text = args
        elif args is not None:
            json_args = to_json_object(args)
            if json_args is None:
                batch.append(make_reject("bad_arguments", args, tool))
            args_object = json_args or {}

        block = self._open_call(agent, message, tool, key, args_object)
        if block is None:
            batch.append(make_reject("too_long", [tool, args_object]))
        else:
            batch += block.start() + block.feed(args_text) + message.reply.close(block)
        self._agents.emit(agent, *batch)
        return key

    def _open_call(
        self,
        agent: RuntimeAgent,
        message: RuntimeMessage,
        tool: str,
        key: str,
        args: dict[str, Any] | None = None,
    ) -> CallBlock | None:
        # A call with a wrong name is still a call: it runs, and its result will come.
        name = as_name(tool) or printable_name(tool) or UNKNOWN_NAME
        block = message.reply.open_call(name, key, args=args)
        if block is not None:
            message.call_ids.append(key)
            self._add_known_call(agent, key)
        return block

    def _is_known_call(self, agent: RuntimeAgent, key: str) -> bool:
        return (agent.agent_id, key) in self._known_calls

    def _add_known_call(self, agent: RuntimeAgent, key: str) -> None:
        put_bounded(self._known_calls, (agent.agent_id, key), None, MAX_KNOWN_CALLERS)

    def progress(self, agent: RuntimeAgent, call_id: object, text: str) -> None:
        if not self._accepts_text(agent, text):
            return
        self._complete(agent)
        key = to_call_key(call_id)
        if agent.owns_open_call(key):
            self._agents.emit(agent, ToolProgress(call_id=key, text=clean_text(text) or ""))
        else:
            self._agents.emit(agent, make_reject("progress_without_call", text))

    def result(
        self, agent: RuntimeAgent, call_id: object, value: Any = None, images: Sequence[Image] = ()
    ) -> None:
        """Answer an open call with any JSON value. The agent that the call started ends first.

        The first result counts.
        """
        call = self._find_open_call(agent, call_id, value)
        if call is None:
            return
        try:
            json_value = to_json_value(value)
        except BadInput:
            # The tool did run: its call has an answer, and the reject says that the value is lost.
            json_value = None
            self._agents.emit(agent, make_reject("bad_result", value, call.tool))
        result = ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=json_value)
        if images:
            with_images = sanitize_record(structs.replace(result, images=tuple(images)))
            if with_images is None:
                self._agents.emit(agent, make_reject("bad_images", images, call.tool))
            result = with_images or result
        self._answer(agent, result)

    def fail(
        self,
        agent: RuntimeAgent,
        call_id: object,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Answer an open call with an error, such as EXECUTION_ERROR, DENIED or TIMEOUT."""
        call = self._find_open_call(agent, call_id, message)
        if call is None:
            return
        error = ErrorInfo(
            code=as_name(code) or "EXECUTION_ERROR",
            message=bounded_text(message) or "The tool failed.",
            details=to_json_object(details),
        )
        self._answer(agent, ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=error))

    def note_result(self, agent: RuntimeAgent, call_id: object) -> None:
        """Note that the log has the result of a call already: a person gave it. Nothing is emitted."""
        agent.open_calls.pop(to_call_key(call_id), None)

    def _find_open_call(self, agent: RuntimeAgent, call_id: object, value: Any) -> ToolCall | None:
        if not self._accepts(agent, value):
            return None
        key = to_call_key(call_id)
        call = agent.open_calls.get(key)
        # The provider runs its calls inside the message; all others begin when it is complete.
        if call is not None and call.executor == "provider":
            if agent.message is not None and agent.message.is_open:
                self._agents.emit(agent, *agent.message.end_blocks())
            return call

        self._complete(agent)
        call = agent.open_calls.get(key)
        if call is None and not self._is_known_call(agent, key):
            self._agents.emit(agent, make_reject("result_without_call", value))
        return call

    def _answer(self, agent: RuntimeAgent, result: ToolResult) -> None:
        child = self._agents.find_child(agent, result.call_id)
        if child is not None and not child.is_background:
            self._complete(child)
        self._agents.add_result(agent, result)

    # Questions and checkpoints

    def await_page(
        self,
        agent: RuntimeAgent,
        call_ids: Iterable[object],
        roles: tuple[str, ...] = (),
        args: dict[str, Any] | None = None,
    ) -> None:
        """Ask the page to answer open calls. Members with one of `roles` may; without roles every member.

        The page gets `args`, or those of each call.
        """
        if not self._accepts(agent, "tool.await"):
            return
        self._complete(agent)
        awaited: list[AwaitedCall] = []
        for call_id in call_ids:
            call = agent.open_calls.get(to_call_key(call_id))
            if call is None:
                self._agents.emit(agent, make_reject("question_without_call", call_id))
            else:
                shown_args = to_json_object(args) or call.args
                awaited.append(
                    AwaitedCall(call_id=call.call_id, tool=call.tool, args=shown_args, roles=roles)
                )
        if awaited:
            self._emit_record(agent, ToolAwait(calls=tuple(awaited)), "bad_question")

    def request_approval(
        self,
        agent: RuntimeAgent,
        call_id: object,
        risk: str,
        reason: str | None = None,
        expires_at: str | None = None,
        roles: tuple[str, ...] = (),
    ) -> None:
        """Ask a person to approve an open call with these arguments."""
        if not self._accepts(agent, call_id):
            return
        self._complete(agent)
        call = agent.open_calls.get(to_call_key(call_id))
        if call is None:
            self._agents.emit(agent, make_reject("question_without_call", call_id))
            return
        request = ApprovalRequest(
            call_id=call.call_id,
            tool=call.tool,
            args_hash=call.args_hash,
            risk=as_name(risk) or UNKNOWN_NAME,
            reason=bounded_text(reason),
            expires_at=expires_at,
            roles=roles,
        )
        self._emit_record(agent, request, "bad_question")

    def checkpoint(
        self,
        agent: RuntimeAgent,
        source: str,
        version: str,
        blob: str,
        size_bytes: int | None = None,
        *,
        paused: bool = False,
    ) -> None:
        """Name the private blob with what only the runtime can read. The blob is stored before.

        `paused` says that the agent waits for answers: the questions belong to the same append.
        """
        if self._accepts(agent, blob):
            self._complete(agent)
            event = AgentCheckpoint(
                source=as_name(source) or UNKNOWN_NAME,
                version=as_name(version) or UNKNOWN_NAME,
                blob=blob,
                paused=paused,
                size_bytes=size_bytes,
            )
            self._emit_record(agent, event, "bad_checkpoint")

    def error(self, agent: RuntimeAgent, code: str, message: str, *, is_retriable: bool = False) -> None:
        """Report why a turn failed. The agent stays open: `end` or `flush` follows."""
        if self._accepts(agent, message):
            text = bounded_text(message) or "The agent failed."
            event = SessionError(code=as_name(code) or "error", message=text, retriable=is_retriable)
            self._agents.emit(agent, event)

    # Lines of a program, which a parser of their own reads

    def begin_lines(
        self, agent: RuntimeAgent, reader: "LineReader", totals: JsonObject | None = None
    ) -> None:
        """Begin to read the lines of a program whose main agent is `agent`. A reader before it is over.

        `totals` are those that the reader has begun with.
        """
        self._line_reader = reader

    def read_line(self, agent: RuntimeAgent, line: JsonObject, child_ids: Sequence[str] = ()) -> None:
        """Read a line. `child_ids` are those of the agents that it starts, if another process chose them."""
        if not self._accepts(agent, line):
            return
        if self._line_reader is None or not self._line_reader.is_of(agent):
            self._agents.emit(agent, make_reject("line_without_program", line))
            return
        self._line_reader.feed(line, child_ids)

    # Input that is refused

    def _emit_record(self, agent: RuntimeAgent, payload: Payload, reason: str) -> None:
        """Emit a payload with values of the runtime, or a reject if they are not valid."""
        self._agents.emit(agent, sanitize_record(payload) or make_reject(reason, payload))

    def _accepts_text(self, agent: RuntimeAgent, piece: object) -> bool:
        if not self._accepts(agent, piece):
            return False
        if isinstance(piece, str):
            return True
        self._agents.emit(agent, make_reject("bad_text", piece))
        return False

    def _accepts(self, agent: RuntimeAgent, value: Any) -> bool:
        """Return True if the agent is open. Otherwise the input is refused."""
        if self.is_open(agent):
            return True
        self._agents.reject_input(agent, "agent_not_open", value)
        return False
