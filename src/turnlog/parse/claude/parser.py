"""The stdout of a Claude CLI process in stream-json: bytes in, events with their scopes out (protocol 5).

    parser = CliParser(new_id, "Julian")          one for each process
    parser.expect(uuid, Asked("tr_1"))            a message went down with this UUID; its turn is tr_1
    append(parser.feed(data))                     one append for what one feed returns
    write(parser.take_replies())
    append(parser.flush(fault))                   the process is gone: everything is closed

What a line is follows from its `type` and `subtype`, through tables. Lines that have no event of their own
are kept as they came (`claude_cli.line`); those that only matter while they happen are dropped (`MOMENTARY`),
replayed ones skipped. Never raises; any cutting of the bytes gives the same events. Memory is bounded by the
limits of `cli_lines`, `cli_agents` and `reply`; the blocks of the last 1024 lines can be retracted.
"""

from collections.abc import Callable
from typing import Any

from turnlog.events import (
    ApprovalDecision,
    AssistantFiles,
    ContextCompact,
    ErrorInfo,
    ParseReject,
    Payload,
    ProcessAuth,
    Scope,
    SessionError,
    ToolProgress,
)
from turnlog.events.agent import AgentStart, StopReason
from turnlog.events.payload import Amount, Count
from turnlog.parse.claude.agents import (
    MAX_OPEN_AGENTS,
    CliAgent,
    EventDraft,
    OpenAgents,
    get_origin,
    put_bounded,
)
from turnlog.parse.claude.lines import LineDecoder, make_raw_line_event, unsupported_line
from turnlog.parse.claude.message import CliMessage
from turnlog.parse.claude.permissions import (
    PermissionRequest,
    PermissionRequests,
    find_denied_calls,
    get_task_id,
    get_task_stop_reason,
    get_text_content,
    make_approval_request,
    parse_persisted_file,
    parse_requested_call,
    parse_tool_result,
)
from turnlog.parse.claude.results import RETRIABLE_CODES, UsageTotals, parse_turn_outcome, parse_turn_usage
from turnlog.parse.claude.turns import SentMessage, Turns
from turnlog.parse.deeds import ToolEffects
from turnlog.parse.json_values import (
    JsonObject,
    as_name,
    as_opaque_id,
    convert_or_none,
    get_field,
    printable_name,
    to_json_value,
)
from turnlog.parse.messages_api import bounded_text
from turnlog.parse.rejects import make_reject
from turnlog.parse.reply import TextParserFactory, tag_parser_factory

MAX_KNOWN_LINES = 1024  # whose blocks can still be named: a turn has a few hundred
DEFAULT_AGENT_NAME = "Agent"  # the name of one that has none
PROCESS_EXITED = ErrorInfo(code="process_exited", message="The process ended in the middle of a turn.")
# They say how it is just now, and nothing that happened.
IGNORED_LINES = ("keep_alive",)
IGNORED_SYSTEM_LINES = (
    "thinking_tokens",
    "session_state_changed",
    "background_tasks_changed",
    "control_request_progress",
    "commands_changed",
)


