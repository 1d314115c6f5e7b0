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
    Fault,
    ParseReject,
    Payload,
    ProcessAuth,
    Scope,
    SessionError,
    ToolProgress,
)
from turnlog.events.agent import AgentStart, StopReason
from turnlog.events.payload import Amount, Count
from turnlog.parse.claude.agents import AGENTS, CliAgent, Crew, Said, keep, origin_of
from turnlog.parse.claude.lines import Lines, kept, unable_line
from turnlog.parse.claude.message import Message
from turnlog.parse.claude.permissions import (
    Question,
    Questions,
    approval,
    asked_for,
    denials,
    file_of,
    task_end,
    task_of,
    tool_result,
    words_of,
)
from turnlog.parse.claude.results import RETRIABLE, Bill, usage_of, verdict
from turnlog.parse.claude.turns import Asked, Turns
from turnlog.parse.deeds import Deeds
from turnlog.parse.json_values import Data, as_key, as_name, field, name_of, plain, refused, valid
from turnlog.parse.messages_api import sentence
from turnlog.parse.reply import Tags, tags_of

LINES = 1024  # whose blocks can still be named: a turn has a few hundred
SUB_AGENT = "Agent"  # the name of one that has none
EXITED = Fault(code="process_exited", message="The process ended in the middle of a turn.")
# They say how it is just now, and nothing that happened.
MOMENTARY = ("keep_alive",)
MOMENTARY_SYSTEM = (
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
        tags: Tags = tags_of(None),  # noqa: B008
        deeds: Deeds = Deeds(),  # noqa: B008
    ) -> None:
        self._lines = Lines()
        self._crew = Crew(new_id, tags, deeds)
        self._turns = Turns(self._crew, name, new_id)
        self._questions = Questions()
        self._denied: dict[str, None] = {}
        self._seen: dict[str, tuple[CliAgent | None, list[str]]] = {}  # by line: whose it was, its blocks
        self._bill = Bill()
        self._problem: str | None = None  # what the model's last failed answer said it was
        self._replies: list[bytes] = []

    @property
    def source_session(self) -> str | None:
        """What the process calls its session; another process can go on with it."""
        return self._turns.source_session

    @property
    def busy(self) -> bool:
        """Whether an agent is open."""
        return bool(self._crew.open)

    def expect(self, uuid: str, asked: Asked) -> None:
        """A message went down with this UUID."""
        self._turns.expect(uuid, asked)

    def feed(self, data: bytes) -> list[Said]:
        """The next bytes of stdout."""
        return [said for line in self._lines.feed(data) for said in self._line(line)]

    def flush(self, fault: Fault = EXITED, reason: StopReason = "error") -> list[Said]:
        """The process is gone: what is open is closed. Messages that no turn has taken up stay pending."""
        said = [said for line in self._lines.flush() for said in self._line(line)]
        if self.busy and reason == "error":
            said += self._say(SessionError(code=fault.code, message=fault.message))
        while agents := list(self._crew.open.values()):
            said += self._crew.end(agents[-1], agents[-1].outcome or reason, agents[-1].said)
        return said

    def take_replies(self) -> list[bytes]:
        """Lines for stdin: answers to what the process asked and nobody here can do."""
        replies, self._replies = self._replies, []
        return replies

    def decide(self, decision: ApprovalDecision, updated: Data | None = None) -> bytes | None:
        """The line that answers a permission request; None if nothing waits for this decision.

        `updated` are other arguments, such as the answers to the questions in them.
        """
        line = self._questions.decide(decision, updated)
        if line and decision.decision != "approve":
            keep(self._denied, decision.call_id, None, LINES)
        return line

    def _line(self, line: Data | ParseReject) -> list[Said]:
        if isinstance(line, ParseReject):
            return self._say(line)
        kind, subtype = line.get("type"), line.get("subtype")
        readers, key = (SYSTEM_READERS, subtype) if kind == "system" else (LINE_READERS, kind)
        read = readers.get(key) if isinstance(key, str) else None
        return read(self, line) if read else self._keep(line)

    def _keep(self, line: Data) -> list[Said]:
        return self._say(kept(line))

    def _drop(self, _: Data) -> list[Said]:
        return []

    def _say(self, *payloads: Payload, agent: CliAgent | None = None) -> list[Said]:
        """Events of an agent, else of the main one, else of nobody."""
        owner = agent or self._turns.last
        scope = owner.scope if owner else Scope()
        return [Said(payload, scope, origin_of(payload)) for payload in payloads]

    def _replayed(self, line: Data) -> bool:
        """Whether a line has come before; from now on it has."""
        uuid = as_key(line.get("uuid"))
        again = line.get("isReplay") is True or uuid in self._seen
        if uuid and not again:
            keep(self._seen, uuid, (None, []), LINES)
        return again

    def _lifecycle(self, line: Data) -> list[Said]:
        uuid, state = as_key(line.get("command_uuid")), line.get("state")
        if state == "cancelled" and uuid:
            return self._turns.cancelled(uuid)
        if state == "queued" or state == "started":
            self._turns.take_up(uuid, state)
        return []

    def _init(self, line: Data) -> list[Said]:
        self._problem = None
        return self._turns.begin(line)

    def _owner(self, line: Data) -> tuple[CliAgent | None, list[Said]]:
        """Whose line it is, and what has to be said before it; None if there are too many agents."""
        call_id = as_key(line.get("parent_tool_use_id"))
        return self._child(call_id, line) if call_id else self._turns.main()

    def _child(self, call_id: str, line: Data) -> tuple[CliAgent | None, list[Said]]:
        """The agent that a call spawned; it begins now if nobody said so before."""
        if child := self._crew.child(call_id):
            child.task_id = child.task_id or task_of(line)
            return child, []
        if len(self._crew.open) >= AGENTS:
            return None, []
        caller, said = self._caller(call_id)
        caller = caller or self._crew.child(None, as_key(line.get("parent_task_id")))
        if caller is None:
            caller, begun = self._turns.main()
            said += begun
        return self._spawn(caller, call_id, line, said)

    def _caller(self, call_id: str | None) -> tuple[CliAgent | None, list[Said]]:
        """Who made a call. One that is not said yet is complete all the same if it is known whole."""
        said: list[Said] = []
        if self._crew.caller(call_id) is None:
            for agent in self._crew.open.values():
                said += self._crew.say(agent, agent.message.settle() if agent.message else [])
        return self._crew.caller(call_id), said

    def _spawn(
        self, caller: CliAgent, call_id: str, line: Data, said: list[Said]
    ) -> tuple[CliAgent, list[Said]]:
        call, scope = caller.calls.get(call_id), caller.scope
        args = call.args if call else {}
        name = as_name(line.get("subagent_type")) or as_name(args.get("subagent_type")) or SUB_AGENT
        place = self._crew.scope(name, scope.trace_id or "", (scope.depth or 0) + 1, scope.channel)
        agent = CliAgent(place, caller, call_id)
        agent.task_id = task_of(line)
        agent.background = line.get("is_backgrounded") is True or args.get("run_in_background") is True
        told = words_of(line) if line.get("type") == "user" else None
        prompts = (line.get("prompt"), args.get("prompt"), told)
        prompt = next((prompt for prompt in prompts if isinstance(prompt, str)), None)
        start = AgentStart(name=name, via="call", parent_id=caller.agent_id, call_id=call_id, prompt=prompt)
        return agent, said + self._crew.begin(start, agent)

    def _stream(self, line: Data) -> list[Said]:
        """One event of the Messages API, of an agent's message."""
        event = line.get("event")
        agent, said = self._owner(line)
        if agent is None or not isinstance(event, dict):
            return said + self._keep(plain(line))  # a delta may hold half a pair of surrogates
        if event.get("type") == "message_start":
            return said + self._crew.begin_message(agent, event)[1]
        if agent.message is None:
            return said + self._say(refused("no_message", event, event.get("type")), agent=agent)
        void = line.get("abandoned_blocks") or event.get("abandoned_blocks")
        if void is not None:
            said += self._abandon(agent, agent.message, void)
            if event.get("type") == "content_block_stop":
                return said  # of a block that has ended just now
        return said + self._crew.say(agent, agent.message.stream(event))

    def _abandon(self, agent: CliAgent, message: Message, void: Any) -> list[Said]:
        """The provider failed in the middle of a message; what was shown of it is void."""
        start = valid(field(void, "from_block_index"), Count) or 0
        batch, block_ids = message.abandon(start)
        return self._crew.say(agent, batch) + self._crew.retract(agent, block_ids, "abandoned")

    def _assistant(self, line: Data) -> list[Said]:
        """Blocks of a message, whole."""
        if self._replayed(line):
            return []
        message = line.get("message")
        content = field(message, "content")
        agent, said = self._owner(line)
        if agent is None or not isinstance(message, dict) or not isinstance(content, list):
            return said + self._keep(line)
        if agent.caller is None:
            self._turns.note(agent, line)
        self._problem = name_of(line.get("error")) or self._problem
        said += self._retract(line.get("supersedes"), "superseded")
        shown: list[str] = []
        for block in content:
            said += self._block(agent, message, block, line.get("aborted") is True, shown)
        if uuid := as_key(line.get("uuid")):
            self._seen[uuid] = agent, shown
        return said

    def _block(
        self, agent: CliAgent, message: Data, block: Any, aborted: bool, shown: list[str]
    ) -> list[Said]:
        key, current, said = as_key(message.get("id")), agent.message, list[Said]()
        same = current is not None and key is not None and current.key == key
        repeats = current is not None and (same or aborted) and current.repeats(block)
        if current is None or not (repeats or (same and not current.over)):
            facts = {"id": key, "model": message.get("model")}
            current, said = self._crew.begin_message(agent, {"type": "message_start", "message": facts})
        if not repeats and self._crew.caller(as_key(field(block, "id"))) is agent:
            return said  # a permission was asked for before the call came
        batch, block_ids = current.whole(block, aborted)
        shown += block_ids
        return said + self._crew.say(agent, batch)

    def _retract(self, uuids: Any, reason: str) -> list[Said]:
        """The blocks of these lines are void."""
        said: list[Said] = []
        for uuid in uuids if isinstance(uuids, list) else []:
            agent, block_ids = self._seen.get(uuid, (None, [])) if isinstance(uuid, str) else (None, [])
            if agent:
                said += self._crew.retract(agent, block_ids, reason)
                self._seen[uuid] = None, []
        return said

    def _fallback(self, line: Data) -> list[Said]:
        """The model refused, and another one answers."""
        return self._retract(line.get("retracted_message_uuids"), "refusal") + self._keep(line)

    def _user(self, line: Data) -> list[Said]:
        """Results of tools, the prompt of a sub-agent, or what the process tells the model."""
        if self._replayed(line):
            self._turns.take_up(as_key(line.get("uuid")), "started")
            return []
        content = field(line.get("message"), "content")
        blocks = content if isinstance(content, list) else [content]
        results = [block for block in blocks if field(block, "type") == "tool_result"]
        agent, said = self._owner(line) if line.get("parent_tool_use_id") else (self._turns.last, [])
        words = words_of(line)
        told = agent is not None and words is not None and agent.prompt == words
        if len(results) < len(blocks) and not told:
            said += self._say(kept(line), agent=agent)
        account = line.get("tool_use_result") if len(results) == 1 else None
        for block in results:
            said += self._answer(line, block, account)
        return said

    def _answer(self, line: Data, block: Data, account: Any) -> list[Said]:
        call_id = as_key(block.get("tool_use_id"))
        agent, said = self._caller(call_id)
        call = agent.calls.get(call_id or "") if agent else None
        if agent is None or call is None:
            return said + self._say(kept(block), agent=agent)
        denied = call.call_id in self._denied or call.call_id in denials(line)
        return said + self._crew.answer(agent, tool_result(call, block, denied), account)

    def _task_started(self, line: Data) -> list[Said]:
        """A task that is an agent; a command in the background is none."""
        call_id, kind = as_key(line.get("tool_use_id")), line.get("task_type")
        is_agent = isinstance(line.get("subagent_type"), str) or str(kind).endswith("agent")
        if call_id is None or not is_agent:
            return self._keep(line)
        agent, said = self._child(call_id, line)
        if agent is None:
            return said + self._keep(line)
        agent.background = agent.background or line.get("is_backgrounded") is True
        return said

    def _task(self, line: Data) -> CliAgent | None:
        return self._crew.child(as_key(line.get("tool_use_id")), as_key(line.get("task_id")))

    def _task_progress(self, line: Data) -> list[Said]:
        agent = self._task(line)
        text = sentence(line.get("last_tool_name")) or sentence(line.get("description"))
        if agent is None or agent.caller is None or agent.call_id not in agent.caller.calls or not text:
            return []
        return self._say(ToolProgress(call_id=agent.call_id or "", text=text), agent=agent.caller)

    def _task_updated(self, line: Data) -> list[Said]:
        agent, patch = self._task(line), line.get("patch")
        if agent:
            agent.background = agent.background or field(patch, "is_backgrounded") is True
            agent.outcome = task_end(field(patch, "status")) or agent.outcome
        return [] if agent else self._keep(line)

    def _task_over(self, line: Data) -> list[Said]:
        """The end of an agent in the background; others end with the result of their call."""
        agent = self._task(line)
        if agent is None:
            return self._keep(line)
        agent.outcome = task_end(line.get("status")) or agent.outcome or "end_turn"
        if not agent.background:
            return []
        return self._crew.end(agent, agent.outcome, agent.said or sentence(line.get("summary")))

    def _progress(self, line: Data) -> list[Said]:
        call_id, elapsed = as_key(line.get("tool_use_id")), valid(line.get("elapsed_time_seconds"), Amount)
        agent = self._crew.caller(call_id)
        if agent is None or call_id not in agent.calls or elapsed is None:
            return []
        return self._say(ToolProgress(call_id=call_id or "", text=f"{elapsed:g} s"), agent=agent)

    def _request(self, line: Data) -> list[Said]:
        """The process asks for something: a permission, or what nobody here can do."""
        asked, request_id = line.get("request"), as_key(line.get("request_id"))
        request: Data = asked if isinstance(asked, dict) else {}
        wanted = asked_for(request) if request.get("subtype") == "can_use_tool" else None
        if wanted is None or request_id is None:
            self._replies += [unable_line(request_id)] if request_id else []
            return self._keep(line)
        agent, said = self._caller(wanted.call_id)
        if agent is None or agent.agent_id not in self._crew.open:
            agent = self._crew.child(None, as_key(request.get("agent_id")))
        if agent is None:
            agent, begun = self._turns.main()
            said += begun
        if wanted.call_id not in agent.calls:
            said += self._crew.say(agent, [wanted])
        question = Question(request_id, wanted, approval(wanted, request), agent)
        return said + self._say(self._questions.ask(question), agent=agent)

    def _withdrawn(self, line: Data) -> list[Said]:
        question = self._questions.withdraw(line.get("request_id"))
        if question is None or not question.open:
            return []
        asked = question.request
        over = ApprovalDecision(call_id=asked.call_id, args_hash=asked.args_hash, decision="expired")
        return self._say(over, agent=question.agent)

    def _response(self, line: Data) -> list[Said]:
        """An answer to what the host asked; only a refusal is news."""
        return self._keep(line) if field(line.get("response"), "subtype") == "error" else []

    def _not_allowed(self, line: Data) -> list[Said]:
        if call_id := as_key(line.get("tool_use_id")):
            keep(self._denied, call_id, None, LINES)
        return self._keep(line)

    def _compacted(self, line: Data) -> list[Said]:
        facts = line.get("compact_metadata")
        before, after = (valid(field(facts, name), Count) for name in ("pre_tokens", "post_tokens"))
        return self._say(ContextCompact(tokens_before=before, tokens_after=after))

    def _status(self, line: Data) -> list[Said]:
        """What the process does just now; that it could not compact its context is news."""
        problem = sentence(line.get("compact_error"))
        return self._say(SessionError(code="compact_failed", message=problem)) if problem else []

    def _auth(self, line: Data) -> list[Said]:
        """The process signs in. What it prints meanwhile may be a secret and is not kept."""
        problem = sentence(line.get("error"))
        missing = problem is not None or line.get("isAuthenticating") is True
        said = self._say(ProcessAuth(method="none" if missing else "oauth", needs_setup=missing))
        return said + (self._say(SessionError(code="auth_failed", message=problem)) if problem else [])

    def _files(self, line: Data) -> list[Said]:
        named = line.get("files")
        files = [file_of(item) for item in (named if isinstance(named, list) else [])]
        good = tuple(file for file in files if file)
        said = self._say(AssistantFiles(files=good)) if good else []
        return (
            said if good and len(good) == len(files) and not line.get("failed") else said + self._keep(line)
        )

    def _result(self, line: Data) -> list[Said]:
        """A turn is over."""
        if self._replayed(line):
            return []
        agent, said = self._turns.ended_by(line)
        self._turns.note(agent, line)
        said += self._retract(line.get("retracted_message_uuids"), "refusal")
        reason, fault = verdict(line, self._problem)
        cost, usages = self._bill.cost(line), self._bill.usages(line)
        said += self._crew.say(agent, agent.close_message()) + self._say(*usages, agent=agent)
        if fault:
            said += self._failed(agent, fault)
        known = {"usage": usage_of(line, usages), "cost": cost}
        steps = valid(line.get("num_turns"), Count)
        known |= {} if steps is None else {"steps": steps}
        said += self._crew.end(agent, reason, agent.said, **known)
        self._problem = None
        return said + self._turns.settle(agent, reason)

    def _failed(self, agent: CliAgent, fault: Fault) -> list[Said]:
        """Why a turn failed."""
        error = SessionError(code=fault.code, message=fault.message, retriable=fault.code in RETRIABLE)
        signed_out = [ProcessAuth(method="none", needs_setup=True)] if fault.code == "auth_failed" else []
        return self._say(*signed_out, error, agent=agent)


Reader = Callable[[CliParser, Data], list[Said]]

# Every line without a reader is kept as it came.
LINE_READERS: dict[str, Reader] = {
    "assistant": CliParser._assistant,
    "user": CliParser._user,
    "stream_event": CliParser._stream,
    "result": CliParser._result,
    "tool_progress": CliParser._progress,
    "auth_status": CliParser._auth,
    "command_lifecycle": CliParser._lifecycle,
    "control_request": CliParser._request,
    "control_cancel_request": CliParser._withdrawn,
    "control_response": CliParser._response,
    **dict.fromkeys(MOMENTARY, CliParser._drop),
}
SYSTEM_READERS: dict[str, Reader] = {  # by subtype
    "init": CliParser._init,
    "status": CliParser._status,
    "compact_boundary": CliParser._compacted,
    "task_started": CliParser._task_started,
    "task_progress": CliParser._task_progress,
    "task_updated": CliParser._task_updated,
    "task_notification": CliParser._task_over,
    "permission_denied": CliParser._not_allowed,
    "model_refusal_fallback": CliParser._fallback,
    "model_refusal_no_fallback": CliParser._fallback,
    "files_persisted": CliParser._files,
    **dict.fromkeys(MOMENTARY_SYSTEM, CliParser._drop),
}
