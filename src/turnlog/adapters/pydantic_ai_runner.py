"""Run an agent of Pydantic AI: `turnlog.adapters.pydantic_ai(agent)`. Imports the framework.

A capability watches the runs: it is passed with each run of the root, and sub-agents have it in their
constructor (`watch_pydantic_ai`). Which call started a run is known from a context variable that is set while
a tool runs; the framework itself does not tell. The state is a `Conversation` as JSON, without the oldest
files beyond `MAX_SAVED_FILES_BYTES`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied, capture_run_messages
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.exceptions import RunCancelled, RunTimedOut, ToolFailed, UsageLimitExceeded
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_core import PydanticSerializationError

from turnlog.adapters.frameworks import PYDANTIC_AI
from turnlog.adapters.part_files import DROPPED_TEXT, MAX_SAVED_FILES_BYTES
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.plain_values import describe_output, to_plain
from turnlog.adapters.runner import (
    NOT_ANSWERED,
    Answer,
    CallKey,
    Denied,
    Finished,
    Part,
    Paused,
    Question,
    Returned,
    UnreadableState,
)
from turnlog.errors import CallerError
from turnlog.events.agent import StopReason
from turnlog.parse import AgentInfo, RuntimeAgent
from turnlog.parse.foreign.pydantic_ai import PydanticAiTranslator
from turnlog.parse.json_values import encode_json
from turnlog.parse.runtime_input import to_call_key

SOURCE = "pydantic_ai"
# The adapter owns the history and the seam: with these a run would have two.
OWN_OPTIONS = frozenset(
    {"conversation", "message_history", "deferred_tool_results", "output_type", "capabilities"}
)
REFUSAL_KINDS = frozenset({"retry-feedback", "retry-prompt"})  # earlier versions have only the second
STREAMED_KINDS = frozenset({"part_start", "part_delta"})


@dataclass(frozen=True, slots=True)
class Watch:
    """The part that runs in this context, and the run and the call inside it.

    `reporters` has the capability that reports each run: an agent may have been given two of them.
    """

    output: PartOutput
    translator: PydanticAiTranslator
    reporters: dict[str, "WatchCapability"]
    run_id: str | None = None
    call_id: str | None = None


CURRENT_WATCH: ContextVar[Watch | None] = ContextVar("turnlog_pydantic_ai_watch", default=None)


@contextmanager
def set_watch(watch: Watch) -> Generator[None, None, None]:
    token = CURRENT_WATCH.set(watch)
    try:
        yield
    finally:
        CURRENT_WATCH.reset(token)


class WatchCapability(AbstractCapability[Any]):
    """Reports the runs of an agent while a session's runtime runs it. Otherwise it does nothing."""

    def _find_watch(self, ctx: RunContext[Any]) -> Watch | None:
        """Return the part that runs; None if there is none, or another capability reports this run."""
        watch = CURRENT_WATCH.get()
        if watch is None or watch.reporters.get(ctx.run_id or "") is not self:
            return None
        return watch

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        watch = CURRENT_WATCH.get()
        run_id = ctx.run_id
        if watch is None or run_id is None or watch.reporters.setdefault(run_id, self) is not self:
            return await handler()

        report = watch.output.report
        translator = watch.translator
        await report(translator.start_run, run_id, describe_run(ctx), watch.run_id, watch.call_id)
        try:
            with set_watch(replace(watch, run_id=run_id, call_id=None)):
                result = await handler()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await report(translator.end_run, run_id, get_stop_reason(error))
            raise
        await report(translator.end_run, run_id, "end_turn", describe_output(result.output))
        return result

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        watch = self._find_watch(ctx)
        async for event in stream:
            if watch is not None:
                plain = event if event.event_kind in STREAMED_KINDS else to_plain(event)
                await watch.output.report(watch.translator.feed, ctx.run_id, plain)
            yield event

    def get_wrapper_model(self, model: Model) -> Model | None:
        return None if can_stream(model) else WholeReplyModel(model)

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        watch = self._find_watch(ctx)
        if watch is not None and is_text_refused(ctx.messages):
            await watch.output.report(watch.translator.retract_message, ctx.run_id)
        return request_context

    async def after_model_request(self, ctx: RunContext[Any], *, request_context: Any, response: Any) -> Any:
        watch = self._find_watch(ctx)
        if watch is not None:
            await watch.output.report(watch.translator.complete_response, ctx.run_id, response)
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        watch = self._find_watch(ctx)
        if watch is None:
            return await handler(args)
        with set_watch(replace(watch, run_id=ctx.run_id, call_id=call.tool_call_id)):
            return await handler(args)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Answer the deferred calls of a sub-agent inside its run: the framework cannot pass them up."""
        watch = self._find_watch(ctx)
        if watch is None or ctx.run_id is None or watch.translator.is_root(ctx.run_id):
            return None
        agent = watch.translator.agent_of(ctx.run_id)
        answers = await watch.output.ask(list_questions(agent, requests))
        return build_results(answers.__getitem__, agent.agent_id, requests)

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        watch = self._find_watch(ctx)
        call = output_context.tool_call
        if watch is None or call is None:
            return await handler(output)
        with set_watch(replace(watch, run_id=ctx.run_id, call_id=call.tool_call_id)):
            return await handler(output)


class WholeReplyModel(WrapperModel):
    """Answers a request for a stream with a whole response, for a model that has no streams."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )


