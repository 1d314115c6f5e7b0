"""The runtime of a session that an agent of another framework answers (docs/protocol.md 13).

One task runs one part of a turn. A part that ends with questions stores a checkpoint and the questions in one
append, and no task is left: the agents wait in the log, over restarts and on any node. When all questions are
answered, or a message arrives instead, the next part begins from the checkpoint. Before that `seen` of the
lease is stored, so no other owner acts on the same answers again. Foreign code cannot be replayed: a part
that was running when its process ended is closed. What is open is closed from the log, never from memory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from math import isinf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from turnlog.adapters.foreign_code import PartTask, run_foreign_code
from turnlog.adapters.part_files import read_part_files
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import (
    AgentRunner,
    Answer,
    CallKey,
    Denied,
    Finished,
    Part,
    PartOffer,
    Paused,
    Question,
    UnreadableState,
    WorkerLost,
)
from turnlog.adapters.stored_states import ReadableState, StoredStates
from turnlog.adapters.turn_inputs import AnsweredCall, TurnInputs
from turnlog.agents.runtime.agent_runtime import CRASH_MESSAGE, SHUTDOWN_MESSAGE, STOPPED_MESSAGE
from turnlog.agents.runtime.approval_timers import ApprovalTimers, next_expiry_ms
from turnlog.agents.runtime.session_runtime import OnCrash
from turnlog.agents.runtime.turn_timeout import Trace, running_turns, timeout_events
from turnlog.agents.runtime.user_input import CANCELLED_BY_MESSAGE
from turnlog.errors import CallerError, Fenced, SessionClosed, StoreError, TurnlogError
from turnlog.events import (
    AgentEnd,
    ApprovalRequest,
    Envelope,
    EventDraft,
    Payload,
    Scope,
    SessionError,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Vocabulary,
)
from turnlog.events.envelope import format_timestamp
from turnlog.events.ui import Stop
from turnlog.ids import new_id, now_ms
from turnlog.parse import AgentEventBuilder, RuntimeAgent
from turnlog.parse.reply import tag_parser_factory
from turnlog.state.closing import build_closing_events, closing_id
from turnlog.state.tree import Invocation, QueuedTurn, can_stop_reach, restrict_to_turns

if TYPE_CHECKING:
    from turnlog.adapters.foreign_agent import ToolPolicy
    from turnlog.agents.runtime.session_runner import SessionRunner

log = logging.getLogger("turnlog.agents")

STOP_GRACE_S = 5.0  # for foreign code to end after it was cancelled; a tool in a thread may never end
CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
AGENT_FAILED = "agent_failed"
WORKER_LOST = "worker_lost"
WAITING_FOR_WORKER = "waiting_for_worker"

RunPart = Callable[[AgentRunner], Awaitable[None]]


class WaitingPart(NamedTuple):
    """A part that no runner has taken yet. `answer_seq` is that of the last answer that it goes on from."""

    task: asyncio.Task[None]
    answer_seq: int | None


class RunnerSource(Protocol):
    """An agent of this process (`ForeignAgent`), or one that workers run (`RemoteAgent`)."""

    @property
    def name(self) -> str: ...

    @property
    def policies(self) -> Mapping[str, "ToolPolicy"]: ...

    def policy_of(self, agent: RuntimeAgent, call_id: str) -> "ToolPolicy":
        """Return the policy of the tool that a call uses."""
        ...

    def use_runner(self, offer: PartOffer) -> AbstractAsyncContextManager[AgentRunner]:
        """Return the runner of one part, as soon as there is one. It is used until the block ends."""
        ...


class ForeignRuntime:
    """Runs the parts of one session's turns."""

    def __init__(
        self, host: "SessionRunner", definition: RunnerSource, vocabulary: Vocabulary | None
    ) -> None:
        self._host = host
        self._definition = definition
        self._tree = host.tree
        self._make_text_parser = tag_parser_factory(vocabulary)
        self._inputs = TurnInputs(host.tree)
        self._states = StoredStates(host.log, host.session_id)
        self._approval_timers = ApprovalTimers(host)
        self._running: set[str] = set()  # turns whose part has a task
        self._waiting: dict[str, WaitingPart] = {}  # those of them whose part has no runner yet
        self._ending: set[Trace] = set()  # turns that are being stopped
        self._is_closing = False
        self._is_handing_over = False

    # folding

    def inspect(self, envelope: Envelope, payload: Payload | UnknownPayload) -> AnsweredCall:
        return self._inputs.inspect(envelope, payload)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload, context: AnsweredCall) -> None:
        self._inputs.apply(envelope, payload, context)
        self._states.apply(envelope, payload)
        self._approval_timers.apply(envelope, payload)

    @property
    def running_turns(self) -> set[Trace]:
        return running_turns(self._tree) - self._waiting.keys()

    @property
    def is_quiet(self) -> bool:
        return True  # what runs has a task, and what waits is in the log

    @property
    def wake_at_ms(self) -> int | None:
        return next_expiry_ms(self._tree)

    # after another owner, and before the next

    async def close_interrupted(self, on_crash: OnCrash) -> None:
        await self._append_stops()
        acted_seq = self._host.lease.seen

        def closings() -> list[EventDraft]:
            return self._crash_events(CRASH_MESSAGE, lambda team: last_answer_seq(team) > acted_seq)

        await self._host.append_closings(closings)

    def _crash_events(
        self, message: str, is_untouched: Callable[[Sequence[Invocation]], bool]
    ) -> list[EventDraft]:
        """Close what runs. Paused teams stay open, also those with answers that no owner has acted on."""
        kept = self._tree.paused_agents()
        for team in self._tree.paused_teams().values():
            if is_untouched(team):
                kept.update(invocation.agent_id for invocation in team)
        # an agent that waits without a checkpoint waited inside the process
        return build_closing_events(self._tree, "error", message, keep_waiting=False, kept_agents=kept)

    async def _append_stops(self) -> None:
        """Close the turns that members have stopped while no runner followed the log."""
        traces = self._tree.traces_to_stop
        if traces:
            await self._host.append_closings(lambda: self._cancel_events(traces))

    def _cancel_events(self, traces: Collection[Trace]) -> list[EventDraft]:
        stopped_tree = restrict_to_turns(self._tree, traces)
        return build_closing_events(stopped_tree, "cancelled", STOPPED_MESSAGE, keep_waiting=False)

    async def resume(self) -> None:
        # earlier owners have dropped these, except perhaps the last one, which pruning finds
        self._states.take_superseded()
        # a stop may have arrived while the runner was being opened
        await self._append_stops()
        for invocation in self._tree.open.values():
            for call in invocation.calls.values():
                if call.approval_request is not None:
                    self._approval_timers.start(invocation.agent_id, call.approval_request)
        await self._advance()

    async def stop(self, on_crash: OnCrash) -> None:
        self._is_closing = True
        interrupted = self._running - self._waiting.keys()
        await self._host.cancel_tasks()
        await self._host.replay_to_head()
        answer_seqs = [part.answer_seq for part in self._waiting.values() if part.answer_seq is not None]
        self._host.first_unacted_seq = min(answer_seqs, default=None)

        def closings() -> list[EventDraft]:
            return self._crash_events(
                SHUTDOWN_MESSAGE, lambda team: team[0].scope.trace_id not in interrupted
            )

        with suppress(SessionClosed):  # a closed session accepts no more events
            await self._host.append_closings(closings)

    def hand_over(self) -> None:
        # A part that runs is finished here: foreign code cannot be continued in the middle.
        self._is_handing_over = True
        for part in self._waiting.values():
            part.task.cancel()

    @property
    def is_between_steps(self) -> bool:
        return self._host.has_processed_writes and not self._host.has_tasks_beside(frozenset())

    def abandon(self) -> None:
        self._is_closing = True
        self._approval_timers.cancel_all()

    # reacting

    async def react(
        self, envelope: Envelope, payload: Payload | UnknownPayload, context: AnsweredCall
    ) -> None:
        if isinstance(payload, UiCommand) and isinstance(payload.command, Stop):
            if self._tree.is_stop_applicable(payload.command, envelope.channel):
                traces = self._turns_to_stop(envelope.channel)
                await self._end_turns(traces, lambda: self._cancel_events(traces))
        elif isinstance(payload, ApprovalRequest):
            self._approval_timers.start(envelope.agent_id or "", payload)

    def open_turn(self, message: UiMessage, scope: Scope) -> list[EventDraft]:
        return []  # the agent of the framework starts in its part

    async def withdraw_turn(self, trace: Trace) -> None:
        pass

    async def on_page_end(self) -> None:
        names = self._states.take_superseded()
        if names:
            self._host.spawn(self._states.drop(names), None)
        await self._advance()

    def _turns_to_stop(self, channel: str | None) -> set[Trace]:
        traces = self._tree.traces_to_stop
        for trace in self._running:
            queued = self._tree.queued_turns.get(trace)
            if queued is not None and can_stop_reach(channel, queued.scope):
                traces.add(trace)
        return traces

    async def end_timed_out(self, trace: Trace) -> None:
        limit_s = self._host.timers.limit_s
        await self._end_turns({trace}, lambda: timeout_events(self._tree, trace, limit_s))

    async def _end_turns(self, traces: Collection[Trace], closings: Callable[[], list[EventDraft]]) -> None:
        ending = set(traces)
        self._ending |= ending
        await self._host.cancel_tasks(ending)
        await self._host.read_to_head(ending)
        await self._host.append_closings(closings, lambda: self._host.read_to_head(ending))
        self._ending -= ending
        await self._advance()

    # starting parts

    async def _advance(self) -> None:
        """Start the parts that can run now: of paused turns with all answers, and of the next queued turn."""
        last_seq = await self._host.log.last_seq(self._host.session_id)
        # a batch may be cut in two pages: answers and the message that cancelled their calls belong together
        is_ending = self._is_closing or self._is_handing_over
        if is_ending or self._tree.last_seq != last_seq:
            return

        paused_agents = self._tree.paused_agents()
        for agent_id, team in self._tree.paused_teams().items():
            trace = team[0].scope.trace_id or ""
            is_ready = agent_id not in paused_agents and trace not in self._running
            if is_ready and trace not in self._ending:
                continue_turn = partial(self._continue_turn, trace, team)
                self._spawn_part(team[0].scope, continue_turn, last_answer_seq(team))
        queued = self._next_turn()
        if queued is not None:
            self._spawn_part(queued.scope, partial(self._begin_turn, queued))

    def _next_turn(self) -> QueuedTurn | None:
        """Return the first queued turn if nothing runs. A channel whose agent waits is skipped."""
        if self._running or not self._tree.is_all_waiting:
            return None
        waiting_channels = {invocation.scope.channel for invocation in self._tree.open.values()}
        for turn in self._tree.queued_turns.values():
            if turn.scope.channel not in waiting_channels:
                return turn
        return None

    def _spawn_part(self, scope: Scope, run_part: RunPart, answer_seq: int | None = None) -> None:
        trace = scope.trace_id or ""
        self._running.add(trace)
        task = self._host.spawn(self._run_and_advance(scope, run_part, answer_seq), trace)
        self._waiting[trace] = WaitingPart(task, answer_seq)

    async def _run_and_advance(self, scope: Scope, run_part: RunPart, answer_seq: int | None) -> None:
        trace = scope.trace_id or ""
        try:
            async with self._definition.use_runner(self._make_offer(scope, answer_seq)) as runner:
                self._waiting.pop(trace, None)
                self._host.timers.update(self.running_turns)
                if answer_seq is not None:
                    # from here on another owner must not act on these answers again
                    await self._host.save_seen()
                await self._host.confirm_ownership()  # what foreign code does cannot be taken back
                await run_part(runner)
        finally:
            self._running.discard(trace)
            # the next owner offers a part again that this one has given up
            if not self._is_closing and not self._is_handing_over:
                self._waiting.pop(trace, None)
        # an answer may have arrived before this task ended
        async with self._host.lock:
            await self._advance()

    def _make_offer(self, scope: Scope, answer_seq: int | None) -> PartOffer:
        log = self._host.log

        async def has_agent(agent_id: str) -> bool:
            return bool(await log.agent_starts(agent_id))

        return PartOffer(
            self._host.session_id,
            scope.channel,
            partial(self._states.load_checkpoint, scope.channel),
            has_agent,
            partial(self._note_waiting, scope, answer_seq),
        )

    async def _note_waiting(self, scope: Scope, answer_seq: int | None) -> None:
        """Say that no worker has taken a part yet. It is no part of a turn, which has not begun."""
        message = f"No worker has taken the turn of {self._definition.name} yet. It begins when one does."
        problem = SessionError(code=WAITING_FOR_WORKER, message=message, retriable=True)
        # derived: each owner that waits for the same part writes the same event
        event_id = closing_id(WAITING_FOR_WORKER, f"{scope.trace_id}:{answer_seq}")
        await self._host.append([EventDraft(problem, Scope(channel=scope.channel), "system", event_id)])

    async def _begin_turn(self, turn: QueuedTurn, runner: AgentRunner) -> None:
        trace = turn.scope.trace_id or ""
        message = self._inputs.take_message(trace) or ""
        parts = self._inputs.take_files(trace)
        files = await read_part_files(self._host.log, parts)
        channel = turn.scope.channel
        stored = await self._states.load_state(runner, channel)
        output = self._make_output()
        try:
            info = runner.describe_agent(stored.state)
        except UnreadableState as error:
            stored = ReadableState(None, f"{error}.")
            info = runner.describe_agent(None)
        conversation_id = self._tree.conversations.get(channel or "")
        if conversation_id is None and isinstance(turn.trigger, UiMessage):
            conversation_id = turn.trigger.conversation_id
        info = info._replace(prompt=message, content=tuple(parts), conversation_id=conversation_id)
        root = output.builder.start(info, trace, channel)
        if stored.problem is not None:
            output.builder.error(root, CHECKPOINT_UNREADABLE, f"{stored.problem} The agent starts afresh.")
        part = Part(
            self._host.session_id,
            channel,
            self._tree.actors.get(trace),
            message,
            state=stored.state,
            ended_calls=self._inputs.ended_calls_of(channel),
            tools=self._tree.client_tools.get(trace, ()),
            files=files,
        )
        await self._run_part(runner, part, output)

    async def _continue_turn(self, trace: str, team: Sequence[Invocation], runner: AgentRunner) -> None:
        scope = team[0].scope
        message = self._inputs.take_message(trace)
        files = await read_part_files(self._host.log, self._inputs.take_files(trace))
        answers = self._inputs.answers_of(trace)
        output = self._make_output()
        for invocation in team:
            output.builder.restore(
                invocation.start,
                invocation.scope,
                [call.call for call in invocation.calls.values()],
                self._inputs.answered_calls.get(invocation.agent_id, ()),
                invocation.totals,
            )
        stored = await self._states.load_state(runner, scope.channel)
        if stored.state is None:
            await self._fail_unreadable(runner, output, stored.problem or "")
            return
        if message is not None:
            cancel_held_calls(output)
        else:
            deny_calls(output, answers)
        actor = self._tree.actors.get(trace)
        part = Part(
            self._host.session_id,
            scope.channel,
            actor,
            message,
            answers,
            stored.state,
            tools=self._tree.client_tools.get(trace, ()),
            files=files,
        )
        await self._run_part(runner, part, output)

    def _make_output(self) -> PartOutput:
        builder = AgentEventBuilder(new_id, self._make_text_parser)
        return PartOutput(builder, self._append, self._ask_inside)

    async def _append(self, items: Sequence[EventDraft]) -> None:
        # rules may react to events of the application (which have no TYPE) and to the ends of agents
        if any(not item.payload.TYPE or isinstance(item.payload, AgentEnd) for item in items):
            await self._host.append_with_rules(items)
        else:
            await self._host.append(items)

    # running a part

    async def _run_part(self, runner: AgentRunner, part: Part, output: PartOutput) -> None:
        try:
            await output.flush()
            outcome = await self._run_foreign_code(runner, part, output)
            while (message := await self._take_late_message(output)) is not None:
                output.builder.complete_message(output.root)
                cancel_held_calls(output)
                parts = self._inputs.take_files(output.root.scope.trace_id or "")
                files = await read_part_files(self._host.log, parts)
                part = part._replace(message=message, answers={}, state=outcome.state, files=files)
                outcome = add_earlier_cost(await self._run_foreign_code(runner, part, output), outcome)
            await self._append_outcome(runner, output, outcome)
        except asyncio.CancelledError:
            await self._save_cancelled_state(runner, output)
            raise
        except (SessionClosed, Fenced, StoreError):
            raise  # the session accepts no events of this owner, not even the failure of this agent
        except UnreadableState as error:
            await self._fail_unreadable(runner, output, f"{error}.")
        except WorkerLost as error:
            await self._append_failure(runner, output, WORKER_LOST, str(error))
        except Exception as error:  # an agent is foreign code: it may raise anything
            log.warning("the agent %s failed", runner.name, exc_info=error)
            message = self._host.options.describe(runner.name, error)
            # the log may have refused an event of this part: then the builder is ahead of the log
            if isinstance(error, CallerError):
                await output.close()
                await self._close_refused_turn(output.root.scope, message)
            else:
                await self._append_failure(runner, output, AGENT_FAILED, message)
        finally:
            await output.close()

    async def _run_foreign_code(
        self, runner: AgentRunner, part: Part, output: PartOutput
    ) -> Finished | Paused:
        return await run_foreign_code(runner, part, output, STOP_GRACE_S, self._note_hung)

    def _note_hung(self, runner: AgentRunner, work: PartTask) -> None:
        log.error("the agent %s does not stop", runner.name)
        self._host.options.hung_tools.add(work)

    async def _take_late_message(self, output: PartOutput) -> str | None:
        """Return a message that came in place of an answer while the part ran; None if there is none."""
        if not output.has_asked:
            return None
        await self._host.wait_for_head()
        return self._inputs.take_message(output.root.scope.trace_id or "")

    async def _ask_inside(
        self, output: PartOutput, questions: Sequence[Question]
    ) -> Mapping[CallKey, Answer]:
        """Ask people while a part runs, and wait for their answers."""
        trace = output.root.scope.trace_id or ""
        await self._host.wait_for_head()
        by_key = {(question.agent.agent_id, question.call_id): question for question in questions}
        keys = by_key.keys()
        if not self._inputs.has_message(trace):
            # A runner may ask about a call again. People get one question, and every ask gets its answer.
            known_keys = output.open_questions | self._inputs.answers_of(trace).keys()
            new_keys = [key for key in by_key if key not in known_keys]
            if new_keys:
                self._ask(output, [by_key[key] for key in new_keys])
                output.open_questions.update(new_keys)
                await output.flush()
        while not keys <= self._inputs.answers_of(trace).keys() and not self._inputs.has_message(trace):
            await self._host.wait_for_seq(self._tree.last_seq + 1)

        output.open_questions -= keys
        # other questions of the turn may be asked at the same time: each answers its own calls
        stored = self._inputs.answers_of(trace)
        answers = {key: stored[key] for key in keys & stored.keys()}
        for question in questions:
            key = (question.agent.agent_id, question.call_id)
            # a message came in place of an answer before this question was in the log: no one will answer it
            if key not in answers:
                output.builder.fail(question.agent, question.call_id, "CANCELLED", CANCELLED_BY_MESSAGE)
                answers[key] = Denied(CANCELLED_BY_MESSAGE)
        for question in questions:
            # the page's result, or a message in place of a decision, has answered the call in the log
            if question.call_id in self._inputs.answered_calls.get(question.agent.agent_id, ()):
                output.builder.note_result(question.agent, question.call_id)
        deny_calls(output, answers)
        await output.flush()
        return answers

    async def _append_outcome(
        self, runner: AgentRunner, output: PartOutput, outcome: Finished | Paused
    ) -> None:
        """Append the last events of a part, with its checkpoint and questions, in one batch."""
        items = await output.take_rest()
        builder = output.builder
        root = output.root
        if outcome.state is not None:
            blob = await self._states.store(outcome.state)
            # before the questions: who reads the last of them has the whole batch
            is_paused = isinstance(outcome, Paused)
            size_bytes = len(outcome.state)
            builder.checkpoint(root, runner.source, runner.version, blob, size_bytes, paused=is_paused)
        if isinstance(outcome, Paused):
            self._ask(output, outcome.questions)
        if isinstance(outcome, Finished):
            builder.end(root, outcome.reason, outcome.result, outcome.cost)
            builder.flush("cancelled")  # agents that the framework left open
        await self._append([*items, *builder.take_output()])

    def _ask(self, output: PartOutput, questions: Sequence[Question]) -> None:
        """Add the questions. Raise `CallerError` if none can be answered: the turn would never end."""
        is_answerable = False
        for question in questions:
            policy = self._definition.policy_of(question.agent, question.call_id)
            if question.is_for_page:
                output.builder.await_page(question.agent, [question.call_id], policy.roles, question.args)
            else:
                expires_at = None
                if not isinf(policy.expires_s):
                    expires_at = format_timestamp(now_ms() + round(policy.expires_s * 1000))
                output.builder.request_approval(
                    question.agent, question.call_id, policy.risk, question.reason, expires_at, policy.roles
                )
            is_answerable |= question.agent.owns_open_call(question.call_id)
        if not is_answerable:
            raise CallerError(f"{self._definition.name} waits for an answer to a call that is not open")

    async def _append_failure(self, runner: AgentRunner, output: PartOutput, code: str, message: str) -> None:
        items: list[EventDraft] = []
        with suppress(TurnlogError):
            items += await output.take_rest()
        output.builder.error(output.root, code, message)
        await self._append([*items, *await self._end_failed(runner, output, output.saved_state)])

    async def _end_failed(
        self, runner: AgentRunner, output: PartOutput, state: bytes | None
    ) -> list[EventDraft]:
        """End everything with an error.

        The checkpoint comes first: the next turn tells the model what became of the calls after it.
        """
        scope = output.root.scope
        items = output.builder.take_output()
        if state is not None:
            items.append(EventDraft(await self._states.make_checkpoint(runner, state), scope, "system"))
        output.builder.flush("error")
        return [*items, *output.builder.take_output()]

    async def _close_refused_turn(self, scope: Scope, message: str) -> None:
        problem = EventDraft(
            SessionError(code=AGENT_FAILED, message=message), scope, "system", new_id("evt_")
        )

        def closings() -> list[EventDraft]:
            turn_tree = restrict_to_turns(self._tree, {scope.trace_id})
            if not turn_tree.open:
                return []
            return [problem, *build_closing_events(turn_tree, "error", message, keep_waiting=False)]

        async with self._host.lock:
            await self._host.read_to_head()
            await self._host.append_closings(closings, self._host.read_to_head)

    async def _fail_unreadable(self, runner: AgentRunner, output: PartOutput, problem: str) -> None:
        """End a turn whose state is lost. An empty checkpoint lets the next turn start afresh."""
        message = f"{problem} The turn cannot go on; the next one starts afresh."
        output.builder.error(output.root, CHECKPOINT_UNREADABLE, message)
        items = await output.take_rest()
        await self._append([*items, *await self._end_failed(runner, output, b"")])

    async def _save_cancelled_state(self, runner: AgentRunner, output: PartOutput) -> None:
        """Store what the framework left when it was cancelled: the next turn remembers the stopped one."""
        root = next((agent for agent in output.builder.open_agents if agent.caller is None), None)
        await output.close()
        if output.saved_state is None or root is None or self._host.error is not None:
            return
        with suppress(TurnlogError):  # the turn is closed in any case
            checkpoint = await self._states.make_checkpoint(runner, output.saved_state)
            await self._host.append([EventDraft(checkpoint, root.scope, "system")])


