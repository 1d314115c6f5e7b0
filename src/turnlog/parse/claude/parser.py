"""The stdout of a Claude CLI process in stream-json: bytes in, event drafts out (docs/protocol.md 5).

    parser = CliParser(new_id, "Julian")          one for each process
    parser.expect(uuid, SentMessage("tr_1"))      a message was written to stdin; its turn is tr_1
    append(parser.feed(data))                     one append for one feed
    write(parser.take_stdin_lines())
    append(parser.flush(fault))                   the process has exited: everything is closed

Tables choose the reader of a line by its `type` and `subtype`. Lines without a reader are stored unchanged
(`claude_cli.line`), status lines are dropped, replayed lines are skipped. Never raises. However the bytes are
cut, the events are the same. Memory is bounded by the limits of `lines`, `agents` and `reply`; the blocks of
the last 1024 lines can be retracted.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import structs

from turnlog.events import (
    ApprovalDecision,
    AssistantFiles,
    ContextCompact,
    ErrorInfo,
    EventDraft,
    File,
    ParseReject,
    Payload,
    ProcessAuth,
    Scope,
    SessionError,
    ToolCall,
    ToolProgress,
    Usage,
)
from turnlog.events.agent import AgentStart, StopReason
from turnlog.events.payload import Amount, Count
from turnlog.parse.claude.lines import (
    Line,
    LineDecoder,
    clean_line,
    make_raw_line_event,
    unsupported_line,
)
from turnlog.parse.claude.message import CliAgent, CliAgents, CliMessage
from turnlog.parse.claude.permissions import (
    PermissionRequest,
    PermissionRequests,
    make_approval_request,
    parse_requested_call,
)
from turnlog.parse.claude.results import (
    RETRIABLE_CODES,
    CompletionUsages,
    TurnEnd,
    UsageTotals,
    parse_message_usage,
    parse_turn_outcome,
    parse_turn_usage,
)
from turnlog.parse.claude.tool_results import find_denied_calls, get_text_content, parse_tool_result
from turnlog.parse.claude.turns import HostedTurn, SentMessage, Turns
from turnlog.parse.json_values import (
    JsonObject,
    as_list,
    as_name,
    as_opaque_id,
    convert_or_none,
    get_field,
    printable_name,
    to_json_value,
)
from turnlog.parse.messages_api import bounded_text
from turnlog.parse.open_agents import ToolEffects, get_origin, put_bounded
from turnlog.parse.rejects import make_reject
from turnlog.parse.reply import ReplyBuilder, TextParserFactory, always_backend, tag_parser_factory

MAX_KNOWN_LINES = 1024  # whose blocks can be retracted: a turn has a few hundred lines
DEFAULT_AGENT_NAME = "Agent"
PROCESS_EXITED = ErrorInfo(code="process_exited", message="The process ended in the middle of a turn.")
TASK_STOP_REASONS: dict[Any, StopReason] = {
    "completed": "end_turn",
    "failed": "error",
    "stopped": "cancelled",
    "killed": "cancelled",
}

# Status lines without lasting meaning: they are dropped.
IGNORED_LINES = ("keep_alive",)
IGNORED_SYSTEM_LINES = (
    "thinking_tokens",
    "session_state_changed",
    "background_tasks_changed",
    "control_request_progress",
    "commands_changed",
)


SignInMethod = Literal["oauth", "setup_token"]


class KnownLine(NamedTuple):
    """A line that was parsed: its agent and its blocks, if it has blocks that can be retracted."""

    agent: CliAgent | None = None
    block_ids: tuple[str, ...] = ()


class CliParser:
    """Parses the output of one process."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        name: str = "Claude",
        make_text_parser: TextParserFactory = tag_parser_factory(None),  # noqa: B008
        tool_effects: ToolEffects | None = None,
        sign_in_method: SignInMethod = "oauth",
        hosted_turn: HostedTurn | None = None,
    ) -> None:
        """`sign_in_method` is how the process signs in if it has no API key: its host knows that.

        With a `hosted_turn` everything belongs to it, its host takes the output, completions report their
        tokens one by one, and lines without a reader are dropped.
        """
        self._hosted_turn = hosted_turn
        self._agents = hosted_turn.agents if hosted_turn else CliAgents([], new_id, tool_effects)
        self._output = self._agents.output  # shared with the agents and turns; `feed` and `flush` take it
        self._decoder = LineDecoder()
        self._new_id = new_id
        self._make_text_parser = make_text_parser
        self._executor_for = hosted_turn.executor_for if hosted_turn else always_backend
        self._turns = Turns(self._output, self._agents, name, new_id, hosted_turn)
        self._permissions = PermissionRequests()
        self._denied_calls: dict[str, None] = {}
        self._known_lines: dict[str, KnownLine] = {}  # by UUID
        self._usage_totals = UsageTotals()
        self._completion_usages = CompletionUsages()
        self._last_error_code: str | None = None  # of the turn's last failed completion
        self._stdin_lines: list[bytes] = []
        self._sign_in_method: SignInMethod = sign_in_method
        self._last_auth: ProcessAuth | None = None

    @property
    def source_session(self) -> str | None:
        """Return the session id of the process itself. Another process can resume it."""
        return self._turns.source_session

    @property
    def is_busy(self) -> bool:
        return bool(self._agents.by_id)

    def skip_totals(self, line: JsonObject) -> None:
        """Report no tokens and no cost of these totals: another process has reported them.

        A process that resumes a conversation goes on with the totals of the one before.
        """
        self._usage_totals.take_turn_usages(line)
        self._usage_totals.take_turn_cost(line)

    def expect(self, uuid: str, message: SentMessage) -> None:
        self._turns.expect(uuid, message)

    def feed(self, data: bytes) -> list[EventDraft]:
        """Parse bytes of stdout. Return the events for one append."""
        for line in self._decoder.feed(data):
            self._read_line(line)
        return self._take_output()

    def feed_line(self, line: Any) -> None:
        """Parse a line that is decoded already. Its events are in the output of the hosted turn."""
        value = clean_line(line)
        self._read_line(value if type(value) is dict else make_reject("bad_line", line))

    def flush(self, fault: ErrorInfo = PROCESS_EXITED, reason: StopReason = "error") -> list[EventDraft]:
        """Close everything: the process has exited. Messages that no turn has taken up stay pending."""
        for line in self._decoder.flush():
            self._read_line(line)
        if self.is_busy and reason == "error":
            self._emit(SessionError(code=fault.code, message=fault.message))
        self._agents.end_all(reason)
        return self._take_output()

    def _take_output(self) -> list[EventDraft]:
        output = self._output.copy()
        self._output.clear()
        return output

    def take_stdin_lines(self) -> list[bytes]:
        """Return the lines to write to stdin: answers to requests that this host does not support."""
        lines = self._stdin_lines
        self._stdin_lines = []
        return lines

    def decide(self, decision: ApprovalDecision, updated_args: JsonObject | None = None) -> bytes | None:
        """Return the line that answers a permission request; None if no request waits for this decision.

        `updated_args` replace the arguments of the call, for example with the answers to its questions.
        """
        line = self._permissions.decide(decision, updated_args)
        if line is not None and decision.decision != "approve":
            put_bounded(self._denied_calls, decision.call_id, None, MAX_KNOWN_LINES)
        return line

    def _read_line(self, line: JsonObject | ParseReject) -> None:
        if isinstance(line, ParseReject):
            self._emit(line)
            return

        readers = LINE_READERS
        key = line.get("type")
        if key == "system":
            readers = SYSTEM_READERS
            key = line.get("subtype")
        reader = readers.get(key) if isinstance(key, str) else None
        if reader is None:
            self._emit_raw_line(line)
        else:
            reader(self, line)

    def _emit_raw_line(self, line: JsonObject, agent: CliAgent | None = None) -> None:
        if self._hosted_turn is None:
            self._emit(make_raw_line_event(line), agent=agent)

    def _ignore_line(self, _: JsonObject) -> None:
        pass

    def _emit(self, *payloads: Payload, agent: CliAgent | None = None) -> None:
        owner = agent or self._turns.current
        scope = owner.scope if owner else Scope()
        for payload in payloads:
            origin = "system" if isinstance(payload, Line) else get_origin(payload)
            self._output.append(EventDraft(payload, scope, origin))

    def _is_replay(self, line: JsonObject) -> bool:
        """Return True if a line has come before. Otherwise store its UUID."""
        uuid = as_opaque_id(line.get("uuid"))
        if line.get("isReplay") is True or uuid in self._known_lines:
            return True
        if uuid:
            put_bounded(self._known_lines, uuid, KnownLine(), MAX_KNOWN_LINES)
        return False

    # Turns

    def _on_lifecycle(self, line: JsonObject) -> None:
        uuid = as_opaque_id(line.get("command_uuid"))
        state = line.get("state")
        if state == "cancelled" and uuid:
            self._turns.cancel_message(uuid)
        elif state == "queued" or state == "started":
            self._turns.set_message_state(uuid, state)

    def _on_init(self, line: JsonObject) -> None:
        self._last_error_code = None
        agent = self._turns.begin(line)

        # The process reports "none" also if it is not signed in: only a setup token tells that it is.
        source = line.get("apiKeySource")
        if source == "oauth" or (source == "none" and self._sign_in_method == "setup_token"):
            auth = ProcessAuth(method=self._sign_in_method, needs_setup=False)
            if auth != self._last_auth:
                self._emit_auth(auth, agent)

    def _emit_auth(self, auth: ProcessAuth, agent: CliAgent | None = None) -> None:
        self._last_auth = auth
        self._emit(auth, agent=agent)

    def _on_result(self, line: JsonObject) -> None:
        if self._is_replay(line):
            return
        agent = self._turns.turn_for_result(line)
        self._turns.record_answered(agent, line)
        self._retract_lines(line.get("retracted_message_uuids"), "refusal")

        outcome = parse_turn_outcome(line, self._last_error_code)
        self._last_error_code = None
        usages = self._usage_totals.take_turn_usages(line)
        end = TurnEnd(
            outcome.reason,
            parse_turn_usage(line, usages),
            self._usage_totals.take_turn_cost(line),
            convert_or_none(line.get("num_turns"), Count),
        )
        self._agents.close_message(agent)
        if self._hosted_turn is None:
            self._emit(*usages, agent=agent)
        else:
            self._agents.emit_rest_usage(agent, self._completion_usages.take_rest(usages))
        if outcome.error is not None:
            self._emit_failure(agent, outcome.error)
        self._end_turn(agent, end)

    def _end_turn(self, agent: CliAgent, end: TurnEnd) -> None:
        if self._hosted_turn is not None:
            self._hosted_turn.add_end(end)
            return
        end_fields: dict[str, Any] = {"usage": end.usage, "cost": end.cost}
        if end.steps is not None:
            end_fields["steps"] = end.steps
        self._agents.end(agent, end.reason, agent.last_text, **end_fields)
        self._turns.finish(agent, end.reason)

    def _report_completion(
        self, agent: CliAgent, message_id: str | None, model: str | None, usage: Usage
    ) -> None:
        report = self._completion_usages.add(message_id, model or agent.model, usage)
        if report is not None and self._hosted_turn is not None:
            self._agents.emit(agent, report)

    def _emit_failure(self, agent: CliAgent, error: ErrorInfo) -> None:
        if error.code == "auth_failed":
            self._emit_auth(ProcessAuth(method="none", needs_setup=True), agent)
        is_retriable = error.code in RETRIABLE_CODES
        problem = SessionError(code=error.code, message=error.message, retriable=is_retriable)
        self._emit(problem, agent=agent)

    # Agents

    def _find_owner(self, line: JsonObject) -> CliAgent | None:
        """Return the agent of a line, starting it if needed. Return None at the limit of open agents."""
        call_id = as_opaque_id(line.get("parent_tool_use_id"))
        if call_id is None:
            return self._turns.current_or_new()
        return self._find_or_start_child(call_id, line)

    def _find_or_start_child(self, call_id: str, line: JsonObject) -> CliAgent | None:
        agent = self._agents.find_by_call(call_id)
        if agent is not None:
            self._agents.update(agent, source_id=get_task_id(line))
            return agent
        if self._agents.is_full:
            return None

        caller = self._find_caller(call_id)
        if caller is None:
            caller = self._agents.find_by_source_id(as_opaque_id(line.get("parent_task_id")))
        if caller is None:
            caller = self._turns.current_or_new()
        return self._start_child(caller, call_id, line)

    def _find_caller(self, call_id: str | None) -> CliAgent | None:
        """Return the agent that made a call. First complete the blocks that are confirmed: one may be it."""
        if self._agents.find_caller(call_id) is None:
            for agent in self._agents.by_id.values():
                if agent.message is not None:
                    agent.message.finish_confirmed()
                    self._emit_message(agent, agent.message)
        return self._agents.find_caller(call_id)

    def _start_child(self, caller: CliAgent, call_id: str, line: JsonObject) -> CliAgent:
        call = caller.open_calls.get(call_id)
        args = call.args if call else {}
        name = as_name(line.get("subagent_type")) or as_name(args.get("subagent_type")) or DEFAULT_AGENT_NAME
        prompts = [line.get("prompt"), args.get("prompt")]
        if line.get("type") == "user":
            prompts.append(get_text_content(line))
        prompt = next((text for text in prompts if isinstance(text, str)), None)

        depth = (caller.scope.depth or 0) + 1
        agent_id = self._hosted_turn.next_agent_id() if self._hosted_turn else None
        trace_id = caller.scope.trace_id or ""
        scope = self._agents.new_scope(name, trace_id, depth, caller.scope.channel, agent_id)
        agent = CliAgent(scope, caller, call_id)
        is_background = line.get("is_backgrounded") is True or args.get("run_in_background") is True
        self._agents.update(agent, source_id=get_task_id(line), is_background=is_background)
        start = AgentStart(name=name, via="call", parent_id=caller.agent_id, call_id=call_id, prompt=prompt)
        self._agents.begin(start, agent)
        return agent

    # Messages

    def _begin_message(self, agent: CliAgent, start: JsonObject, is_streamed: bool) -> CliMessage:
        reply = ReplyBuilder(self._new_id, self._make_text_parser, self._executor_for)
        message = CliMessage(reply, start, is_streamed)
        self._agents.begin_message(agent, message)
        return message

    def _on_stream_event(self, line: JsonObject) -> None:
        event = line.get("event")
        agent = self._find_owner(line)
        if agent is None or not isinstance(event, dict):
            self._emit_raw_line(to_json_value(line))  # a delta may hold half of a surrogate pair
            return
        if event.get("type") == "message_start":
            self._begin_message(agent, event, is_streamed=True)
            return
        if agent.message is None:
            self._emit(make_reject("no_message", event, event.get("type")), agent=agent)
            return

        abandoned = line.get("abandoned_blocks") or event.get("abandoned_blocks")
        if abandoned is not None:
            self._abandon_blocks(agent, agent.message, abandoned)
            # The event is the stop of a block that has just been aborted.
            if event.get("type") == "content_block_stop":
                return
        agent.message.feed_event(event)
        self._emit_message(agent, agent.message)
        if event.get("type") == "message_stop":
            reply = agent.message.reply
            self._report_completion(agent, reply.message_id, reply.model, reply.usage)

    def _emit_message(self, agent: CliAgent, message: CliMessage) -> None:
        for payload in message.take_output():
            # A permission request came before the block of its call, and has emitted the call.
            if isinstance(payload, ToolCall) and self._agents.find_caller(payload.call_id) is agent:
                continue
            self._agents.emit(agent, payload)

    def _abandon_blocks(self, agent: CliAgent, message: CliMessage, abandoned: Any) -> None:
        start = convert_or_none(get_field(abandoned, "from_block_index"), Count) or 0
        block_ids = message.abandon_from(start)
        self._emit_message(agent, message)
        self._agents.retract_blocks(agent, block_ids, "abandoned")

    def _on_assistant(self, line: JsonObject) -> None:
        if self._is_replay(line):
            return
        message = line.get("message")
        content = get_field(message, "content")
        agent = self._find_owner(line)
        if agent is None or not isinstance(message, dict) or not isinstance(content, list):
            self._emit_raw_line(line)
            return

        if agent.caller is None:
            self._turns.record_answered(agent, line)
        self._last_error_code = printable_name(line.get("error")) or self._last_error_code
        self._retract_lines(line.get("supersedes"), "superseded")

        block_ids: list[str] = []
        for block in content:
            block_id = self._add_block(agent, message, block, line.get("aborted") is True)
            if block_id is not None:
                block_ids.append(block_id)
        uuid = as_opaque_id(line.get("uuid"))
        if uuid:
            self._known_lines[uuid] = KnownLine(agent, tuple(block_ids))

        # A streamed message reports its tokens at its end.
        if agent.message is not None and not agent.message.is_streamed:
            usage = parse_message_usage(message)
            self._report_completion(agent, agent.message.message_id, agent.message.reply.model, usage)

    def _add_block(self, agent: CliAgent, message: JsonObject, block: Any, aborted: bool) -> str | None:
        message_id = as_opaque_id(message.get("id"))
        current = agent.message
        is_same_message = current is not None and message_id is not None and current.message_id == message_id
        is_repeated = current is not None and (is_same_message or aborted) and current.has_streamed(block)
        if current is None or not (is_repeated or (is_same_message and not current.has_ended)):
            start = {"type": "message_start", "message": {"id": message_id, "model": message.get("model")}}
            current = self._begin_message(agent, start, is_streamed=False)

        # The permission request came before the call, and has emitted it.
        call_id = as_opaque_id(get_field(block, "id"))
        if not is_repeated and self._agents.find_caller(call_id) is agent:
            return None

        block_id = current.add_whole_block(block, aborted)
        self._emit_message(agent, current)
        return block_id

    def _retract_lines(self, uuids: Any, reason: str) -> None:
        for uuid in as_list(uuids):
            known = self._known_lines.get(uuid) if isinstance(uuid, str) else None
            if known is not None and known.agent is not None:
                self._agents.retract_blocks(known.agent, list(known.block_ids), reason)
                self._known_lines[uuid] = KnownLine()

    def _on_model_refusal(self, line: JsonObject) -> None:
        self._retract_lines(line.get("retracted_message_uuids"), "refusal")
        self._emit_raw_line(line)

    # Tools

    def _on_user(self, line: JsonObject) -> None:
        if self._is_replay(line):
            self._turns.set_message_state(as_opaque_id(line.get("uuid")), "started")
            return

        content = get_field(line.get("message"), "content")
        blocks = content if isinstance(content, list) else [content]
        results = [block for block in blocks if get_field(block, "type") == "tool_result"]
        agent = self._find_owner(line) if line.get("parent_tool_use_id") else self._turns.current

        text = get_text_content(line)
        is_prompt = agent is not None and text is not None and agent.prompt == text
        if len(results) < len(blocks) and not is_prompt:
            self._emit_raw_line(line, agent)

        # The line has one report: with several results it is not known whose it is.
        tool_report = line.get("tool_use_result") if len(results) == 1 else None
        for block in results:
            self._add_tool_result(line, block, tool_report)

    def _add_tool_result(self, line: JsonObject, block: JsonObject, tool_report: Any) -> None:
        call_id = as_opaque_id(block.get("tool_use_id"))
        agent = self._find_caller(call_id)
        call = agent.open_calls.get(call_id or "") if agent else None
        if agent is None or call is None:
            self._emit_raw_line(block, agent)
            return
        denied = call.call_id in self._denied_calls or call.call_id in find_denied_calls(line)
        self._agents.add_result(agent, parse_tool_result(call, block, denied), tool_report)

    def _on_tool_progress(self, line: JsonObject) -> None:
        call_id = as_opaque_id(line.get("tool_use_id"))
        elapsed_s = convert_or_none(line.get("elapsed_time_seconds"), Amount)
        agent = self._agents.find_caller(call_id)
        if agent is None or call_id is None or elapsed_s is None or not agent.owns_open_call(call_id):
            return
        self._emit(ToolProgress(call_id=call_id, text=f"{elapsed_s:g} s"), agent=agent)

    # Tasks: how the process reports sub-agents

    def _on_task_started(self, line: JsonObject) -> None:
        call_id = as_opaque_id(line.get("tool_use_id"))
        is_agent = isinstance(line.get("subagent_type"), str) or str(line.get("task_type")).endswith("agent")
        agent = self._find_or_start_child(call_id, line) if call_id and is_agent else None
        if agent is None:
            self._emit_raw_line(line)
        else:
            self._agents.update(agent, is_background=line.get("is_backgrounded") is True)

    def _find_task_agent(self, line: JsonObject) -> CliAgent | None:
        agent = self._agents.find_by_call(as_opaque_id(line.get("tool_use_id")))
        return agent or self._agents.find_by_source_id(as_opaque_id(line.get("task_id")))

    def _on_task_progress(self, line: JsonObject) -> None:
        agent = self._find_task_agent(line)
        text = bounded_text(line.get("last_tool_name")) or bounded_text(line.get("description"))
        if agent is None or agent.caller is None or agent.call_id is None or not text:
            return
        if agent.caller.owns_open_call(agent.call_id):
            self._emit(ToolProgress(call_id=agent.call_id, text=text), agent=agent.caller)

    def _on_task_updated(self, line: JsonObject) -> None:
        agent = self._find_task_agent(line)
        if agent is None:
            self._emit_raw_line(line)
            return
        patch = line.get("patch")
        self._agents.update(
            agent,
            is_background=get_field(patch, "is_backgrounded") is True,
            stop_reason=get_task_stop_reason(get_field(patch, "status")),
        )

    def _on_task_notification(self, line: JsonObject) -> None:
        """End a background agent. Other sub-agents end with the result of their call."""
        agent = self._find_task_agent(line)
        if agent is None:
            self._emit_raw_line(line)
            return
        reason = get_task_stop_reason(line.get("status")) or agent.reported_stop or "end_turn"
        self._agents.update(agent, stop_reason=reason)
        if agent.is_background:
            self._agents.end(agent, reason, agent.last_text or bounded_text(line.get("summary")))

    # Permissions

    def _on_control_request(self, line: JsonObject) -> None:
        request = line.get("request")
        request_id = as_opaque_id(line.get("request_id"))
        requested = None
        if isinstance(request, dict) and request.get("subtype") == "can_use_tool" and request_id:
            requested = self.open_requested_call(request)
        if requested is None or request_id is None or not isinstance(request, dict):
            if request_id:
                self._stdin_lines.append(unsupported_line(request_id))
            self._emit_raw_line(line)
            return
        if self._hosted_turn is not None:
            return  # its host asks people

        agent, call = requested
        approval_request = make_approval_request(call, request)
        self._permissions.add(PermissionRequest(request_id, call, approval_request, agent))
        self._emit(approval_request, agent=agent)

    def open_requested_call(self, request: JsonObject) -> tuple[CliAgent, ToolCall] | None:
        """Return the agent and the call that a permission is for; None if the request is not valid.

        The request may come before the block of its call: then the call is added.
        """
        call = parse_requested_call(request)
        if call is None:
            return None
        agent = self._find_caller(call.call_id)
        if agent is None or agent.agent_id not in self._agents.by_id:
            agent = self._agents.find_by_source_id(as_opaque_id(request.get("agent_id")))
        if agent is None:
            agent = self._turns.current_or_new()
        if not agent.owns_open_call(call.call_id):
            self._agents.emit(agent, structs.replace(call, executor=self._executor_for(call.tool)))
        return agent, call

    def knows_call(self, call_id: str | None) -> bool:
        return self._find_caller(call_id) is not None

    def _on_permission_cancelled(self, line: JsonObject) -> None:
        request = self._permissions.withdraw(line.get("request_id"))
        if request is None or not request.is_open:
            return
        args_hash = request.approval_request.args_hash
        expired = ApprovalDecision(call_id=request.call.call_id, args_hash=args_hash, decision="expired")
        self._emit(expired, agent=request.agent)

    def _on_control_response(self, line: JsonObject) -> None:
        if get_field(line.get("response"), "subtype") == "error":
            self._emit_raw_line(line)

    def _on_permission_denied(self, line: JsonObject) -> None:
        call_id = as_opaque_id(line.get("tool_use_id"))
        if call_id:
            put_bounded(self._denied_calls, call_id, None, MAX_KNOWN_LINES)
        self._emit_raw_line(line)

    # The process itself

    def _on_compact_boundary(self, line: JsonObject) -> None:
        metadata = line.get("compact_metadata")
        before = convert_or_none(get_field(metadata, "pre_tokens"), Count)
        after = convert_or_none(get_field(metadata, "post_tokens"), Count)
        self._emit(ContextCompact(tokens_before=before, tokens_after=after))

    def _on_status(self, line: JsonObject) -> None:
        problem = bounded_text(line.get("compact_error"))
        if problem:
            self._emit(SessionError(code="compact_failed", message=problem))

    def _on_auth_status(self, line: JsonObject) -> None:
        """Report a change of the sign-in. The output of the sign-in is not stored: it may be a secret."""
        problem = bounded_text(line.get("error"))
        needs_setup = problem is not None or line.get("isAuthenticating") is True
        auth = ProcessAuth(
            method="none" if needs_setup else self._sign_in_method,
            needs_setup=needs_setup,
            expires_in_minutes=convert_or_none(line.get("expiresInMinutes"), int),
        )
        self._emit_auth(auth)
        if problem:
            self._emit(SessionError(code="auth_failed", message=problem))

    def _on_files_persisted(self, line: JsonObject) -> None:
        items = as_list(line.get("files"))
        files = [file for file in map(parse_persisted_file, items) if file is not None]
        if files:
            self._emit(AssistantFiles(files=tuple(files)))
        # What is not in the event is stored with the line.
        if not files or len(files) < len(items) or line.get("failed"):
            self._emit_raw_line(line)


