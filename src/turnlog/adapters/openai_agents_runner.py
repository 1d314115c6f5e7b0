"""Run an agent of the OpenAI Agents SDK: `turnlog.adapters.openai_agents(agent)`. Imports the framework.

The root is streamed, a hook reports the results of its tools as they are ready, and sub-agents report through
`on_stream` of their tool (`watch_openai_agents`). The state is the history as the model reads it, the name of
the agent that answers next, and while calls wait the `RunState` of the framework; files are apart from both
(`openai_agents_files`). A message in place of an answer begins a new run with that history: the calls that
waited get results that say why they did not run.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec
from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelResponse,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    Runner,
    RunResultStreaming,
    RunState,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    Usage,
)
from agents.items import ToolApprovalItem
from agents.run_context import RunContextWrapper
from agents.run_state import CURRENT_SCHEMA_VERSION, SUPPORTED_SCHEMA_VERSIONS
from agents.tool import default_tool_error_function

from turnlog.adapters.frameworks import OPENAI_AGENTS
from turnlog.adapters.openai_agents_files import SavedFile, detach_files, make_user_message, restore_files
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.plain_values import describe_output, to_plain
from turnlog.adapters.runner import (
    Answer,
    Approved,
    Denied,
    Finished,
    Part,
    Paused,
    Question,
    UnreadableState,
)
from turnlog.errors import CallerError
from turnlog.parse import AgentInfo
from turnlog.parse.foreign.common import render_text
from turnlog.parse.foreign.openai_agents import OpenAiAgentsTranslator, describe_agent
from turnlog.parse.foreign.openai_history import (
    answer_open_calls,
    find_unanswered_calls,
    get_call_id,
    get_call_key,
    rename_counted_calls,
)

SOURCE = "openai_agents"
# The adapter owns the history and the hooks: with these a run would have two.
OWN_OPTIONS = frozenset(
    {"session", "conversation_id", "previous_response_id", "auto_previous_response_id", "hooks"}
)
GUARDRAIL = "guardrail"
GUARDRAIL_ERRORS = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
# what the model reads of a tool that raised, if the tool has no failure function of its own
FAILURE_TEXT = default_tool_error_function(RunContextWrapper(None), Exception())


class SavedApproval(msgspec.Struct):
    agent_id: str
    call_id: str


class SavedRun(msgspec.Struct):
    """The state of a checkpoint. `run` is the framework's own state of a run that waits for approvals."""

    items: list[Any] = []
    agent: str = ""  # answers the next turn
    first_agent: str = ""  # began the run that waits
    run: dict[str, Any] | None = None
    questions: list[SavedApproval] = []
    files: dict[str, SavedFile] = {}

    def dump(self) -> bytes:
        detached = detach_files([self.items, self.run])
        self.items, self.run = detached.values
        self.files = detached.files
        return msgspec.msgpack.encode(self)


@dataclass(slots=True)
class LastStep:
    """The last message of the root and the results of its calls. A run that is stopped forgets its last step,
    although tools of it have run."""

    items: list[Any] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)

    def begin(self, output: Sequence[Any]) -> None:
        response = ModelResponse(output=list(output), usage=Usage(), response_id=None)
        self.items = to_plain(response.to_input_items())
        self.results = {}

    def list_missing(self, history: Sequence[Any]) -> list[Any]:
        """Return the items of the step that a history does not have. Calls without a result are included."""
        known = {get_call_id(item) for item in history}
        calls = [get_call_id(item) for item in find_unanswered_calls(self.items)]
        if not calls or known.issuperset(calls):
            return []
        results = [
            {"type": "function_call_output", "call_id": call_id, "output": render_text(self.results[call_id])}
            for call_id in calls
            if call_id in self.results
        ]
        return [*self.items, *results]


@dataclass(frozen=True, slots=True)
class RunWatch:
    """The part that runs in this context."""

    output: PartOutput
    translator: OpenAiAgentsTranslator
    last_step: LastStep = field(default_factory=LastStep)


CURRENT_WATCH: ContextVar[RunWatch | None] = ContextVar("turnlog_openai_agents_watch", default=None)


@contextmanager
def watch_runs(watch: RunWatch) -> Generator[None, None, None]:
    token = CURRENT_WATCH.set(watch)
    try:
        yield
    finally:
        CURRENT_WATCH.reset(token)