def can_stream(model: Model) -> bool:
    """Return whether a model has streams. Those of the framework's users need not implement them."""
    while type(model).request_stream is WrapperModel.request_stream:
        model = model.wrapped  # type: ignore[attr-defined]
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def is_text_refused(messages: Sequence[ModelMessage]) -> bool:
    """Return whether the model is asked again because its last text was no valid output."""
    last = messages[-1] if messages else None
    if not isinstance(last, ModelRequest) or not last.parts:
        return False
    # a message whose calls have results stays: retracting it would drop what its tools did
    return all(
        part.part_kind in REFUSAL_KINDS and getattr(part, "tool_name", None) is None for part in last.parts
    )


class PydanticAiRunner:
    """Runs one agent. `deps` is a value, or a function of the `Part`; `run_options` go to `Agent.run`."""

    source = SOURCE

    def __init__(self, agent: Agent[Any, Any], deps: Any, run_options: Mapping[str, Any]) -> None:
        if not isinstance(agent, Agent):
            raise CallerError(f"expected an agent of Pydantic AI, got {type(agent).__name__}")
        if owned := OWN_OPTIONS & run_options.keys():
            raise CallerError(f"expected no {min(owned)}: the adapter passes it to the agent")
        self._agent = agent
        self._make_deps: Callable[[Part], Any] = deps if callable(deps) else lambda _: deps
        self._run_options = dict(run_options)
        self.version = PYDANTIC_AI.version

    @property
    def name(self) -> str:
        return self._agent.name or "Agent"

    def can_read(self, version: str) -> bool:
        return PYDANTIC_AI.has_same_major(version)

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        model = self._agent.model
        model_name = model if isinstance(model, str) else getattr(model, "model_name", None)
        return AgentInfo(self.name, model_name)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        conversation = decode_conversation(part.state)
        root = output.root
        translator = PydanticAiTranslator(output.builder, root, list_ended_calls(root, conversation))
        options = self._run_options | self._history_options(part, root.agent_id, conversation)

        with set_watch(Watch(output, translator, {})), capture_run_messages() as messages:
            try:
                result = await self._agent.run(
                    make_user_prompt(part),
                    deps=self._make_deps(part),
                    capabilities=[WatchCapability()],
                    **options,
                )
            except asyncio.CancelledError as error:
                # the framework attaches the history to the exception, and only here
                cancelled = RunCancelled.from_cancellation(error)
                history = cancelled.all_messages() if cancelled is not None else messages
                output.save_state(dump_history(history, conversation))
                raise
            except Exception as error:
                state = dump_history(messages, conversation)
                reason = get_stop_reason(error)
                if reason == "error":
                    output.save_state(state)
                    raise
                return Finished(state, reason=reason)

        state = dump_conversation(result.conversation)
        if isinstance(result.output, DeferredToolRequests):
            return Paused(state, list_questions(output.root, result.output))
        return Finished(state, describe_output(result.output))

    def _history_options(self, part: Part, root_id: str, conversation: Conversation | None) -> dict[str, Any]:
        options: dict[str, Any] = {"conversation": conversation}
        output_type = self._agent.output_type
        types = output_type if isinstance(output_type, Sequence) else [output_type]
        # the framework refuses another output type for an agent with output validators
        if DeferredToolRequests not in types and not self._agent._output_validators:
            options["output_type"] = [*types, DeferredToolRequests]
        if conversation is not None and conversation.deferred_tool_requests is not None:
            requests = conversation.deferred_tool_requests
            options["deferred_tool_results"] = build_results(part.answer_to, root_id, requests)
        return options


def decode_conversation(state: bytes | None) -> Conversation | None:
    if state is None:
        return None
    try:
        return ConversationTypeAdapter.validate_json(state)
    except ValidationError as error:
        problem = f"{error.error_count()} fields differ"
        raise UnreadableState(f"the stored conversation is not of this version: {problem}") from error


