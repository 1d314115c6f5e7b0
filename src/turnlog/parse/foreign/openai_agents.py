"""OpenAI Agents SDK: events of `stream_events()` in, calls of the builder out (docs/adapters.md).

Each run is an agent. A run inside a tool is known by the object of the call that started it: the framework
passes the same object with the response of the model, to hooks and to `on_stream`, and a call id is unique
within its run only. Hooks and sub-agents may be ahead of the stream that reports their call: what they report
is held until then. `finish` gives what is still held to the root: its caller is not watched.
Calls that were open when the part began are known by their id, because the framework reads them from its
state. Limits: 4096 calls of a part, 4096 reports that are held.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnlog.errors import BadInput
from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.foreign.common import get_text, render_text, to_usage
from turnlog.parse.foreign.openai_history import CALL_TYPES, get_call_id, get_call_key
from turnlog.parse.json_values import as_list, get_field, to_json_value
from turnlog.parse.open_agents import MAX_KNOWN_CALLERS, put_bounded
from turnlog.parse.reply import MessageStop
from turnlog.parse.runtime_input import AgentInfo

MAX_HELD_REPORTS = 4096  # of calls that are not known yet: a reader is behind by one message at most
RETRY = "retry"
STOP_REASONS: Mapping[str, MessageStop] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
PROMPT_ARGUMENT = "input"  # of the tool that `Agent.as_tool` makes


@dataclass(slots=True)
class StreamedRun:
    """A run and its open message: what was streamed, and the calls, by the index of the output item."""

    agent: RuntimeAgent
    streamed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    call_ids: dict[int, str] = field(default_factory=dict)
    summaries: set[tuple[int, int]] = field(default_factory=set)
    call_items: list[Any] = field(default_factory=list)
    is_refusal: bool = False
    last_response_id: str | None = None
    handoff: tuple[Any, Any] | None = None  # the call that handed over, and its result

    @property
    def has_content(self) -> bool:
        return bool(self.streamed or self.ended or self.call_ids)

    def forget_message(self) -> None:
        self.streamed.clear()
        self.ended.clear()
        self.call_ids.clear()
        self.summaries.clear()
        self.call_items.clear()
        self.is_refusal = False


class KnownCall(NamedTuple):
    """A call that a run has reported. The object is kept, because its identity is the key."""

    call: Any
    run: StreamedRun


class HeldReport(NamedTuple):
    """A report about a call that is not known yet."""

    call: Any
    read: Callable[[StreamedRun], None]


class OpenAiAgentsTranslator:
    """Translates the runs of one part. `failure_text` is what a tool that raised returns by default."""

    def __init__(self, builder: AgentEventBuilder, root: RuntimeAgent, failure_text: str = "") -> None:
        self._builder = builder
        self._failure_text = failure_text
        self._root_run = StreamedRun(root)
        self._runs_by_agent: dict[str, StreamedRun] = {root.agent_id: self._root_run}
        self._runs_by_call: dict[int, StreamedRun] = {}
        self._known_calls: dict[int, KnownCall] = {}
        self._held_reports: list[HeldReport] = []
        self._restored = [(agent, key) for agent in builder.open_agents for key in agent.open_calls]
        self._claimed: set[tuple[str, str]] = set()  # restored calls that an object was found for

    # what the shell reports

    def feed(self, event: Any, call: Any = None, agent: Any = None) -> None:
        """Read an event of the root, or of the run that `call` started; `agent` is the one that runs."""
        if call is None:
            self._read_event(self._root_run, event)
            return
        run = self._runs_by_call.get(id(call))
        if run is not None:
            self._read_event(run, event)
            return

        def start_and_read(caller: StreamedRun) -> None:
            self._read_event(self._start_run(caller, call, agent), event)

        self._read_of_call(call, start_and_read)

    def add_result(self, call: Any, value: Any) -> None:
        """Read the result of a call that a hook reports."""
        self._read_of_call(call, lambda run: self._answer(run, get_field(call, "call_id"), value))

    def complete_response(self, response: Any) -> None:
        """Read a whole message of the root, which was not streamed."""
        self._complete(self._root_run, {"response": response})

    def retract_message(self, reason: str) -> None:
        """Take back the last message of the root: a guardrail has refused it."""
        self._builder.retract_message(self._root_run.agent, reason)

    def hand_off(self, agent: Any, tool: str) -> None:
        """Read that the root hands over with a call of a tool, if it made one."""
        run = self._root_run
        calls = run.agent.open_calls.values()
        call_id = next((call.call_id for call in calls if call.tool == tool), None)
        run.handoff = (call_id, None)
        self._update_agent(run, {"new_agent": agent})

    def find_owner(self, call: Any, agent_name: str) -> RuntimeAgent | None:
        """Return the agent that made a call which waits for approval; None if it is not watched."""
        known = self._known_calls.get(id(call))
        if known is not None:
            return known.run.agent
        key = get_call_key(call)
        for agent in self._builder.open_agents:
            if agent.scope.agent_name == agent_name and agent.owns_open_call(key):
                return agent
        return None

    def finish(self) -> None:
        """Give the root what is held: the agents that made those calls are not watched."""
        while self._held_reports:
            report = self._held_reports.pop(0)
            self._add_known_call(self._root_run, report.call)
            report.read(self._root_run)
            self._release_held()

    # runs and calls

    def _read_of_call(self, call: Any, read: Callable[[StreamedRun], None]) -> None:
        run = self._find_caller(call)
        if run is not None:
            read(run)
            return
        self._held_reports.append(HeldReport(call, read))
        if len(self._held_reports) > MAX_HELD_REPORTS:
            self.finish()

    def _find_caller(self, call: Any) -> StreamedRun | None:
        known = self._known_calls.get(id(call))
        if known is not None:
            return known.run
        key = get_call_key(call)
        agents = [agent for agent, known_key in self._restored if known_key == key]
        for agent in agents:
            if agent.owns_open_call(key) and (agent.agent_id, key) not in self._claimed:
                self._claimed.add((agent.agent_id, key))
                run = self._runs_by_agent.setdefault(agent.agent_id, StreamedRun(agent))
                self._add_known_call(run, call)
                return run
        return None

    def _start_run(self, caller: StreamedRun, call: Any, agent: Any) -> StreamedRun:
        # held events of one run each bring this: the first one starts it
        run = self._runs_by_call.get(id(call))
        if run is not None:
            return run
        key = get_call_key(call)
        open_call = caller.agent.open_calls.get(key)
        prompt = open_call.args.get(PROMPT_ARGUMENT) if open_call is not None else None
        info = describe_agent(agent)._replace(prompt=prompt, source_id=key)
        call_id = key if open_call is not None else None
        child = self._builder.start_child(caller.agent, call_id, info)
        run = self._runs_by_agent.setdefault(child.agent_id, StreamedRun(child))
        self._runs_by_call[id(call)] = run
        return run

    def _add_known_call(self, run: StreamedRun, call: Any) -> None:
        put_bounded(self._known_calls, id(call), KnownCall(call, run), MAX_KNOWN_CALLERS)

    def _release_held(self) -> None:
        held = self._held_reports
        self._held_reports = []
        for report in held:
            self._read_of_call(report.call, report.read)

    def _answer(self, run: StreamedRun, call_id: Any, value: Any) -> None:
        if value == self._failure_text and self._failure_text:
            self._builder.fail(run.agent, call_id, "EXECUTION_ERROR", self._failure_text)
        else:
            self._builder.result(run.agent, call_id, value)

    # events

    def _read_event(self, run: StreamedRun, event: Any) -> None:
        read = EVENT_READERS.get(get_text(event, "type"))
        if read is not None:
            read(self, run, event)

    def _update_agent(self, run: StreamedRun, event: Any) -> None:
        # a run reports its first agent, and after a pause the same one again
        if run.handoff is None:
            return
        call_id, value = run.handoff
        run.handoff = None
        info = describe_agent(get_field(event, "new_agent"))
        run.agent = self._builder.hand_off(run.agent, info, call_id, value)
        self._runs_by_agent[run.agent.agent_id] = run

    def _read_run_item(self, run: StreamedRun, event: Any) -> None:
        item = get_field(event, "item")
        raw = get_field(item, "raw_item")
        call_id = get_field(raw, "call_id")
        name = get_text(event, "name")
        if name == "tool_output":
            self._answer(run, call_id, get_field(item, "output"))
        elif name == "handoff_occured":  # so spelled by the framework
            run.handoff = (call_id, get_field(raw, "output"))

    def _read_raw(self, run: StreamedRun, event: Any) -> None:
        data = get_field(event, "data")
        read = RAW_READERS.get(get_text(data, "type"))
        if read is not None:
            read(self, run, data)

    def _begin_response(self, run: StreamedRun, _: Any) -> None:
        run.last_response_id = None
        # the framework asks the model again after an error
        message = run.agent.message
        if run.has_content and message is not None and message.is_open:
            self._builder.retract_message(run.agent, RETRY)
        run.forget_message()

    def _start_item(self, run: StreamedRun, data: Any) -> None:
        item = get_field(data, "item")
        if get_text(item, "type") != "function_call":
            return
        index = get_index(data, "output_index")
        call_id = get_field(item, "call_id")
        self._builder.reuse_call_id(run.agent, call_id)
        run.call_ids[index] = self._builder.start_call(run.agent, get_text(item, "name"), call_id)

    def _add_text(self, run: StreamedRun, data: Any) -> None:
        run.streamed.add(get_index(data, "output_index"))
        self._say(run, get_text(data, "delta"))

    def _say(self, run: StreamedRun, text: str) -> None:
        if text:
            self._builder.text(run.agent, text)

    def _add_refusal(self, run: StreamedRun, data: Any) -> None:
        run.is_refusal = True
        self._add_text(run, data)

    def _add_summary_part(self, run: StreamedRun, data: Any) -> None:
        part = (get_index(data, "output_index"), get_index(data, "summary_index"))
        if part[1] and part not in run.summaries:
            self._builder.think(run.agent, "\n\n")
        run.summaries.add(part)

    def _add_thinking(self, run: StreamedRun, data: Any) -> None:
        run.streamed.add(get_index(data, "output_index"))
        self._think(run, get_text(data, "delta"))

    def _think(self, run: StreamedRun, text: str) -> None:
        if text:
            self._builder.think(run.agent, text)

    def _add_arguments(self, run: StreamedRun, data: Any) -> None:
        index = get_index(data, "output_index")
        call_id = run.call_ids.get(index)
        if call_id is not None:
            run.streamed.add(index)
            self._builder.arguments(run.agent, call_id, get_text(data, "delta"))

    def _end_item(self, run: StreamedRun, data: Any) -> None:
        self._read_item(run, get_index(data, "output_index"), get_field(data, "item"))

    def _complete(self, run: StreamedRun, data: Any) -> None:
        """End a message. A message that was not streamed is read from the response."""
        response = get_field(data, "response")
        response_id = get_text(response, "id") or None
        # twice the same report; but models without responses of their own give all of them one id
        if response_id is not None and response_id == run.last_response_id and not run.has_content:
            return
        run.last_response_id = response_id
        output = as_list(get_field(response, "output"))
        self._read_missing(run, output)
        usage = get_field(response, "usage")
        details = get_field(usage, "input_tokens_details")
        tokens = to_usage(
            get_field(usage, "input_tokens"),
            get_field(usage, "output_tokens"),
            get_field(details, "cached_tokens"),
            get_field(details, "cache_write_tokens"),
        )
        model = get_text(response, "model") or None
        reason = get_text(get_field(response, "incomplete_details"), "reason")
        stop_reason = "refusal" if run.is_refusal else STOP_REASONS.get(reason, "end_turn")
        self._builder.complete_message(
            run.agent, None if usage is None else tokens, model, stop_reason=stop_reason
        )
        for item in (*run.call_items, *output):
            if get_call_id(item) is not None:
                self._add_known_call(run, item)
        run.forget_message()
        self._release_held()

    # output items

    def _read_missing(self, run: StreamedRun, output: list[Any]) -> None:
        """Read what was not streamed. Some models stream their texts, and not their calls."""
        was_streamed = run.has_content
        index_by_call = {call_id: index for index, call_id in run.call_ids.items()}
        keys = {get_call_key(item) for item in run.call_items}
        for index, item in enumerate(output):
            key = get_call_key(item)
            if get_text(item, "type") not in CALL_TYPES:
                if not was_streamed:
                    self._read_item(run, index, item)
            elif key not in keys:
                # models count their items differently in a response than in its stream
                self._read_item(run, index_by_call.get(key, -1 - index), item)

    def _read_item(self, run: StreamedRun, index: int, item: Any) -> None:
        if index in run.ended:
            return
        run.ended.add(index)
        ITEM_READERS.get(get_text(item, "type"), OpenAiAgentsTranslator._read_other)(self, run, index, item)

    def _read_message(self, run: StreamedRun, index: int, item: Any) -> None:
        if index in run.streamed:
            return
        for part in as_list(get_field(item, "content")):
            run.is_refusal = run.is_refusal or get_text(part, "type") == "refusal"
            self._say(run, get_text(part, "text") or get_text(part, "refusal"))

    def _read_reasoning(self, run: StreamedRun, index: int, item: Any) -> None:
        if index not in run.streamed:
            texts = [get_text(part, "text") for part in as_list(get_field(item, "summary"))]
            self._think(run, "\n\n".join(texts))
        signature = get_text(item, "encrypted_content")
        if signature:
            self._builder.sign(run.agent, signature)

    def _read_call(self, run: StreamedRun, index: int, item: Any) -> None:
        run.call_items.append(item)
        arguments = get_field(item, "arguments")
        if index not in run.call_ids:
            call_id = get_call_id(item)
            self._builder.reuse_call_id(run.agent, call_id)
            self._builder.call(run.agent, get_call_name(item), read_arguments(item), call_id)
        elif index not in run.streamed and isinstance(arguments, str) and arguments:
            self._builder.arguments(run.agent, run.call_ids[index], arguments)

    def _read_mcp_call(self, run: StreamedRun, index: int, item: Any) -> None:
        """Read a call that the provider ran. One that was approved answers the request for approval."""
        request_id = get_text(item, "approval_request_id")
        if not request_id:
            self._read_other(run, index, item)
            return
        error = get_field(item, "error")
        if error is None:
            self._builder.result(run.agent, request_id, get_field(item, "output"))
        else:
            self._builder.fail(run.agent, request_id, "EXECUTION_ERROR", render_text(error))

    def _read_other(self, run: StreamedRun, _: int, item: Any) -> None:
        try:
            fields = to_json_value(item)
        except BadInput:
            fields = {}
        kind = get_text(item, "type") or "item"
        self._builder.other(run.agent, kind, fields if isinstance(fields, dict) else {})


def describe_agent(agent: Any) -> AgentInfo:
    """Return what an agent of the framework says about itself. A model may be an object with a name."""
    model = get_field(agent, "model")
    name = model if isinstance(model, str) else get_text(model, "model")
    return AgentInfo(get_text(agent, "name") or "Agent", name or None)


def get_call_name(item: Any) -> str:
    return get_text(item, "name") or get_text(item, "type")


def read_arguments(item: Any) -> Any:
    """Return the arguments of a whole call: JSON as a text, or for other kinds of calls an object."""
    arguments = get_field(item, "arguments")
    if isinstance(arguments, str):
        return arguments
    for name in ("input", "action", "operation", "actions"):
        value = get_field(item, name)
        if value is not None:
            return {name: to_plain_value(value)}
    return None


def to_plain_value(value: Any) -> Any:
    try:
        return to_json_value(value)
    except BadInput:
        return None


def get_index(data: Any, name: str) -> int:
    value = get_field(data, name)
    return value if type(value) is int else 0


EVENT_READERS: Mapping[str, Callable[[OpenAiAgentsTranslator, StreamedRun, Any], None]] = {
    "agent_updated_stream_event": OpenAiAgentsTranslator._update_agent,
    "run_item_stream_event": OpenAiAgentsTranslator._read_run_item,
    "raw_response_event": OpenAiAgentsTranslator._read_raw,
}
RAW_READERS: Mapping[str, Callable[[OpenAiAgentsTranslator, StreamedRun, Any], None]] = {
    "response.created": OpenAiAgentsTranslator._begin_response,
    "response.output_item.added": OpenAiAgentsTranslator._start_item,
    "response.output_text.delta": OpenAiAgentsTranslator._add_text,
    "response.refusal.delta": OpenAiAgentsTranslator._add_refusal,
    "response.reasoning_summary_part.added": OpenAiAgentsTranslator._add_summary_part,
    "response.reasoning_summary_text.delta": OpenAiAgentsTranslator._add_thinking,
    "response.reasoning_text.delta": OpenAiAgentsTranslator._add_thinking,
    "response.function_call_arguments.delta": OpenAiAgentsTranslator._add_arguments,
    "response.output_item.done": OpenAiAgentsTranslator._end_item,
    "response.completed": OpenAiAgentsTranslator._complete,
    "response.incomplete": OpenAiAgentsTranslator._complete,
}
ITEM_READERS: Mapping[str, Callable[[OpenAiAgentsTranslator, StreamedRun, int, Any], None]] = {
    "message": OpenAiAgentsTranslator._read_message,
    "reasoning": OpenAiAgentsTranslator._read_reasoning,
    "mcp_call": OpenAiAgentsTranslator._read_mcp_call,
    **dict.fromkeys(CALL_TYPES, OpenAiAgentsTranslator._read_call),
}