def get_task_id(line: JsonObject) -> str | None:
    return as_opaque_id(line.get("task_id")) or as_opaque_id(line.get("agent_id"))


def get_task_stop_reason(status: Any) -> StopReason | None:
    return TASK_STOP_REASONS.get(status) if isinstance(status, str) else None


def parse_persisted_file(item: Any) -> File | None:
    file_id = as_opaque_id(get_field(item, "file_id"))
    filename = get_field(item, "filename")
    if file_id is None or not isinstance(filename, str):
        return None
    return File(file_id=file_id, filename=filename, storage_location=f"provider:{file_id}")


LineReader = Callable[[CliParser, JsonObject], None]

# A line without a reader is stored unchanged.
LINE_READERS: dict[str, LineReader] = {
    "assistant": CliParser._on_assistant,
    "user": CliParser._on_user,
    "stream_event": CliParser._on_stream_event,
    "result": CliParser._on_result,
    "tool_progress": CliParser._on_tool_progress,
    "auth_status": CliParser._on_auth_status,
    "command_lifecycle": CliParser._on_lifecycle,
    "control_request": CliParser._on_control_request,
    "control_cancel_request": CliParser._on_permission_cancelled,
    "control_response": CliParser._on_control_response,
    **dict.fromkeys(IGNORED_LINES, CliParser._ignore_line),
}
SYSTEM_READERS: dict[str, LineReader] = {  # by subtype
    "init": CliParser._on_init,
    "status": CliParser._on_status,
    "compact_boundary": CliParser._on_compact_boundary,
    "task_started": CliParser._on_task_started,
    "task_progress": CliParser._on_task_progress,
    "task_updated": CliParser._on_task_updated,
    "task_notification": CliParser._on_task_notification,
    "permission_denied": CliParser._on_permission_denied,
    "model_refusal_fallback": CliParser._on_model_refusal,
    "model_refusal_no_fallback": CliParser._on_model_refusal,
    "files_persisted": CliParser._on_files_persisted,
    **dict.fromkeys(IGNORED_SYSTEM_LINES, CliParser._ignore_line),
}
