"""Pydantic AI 2: the events of its runs in, calls of the builder out (docs/adapters.md).

Each run is an agent, known by its `run_id`. The shell reports what the event stream does not have: which run
and call started a run (`start_run`), the end of a message with its usage (`complete_response`), and the end
of a run (`end_run`). `feed` reads the events of the stream by their `event_kind`; unknown kinds are dropped.
Parts of a message are known by their index: if the first one starts again, the model was asked again, and
the message so far is retracted. Calls, results and runs that a resumed run reports again count once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnlog.errors import BadInput
from turnlog.events.agent import StopReason
from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.foreign.common import get_text, render_text, to_usage
from turnlog.parse.json_values import get_field, to_json_value
from turnlog.parse.reply import MessageStop
from turnlog.parse.runtime_input import AgentInfo, to_call_key

FAILED_OUTCOMES = {
    "failed": "EXECUTION_ERROR",
    "denied": "DENIED",
    "retried": "VALIDATION_ERROR",
    "interrupted": "CANCELLED",
}
STOP_REASONS: Mapping[str, MessageStop] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_call": "tool_use",
}
RETRY = "retry"


@dataclass(slots=True)
class Run:
    """A run that has started. `parts` are the indexes of the open message, `call_ids` those of its calls."""

    agent: RuntimeAgent
    parts: set[int] = field(default_factory=set)
    call_ids: dict[int, str] = field(default_factory=dict)


class PydanticAiTranslator:
    """Translates the runs of one part. The first run without a caller is `root`.

    `ended_calls` are calls of an earlier agent that the run reports again, although they have results.
    """

    def __init__(
        self, builder: AgentEventBuilder, root: RuntimeAgent, ended_calls: Iterable[str] = ()
    ) -> None:
        self._builder = builder
        self._root = root
        self._ended_calls = set(ended_calls)
        self._runs: dict[str, Run] = {}

    @property
    def root_run_id(self) -> str | None:
        """Return the run of the root; None if it has not started."""
        return next((run_id for run_id, run in self._runs.items() if run.agent is self._root), None)

    # what hooks report

    def start_run(
        self, run_id: str, info: AgentInfo, caller_run_id: str | None = None, call_id: str | None = None
    ) -> None:
        if run_id in self._runs:
            return
        caller = self._runs.get(caller_run_id or "")
        if caller is None and not self._runs:
            self._runs[run_id] = Run(self._root)
            return
        parent = caller.agent if caller is not None else self._root
        info = info._replace(source_id=run_id)
        if call_id is not None and self._has_open_child(parent, to_call_key(call_id)):
            call_id = None  # a tool may run several agents at once: the first one is that of the call
        self._runs[run_id] = Run(self._builder.start_child(parent, call_id, info))

    def _has_open_child(self, parent: RuntimeAgent, key: str) -> bool:
        return any(agent.caller is parent and agent.call_id == key for agent in self._builder.open_agents)

    def complete_response(self, run_id: str, response: Any) -> None:
        """End a message. A message that was not streamed is read from the response."""
        run = self._find_run(run_id)
        if not run.parts:
            for index, part in enumerate(get_field(response, "parts") or ()):
                self._start_part(run, {"index": index, "part": part})
        usage = get_field(response, "usage")
        tokens = to_usage(
            get_field(usage, "input_tokens"),
            get_field(usage, "output_tokens"),
            get_field(usage, "cache_read_tokens"),
            get_field(usage, "cache_write_tokens"),
        )
        stop_reason = STOP_REASONS.get(get_text(response, "finish_reason"), "end_turn")
        model = get_text(response, "model_name") or None
        self._builder.complete_message(run.agent, tokens, model, stop_reason=stop_reason)
        self._forget_message(run)

    def retract_message(self, run_id: str) -> None:
        """Take back the last message: the framework refused its text, and asks the model again."""
        run = self._find_run(run_id)
        self._builder.retract_message(run.agent, RETRY)
        self._forget_message(run)

    def end_run(self, run_id: str, reason: StopReason = "end_turn", result: str | None = None) -> None:
        """End the agent of a run, unless it is the root, which its runtime ends."""
        run = self._runs.get(run_id)
        if run is not None and run.agent is not self._root:
            self._builder.end(run.agent, reason, result)

    def is_root(self, run_id: str) -> bool:
        return self._find_run(run_id).agent is self._root

    def agent_of(self, run_id: str) -> RuntimeAgent:
        return self._find_run(run_id).agent

    def _find_run(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            run = Run(self._root)
            self._runs[run_id] = run
        return run

    # what the stream reports

    def feed(self, run_id: str, event: Any) -> None:
        read = EVENT_READERS.get(get_text(event, "event_kind"))
        if read is not None:
            read(self, self._find_run(run_id), event)

    def _start_part(self, run: Run, event: Any) -> None:
        index = get_field(event, "index")
        index = index if type(index) is int else len(run.parts)
        if index in run.parts:
            if index != min(run.parts):
                return  # the same part again
            self._builder.retract_message(run.agent, RETRY)
            self._forget_message(run)
        run.parts.add(index)

        part = get_field(event, "part")
        read = PART_READERS.get(get_text(part, "part_kind"))
        if read is not None:
            read(self, run, index, part)
        else:
            self._add_other(run, part)

    def _start_text(self, run: Run, _: int, part: Any) -> None:
        self._add_text(run, get_field(part, "content"))

    def _start_thinking(self, run: Run, _: int, part: Any) -> None:
        self._add_thinking(run, get_field(part, "content"), get_field(part, "signature"))

    def _start_call(self, run: Run, index: int, part: Any) -> None:
        call_id = get_text(part, "tool_call_id") or None
        self._builder.reuse_call_id(run.agent, call_id)
        self._ended_calls.discard(to_call_key(call_id))
        run.call_ids[index] = self._builder.start_call(run.agent, get_text(part, "tool_name"), call_id)
        self._add_arguments(run, index, get_field(part, "args"))

    def _add_other(self, run: Run, part: Any) -> None:
        try:
            fields = to_json_value(part)
        except BadInput:
            fields = {}
        kind = get_text(part, "part_kind") or "part"
        self._builder.other(run.agent, kind, fields if isinstance(fields, dict) else {})

    def _add_delta(self, run: Run, event: Any) -> None:
        delta = get_field(event, "delta")
        kind = get_text(delta, "part_delta_kind")
        index = get_field(event, "index")
        if kind == "text":
            self._add_text(run, get_field(delta, "content_delta"))
        elif kind == "thinking":
            self._add_thinking(run, get_field(delta, "content_delta"), get_field(delta, "signature_delta"))
        elif kind == "tool_call" and type(index) is int:
            self._add_arguments(run, index, get_field(delta, "args_delta"))

    def _add_text(self, run: Run, text: Any) -> None:
        if text:
            self._builder.text(run.agent, text)

    def _add_thinking(self, run: Run, text: Any, signature: Any) -> None:
        if text:
            self._builder.think(run.agent, text)
        if signature:
            self._builder.sign(run.agent, signature)

    def _add_arguments(self, run: Run, index: int, args: Any) -> None:
        call_id = run.call_ids.get(index)
        piece = render_text(args) if args else ""
        if call_id is not None and piece:
            self._builder.arguments(run.agent, call_id, piece)

    def _add_call(self, run: Run, event: Any) -> None:
        """Read that a call begins: the message before it is complete."""
        part = get_field(event, "part")
        call_id = get_text(part, "tool_call_id") or None
        if call_id is not None and to_call_key(call_id) not in self._ended_calls:
            self._builder.call(run.agent, get_text(part, "tool_name"), get_field(part, "args"), call_id)
        self._builder.complete_message(run.agent)
        self._forget_message(run)

    def _add_result(self, run: Run, event: Any) -> None:
        part = get_field(event, "part")
        call_id = get_field(part, "tool_call_id")
        if to_call_key(call_id) in self._ended_calls:
            return
        content = get_field(part, "content")
        code = FAILED_OUTCOMES.get(get_text(part, "outcome"))
        if get_text(part, "part_kind") == "retry-prompt":
            code = "VALIDATION_ERROR"
        if code is None:
            self._builder.result(run.agent, call_id, content)
        else:
            self._builder.fail(run.agent, call_id, code, render_text(content))
        self._forget_message(run)

    def _add_progress(self, run: Run, event: Any) -> None:
        # an event without a call is for the application's own readers
        call_id = get_field(event, "tool_call_id")
        if call_id is not None:
            self._builder.progress(run.agent, call_id, render_text(event))

    def _forget_message(self, run: Run) -> None:
        run.parts.clear()
        run.call_ids.clear()


EVENT_READERS: Mapping[str, Callable[[PydanticAiTranslator, Run, Any], None]] = {
    "part_start": PydanticAiTranslator._start_part,
    "part_delta": PydanticAiTranslator._add_delta,
    "function_tool_call": PydanticAiTranslator._add_call,
    "output_tool_call": PydanticAiTranslator._add_call,
    "function_tool_result": PydanticAiTranslator._add_result,
    "output_tool_result": PydanticAiTranslator._add_result,
    "custom": PydanticAiTranslator._add_progress,
}
PART_READERS: Mapping[str, Callable[[PydanticAiTranslator, Run, int, Any], None]] = {
    "text": PydanticAiTranslator._start_text,
    "thinking": PydanticAiTranslator._start_thinking,
    "tool-call": PydanticAiTranslator._start_call,
}