class CliParser:
    """Reads one process."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        name: str = "Claude",
        make_text_parser: TextParserFactory = tag_parser_factory(None),  # noqa: B008
        tool_effects: ToolEffects = ToolEffects(),  # noqa: B008
    ) -> None:
        self._decoder = LineDecoder()
        self._agents = OpenAgents(new_id, make_text_parser, tool_effects)
        self._turns = Turns(self._agents, name, new_id)
        self._permissions = PermissionRequests()
        self._denied_calls: dict[str, None] = {}
        self._known_lines: dict[
            str, tuple[CliAgent | None, list[str]]
        ] = {}  # by line: whose it was, its blocks
        self._usage_totals = UsageTotals()
        self._last_error_code: str | None = None  # what the model's last failed answer said it was
        self._stdin_lines: list[bytes] = []

    @property
    def source_session(self) -> str | None:
        """What the process calls its session; another process can go on with it."""
        return self._turns.source_session

    @property
    def is_busy(self) -> bool:
        """Whether an agent is open."""
        return bool(self._agents.by_id)

    def expect(self, uuid: str, message: SentMessage) -> None:
        """A message went down with this UUID."""
        self._turns.expect(uuid, message)

    def feed(self, data: bytes) -> list[EventDraft]:
        """The next bytes of stdout."""
        return [said for line in self._decoder.feed(data) for said in self._read_line(line)]

    def flush(self, fault: ErrorInfo = PROCESS_EXITED, reason: StopReason = "error") -> list[EventDraft]:
        """The process is gone: what is open is closed. Messages that no turn has taken up stay pending."""
        said = [said for line in self._decoder.flush() for said in self._read_line(line)]
        if self.is_busy and reason == "error":
            said += self._emit(SessionError(code=fault.code, message=fault.message))
        while agents := list(self._agents.by_id.values()):
            said += self._agents.end(agents[-1], agents[-1].task_stop_reason or reason, agents[-1].last_text)
        return said

    def take_stdin_lines(self) -> list[bytes]:
        """Lines for stdin: answers to what the process asked and nobody here can do."""
        replies, self._stdin_lines = self._stdin_lines, []
        return replies

    def decide(self, decision: ApprovalDecision, updated_args: JsonObject | None = None) -> bytes | None:
        """The line that answers a permission request; None if nothing waits for this decision.

        `updated` are other arguments, such as the answers to the questions in them.
        """
        line = self._permissions.decide(decision, updated_args)
        if line and decision.decision != "approve":
            put_bounded(self._denied_calls, decision.call_id, None, MAX_KNOWN_LINES)
        return line

    def _read_line(self, line: JsonObject | ParseReject) -> list[EventDraft]:
        if isinstance(line, ParseReject):
            return self._emit(line)
        kind, subtype = line.get("type"), line.get("subtype")
        readers, key = (SYSTEM_READERS, subtype) if kind == "system" else (LINE_READERS, kind)
        read = readers.get(key) if isinstance(key, str) else None
        return read(self, line) if read else self._emit_raw_line(line)

    def _emit_raw_line(self, line: JsonObject) -> list[EventDraft]:
        return self._emit(make_raw_line_event(line))

    def _ignore_line(self, _: JsonObject) -> list[EventDraft]:
        return []

    def _emit(self, *payloads: Payload, agent: CliAgent | None = None) -> list[EventDraft]:
        """Events of an agent, else of the main one, else of nobody."""
        owner = agent or self._turns.current
        scope = owner.scope if owner else Scope()
        return [EventDraft(payload, scope, get_origin(payload)) for payload in payloads]

    def _is_replay(self, line: JsonObject) -> bool:
        """Whether a line has come before; from now on it has."""
        uuid = as_opaque_id(line.get("uuid"))
        again = line.get("isReplay") is True or uuid in self._known_lines
        if uuid and not again:
            put_bounded(self._known_lines, uuid, (None, []), MAX_KNOWN_LINES)
        return again

    def _on_lifecycle(self, line: JsonObject) -> list[EventDraft]:
        uuid, state = as_opaque_id(line.get("command_uuid")), line.get("state")
        if state == "cancelled" and uuid:
            return self._turns.cancel_message(uuid)
        if state == "queued" or state == "started":
            self._turns.set_message_state(uuid, state)
        return []

    def _on_init(self, line: JsonObject) -> list[EventDraft]:
        self._last_error_code = None
        return self._turns.begin(line)

    def _find_owner(self, line: JsonObject) -> tuple[CliAgent | None, list[EventDraft]]:
        """Whose line it is, and what has to be said before it; None if there are too many agents."""
        call_id = as_opaque_id(line.get("parent_tool_use_id"))
        return self._find_or_start_child(call_id, line) if call_id else self._turns.current_or_new()

    def _find_or_start_child(
        self, call_id: str, line: JsonObject
    ) -> tuple[CliAgent | None, list[EventDraft]]:
        """The agent that a call spawned; it begins now if nobody said so before."""
        if child := self._agents.find_child(call_id):
            child.task_id = child.task_id or get_task_id(line)
            return child, []
        if len(self._agents.by_id) >= MAX_OPEN_AGENTS:
            return None, []
        caller, said = self._find_caller(call_id)
        caller = caller or self._agents.find_child(None, as_opaque_id(line.get("parent_task_id")))
        if caller is None:
            caller, begun = self._turns.current_or_new()
            said += begun
        return self._spawn(caller, call_id, line, said)

    def _find_caller(self, call_id: str | None) -> tuple[CliAgent | None, list[EventDraft]]:
        """Who made a call. One that is not said yet is complete all the same if it is known whole."""
        said: list[EventDraft] = []
        if self._agents.find_caller(call_id) is None:
            for agent in self._agents.by_id.values():
                said += self._agents.emit(agent, agent.message.finish_confirmed() if agent.message else [])
        return self._agents.find_caller(call_id), said

    def _spawn(
        self, caller: CliAgent, call_id: str, line: JsonObject, said: list[EventDraft]
    ) -> tuple[CliAgent, list[EventDraft]]:
        call, scope = caller.open_calls.get(call_id), caller.scope
        args = call.args if call else {}
        name = as_name(line.get("subagent_type")) or as_name(args.get("subagent_type")) or DEFAULT_AGENT_NAME
        place = self._agents.new_scope(name, scope.trace_id or "", (scope.depth or 0) + 1, scope.channel)
        agent = CliAgent(place, caller, call_id)
        agent.task_id = get_task_id(line)
        agent.is_background = line.get("is_backgrounded") is True or args.get("run_in_background") is True
        told = get_text_content(line) if line.get("type") == "user" else None
        prompts = (line.get("prompt"), args.get("prompt"), told)
        prompt = next((prompt for prompt in prompts if isinstance(prompt, str)), None)
        start = AgentStart(name=name, via="call", parent_id=caller.agent_id, call_id=call_id, prompt=prompt)
        return agent, said + self._agents.begin(start, agent)

    def _on_stream_event(self, line: JsonObject) -> list[EventDraft]:
        """One event of the Messages API, of an agent's message."""
        event = line.get("event")
        agent, said = self._find_owner(line)
        if agent is None or not isinstance(event, dict):
            return said + self._emit_raw_line(
                to_json_value(line)
            )  # a delta may hold half a pair of surrogates
        if event.get("type") == "message_start":
            return said + self._agents.begin_message(agent, event)[1]
        if agent.message is None:
            return said + self._emit(make_reject("no_message", event, event.get("type")), agent=agent)
        void = line.get("abandoned_blocks") or event.get("abandoned_blocks")
        if void is not None:
            said += self._abandon(agent, agent.message, void)
            if event.get("type") == "content_block_stop":
                return said  # of a block that has ended just now
        return said + self._agents.emit(agent, agent.message.feed_event(event))

    def _abandon(self, agent: CliAgent, message: CliMessage, void: Any) -> list[EventDraft]:
        """The provider failed in the middle of a message; what was shown of it is void."""
        start = convert_or_none(get_field(void, "from_block_index"), Count) or 0
        batch, block_ids = message.abandon_from(start)
        return self._agents.emit(agent, batch) + self._agents.retract_blocks(agent, block_ids, "abandoned")

    def _on_assistant(self, line: JsonObject) -> list[EventDraft]:
        """Blocks of a message, whole."""
        if self._is_replay(line):
            return []
        message = line.get("message")
        content = get_field(message, "content")
        agent, said = self._find_owner(line)
        if agent is None or not isinstance(message, dict) or not isinstance(content, list):
            return said + self._emit_raw_line(line)
        if agent.caller is None:
            self._turns.record_answered(agent, line)
        self._last_error_code = printable_name(line.get("error")) or self._last_error_code
        said += self._retract_lines(line.get("supersedes"), "superseded")
        shown: list[str] = []
        for block in content:
            said += self._add_block(agent, message, block, line.get("aborted") is True, shown)
        if uuid := as_opaque_id(line.get("uuid")):
            self._known_lines[uuid] = agent, shown
        return said

    def _add_block(
        self, agent: CliAgent, message: JsonObject, block: Any, aborted: bool, shown: list[str]
    ) -> list[EventDraft]:
        key, current, said = as_opaque_id(message.get("id")), agent.message, list[EventDraft]()
        same = current is not None and key is not None and current.message_id == key
        repeats = current is not None and (same or aborted) and current.has_streamed(block)
        if current is None or not (repeats or (same and not current.has_ended)):
            facts = {"id": key, "model": message.get("model")}
            current, said = self._agents.begin_message(agent, {"type": "message_start", "message": facts})
        if not repeats and self._agents.find_caller(as_opaque_id(get_field(block, "id"))) is agent:
            return said  # a permission was asked for before the call came
        batch, block_ids = current.add_whole_block(block, aborted)
        shown += block_ids
        return said + self._agents.emit(agent, batch)

    def _retract_lines(self, uuids: Any, reason: str) -> list[EventDraft]:
        """The blocks of these lines are void."""
        said: list[EventDraft] = []
        for uuid in uuids if isinstance(uuids, list) else []:
            agent, block_ids = (
                self._known_lines.get(uuid, (None, [])) if isinstance(uuid, str) else (None, [])
            )
            if agent:
                said += self._agents.retract_blocks(agent, block_ids, reason)
                self._known_lines[uuid] = None, []
        return said

    def _on_model_refusal(self, line: JsonObject) -> list[EventDraft]:
        """The model refused, and another one answers."""
        return self._retract_lines(line.get("retracted_message_uuids"), "refusal") + self._emit_raw_line(line)

    def _on_user(self, line: JsonObject) -> list[EventDraft]:
        """Results of tools, the prompt of a sub-agent, or what the process tells the model."""
        if self._is_replay(line):
            self._turns.set_message_state(as_opaque_id(line.get("uuid")), "started")
            return []
        content = get_field(line.get("message"), "content")
        blocks = content if isinstance(content, list) else [content]
        results = [block for block in blocks if get_field(block, "type") == "tool_result"]
        agent, said = self._find_owner(line) if line.get("parent_tool_use_id") else (self._turns.current, [])
        words = get_text_content(line)
        told = agent is not None and words is not None and agent.prompt == words
        if len(results) < len(blocks) and not told:
            said += self._emit(make_raw_line_event(line), agent=agent)
        account = line.get("tool_use_result") if len(results) == 1 else None
        for block in results:
            said += self._add_tool_result(line, block, account)
        return said

    def _add_tool_result(self, line: JsonObject, block: JsonObject, tool_report: Any) -> list[EventDraft]:
        call_id = as_opaque_id(block.get("tool_use_id"))
        agent, said = self._find_caller(call_id)
        call = agent.open_calls.get(call_id or "") if agent else None
        if agent is None or call is None:
            return said + self._emit(make_raw_line_event(block), agent=agent)
        denied = call.call_id in self._denied_calls or call.call_id in find_denied_calls(line)
        return said + self._agents.add_result(agent, parse_tool_result(call, block, denied), tool_report)

    def _on_task_started(self, line: JsonObject) -> list[EventDraft]:
        """A task that is an agent; a command in the background is none."""
        call_id, kind = as_opaque_id(line.get("tool_use_id")), line.get("task_type")
        is_agent = isinstance(line.get("subagent_type"), str) or str(kind).endswith("agent")
        if call_id is None or not is_agent:
            return self._emit_raw_line(line)
        agent, said = self._find_or_start_child(call_id, line)
        if agent is None:
            return said + self._emit_raw_line(line)
        agent.is_background = agent.is_background or line.get("is_backgrounded") is True
        return said

    def _find_task_agent(self, line: JsonObject) -> CliAgent | None:
        return self._agents.find_child(
            as_opaque_id(line.get("tool_use_id")), as_opaque_id(line.get("task_id"))
        )

    def _on_task_progress(self, line: JsonObject) -> list[EventDraft]:
        agent = self._find_task_agent(line)
        text = bounded_text(line.get("last_tool_name")) or bounded_text(line.get("description"))
        if agent is None or agent.caller is None or agent.call_id not in agent.caller.open_calls or not text:
            return []
        return self._emit(ToolProgress(call_id=agent.call_id or "", text=text), agent=agent.caller)

    def _on_task_updated(self, line: JsonObject) -> list[EventDraft]:
        agent, patch = self._find_task_agent(line), line.get("patch")
        if agent:
            agent.is_background = agent.is_background or get_field(patch, "is_backgrounded") is True
            agent.task_stop_reason = (
                get_task_stop_reason(get_field(patch, "status")) or agent.task_stop_reason
            )
        return [] if agent else self._emit_raw_line(line)

    def _on_task_notification(self, line: JsonObject) -> list[EventDraft]:
        """The end of an agent in the background; others end with the result of their call."""
        agent = self._find_task_agent(line)
        if agent is None:
            return self._emit_raw_line(line)
        agent.task_stop_reason = (
            get_task_stop_reason(line.get("status")) or agent.task_stop_reason or "end_turn"
        )
        if not agent.is_background:
            return []
        return self._agents.end(
            agent, agent.task_stop_reason, agent.last_text or bounded_text(line.get("summary"))
        )

    def _on_tool_progress(self, line: JsonObject) -> list[EventDraft]:
        call_id, elapsed = (
            as_opaque_id(line.get("tool_use_id")),
            convert_or_none(line.get("elapsed_time_seconds"), Amount),
        )
        agent = self._agents.find_caller(call_id)
        if agent is None or call_id not in agent.open_calls or elapsed is None:
            return []
        return self._emit(ToolProgress(call_id=call_id or "", text=f"{elapsed:g} s"), agent=agent)

    def _on_control_request(self, line: JsonObject) -> list[EventDraft]:
        """The process asks for something: a permission, or what nobody here can do."""
        asked, request_id = line.get("request"), as_opaque_id(line.get("request_id"))
        request: JsonObject = asked if isinstance(asked, dict) else {}
        wanted = parse_requested_call(request) if request.get("subtype") == "can_use_tool" else None
        if wanted is None or request_id is None:
            self._stdin_lines += [unsupported_line(request_id)] if request_id else []
            return self._emit_raw_line(line)
        agent, said = self._find_caller(wanted.call_id)
        if agent is None or agent.agent_id not in self._agents.by_id:
            agent = self._agents.find_child(None, as_opaque_id(request.get("agent_id")))
        if agent is None:
            agent, begun = self._turns.current_or_new()
            said += begun
        if wanted.call_id not in agent.open_calls:
            said += self._agents.emit(agent, [wanted])
        question = PermissionRequest(request_id, wanted, make_approval_request(wanted, request), agent)
        return said + self._emit(self._permissions.add(question), agent=agent)

    def _on_permission_cancelled(self, line: JsonObject) -> list[EventDraft]:
        question = self._permissions.withdraw(line.get("request_id"))
        if question is None or not question.is_open:
            return []
        asked = question.approval_request
        over = ApprovalDecision(call_id=asked.call_id, args_hash=asked.args_hash, decision="expired")
        return self._emit(over, agent=question.agent)

    def _on_control_response(self, line: JsonObject) -> list[EventDraft]:
        """An answer to what the host asked; only a refusal is news."""
        return self._emit_raw_line(line) if get_field(line.get("response"), "subtype") == "error" else []

    def _on_permission_denied(self, line: JsonObject) -> list[EventDraft]:
        if call_id := as_opaque_id(line.get("tool_use_id")):
            put_bounded(self._denied_calls, call_id, None, MAX_KNOWN_LINES)
        return self._emit_raw_line(line)

    def _on_compact_boundary(self, line: JsonObject) -> list[EventDraft]:
        facts = line.get("compact_metadata")
        before, after = (
            convert_or_none(get_field(facts, name), Count) for name in ("pre_tokens", "post_tokens")
        )
        return self._emit(ContextCompact(tokens_before=before, tokens_after=after))

    def _on_status(self, line: JsonObject) -> list[EventDraft]:
        """What the process does just now; that it could not compact its context is news."""
        problem = bounded_text(line.get("compact_error"))
        return self._emit(SessionError(code="compact_failed", message=problem)) if problem else []

    def _on_auth_status(self, line: JsonObject) -> list[EventDraft]:
        """The process signs in. What it prints meanwhile may be a secret and is not kept."""
        problem = bounded_text(line.get("error"))
        missing = problem is not None or line.get("isAuthenticating") is True
        said = self._emit(ProcessAuth(method="none" if missing else "oauth", needs_setup=missing))
        return said + (self._emit(SessionError(code="auth_failed", message=problem)) if problem else [])

    def _on_files_persisted(self, line: JsonObject) -> list[EventDraft]:
        named = line.get("files")
        files = [parse_persisted_file(item) for item in (named if isinstance(named, list) else [])]
        good = tuple(file for file in files if file)
        said = self._emit(AssistantFiles(files=good)) if good else []
        return (
            said
            if good and len(good) == len(files) and not line.get("failed")
            else said + self._emit_raw_line(line)
        )

    def _on_result(self, line: JsonObject) -> list[EventDraft]:
        """A turn is over."""
        if self._is_replay(line):
            return []
        agent, said = self._turns.turn_for_result(line)
        self._turns.record_answered(agent, line)
        said += self._retract_lines(line.get("retracted_message_uuids"), "refusal")
        reason, fault = parse_turn_outcome(line, self._last_error_code)
        cost, usages = self._usage_totals.take_turn_cost(line), self._usage_totals.take_turn_usages(line)
        said += self._agents.emit(agent, agent.close_message()) + self._emit(*usages, agent=agent)
        if fault:
            said += self._emit_failure(agent, fault)
        known = {"usage": parse_turn_usage(line, usages), "cost": cost}
        steps = convert_or_none(line.get("num_turns"), Count)
        known |= {} if steps is None else {"steps": steps}
        said += self._agents.end(agent, reason, agent.last_text, **known)
        self._last_error_code = None
        return said + self._turns.finish(agent, reason)

    def _emit_failure(self, agent: CliAgent, fault: ErrorInfo) -> list[EventDraft]:
        """Why a turn failed."""
        error = SessionError(code=fault.code, message=fault.message, retriable=fault.code in RETRIABLE_CODES)
        signed_out = [ProcessAuth(method="none", needs_setup=True)] if fault.code == "auth_failed" else []
        return self._emit(*signed_out, error, agent=agent)


LineReader = Callable[[CliParser, JsonObject], list[EventDraft]]

# Every line without a reader is kept as it came.
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
