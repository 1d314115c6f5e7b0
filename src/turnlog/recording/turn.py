"""`RecordedTurn`: one turn of an agent that runs in a program of its own, as balanced events of a session.

    async with turnlog.record(log, session, prompt="Hi", name="Support") as turn:
        await turn.text("Let me look.")
        call = await turn.call("search", {"q": "grass"})
        await turn.result(call, "green")
        await turn.text("It is green.")

Whatever happens in the block, every agent, call and block that it opened is closed: at its end, by an
exception (`session.error`, the reason `error`), by a cancellation, or by a person's stop, which cancels the
block and raises `RecordingStopped`. If this process dies, the owner of the session after it closes them. A
method returns when its events are durable; deltas follow soon after.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from turnlog.adapters.foreign_runtime import AGENT_FAILED, deny_calls
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import Answer, Approved, CallKey, Denied, Finished, Question, Returned
from turnlog.adapters.turn_inputs import to_answer
from turnlog.errors import CallerError, StoreError, TurnlogError
from turnlog.events import (
    ApprovalDecision,
    Entry,
    EventDraft,
    Scope,
    ToolResult,
    UiCommand,
    UiMessage,
    Usage,
)
from turnlog.events.agent import StopReason
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log.wakeup import Wakeup
from turnlog.parse import AgentEventBuilder, AgentInfo, RuntimeAgent
from turnlog.recording.target import RecordingLost, RecordingStopped, RecordTarget
from turnlog.state.tree import can_stop_reach

if TYPE_CHECKING:
    from turnlog.recording.claude_sdk_recorder import ClaudeSdkRecorder

log = logging.getLogger("turnlog.recording")

RENEWALS_PER_LEASE = 3  # two may be lost


class RecordedTurn:
    """A turn that is recorded while its `async with` block runs. `agent` arguments default to its root."""

    def __init__(
        self,
        target: RecordTarget,
        *,
        prompt: str | None = None,
        name: str = "Agent",
        model: str | None = None,
        channel: str | None = None,
    ) -> None:
        self._target = target
        self._prompt = prompt
        self._channel = channel
        self._info = AgentInfo(name, model, prompt=prompt)
        self._builder = AgentEventBuilder(new_id)
        self._trace_id = new_id("tr_")
        self._answers: dict[CallKey, Answer] = {}
        self._results_in_log: set[CallKey] = set()
        self._answered = Wakeup()
        self._end = Finished()
        self._interruption: TurnlogError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._body: asyncio.Task[Any] | None = None

    @property
    def turn(self) -> str:
        """Return the id of the turn."""
        return self._trace_id

    @property
    def root(self) -> RuntimeAgent:
        return self._output.root

    # the block

    async def __aenter__(self) -> "RecordedTurn":
        last = await self._target.open()
        self._output = PartOutput(self._builder, self._target.append, self._ask)
        try:
            items: list[EventDraft] = []
            if self._prompt is not None:
                scope = Scope(trace_id=self._trace_id, channel=self._channel)
                items.append(EventDraft(UiMessage(text=self._prompt, channel=self._channel), scope, "ui"))
            self._builder.start(self._info, self._trace_id, self._channel)
            await self._target.append([*items, *self._builder.take_output()])
        except BaseException:
            await self._target.release(is_complete=False)
            raise
        self._body = asyncio.current_task()
        self._cancellations = self._body.cancelling() if self._body is not None else 0
        self._tasks = [asyncio.create_task(self._watch(last)), asyncio.create_task(self._keep_lease())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # shielded: a cancellation during the end must not leave the turn open until its lease is over
        closing = asyncio.create_task(self._close(error))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError as cancellation:
            await asyncio.wait([closing])
            self._raise_interruption(cancellation)
            raise
        self._raise_interruption(error)

    def _raise_interruption(self, error: BaseException | None) -> None:
        """Raise what interrupted the block, unless its task was cancelled from outside, too."""
        if self._interruption is None or self._body is None:
            return
        if isinstance(error, asyncio.CancelledError) and self._body.uncancel() > self._cancellations:
            return
        raise self._interruption from error

    async def _close(self, error: BaseException | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        is_complete = False
        try:
            if isinstance(self._interruption, RecordingLost) or isinstance(error, RecordingLost):
                await self._output.close()
                return
            await self._append_end(error)
            is_complete = True
        except RecordingLost:
            if error is None:
                raise
        except TurnlogError as refusal:
            # the log refused an event: the next owner closes from the log what is open there
            log.error("the end of the turn %s could not be recorded: %s", self._trace_id, refusal)
            if error is None:
                raise
        finally:
            await self._output.close()  # a run that outlives the turn reports to no one
            await self._target.release(is_complete=is_complete)

    async def _append_end(self, error: BaseException | None) -> None:
        items: list[EventDraft] = []
        try:
            items = await self._output.take_rest()
        except (StoreError, CallerError):
            if error is None:
                raise
        builder = self._builder
        is_stopped = self._interruption is not None or isinstance(error, asyncio.CancelledError)
        if is_stopped:
            builder.flush("cancelled")
        elif error is not None:
            builder.error(self.root, AGENT_FAILED, f"{type(error).__name__}: {error}")
            builder.flush("error")
        else:
            end = self._end
            builder.end(self.root, end.reason, end.result, end.cost)
            builder.flush("cancelled")  # agents that were left open
        await self._target.append([*items, *builder.take_output()])

    # what other people do meanwhile

    async def _watch(self, last: int) -> None:
        try:
            async for entry in self._target.follow(last):
                self._apply(entry)
        except TurnlogError as error:
            self._interrupt(error)

    def _apply(self, entry: Entry) -> None:
        payload = entry.payload
        if isinstance(payload, UiCommand) and isinstance(payload.command, Stop):
            if self._is_stopped_by(payload.command, entry.channel):
                self._interrupt(RecordingStopped("a person has stopped the turn"))
        elif isinstance(payload, ToolResult | ApprovalDecision) and entry.trace_id == self._trace_id:
            if entry.origin != "ui" and not is_closing_answer(entry):
                return
            key = (entry.agent_id or "", payload.call_id)
            self._answers.setdefault(key, to_answer(payload))
            if isinstance(payload, ToolResult):
                self._results_in_log.add(key)
            self._answered.wake()

    def _is_stopped_by(self, stop: Stop, channel: str | None) -> bool:
        is_this_turn = stop.turn in (None, self._trace_id)
        agent_ids = {agent.agent_id for agent in self._builder.open_agents}
        is_open = stop.agent_id is None or stop.agent_id in agent_ids
        return is_this_turn and is_open and can_stop_reach(channel, self.root.scope)

    async def _keep_lease(self) -> None:
        lease_s = self._target.lease_s
        if lease_s is None:
            return
        try:
            while True:
                await asyncio.sleep(lease_s / RENEWALS_PER_LEASE)
                await self._target.renew()
        except TurnlogError as error:
            self._interrupt(error)

    def _interrupt(self, error: TurnlogError) -> None:
        """Cancel the block. Its end raises this error in place of the cancellation."""
        if self._interruption is None and self._body is not None:
            self._interruption = error
            self._body.cancel()

    # content

    async def text(self, piece: str, *, agent: RuntimeAgent | None = None) -> None:
        """Add to the text that the model says. Pieces of one message are joined."""
        await self._output.report(self._builder.text, agent or self.root, piece)

    async def think(self, piece: str, *, agent: RuntimeAgent | None = None) -> None:
        await self._output.report(self._builder.think, agent or self.root, piece)

    async def complete_message(
        self,
        usage: Usage | None = None,
        *,
        model: str | None = None,
        duration_ms: int | None = None,
        agent: RuntimeAgent | None = None,
    ) -> None:
        """End the message of the model, with the tokens of this completion alone."""

        def feed() -> None:
            self._builder.complete_message(agent or self.root, usage, model, duration_ms=duration_ms)

        await self._output.report(feed)

    async def retract_message(self, reason: str = "retry", *, agent: RuntimeAgent | None = None) -> None:
        """Take back the last message: the model is asked again."""
        await self._output.report(self._builder.retract_message, agent or self.root, reason)

    # calls

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any] | str | None = None,
        *,
        call_id: str | None = None,
        agent: RuntimeAgent | None = None,
    ) -> str:
        """Record a call of a tool. Return its id."""
        key = call_id or new_id("call_")
        caller = agent or self.root

        def feed() -> None:
            self._builder.call(
                caller, tool, args if args is None or isinstance(args, str) else dict(args), key
            )

        await self._output.report(feed)
        return key

    async def progress(self, call_id: str, text: str, *, agent: RuntimeAgent | None = None) -> None:
        await self._output.report(self._builder.progress, agent or self.root, call_id, text)

    async def result(self, call_id: str, value: Any = None, *, agent: RuntimeAgent | None = None) -> None:
        """Answer a call with any JSON value. The first answer counts."""
        await self._output.report(self._builder.result, agent or self.root, call_id, value)

    async def fail(
        self,
        call_id: str,
        message: str,
        *,
        code: str = "EXECUTION_ERROR",
        agent: RuntimeAgent | None = None,
    ) -> None:
        """Answer a call with an error."""
        await self._output.report(self._builder.fail, agent or self.root, call_id, code, message)

    # agents

    @asynccontextmanager
    async def child(
        self,
        name: str,
        *,
        call_id: str | None = None,
        model: str | None = None,
        prompt: str | None = None,
        parent: RuntimeAgent | None = None,
    ) -> AsyncIterator[RuntimeAgent]:
        """Record an agent inside another, which the call `call_id` started, while the block runs."""
        started: list[RuntimeAgent] = []
        info = AgentInfo(name, model, prompt=prompt, source_id=new_id("agt_"))

        def start() -> None:
            started.append(self._builder.start_child(parent or self.root, call_id, info))

        await self._output.report(start)
        if not started:
            raise RecordingLost("the recording has ended")
        [agent] = started
        try:
            yield agent
        except asyncio.CancelledError:
            raise  # the end of the turn closes it
        except BaseException:
            await self._output.report(self._builder.end, agent, "error")
            raise
        await self._output.report(self._builder.end, agent)

    def finish(self, result: str | None = None, reason: StopReason = "end_turn") -> None:
        """Say how the turn ends when the block ends. Without a `result` it is the last text."""
        self._end = Finished(result=result, reason=reason)

    def _set_end(self, end: Finished) -> None:
        self._end = end

    # questions

    async def ask_approval(
        self,
        call_id: str,
        *,
        risk: str = "write",
        reason: str | None = None,
        roles: tuple[str, ...] = (),
        agent: RuntimeAgent | None = None,
    ) -> bool:
        """Ask a person to approve an open call, and wait. A call that is denied has its result already."""
        caller = agent or self.root

        def ask() -> None:
            self._builder.request_approval(caller, call_id, risk, reason, None, roles)

        answers = await self._wait_for_answers(self._output, [Question(caller, call_id)], [ask])
        return isinstance(answers[caller.agent_id, call_id], Approved)

    async def ask_page(
        self,
        call_id: str,
        *,
        roles: tuple[str, ...] = (),
        agent: RuntimeAgent | None = None,
    ) -> Any:
        """Let the page answer an open call, and wait. Raise `CallerError` if a person refused.

        The answer is the result of the call.
        """
        caller = agent or self.root

        def ask() -> None:
            self._builder.await_page(caller, [call_id], roles)

        answers = await self._wait_for_answers(self._output, [Question(caller, call_id, True)], [ask])
        answer = answers[caller.agent_id, call_id]
        if isinstance(answer, Denied):
            raise CallerError(f"the call was not answered: {answer.reason}")
        return answer.value if isinstance(answer, Returned) else None

    async def _ask(self, output: PartOutput, questions: Sequence[Question]) -> Mapping[CallKey, Answer]:
        """Ask for a framework that waits inside its run."""
        builder = self._builder
        asks = []
        for question in questions:
            if question.is_for_page:
                asks.append(lambda q=question: builder.await_page(q.agent, [q.call_id], (), q.args))
            else:
                asks.append(
                    lambda q=question: builder.request_approval(q.agent, q.call_id, "write", q.reason)
                )
        return await self._wait_for_answers(output, questions, asks)

    async def _wait_for_answers(
        self, output: PartOutput, questions: Sequence[Question], asks: Sequence[Any]
    ) -> dict[CallKey, Answer]:
        for question in questions:
            builder_has_call = question.agent.owns_open_call(question.call_id)
            is_streaming = question.agent.message is not None and question.agent.message.is_open
            if not builder_has_call and not is_streaming:
                raise CallerError(f"expected an open call, got {question.call_id}")

        def ask_all() -> None:
            for ask in asks:
                ask()

        await output.report(ask_all)
        keys = [(question.agent.agent_id, question.call_id) for question in questions]
        while any(key not in self._answers for key in keys):
            await self._answered.wait()
        answers = {key: self._answers[key] for key in keys}

        def settle() -> None:
            for question, key in zip(questions, keys, strict=True):
                if key in self._results_in_log:
                    self._builder.note_result(question.agent, question.call_id)
            deny_calls(output, answers)

        await output.report(settle)
        return answers

    # frameworks

    def pydantic_ai(self) -> Any:
        """Return a capability for `agent.run(..., capabilities=[turn.pydantic_ai()])`.

        Approvals and deferred calls of the run are asked here, and wait in this process.
        """
        from turnlog.adapters.frameworks import PYDANTIC_AI

        PYDANTIC_AI.load()
        from turnlog.recording.pydantic_ai_capability import TurnCapability

        return TurnCapability(self._output)

    def langgraph(
        self, graph: Any, graph_input: Any, config: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Run a compiled graph of LangGraph, and yield the parts of its stream (`astream`, version 2).

        Interrupts end the stream, as they do in LangGraph; `ask_approval` and `ask_page` ask people.
        """
        from turnlog.adapters.frameworks import LANGGRAPH

        LANGGRAPH.load()
        from turnlog.recording.langgraph_stream import record_stream

        return record_stream(self._output, graph, graph_input, config, options)

    def claude_sdk(self) -> "ClaudeSdkRecorder":
        """Return what records a turn of the Claude Agent SDK.

        `async for message in recorder.watch(query(prompt=..., options=options))` records the messages, and
        `ClaudeAgentOptions(can_use_tool=recorder.can_use_tool)` asks people for permissions.
        """
        from turnlog.adapters.frameworks import CLAUDE_SDK

        CLAUDE_SDK.load()
        from turnlog.recording.claude_sdk_recorder import ClaudeSdkRecorder

        return ClaudeSdkRecorder(self._output, self._set_end)

    def openai_agents(self) -> Any:
        """Return hooks for `Runner.run(agent, "Hi", hooks=turn.openai_agents())`.

        A run with interruptions goes on with `await hooks.answer(result)`: people are asked, and it returns
        the state for the next `Runner.run`.
        """
        from turnlog.adapters.frameworks import OPENAI_AGENTS

        OPENAI_AGENTS.load()
        from turnlog.recording.openai_agents_hooks import TurnHooks

        return TurnHooks(self._output)


def is_closing_answer(entry: Entry) -> bool:
    """Return whether the server answered a call: a message came in place of the answer, or it expired."""
    payload = entry.payload
    if isinstance(payload, ApprovalDecision):
        return payload.decision == "expired"
    is_cancelled = isinstance(payload, ToolResult) and payload.error is not None
    return is_cancelled and entry.origin == "system"