def list_ended_calls(root: RuntimeAgent, conversation: Conversation | None) -> list[str]:
    """Return the deferred calls of an agent that has ended: the framework will report them again."""
    requests = conversation.deferred_tool_requests if conversation is not None else None
    if requests is None:
        return []
    keys = [to_call_key(call.tool_call_id) for call in (*requests.approvals, *requests.calls)]
    return [key for key in keys if not root.owns_open_call(key)]


def make_user_prompt(part: Part) -> str | list[UserContent] | None:
    """Return the message for the framework: its text, or the text and the files."""
    if not part.files:
        return part.message
    contents = [BinaryContent(file.data, media_type=file.media_type) for file in part.files]
    return [part.message or "", *contents]


def dump_history(messages: Sequence[ModelMessage], before: Conversation | None) -> bytes:
    """Return the state after a run that did not end by itself. Calls without a result are closed."""
    # a run that failed before its first request has no messages, and the history before it still counts
    history = repair_messages(messages) if messages else before.messages if before is not None else []
    conversation = Conversation(messages=list(history))
    if before is not None:
        conversation.conversation_id = before.conversation_id
    return dump_conversation(conversation)


def dump_conversation(conversation: Conversation) -> bytes:
    saved = replace(conversation, messages=drop_oldest_files(conversation.messages))
    try:
        return ConversationTypeAdapter.dump_json(saved)
    except PydanticSerializationError:
        return dump_unusual(saved)


def dump_unusual(conversation: Conversation) -> bytes:
    """Return the state of a conversation that has what JSON cannot express: objects, lone surrogates.

    The framework accepts any object as the result of a tool, or beside it as `metadata`.
    """
    messages: list[ModelMessage] = []
    for message in conversation.messages:
        if isinstance(message, ModelRequest):
            message = replace(message, parts=[make_plain_return(part) for part in message.parts])
        messages.append(replace(message, metadata=to_plain(message.metadata)))
    saved = replace(conversation, messages=messages)
    return encode_json(ConversationTypeAdapter.dump_python(saved, mode="json"), None)


def make_plain_return(part: ModelRequestPart) -> ModelRequestPart:
    if not isinstance(part, ToolReturnPart):
        return part
    return replace(part, content=to_plain(part.content), metadata=to_plain(part.metadata))


def drop_oldest_files(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a history that has only the newest files of people. It shares all else with the other one."""
    free_bytes = MAX_SAVED_FILES_BYTES

    def keep(item: UserContent) -> UserContent:
        nonlocal free_bytes
        if not isinstance(item, BinaryContent):
            return item
        if len(item.data) > free_bytes:
            return DROPPED_TEXT
        free_bytes -= len(item.data)
        return item

    kept: list[ModelMessage] = []
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            parts = list(message.parts)
            for index, part in enumerate(parts):
                if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                    parts[index] = replace(part, content=[keep(item) for item in part.content])
            message = replace(message, parts=parts)
        kept.append(message)
    return kept[::-1]


def build_results(
    answer_to: Callable[[CallKey], Answer], agent_id: str, requests: DeferredToolRequests
) -> DeferredToolResults:
    """Return an answer to every deferred call. The framework wants all of them at once."""
    results = DeferredToolResults()
    for call in requests.approvals:
        answer = answer_to((agent_id, to_call_key(call.tool_call_id)))
        results.approvals[call.tool_call_id] = (
            ToolDenied(answer.reason) if isinstance(answer, Denied) else True
        )
    for call in requests.calls:
        answer = answer_to((agent_id, to_call_key(call.tool_call_id)))
        if isinstance(answer, Returned):
            results.calls[call.tool_call_id] = answer.value
        else:
            reason = answer.reason if isinstance(answer, Denied) else NOT_ANSWERED
            results.calls[call.tool_call_id] = ToolFailed(reason)
    return results


def list_questions(agent: RuntimeAgent, requests: DeferredToolRequests) -> list[Question]:
    questions = [Question(agent, to_call_key(call.tool_call_id)) for call in requests.approvals]
    questions += [
        Question(agent, to_call_key(call.tool_call_id), is_for_page=True) for call in requests.calls
    ]
    return questions


def describe_run(ctx: RunContext[Any]) -> AgentInfo:
    name = getattr(ctx.agent, "name", None) or "Agent"
    prompt = ctx.prompt if isinstance(ctx.prompt, str) else None
    return AgentInfo(name, getattr(ctx.model, "model_name", None), prompt=prompt)


def get_stop_reason(error: BaseException) -> StopReason:
    if isinstance(error, RunTimedOut):
        return "timeout"
    if isinstance(error, RunCancelled):
        return "cancelled"
    if isinstance(error, UsageLimitExceeded):
        return "max_steps"
    return "error"
