"""A worker: runs the parts of an application's turns in this process: `server.serve("support", agent)`.

It asks the server what there is to do, and again when what it holds has changed. Requests are sent again
until the server answers. A part that is stopped, or that the server does not know any more, is cancelled.
When the worker itself is cancelled, it gives its parts up, and the server closes their turns.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from turnlog.adapters.foreign_code import PartTask, run_foreign_code
from turnlog.adapters.part_files import PartFile
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.remote.part_messages import (
    AnswerMessage,
    FileMessage,
    OutcomeMessage,
    PartMessage,
    decode_answers,
    encode_outcome,
    encode_questions,
    restore_team,
)
from turnlog.adapters.remote.reports import AgentMessage, ReportingBuilder, as_text, to_agent_message
from turnlog.adapters.runner import (
    AgentRunner,
    Answer,
    Approved,
    CallKey,
    Finished,
    Part,
    Paused,
    Question,
    UnreadableState,
)
from turnlog.agents.remote.server_client import ServerUnavailable
from turnlog.connection.json_requests import JsonRequests, ServerRefused
from turnlog.connection.server_target import now_s
from turnlog.errors import PeerError
from turnlog.events import EventDraft
from turnlog.ids import new_id, new_process_id

log = logging.getLogger("turnlog.connection")

MAX_REPORTS_PER_REQUEST = 500  # the server refuses more than 1,000
MIN_DELTA_INTERVAL_S = 0.05  # twenty requests a second are smooth to read
PARTS_AT_FULL_RATE = 4  # of one worker: more of them send less often, within the limits of the server
STOP_GRACE_S = 3.0  # for an agent to end after it was cancelled; the server waits for 4 s
MAX_PROBLEM_CHARS = 2000  # the server refuses more
GONE = 410


class AskAnswers(msgspec.Struct):
    part: str
    ask: int
    answers: list[AnswerMessage]


class OffersAnswer(msgspec.Struct):
    """The response of `/api/parts`."""

    offers: list[str]
    stopped: list[str]
    answers: list[AskAnswers]
    lease_s: float


class TakenCheckpoint(msgspec.Struct):
    source: str
    version: str
    state: bytes | None = None


class TakenPart(msgspec.Struct):
    """The response of `/api/parts/take`."""

    session_id: str
    channel: str | None = None
    checkpoint: TakenCheckpoint | None = None


class FilePiece(msgspec.Struct):
    """The response of `/api/parts/file`."""

    data: bytes


class ReportAnswer(msgspec.Struct):
    """The response of `/api/parts/report`."""

    lease_s: float
    next: PartMessage | None = None


class PartLost(PeerError):
    """The server has given the part up: its lease was over, or its turn has ended."""


class PartWorker:
    """Runs the parts of one application with one runner, at most `max_parts` at a time."""

    def __init__(self, requests: JsonRequests, app: str, runner: AgentRunner, max_parts: int) -> None:
        self._requests = requests
        self._identity = {"app": app, "worker": f"wrk-{new_process_id()}"}
        self._runner = runner
        self._max_parts = max_parts
        self._parts: dict[str, ServedPart] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also of parts that are being stopped
        self._has_changed = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Work until it is cancelled. Raise `ServerRefused` if the server does not accept this worker."""
        try:
            while True:
                try:
                    news = await self._poll()
                except ServerUnavailable as error:
                    log.warning("the server does not answer this worker: %s", error)
                    continue
                if self._failure is not None:
                    raise self._failure
                if news is not None:
                    self._apply(news)
        finally:
            await self._end_all()

    async def _poll(self) -> OffersAnswer | None:
        """Return what there is to do; None if the question has changed before the answer came."""
        self._has_changed.clear()
        holds = [{"part": part_id, "asks": list(part.asks)} for part_id, part in self._parts.items()]
        body = {"free": self._max_parts - len(self._parts), "holds": holds}
        polling = asyncio.create_task(self.post("/api/parts", body, OffersAnswer))
        changing = asyncio.create_task(self._has_changed.wait())
        try:
            await asyncio.wait({polling, changing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
            if not polling.done():
                polling.cancel()
                await asyncio.wait({polling})
        return None if polling.cancelled() else polling.result()

    def _apply(self, news: OffersAnswer) -> None:
        for part_id in news.stopped:
            part = self._parts.pop(part_id, None)
            if part is not None:
                part.stop()
        for answered in news.answers:
            if answered.part in self._parts:
                self._parts[answered.part].settle_ask(answered.ask, answered.answers)
        for part_id in news.offers:
            if part_id not in self._parts and len(self._parts) < self._max_parts:
                self._start(part_id)

    def _start(self, part_id: str) -> None:
        part = ServedPart(self, self._runner, part_id)
        self._parts[part_id] = part
        part.task.add_done_callback(lambda task: self._on_part_done(part_id, part, task))
        self._tasks.add(part.task)

    def _on_part_done(self, part_id: str, part: "ServedPart", task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._parts.get(part_id) is part:
            del self._parts[part_id]
        self.note_change()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PartLost):
            log.info("a part of %s is over: %s", self._identity["app"], error)
        elif error is not None:
            log.error("a part of %s could not be run: %s", self._identity["app"], error, exc_info=error)
            # the server would offer it again, and again: a worker that cannot begin a part is of no use
            if not part.has_begun:
                self._failure = error

    async def _end_all(self) -> None:
        for part in self._parts.values():
            part.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # for its parts

    def note_change(self) -> None:
        """Ask the server again: this worker holds other parts, or has other questions."""
        self._has_changed.set()

    @property
    def delta_interval_s(self) -> float:
        return MIN_DELTA_INTERVAL_S * max(1.0, len(self._parts) / PARTS_AT_FULL_RATE)

    async def post(self, path: str, fields: Mapping[str, Any], type_: type[Any]) -> Any:
        return await self._requests.post(path, {**self._identity, **fields}, type_)

    async def post_until_answered(self, path: str, fields: Mapping[str, Any], type_: type[Any]) -> Any:
        """Post as often as needed. Raise `PartLost` when the server has given the part up."""
        while True:
            try:
                return await self.post(path, fields, type_)
            except ServerUnavailable as error:
                log.warning("a part of %s waits for the server: %s", self._identity["app"], error)
            except ServerRefused as refusal:
                if refusal.status == GONE:
                    raise PartLost(refusal.problem) from None
                raise


class ServedPart:
    """One part in this process. `asks` are its questions that wait for answers, by number."""

    def __init__(self, worker: PartWorker, runner: AgentRunner, part_id: str) -> None:
        self._worker = worker
        self._runner = runner
        self._part_id = part_id
        self._number = 0
        self._ask_count = 0
        self._sent_at_s = 0.0
        self._sending = asyncio.Lock()
        self._session_id = ""
        self._channel: str | None = None
        self._state: bytes | None = None
        self.has_begun = False
        self._output: PartOutput | None = None
        self._builder: ReportingBuilder | None = None
        self.asks: dict[int, asyncio.Future[dict[CallKey, Answer]]] = {}
        self.task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self.task.cancel()

    def settle_ask(self, number: int, answers: Sequence[AnswerMessage]) -> None:
        waiting = self.asks.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(decode_answers(answers))

    async def _run(self) -> None:
        try:
            part: PartMessage | None = await self._begin()
            while part is not None:
                part = await self._run_and_report(part)
        except PartLost:
            raise
        except BaseException:
            # stopped, or unable to begin: the server must not wait until the lease is over
            with suppress(PeerError, ServerUnavailable, TimeoutError):
                await self._abandon()
            raise

    async def _abandon(self) -> None:
        """Give the part up. It counts whatever its number is: a request may have been cut off."""
        state = self._output.saved_state if self._output is not None else None
        outcome = OutcomeMessage("abandoned", state)
        fields = {"part": self._part_id, "number": self._number, "outcome": outcome}
        async with asyncio.timeout(STOP_GRACE_S):
            await self._worker.post_until_answered("/api/parts/report", fields, ReportAnswer)

    async def _begin(self) -> PartMessage:
        runner = self._runner
        fields = {"part": self._part_id, "source": runner.source, "version": runner.version}
        taken: TakenPart = await self._worker.post_until_answered("/api/parts/take", fields, TakenPart)
        self._session_id = taken.session_id
        self._channel = taken.channel
        introduction = self._introduce(taken.checkpoint)
        part: PartMessage = await self._worker.post_until_answered(
            "/api/parts/begin", {"part": self._part_id, **introduction}, PartMessage
        )
        self.has_begun = True
        return part

    def _introduce(self, checkpoint: TakenCheckpoint | None) -> dict[str, Any]:
        """Return which agent answers, with the state of the checkpoint and without it."""
        runner = self._runner
        agent: AgentMessage | None = None
        problem = ""
        can_read = checkpoint is None or runner.can_read(checkpoint.version)
        if checkpoint is not None and can_read and checkpoint.source == runner.source:
            self._state = checkpoint.state
            try:
                agent = to_agent_message(runner.describe_agent(checkpoint.state))
            except Exception as error:  # foreign code: whatever it raises, it could not read the state
                log.warning("the agent %s cannot read its state", runner.name, exc_info=error)
                problem = describe_problem(str(error))
        fresh_agent = to_agent_message(runner.describe_agent(None))
        return {"can_read": can_read, "fresh_agent": fresh_agent, "agent": agent, "problem": problem}

    # running

    async def _run_and_report(self, message: PartMessage) -> PartMessage | None:
        """Run the agent, and report its outcome. Return what to run next; None if the part is over."""
        builder = ReportingBuilder(new_id)
        restore_team(builder, message.team)
        output = PartOutput(builder, self._send_reports, self._ask)
        self._output = output
        self._builder = builder
        files = [await self._read_file(number, file) for number, file in enumerate(message.files)]
        part = Part(
            self._session_id,
            self._channel,
            message.actor,
            message.message,
            decode_answers(message.answers),
            self._state if message.uses_state else None,
            message.ended_calls,
            message.tools,
            files,
        )
        outcome = await self._run_agent(part, output)
        self._state = outcome.state
        try:
            return (await self._send({"outcome": outcome})).next
        except ServerRefused as refusal:
            # a state that is too large, or a value that the log cannot carry: the turn must end all the same
            log.error("the outcome of a part was refused: %s", refusal)
            failure = OutcomeMessage("failed", problem=describe_problem(refusal.problem))
            return (await self._send({"outcome": failure})).next

    async def _read_file(self, number: int, file: FileMessage) -> PartFile:
        data = bytearray()
        while len(data) < file.size_bytes:
            fields = {"part": self._part_id, "file": number, "offset": len(data)}
            piece: FilePiece = await self._worker.post_until_answered("/api/parts/file", fields, FilePiece)
            if not piece.data:
                raise PeerError(f"expected a file of {file.size_bytes} bytes, got {len(data)}")
            data += piece.data
        return PartFile(file.name, file.media_type, bytes(data))

    async def _run_agent(self, part: Part, output: PartOutput) -> OutcomeMessage:
        try:
            outcome = await self._run_foreign_code(part, output)
            await output.take_rest()
            return encode_outcome(outcome)
        except PartLost:
            raise
        except UnreadableState as error:
            return OutcomeMessage("unreadable", problem=describe_problem(str(error)))
        except Exception as error:  # an agent is foreign code: it may raise anything
            log.warning("the agent %s failed", self._runner.name, exc_info=error)
            problem = describe_problem(f"{type(error).__name__}: {error}")
            return OutcomeMessage("failed", output.saved_state, problem=problem)

    async def _run_foreign_code(self, part: Part, output: PartOutput) -> Finished | Paused:
        try:
            return await run_foreign_code(self._runner, part, output, STOP_GRACE_S, log_hung)
        except asyncio.CancelledError:
            await output.close()
            raise

    # reporting

    async def _send_reports(self, items: Sequence[EventDraft]) -> None:
        """Send what the agent reported. The events that are built here only say whether it is urgent."""
        if all(item.payload.LIVE for item in items):
            # deltas that arrive meanwhile go with the next request
            await asyncio.sleep(self._sent_at_s + self._worker.delta_interval_s - now_s())
        self._sent_at_s = now_s()
        await self._send({})

    async def _send(self, fields: Mapping[str, Any]) -> ReportAnswer:
        async with self._sending:
            assert self._builder is not None, "the part has not begun"
            reports = self._builder.take_reports()
            while len(reports) > MAX_REPORTS_PER_REQUEST:
                await self._post({"reports": reports[:MAX_REPORTS_PER_REQUEST]})
                reports = reports[MAX_REPORTS_PER_REQUEST:]
            return await self._post({"reports": reports, **fields})

    async def _post(self, fields: Mapping[str, Any]) -> ReportAnswer:
        body = {"part": self._part_id, "number": self._number, **fields}
        answer: ReportAnswer = await self._worker.post_until_answered("/api/parts/report", body, ReportAnswer)
        self._number += 1
        return answer

    async def _ask(self, output: PartOutput, questions: Sequence[Question]) -> Mapping[CallKey, Answer]:
        """Ask people for a framework that waits inside its run."""
        self._ask_count += 1
        number = self._ask_count
        ask = {"number": number, "questions": encode_questions(questions)}
        waiting: asyncio.Future[dict[CallKey, Answer]] = asyncio.get_running_loop().create_future()
        self.asks[number] = waiting
        await output.take_rest()
        await self._send({"ask": ask})
        self._worker.note_change()
        answers = await waiting
        for question in questions:
            # the server has answered what the page returned, and what a person denied
            if not isinstance(answers[question.agent.agent_id, question.call_id], Approved):
                output.builder.note_result(question.agent, question.call_id)
        return answers


def log_hung(runner: AgentRunner, _: PartTask) -> None:
    log.error("the agent %s does not stop", runner.name)


def describe_problem(text: str) -> str:
    return (as_text(text) or "")[:MAX_PROBLEM_CHARS]