def add_earlier_cost(outcome: Finished | Paused, earlier: Finished | Paused) -> Finished | Paused:
    """Return the outcome of a run with the cost of the one before it: both are of the same agent."""
    if isinstance(outcome, Finished) and isinstance(earlier, Finished) and earlier.cost is not None:
        cost = earlier.cost if outcome.cost is None else earlier.cost + outcome.cost
        return outcome._replace(cost=cost)
    return outcome


def cancel_held_calls(output: PartOutput) -> None:
    """Answer everything that a paused turn held: a person went on with a message."""
    root = output.root
    for agent in reversed(output.builder.open_agents):
        if agent is not root:
            output.builder.end(agent, "cancelled")
    for call_id in list(root.open_calls):
        output.builder.fail(root, call_id, "CANCELLED", CANCELLED_BY_MESSAGE)


def deny_calls(output: PartOutput, answers: Mapping[CallKey, Answer]) -> None:
    """Answer the calls that a person denied. What the framework reports of them later counts no more."""
    for (agent_id, call_id), answer in answers.items():
        agent = output.find_agent(agent_id)
        if agent is not None and isinstance(answer, Denied) and agent.owns_open_call(call_id):
            output.builder.fail(agent, call_id, "DENIED", answer.reason)


def last_answer_seq(team: Sequence[Invocation]) -> int:
    return max(invocation.answer_seq for invocation in team)


def find_tool_name(agent: RuntimeAgent, call_id: str) -> str | None:
    call = agent.open_calls.get(call_id)
    return call.tool if call is not None else None