async def report_stream_event(payload: Mapping[str, Any]) -> None:
    """Report an event of a sub-agent while a session's runtime runs its caller. Otherwise do nothing."""
    watch = CURRENT_WATCH.get()
    if watch is not None:
        event = to_plain_event(payload["event"])
        await watch.output.report(watch.translator.feed, event, payload["tool_call"], payload["agent"])


class WatchHooks(RunHooks[Any]):
    """Reports the results of tools as they are ready: the stream has them after the slowest of a step."""

    def __init__(self, watch: RunWatch) -> None:
        self._watch = watch

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Any, tool: Any, result: object
    ) -> None:
        # other kinds of tools than functions do not say which call it is; the stream reports their results
        call = getattr(context, "tool_call", None)
        if call is not None:
            value = to_plain(result)
            self._watch.last_step.results[call.call_id] = value
            await self._watch.output.report(self._watch.translator.add_result, call, value)


class OpenAiAgentsRunner:
    """Runs one agent. `context` is a value, or a function of the `Part`; `run_options` go to each run."""

    source = SOURCE

    def __init__(
        self, agent: Agent[Any], context: Any, run_config: RunConfig | None, run_options: Mapping[str, Any]
    ) -> None:
        if not isinstance(agent, Agent):
            raise CallerError(f"expected an agent of the OpenAI Agents SDK, got {type(agent).__name__}")
        if owned := OWN_OPTIONS & run_options.keys():
            raise CallerError(f"expected no {min(owned)}: the adapter passes it to the agent")
        self._agent = agent
        self._make_context: Callable[[Part], Any] = context if callable(context) else lambda _: context
        # without a configuration the framework would send every run to its vendor
        self._run_config = run_config or RunConfig(tracing_disabled=True)
        self._run_options = dict(run_options)
        self.version = f"{OPENAI_AGENTS.version}/{CURRENT_SCHEMA_VERSION}"

    @property
    def name(self) -> str:
        return self._agent.name

    def can_read(self, version: str) -> bool:
        return version.partition("/")[2] in SUPPORTED_SCHEMA_VERSIONS

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return describe_agent(self._find_agent(read_saved_run(state).agent))

    def _find_agent(self, name: str) -> Agent[Any]:
        """Return an agent that the first one can hand over to, at any distance; the first if none has it."""
        return list_agents(self._agent).get(name, self._agent)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        saved = read_saved_run(part.state)
        first_agent, run_input = await self._make_input(part, saved, output.root.agent_id)
        translator = OpenAiAgentsTranslator(output.builder, output.root, FAILURE_TEXT)
        watch = RunWatch(output, translator)
        with watch_runs(watch):
            result = Runner.run_streamed(
                first_agent,
                run_input,
                context=self._make_context(part),
                hooks=WatchHooks(watch),
                run_config=self._run_config,
                **self._run_options,
            )
            try:
                await follow_run(result, watch)
            except MaxTurnsExceeded:
                return Finished(dump_stopped(result, watch), reason="max_steps")
            except GUARDRAIL_ERRORS as error:
                is_output = isinstance(error, OutputGuardrailTripwireTriggered)
                if is_output:
                    await output.report(translator.retract_message, GUARDRAIL)
                await output.report(output.builder.error, output.root, GUARDRAIL, str(error))
                stopped = dump_refused(result) if is_output else dump_stopped(result, watch)
                return Finished(stopped, reason="error")
            except (Exception, asyncio.CancelledError):
                output.save_state(dump_stopped(result, watch))
                raise

        await output.report(translator.finish)
        state = make_state(result)
        if not result.interruptions:
            return Finished(state.dump(), describe_output(result.final_output))
        questions = list_approvals(translator, result.interruptions)
        state.first_agent = first_agent.name
        state.run = dump_run(result)
        state.questions = [SavedApproval(item.agent.agent_id, item.call_id) for item in questions]
        return Paused(state.dump(), questions)

    async def _make_input(self, part: Part, saved: SavedRun, root_id: str) -> tuple[Agent[Any], Any]:
        """Return the agent that begins or goes on, and what it reads."""
        if part.message is None:
            agent = self._find_agent(saved.first_agent)
            return agent, await restore_run(agent, saved, part)
        items = answer_open_calls(saved.items, lambda call_id: part.denial_of((root_id, call_id)))
        history = restore_files(rename_counted_calls(items), saved.files)
        return self._find_agent(saved.agent), [*history, make_user_message(part)]


