"""A part that a worker in another process runs, as a runner of the server (docs/protocol.md 8.11).

The runtime of the session offers it, and runs it like any runner. The worker's requests come in through
`take`, `begin` and `report`. Another worker, and a request after the end of the part, gets `Fenced`. A part
whose holder is silent for `lease_s` ends with `WorkerLost`; one that has not begun is offered again. Reports
are applied in the order of their numbers, each once.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from turnlog.adapters.part_files import PartFile
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.remote.part_messages import (
    AnswerMessage,
    OutcomeMessage,
    PartMessage,
    QuestionMessage,
    encode_answers,
    encode_part,
)
from turnlog.adapters.remote.reports import AnyReport, find_new_agents
from turnlog.adapters.runner import (
    Finished,
    Part,
    PartOffer,
    Paused,
    Question,
    StoredCheckpoint,
    UnreadableState,
    WorkerLost,
)
from turnlog.errors import (
    Conflict,
    Fenced,
    InvalidEvent,
    LimitReached,
    NotFound,
    TurnlogError,
    Unavailable,
    quote,
)
from turnlog.ids import new_id
from turnlog.parse import AgentInfo, RuntimeAgent

STOP_WAIT_S = 4.0  # for a worker to cancel its agent; the runtime waits a second longer for this part
FILE_PIECE_BYTES = 4 << 20  # of one answer; a client reads up to 16 MiB, and base64 makes a third more
MAX_ASKS = 1000  # of a part: each is a task until it is answered, and its answers are kept
NOT_HELD = "this part has ended, or another worker has it"


class WorkerKey(NamedTuple):
    """A worker: two principals never are the same one, whatever names their processes have."""

    principal: str
    worker: str


class WorkerIntroduction(NamedTuple):
    """What a worker says before it runs a part: whether it can read the state, and which agent answers.

    `agent` is None if the state could not be read, because of `problem`.
    """

    can_read: bool
    fresh_agent: AgentInfo
    agent: AgentInfo | None = None
    problem: str = ""


class ReportBatch(NamedTuple):
    """One request of the worker. `ask` is the number of questions that wait inside the part."""

    number: int
    reports: list[AnyReport]
    state: bytes | None = None
    ask: int | None = None
    questions: Sequence[QuestionMessage] = ()
    outcome: OutcomeMessage | None = None


class PartState(Enum):
    OFFERED = "offered"
    TAKEN = "taken"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class RemoteAgentFailed(Exception):
    """The agent of a worker has raised. The message is that of its exception."""


class RemotePart:
    """A part, from its offer to its end. `on_change` is called when a worker has something to do."""

    def __init__(self, offer: PartOffer, name: str, lease_s: float, on_change: Callable[[], None]) -> None:
        self.id = new_id("part_")
        self.name = name
        self.source = ""
        self.version = ""
        self.state = PartState.OFFERED
        self.holder: WorkerKey | None = None
        self.answers: dict[int, list[AnswerMessage]] = {}  # by the number of the questions
        self._offer = offer
        self._lease_s = lease_s
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._introduction: WorkerIntroduction | None = None
        self._begin_signal: asyncio.Future[None] = self._loop.create_future()
        self._next_part: asyncio.Future[PartMessage | None] = self._loop.create_future()
        self._outcome: asyncio.Future[OutcomeMessage] = self._loop.create_future()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._next_number = 0
        self._asks: set[asyncio.Task[None]] = set()
        self._ask_count = 0
        self._output: PartOutput | None = None
        self._agents: dict[str, RuntimeAgent] = {}
        self._files: Sequence[PartFile] = ()

    @property
    def session_id(self) -> str:
        return self._offer.session_id

    @property
    def channel(self) -> str | None:
        return self._offer.channel

    # the runtime's side

    async def wait_begun(self, notice_s: float) -> None:
        """Wait for a worker. After `notice_s` without one the session says that it waits."""
        done, _ = await asyncio.wait({self._begin_signal}, timeout=notice_s)
        if not done:
            if self.state is PartState.OFFERED:
                await self._offer.note_waiting()
            await self._begin_signal

    def can_read(self, version: str) -> bool:
        return self._introduction is not None and self._introduction.can_read

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        introduction = self._introduction
        assert introduction is not None, "no worker has begun the part"
        if state is None:
            return introduction.fresh_agent
        if introduction.agent is None:
            raise UnreadableState(introduction.problem or "the state could not be read")
        return introduction.agent

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        """Let the worker run the part. A second call passes it a message that came in place of an answer."""
        self._output = output
        self._agents = {agent.agent_id: agent for agent in output.builder.open_agents}
        self._files = part.files
        self._renew()
        self._next_part.set_result(encode_part(part, output.builder))
        try:
            outcome = await asyncio.shield(self._outcome)
        except asyncio.CancelledError:
            await self._stop_worker()
            raise
        finally:
            self._output = None
            self._files = ()
            for task in self._asks:
                task.cancel()
        self._outcome = self._loop.create_future()
        return self._read_outcome(outcome, output)

    def _read_outcome(self, outcome: OutcomeMessage, output: PartOutput) -> Finished | Paused:
        if outcome.kind == "finished":
            return Finished(outcome.state, outcome.result, outcome.reason, outcome.cost)
        if outcome.kind == "paused":
            return Paused(outcome.state or b"", self._find_questions(outcome.questions))
        if outcome.state is not None:
            output.save_state(outcome.state)
        if outcome.kind == "unreadable":
            raise UnreadableState(outcome.problem or "the state could not be read")
        raise RemoteAgentFailed(outcome.problem)

    async def _stop_worker(self) -> None:
        """Wait until the worker has ended its agent, and has sent the state that is left."""
        if self.state is PartState.RUNNING and not self._outcome.done():
            self.state = PartState.STOPPING
            self._on_change()
            await asyncio.wait({self._stopped}, timeout=STOP_WAIT_S)
        self.state = PartState.ENDED

    def release_stop(self) -> None:
        """Wait no longer for a worker to end its agent: the server answers no requests any more."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def end(self) -> None:
        """End the part: the runtime has what it needs, or has given up."""
        self.state = PartState.ENDED
        self._cancel_timer()
        if not self._next_part.done():
            self._next_part.set_result(None)
        for future in (self._begin_signal, self._outcome, self._stopped):
            future.cancel()
        self._on_change()

    # the worker's side

    async def take(self, worker: WorkerKey, source: str, version: str) -> StoredCheckpoint | None:
        """Give the part to a worker. Return the checkpoint that it goes on from."""
        if self.state is PartState.OFFERED:
            self.state = PartState.TAKEN
            self.holder = worker
            self.source = source
            self.version = version
        elif self.state is not PartState.TAKEN or self.holder != worker:
            raise Fenced(NOT_HELD)
        self._renew()
        return await self._offer.load_checkpoint()

    async def begin(self, worker: WorkerKey, introduction: WorkerIntroduction) -> PartMessage:
        """Let the runtime begin the turn, or its next part. Return what the worker has to run."""
        self._check_holder(worker)
        if self.state is PartState.TAKEN:
            self.state = PartState.RUNNING
            self._introduction = introduction
            self._begin_signal.set_result(None)
        self._renew()
        part = await asyncio.shield(self._next_part)
        if part is None:
            raise Fenced(NOT_HELD)
        return part

    def read_file(self, worker: WorkerKey, index: int, offset: int) -> bytes:
        """Return a piece of a file of the message; nothing behind its end."""
        self._check_holder(worker)
        self._renew()
        if index >= len(self._files):
            raise NotFound(f"expected one of {len(self._files)} files, got the number {index}")
        return self._files[index].data[offset : offset + FILE_PIECE_BYTES]

    async def report(self, worker: WorkerKey, batch: ReportBatch) -> PartMessage | None:
        """Apply what the agent did. After an outcome, return what the worker has to run next, or None."""
        # a request that is cut off must not leave half of its reports: the rest of it is applied all the same
        await asyncio.shield(asyncio.create_task(self._apply_in_order(worker, batch)))
        if batch.outcome is None or self.state is not PartState.RUNNING:
            return None
        return await asyncio.shield(self._next_part)

    async def _apply_in_order(self, worker: WorkerKey, batch: ReportBatch) -> None:
        async with self._lock:
            self._check_holder(worker)
            if batch.outcome is not None and batch.outcome.kind == "abandoned":
                self._abandon(batch.outcome)
                return
            if self.state is PartState.TAKEN:
                raise Conflict("expected begin before the first report", -1)
            self._renew()
            if batch.number > self._next_number:
                raise Conflict(f"expected the number {self._next_number}, got {batch.number}", -1)
            if batch.number < self._next_number:
                return  # it was applied, and the answer was lost
            if self.state is PartState.STOPPING:
                # what the agent did before it was cancelled counts; nothing is asked any more
                batch = batch._replace(ask=None, questions=(), outcome=None)
            await self._apply(batch)

    def _abandon(self, outcome: OutcomeMessage) -> None:
        """Let the worker give the part up, under any number: a request may have been cut off."""
        if outcome.state is not None and self._output is not None:
            self._output.save_state(outcome.state)
        if self.state is PartState.TAKEN:
            self._offer_again()
        elif self.state is PartState.STOPPING:
            self.release_stop()
        else:
            self._fail(WorkerLost("The worker that ran this turn was stopped."))

    async def _apply(self, batch: ReportBatch) -> None:
        output = self._output
        if output is None or self._outcome.done():
            raise Fenced(NOT_HELD)
        await self._check(batch)
        self._next_number += 1

        def feed() -> None:
            for report in batch.reports:
                report.apply(output.builder, self._agents)

        try:
            await output.report(feed)
        except Exception as error:
            # the log has refused the events: the runtime closes the turn
            self._fail(error)
            raise
        if batch.state is not None:
            output.save_state(batch.state)
        if batch.ask is not None:
            self._begin_ask(output, batch.ask, self._find_questions(batch.questions))
        if batch.outcome is not None and not self._outcome.done():
            self._cancel_timer()
            self._next_part = self._loop.create_future()
            self._outcome.set_result(batch.outcome)

    async def _check(self, batch: ReportBatch) -> None:
        """Raise `InvalidEvent` for a report or a question that is not about agents of this part.

        Raise `LimitReached` for one question too many.
        """
        if batch.ask is not None and self._ask_count == MAX_ASKS:
            raise LimitReached(f"expected at most {MAX_ASKS} asks in a part")
        new_agents = find_new_agents(batch.reports, self._agents)
        for agent_id, path in new_agents:
            if await self._offer.has_agent(agent_id):
                raise InvalidEvent("expected the id of a new agent", path)
        known = {*self._agents, *(agent_id for agent_id, _ in new_agents)}
        questions = list(batch.questions)
        if batch.outcome is not None:
            questions += batch.outcome.questions
            if batch.outcome.kind == "paused" and batch.outcome.state is None:
                raise InvalidEvent("expected the state of a paused part", "$.outcome.state")
        for question in questions:
            if question.agent_id not in known:
                problem = f"expected a question of an agent of this part, got {quote(question.agent_id)}"
                raise InvalidEvent(problem, "$.questions")

    def _find_questions(self, messages: Sequence[QuestionMessage]) -> list[Question]:
        return [
            Question(self._agents[item.agent_id], item.call_id, item.is_for_page, item.reason, item.args)
            for item in messages
        ]

    def _begin_ask(self, output: PartOutput, number: int, questions: Sequence[Question]) -> None:
        self._ask_count += 1
        task = asyncio.create_task(self._ask(output, number, questions))
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)

    async def _ask(self, output: PartOutput, number: int, questions: Sequence[Question]) -> None:
        try:
            answers = await output.ask(questions)
        except Unavailable:
            return  # the runner of the session is being stopped: it cancels this part
        except TurnlogError as error:
            self._fail(error)
            return
        self.answers[number] = encode_answers(answers)
        self._on_change()

    def _check_holder(self, worker: WorkerKey) -> None:
        if self.holder != worker or self.state in (PartState.OFFERED, PartState.ENDED):
            raise Fenced(NOT_HELD)

    # the lease

    def renew(self, worker: WorkerKey) -> None:
        if self.holder == worker and self.state is not PartState.ENDED:
            self._renew()

    def _renew(self) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(self._lease_s, self._expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self.state is PartState.TAKEN:
            self._offer_again()
        elif self.state is PartState.RUNNING:
            self._fail(WorkerLost(f"The worker that ran this turn was silent for {self._lease_s:g} s."))
        elif self.state is PartState.STOPPING:
            self.release_stop()

    def _offer_again(self) -> None:
        self.state = PartState.OFFERED
        self.holder = None
        self._cancel_timer()
        self._on_change()

    def _fail(self, error: Exception) -> None:
        if self.state is PartState.STOPPING:
            self.release_stop()
        elif not self._outcome.done():
            self.state = PartState.ENDED
            self._outcome.set_exception(error)
