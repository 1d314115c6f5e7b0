"""AG-UI: the events of a run in, calls of the builder out (docs/adapters.md).

`feed` reads one event as a JSON object. Events with a `subagentRunId` belong to that sub-agent, all others to
the agent that answers. The first RUN_FINISHED or RUN_ERROR is the end of the run: `end` is None until then,
and what comes after it is dropped. `finish` returns the questions of a run that has finished.
Pure, bounded, never raises. Starts, ends, calls and results that come again count once.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from turnlog.events.agent import StopReason
from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.foreign.ag_ui_events import MAX_KNOWN_SUBAGENTS
from turnlog.parse.foreign.ag_ui_interrupts import (
    AnswerForm,
    Interrupt,
    read_interrupt,
    read_old_interrupt,
)
from turnlog.parse.foreign.ag_ui_streams import AgentStreams
from turnlog.parse.foreign.common import INTERRUPT_TOOL, get_text, render_text, to_usage
from turnlog.parse.json_values import JsonObject, as_list, get_field
from turnlog.parse.open_agents import put_bounded
from turnlog.parse.runtime_input import AgentInfo, to_call_key

MAX_KNOWN_MESSAGES = 4096
MAX_QUESTIONS = 256  # of one run; more are not asked
UNNAMED_AGENT = "Subagent"
OWN_METADATA = "turnlog"  # where a server of ours adds what the protocol has no field for
SPOKEN_ROLES = frozenset({"", "assistant"})  # a message without a role is the assistant's
SUBAGENT_STOPS: Mapping[str, StopReason] = {"cancelled": "cancelled", "timeout": "timeout"}
RUN_STOPS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "context_window": "context_window",
}


class RunEnd(NamedTuple):
    """How a run ended. `pending_calls` is None if the server does not list the calls of the page."""

    kind: Literal["finished", "cancelled", "failed"]
    message: str = ""
    result: Any = None
    interrupts: tuple[Interrupt, ...] = ()
    pending_calls: tuple[str, ...] | None = None
    stop_reason: StopReason = "end_turn"


class AgUiQuestion(NamedTuple):
    """A call that waits for an answer. `interrupt` is None if a tool message answers it."""

    agent: RuntimeAgent
    call_id: str
    interrupt: Interrupt | None = None
    form: AnswerForm = "value"
    reason: str | None = None
    args: JsonObject | None = None


class AgUiTranslator:
    """Translates one run. `agents` are those that are open already, by the id of their run.

    `message_ids` are known from earlier runs: a snapshot has them again. `ended_calls` are calls of agents
    that have ended: a server that goes on with them may report them again.
    """

    def __init__(
        self,
        builder: AgentEventBuilder,
        root: RuntimeAgent,
        agents: Mapping[str, RuntimeAgent] = {},
        message_ids: Iterable[str] = (),
        ended_calls: Iterable[str] = (),
    ) -> None:
        self.end: RunEnd | None = None
        self._builder = builder
        self._root = AgentStreams(builder, root)
        self._streams = {run_id: AgentStreams(builder, agent) for run_id, agent in agents.items()}
        self._finished: dict[str, str | None] = {}  # results of sub-agents that still have open calls
        self._known_messages: dict[str, None] = dict.fromkeys(message_ids)
        self._ended_calls = {to_call_key(call_id) for call_id in ended_calls}
        self._user_messages: dict[str, None] = {}
        self._old_interrupts: list[Interrupt] = []

    @property
    def open_agents(self) -> dict[str, RuntimeAgent]:
        """Return the open agents below the root, by the id of their run."""
        agents = {run_id: streams.agent for run_id, streams in self._streams.items()}
        return {run_id: agent for run_id, agent in agents.items() if self._builder.is_open(agent)}

    def feed(self, event: Any) -> None:
        kind = get_text(event, "type")
        if self.end is not None:
            return
        if kind == "SUBAGENT_STARTED":
            self._start_subagent(event)
            return
        read = EVENT_READERS.get(kind)
        if read is None:
            return
        run_id = get_text(event, "subagentRunId")
        if run_id and run_id not in self._streams and kind not in CONTENT_TYPES:
            return  # the end of an agent that an earlier turn has ended
        streams = self._streams_of(run_id)
        if self._builder.is_open(streams.agent):
            read(self, streams, event)

    # agents

    def _streams_of(self, run_id: str) -> AgentStreams:
        """Return what an agent streams. A sub-agent that was not announced starts with its first event."""
        if not run_id:
            return self._root
        streams = self._streams.get(run_id)
        if streams is None:
            info = AgentInfo(UNNAMED_AGENT, source_id=run_id)
            streams = self._start_agent(self._root.agent, None, run_id, info)
        return streams

    def _start_agent(
        self, parent: RuntimeAgent, call_id: str | None, run_id: str, info: AgentInfo
    ) -> AgentStreams:
        agent = self._builder.start_child(parent, call_id, info)
        streams = AgentStreams(self._builder, agent)
        put_bounded(self._streams, run_id, streams, MAX_KNOWN_SUBAGENTS)
        return streams

    def _start_subagent(self, event: Any) -> None:
        run_id = get_text(event, "subagentRunId")
        known = self._streams.get(run_id)
        if not run_id or (known is not None and self._builder.is_open(known.agent)):
            return
        parent = self._streams_of(get_text(event, "parentSubagentRunId"))
        if not self._builder.is_open(parent.agent):
            parent = self._root
        self._builder.complete_message(parent.agent)
        call_id = to_call_key(get_text(event, "parentToolCallId"))
        info = AgentInfo(get_text(event, "name") or UNNAMED_AGENT, source_id=run_id)
        info = info._replace(prompt=get_text(event, "description") or None)
        is_of_call = parent.agent.owns_open_call(call_id) and not self._has_child(parent.agent, call_id)
        self._start_agent(parent.agent, call_id if is_of_call else None, run_id, info)

    def _has_child(self, parent: RuntimeAgent, call_id: str) -> bool:
        return any(agent.caller is parent and agent.call_id == call_id for agent in self._builder.open_agents)

    def _finish_subagent(self, streams: AgentStreams, event: Any) -> None:
        if streams is self._root or get_text(get_field(event, "outcome"), "type") == "suspended":
            return
        streams.release_waiting()
        self._builder.complete_message(streams.agent)
        result = get_field(event, "result")
        text = None if result is None else render_text(result)
        if streams.agent.open_calls:
            # some servers end a sub-agent that waits; the end of the run says whether it does
            self._finished[streams.agent.agent_id] = text
        else:
            self._builder.end(streams.agent, "end_turn", text)

    def _fail_subagent(self, streams: AgentStreams, event: Any) -> None:
        if streams is self._root:
            return
        code = get_text(event, "code")
        reason = SUBAGENT_STOPS.get(code, "error")
        if reason == "error":
            message = get_text(event, "message") or "The sub-agent failed."
            self._builder.error(streams.agent, code or "subagent_failed", message)
        self._builder.end(streams.agent, reason)

    # texts

    def _start_text(self, streams: AgentStreams, event: Any) -> None:
        message_id = get_text(event, "messageId")
        if get_text(event, "role") not in SPOKEN_ROLES:
            put_bounded(self._user_messages, message_id, None, MAX_KNOWN_MESSAGES)
            return
        put_bounded(self._known_messages, message_id, None, MAX_KNOWN_MESSAGES)
        streams.start_text("text", message_id)

    def _add_text(self, streams: AgentStreams, event: Any) -> None:
        message_id = get_text(event, "messageId")
        if message_id not in self._user_messages:
            streams.add_text("text", message_id, get_text(event, "delta"))

    def _end_text(self, streams: AgentStreams, event: Any) -> None:
        streams.end_text("text", get_text(event, "messageId"))

    def _start_thinking(self, streams: AgentStreams, event: Any) -> None:
        streams.start_text("thinking", get_text(event, "messageId"))

    def _add_thinking(self, streams: AgentStreams, event: Any) -> None:
        streams.add_text("thinking", get_text(event, "messageId"), get_text(event, "delta"))

    def _end_thinking(self, streams: AgentStreams, event: Any) -> None:
        streams.end_text("thinking", get_text(event, "messageId"))

    def _sign_thinking(self, streams: AgentStreams, event: Any) -> None:
        signature = get_text(event, "encryptedValue")
        if signature and get_text(event, "subtype") == "message":
            streams.sign(get_text(event, "entityId"), signature)

    # calls

    def _start_call(self, streams: AgentStreams, event: Any) -> None:
        call_id = get_text(event, "toolCallId")
        if call_id and to_call_key(call_id) not in self._ended_calls:
            parent_id = get_text(event, "parentMessageId")
            put_bounded(self._known_messages, parent_id, None, MAX_KNOWN_MESSAGES)
            streams.start_call(get_text(event, "toolCallName"), call_id)

    def _add_arguments(self, streams: AgentStreams, event: Any) -> None:
        call_id = get_text(event, "toolCallId")
        if to_call_key(call_id) not in self._ended_calls:
            streams.add_arguments(call_id, get_text(event, "delta"))

    def _end_call(self, streams: AgentStreams, event: Any) -> None:
        streams.end_call(get_text(event, "toolCallId"))

    def _add_result(self, streams: AgentStreams, event: Any) -> None:
        call_id = get_text(event, "toolCallId")
        self._builder.complete_message(streams.agent)
        if not streams.agent.owns_open_call(to_call_key(call_id)):
            owner = self._find_owner(call_id)
            if owner is None:
                return  # again, or of a call that an earlier turn has closed
            streams = owner
        content = join_text_parts(get_field(event, "content"))
        code = get_text(get_field(get_field(event, "metadata"), OWN_METADATA), "error")
        if code:
            self._builder.fail(streams.agent, call_id, code, render_text(content))
        else:
            self._builder.result(streams.agent, call_id, content)
        streams.note_result(call_id)

    def _all_streams(self) -> Iterator[AgentStreams]:
        """Yield what the open agents stream, the last one first."""
        for streams in (*reversed(self._streams.values()), self._root):
            if self._builder.is_open(streams.agent):
                yield streams

    def _find_owner(self, call_id: str) -> AgentStreams | None:
        key = to_call_key(call_id)
        return next((streams for streams in self._all_streams() if streams.agent.owns_open_call(key)), None)

    # snapshots

    def _read_snapshot(self, _: AgentStreams, event: Any) -> None:
        """Read the messages since the last one of the user that no event has streamed."""
        messages = as_list(get_field(event, "messages"))
        roles = [get_text(message, "role") for message in messages]
        last_user = max((index for index, role in enumerate(roles) if role == "user"), default=-1)
        for message in messages[last_user + 1 :]:
            streams = self._streams_of(get_text(message, "subagentRunId"))
            if not self._builder.is_open(streams.agent):
                continue
            if get_text(message, "role") == "assistant":
                self._read_whole_message(streams, message)
            elif get_text(message, "role") == "tool" and self._find_owner(get_text(message, "toolCallId")):
                self._add_result(streams, message)

    def _read_whole_message(self, streams: AgentStreams, message: Any) -> None:
        message_id = get_text(message, "id")
        if message_id in self._known_messages:
            return
        put_bounded(self._known_messages, message_id, None, MAX_KNOWN_MESSAGES)
        text = get_text(message, "content")
        if text:
            streams.add_text("text", message_id, text)
            streams.end_text("text", message_id)
        for call in as_list(get_field(message, "toolCalls")):
            function = get_field(call, "function")
            call_id = get_text(call, "id")
            streams.start_call(get_text(function, "name"), call_id)
            streams.add_arguments(call_id, get_text(function, "arguments"))
            streams.end_call(call_id)
        self._builder.complete_message(streams.agent)

    # the end

    def _note_custom(self, _: AgentStreams, event: Any) -> None:
        interrupt = read_old_interrupt(event)
        if interrupt is not None and interrupt not in self._old_interrupts:
            self._old_interrupts.append(interrupt)

    def _finish_run(self, _: AgentStreams, event: Any) -> None:
        outcome = get_field(event, "outcome")
        interrupts = tuple(
            read_interrupt(item) for item in as_list(get_field(outcome, "interrupts"))[:MAX_QUESTIONS]
        )
        pending = get_field(outcome, "pendingToolCallIds")
        is_cancelled = get_text(outcome, "type") == "cancelled"
        own_stop = get_text(get_field(get_field(event, "metadata"), OWN_METADATA), "stop_reason")
        self.end = RunEnd(
            "cancelled" if is_cancelled else "finished",
            "",
            get_field(event, "result"),
            interrupts or tuple(self._old_interrupts[:MAX_QUESTIONS]),
            tuple(item for item in pending if isinstance(item, str)) if isinstance(pending, list) else None,
            "cancelled" if is_cancelled else RUN_STOPS.get(own_stop, "end_turn"),
        )
        self._add_usage(event)

    def _fail_run(self, _: AgentStreams, event: Any) -> None:
        code = get_text(event, "code")
        message = get_text(event, "message") or "The run failed."
        self.end = RunEnd("failed", f"{code}: {message}" if code else message)
        self._add_usage(event)

    def _add_usage(self, event: Any) -> None:
        """Add the tokens of the run, by model. The protocol does not tell those of a completion."""
        for item in as_list(get_field(event, "usage")):
            usage = to_usage(
                get_field(item, "inputTokens"),
                get_field(item, "outputTokens"),
                get_field(item, "cachedInputTokens"),
                get_field(item, "cacheWriteInputTokens"),
            )
            model = get_text(item, "model") or get_text(item, "provider") or None
            self._builder.complete_message(self._root.agent, usage, model)

    def finish(self, page_tools: Collection[str] = ()) -> list[AgUiQuestion]:
        """Return the questions of a run that has finished. Without any, end all agents below the root.

        `page_tools` are the tools that this side has offered to the agent.
        """
        end = self.end or RunEnd("finished")
        for streams in self._all_streams():
            streams.release_waiting()
            self._builder.complete_message(streams.agent)
        questions: list[AgUiQuestion] = []
        for interrupt in end.interrupts:
            questions += self._find_questions(interrupt)
        if end.kind == "finished":
            questions += self._find_page_calls(end, page_tools, {question.call_id for question in questions})
        self._end_agents(questions)
        return questions

    def _find_page_calls(
        self, end: RunEnd, page_tools: Collection[str], asked: Collection[str]
    ) -> Iterator[AgUiQuestion]:
        """Yield the calls that the page answers: those that are listed, or else those without a result."""
        for streams in list(self._all_streams()):
            for key, call in streams.agent.open_calls.items():
                if end.pending_calls is not None:
                    is_pending = key in map(to_call_key, end.pending_calls)
                elif end.interrupts:
                    is_pending = call.tool in page_tools  # other calls wait for the answers
                else:
                    is_pending = key in streams.last_calls and not self._has_child(streams.agent, key)
                if is_pending and key not in asked:
                    yield AgUiQuestion(streams.agent, key)

    def _end_agents(self, questions: Collection[AgUiQuestion]) -> None:
        waiting: set[str] = set()
        for question in questions:
            agent: RuntimeAgent | None = question.agent
            while agent is not None:
                waiting.add(agent.agent_id)
                agent = agent.caller
        for streams in list(self._all_streams()):
            agent = streams.agent
            if questions and (agent.agent_id in waiting or agent.agent_id not in self._finished):
                continue
            for key in list(agent.open_calls):
                self._builder.result(agent, key)  # the server ran it and did not tell its result
            if streams is not self._root:
                self._builder.end(agent, "end_turn", self._finished.get(agent.agent_id))

    def _find_questions(self, interrupt: Interrupt) -> list[AgUiQuestion]:
        """Return the calls that an interrupt asks about; a call of its own if it names none."""
        decisions = self._match_actions(interrupt)
        if decisions:
            return decisions
        call_id = interrupt.call_id or self._find_only_call()
        owner = self._find_owner(call_id) if call_id else None
        if owner is not None:
            key = to_call_key(call_id)
        else:
            owner = self._streams_of(interrupt.subagent_run_id)
            if not self._builder.is_open(owner.agent):
                owner = self._root
            self._builder.reuse_call_id(owner.agent, interrupt.interrupt_id)
            key = self._builder.call(owner.agent, INTERRUPT_TOOL, interrupt.args, interrupt.interrupt_id)
            self._builder.complete_message(owner.agent)
        args = interrupt.args if interrupt.form == "value" else None
        form: AnswerForm = "value" if interrupt.form == "decisions" else interrupt.form
        return [AgUiQuestion(owner.agent, key, interrupt, form, interrupt.message, args)]

    def _find_only_call(self) -> str | None:
        """Return the call that a question without a call is about: the only one that is open."""
        keys = [
            key
            for streams in self._all_streams()
            for key in streams.agent.open_calls
            if not self._has_child(streams.agent, key)
        ]
        is_only_question = self.end is not None and len(self.end.interrupts) == 1
        return keys[0] if len(keys) == 1 and is_only_question else None

    def _match_actions(self, interrupt: Interrupt) -> list[AgUiQuestion]:
        """Return a question for each action of LangGraph's middleware: it names calls by their arguments."""
        questions: list[AgUiQuestion] = []
        for action in interrupt.actions:
            taken = {(question.agent.agent_id, question.call_id) for question in questions}
            found = self._match_call(get_text(action, "name"), get_field(action, "args"), taken)
            if found is None:
                return []
            reason = get_text(action, "description") or None
            questions.append(AgUiQuestion(found[0], found[1], interrupt, "decisions", reason))
        return questions

    def _match_call(
        self, tool: str, args: Any, taken: Collection[tuple[str, str]]
    ) -> tuple[RuntimeAgent, str] | None:
        for streams in self._all_streams():
            agent = streams.agent
            for key, call in agent.open_calls.items():
                is_same = call.tool == tool and call.args == args
                if is_same and (agent.agent_id, key) not in taken:
                    return agent, key
        return None