async def follow_run(result: RunResultStreaming, watch: RunWatch) -> None:
    """Report every event of a run. Whatever happens, no task of the run is left behind."""
    events: Any = result.stream_events()
    try:
        async for event in events:
            if event.type == "raw_response_event" and event.data.type == "response.completed":
                watch.last_step.begin(event.data.response.output)
            await watch.output.report(watch.translator.feed, to_plain_event(event))
    finally:
        task = result.run_loop_task
        if task is not None and not task.done():
            result.cancel()
            await asyncio.wait({task})
        await events.aclose()
        if task is not None:
            _ = task.cancelled() or task.exception()  # retrieved: the stream has raised it


async def restore_run(agent: Agent[Any], saved: SavedRun, part: Part) -> RunState[Any]:
    """Return the run that waits, with the answers of people."""
    try:
        state = await RunState.from_json(agent, restore_files(saved.run or {}, saved.files))
    except Exception as error:  # the framework checks little before it reads
        raise UnreadableState(f"the stored run is not of this version: {str(error)[:80]}") from error
    approvals = state.get_interruptions()
    if [get_call_key(item.raw_item) for item in approvals] != [item.call_id for item in saved.questions]:
        raise UnreadableState("the stored run waits for other calls than its questions")
    for item, question in zip(approvals, saved.questions, strict=True):
        decide(state, item, part.answer_to((question.agent_id, question.call_id)))
    return state


def decide(state: RunState[Any], item: ToolApprovalItem, answer: Answer) -> None:
    if isinstance(answer, Approved):
        state.approve(item)
    else:
        reason = answer.reason if isinstance(answer, Denied) else render_text(answer.value)
        state.reject(item, rejection_message=reason)


def list_approvals(translator: OpenAiAgentsTranslator, items: Sequence[ToolApprovalItem]) -> list[Question]:
    questions: list[Question] = []
    for item in items:
        owner = translator.find_owner(item.raw_item, item.agent.name)
        if owner is None:
            advice = "pass on_stream=adapters.watch_openai_agents to its as_tool"
            raise RuntimeError(f"the sub-agent {item.agent.name} asks, but is not watched: {advice}")
        questions.append(Question(owner, get_call_key(item.raw_item)))
    return questions


def dump_run(result: RunResultStreaming) -> dict[str, Any]:
    """Return the framework's state of a run that waits, without the context, which each part makes anew."""
    state = result.to_state().to_json(context_serializer=lambda _: {})
    pending: list[Any] = [state]
    while pending:  # the states of sub-agents that wait are inside
        value = pending.pop()
        if isinstance(value, dict):
            if "context_meta" in value and "context" in value:
                value["context"] = {}
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return state


def make_state(result: RunResultStreaming) -> SavedRun:
    return SavedRun(items=to_plain(result.to_input_list(mode="normalized")), agent=result.last_agent.name)


def dump_stopped(result: RunResultStreaming, watch: RunWatch) -> bytes:
    """Return the state after a run that did not end by itself."""
    state = make_state(result)
    state.items += watch.last_step.list_missing(state.items)
    return state.dump()


def dump_refused(result: RunResultStreaming) -> bytes:
    """Return the state after a run whose last message a guardrail has refused, without that message."""
    state = make_state(result)
    while state.items and is_of_model(state.items[-1]):
        state.items.pop()
    return state.dump()


def is_of_model(item: Any) -> bool:
    """Return whether an item of a history is a text of the model, or its reasoning."""
    return bool(item.get("role") == "assistant" or item.get("type") == "reasoning")


def read_saved_run(state: bytes | None) -> SavedRun:
    if state is None:
        return SavedRun()
    try:
        return msgspec.msgpack.decode(state, type=SavedRun)
    except msgspec.DecodeError as error:
        raise UnreadableState(f"the stored history is not of this version: {str(error)[:80]}") from error


def list_agents(first: Agent[Any]) -> dict[str, Agent[Any]]:
    """Return the agents that hand-offs reach, by name."""
    agents = {first.name: first}
    pending = [first]
    while pending:
        for target in pending.pop().handoffs:
            reference = getattr(target, "_agent_ref", None)  # of a `Handoff`
            agent = reference() if reference is not None else target
            if isinstance(agent, Agent) and agent.name not in agents:
                agents[agent.name] = agent
                pending.append(agent)
    return agents


def to_plain_event(event: Any) -> Any:
    """Return an event whose result of a tool, which may be any object, is a JSON value."""
    if event.type != "run_item_stream_event":
        return event
    output = to_plain(getattr(event.item, "output", None))
    item = {"raw_item": event.item.raw_item, "output": output}
    return {"type": event.type, "name": event.name, "item": item}