def join_text_parts(content: Any) -> Any:
    """Return the content of a result: a text, or its parts if some are no texts."""
    if not isinstance(content, list):
        return content
    texts = [get_field(part, "text") for part in content if get_text(part, "type") == "text"]
    if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
        return content
    return "".join(texts)


Reader = Callable[[AgUiTranslator, AgentStreams, Any], None]

# A sub-agent need not be announced: these show that there is one.
CONTENT_TYPES = frozenset(
    {
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "TOOL_CALL_START",
    }
)

EVENT_READERS: Mapping[str, Reader] = {
    "TEXT_MESSAGE_START": AgUiTranslator._start_text,
    "TEXT_MESSAGE_CONTENT": AgUiTranslator._add_text,
    "TEXT_MESSAGE_END": AgUiTranslator._end_text,
    "REASONING_MESSAGE_START": AgUiTranslator._start_thinking,
    "REASONING_MESSAGE_CONTENT": AgUiTranslator._add_thinking,
    "REASONING_MESSAGE_END": AgUiTranslator._end_thinking,
    "REASONING_ENCRYPTED_VALUE": AgUiTranslator._sign_thinking,
    "TOOL_CALL_START": AgUiTranslator._start_call,
    "TOOL_CALL_ARGS": AgUiTranslator._add_arguments,
    "TOOL_CALL_END": AgUiTranslator._end_call,
    "TOOL_CALL_RESULT": AgUiTranslator._add_result,
    "SUBAGENT_FINISHED": AgUiTranslator._finish_subagent,
    "SUBAGENT_ERROR": AgUiTranslator._fail_subagent,
    "MESSAGES_SNAPSHOT": AgUiTranslator._read_snapshot,
    "CUSTOM": AgUiTranslator._note_custom,
    "RUN_FINISHED": AgUiTranslator._finish_run,
    "RUN_ERROR": AgUiTranslator._fail_run,
}
