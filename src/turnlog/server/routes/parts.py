"""`POST /api/parts` and below it: what workers do for applications whose agent runs elsewhere (8.11).

A worker is a principal of the server role `source`. What it reports is about parts that it holds, and about
nothing else: the routes name no session.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turnlog.adapters.remote.offered_parts import HeldPart, OfferedParts
from turnlog.adapters.remote.part_messages import AnswerMessage, OutcomeMessage, PartMessage, QuestionMessage
from turnlog.adapters.remote.remote_part import ReportBatch, WorkerIntroduction, WorkerKey
from turnlog.adapters.remote.reports import AgentMessage, AnyReport
from turnlog.errors import Forbidden, NotFound, quote
from turnlog.events.payload import Count, Name, OpaqueId
from turnlog.events.roles import SOURCE
from turnlog.events.strict_json import MAX_JSON_BYTES
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import read_json_body
from turnlog.server.responses import json_response
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.streams import StreamRegistry

MAX_REPORTS = 1000  # of one request
MAX_REPORT_BYTES = 15 << 20  # the state of a long conversation, as base64; a client reads up to 16 MiB
MAX_HELD_PARTS = 1000  # of one worker

WorkerName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{8,64}$(?!\n)")]
MAX_PROBLEM_CHARS = 2000
Problem = Annotated[str, Meta(max_length=MAX_PROBLEM_CHARS)]


class WorkerBody(msgspec.Struct, forbid_unknown_fields=True):
    """`worker` is the name that the process has chosen for itself."""

    app: str
    worker: WorkerName


class HeldPartBody(msgspec.Struct, forbid_unknown_fields=True):
    """A part that the worker has or is taking, and the numbers of its questions without an answer."""

    part: OpaqueId
    asks: Annotated[list[Count], Meta(max_length=MAX_HELD_PARTS)] = []


class OffersBody(WorkerBody, forbid_unknown_fields=True):
    """`free`: how many more parts the worker can run. What it holds is renewed."""

    free: Count = 1
    holds: Annotated[list[HeldPartBody], Meta(max_length=MAX_HELD_PARTS)] = []


class AnsweredAskBody(msgspec.Struct):
    part: str
    ask: int
    answers: list[AnswerMessage]


class OffersResponse(msgspec.Struct):
    """Parts to take, parts to end, and answers to questions that wait inside a part."""

    offers: list[str]
    stopped: list[str]
    answers: list[AnsweredAskBody]
    lease_s: float


class TakeBody(WorkerBody, forbid_unknown_fields=True, kw_only=True):
    """Take a part. `source` and `version` are those of the framework, and of its checkpoints."""

    part: OpaqueId
    source: Name
    version: Name


class CheckpointBody(msgspec.Struct):
    """The last checkpoint; `state` is base64, and null if it is lost."""

    source: str
    version: str
    state: bytes | None


class TakeResponse(msgspec.Struct, omit_defaults=True):
    session_id: str
    channel: str | None = None
    checkpoint: CheckpointBody | None = None


class BeginBody(WorkerBody, forbid_unknown_fields=True, kw_only=True):
    """Begin a part. `agent` answers if the state is read, `fresh_agent` if there is none."""

    part: OpaqueId
    can_read: bool
    fresh_agent: AgentMessage
    agent: AgentMessage | None = None
    problem: Problem = ""


class FileBody(WorkerBody, forbid_unknown_fields=True, kw_only=True):
    """Read a file of the message that a part has begun with, from a byte on. `file` counts from 0."""

    part: OpaqueId
    file: Count
    offset: Count = 0


class FileResponse(msgspec.Struct):
    """The next bytes of the file, as base64; none behind its end."""

    data: bytes


class AskBody(msgspec.Struct, forbid_unknown_fields=True):
    """Questions that wait inside the part, under a number of the worker."""

    number: Count
    questions: Annotated[list[QuestionMessage], Meta(min_length=1, max_length=MAX_HELD_PARTS)]


class ReportBody(WorkerBody, forbid_unknown_fields=True, kw_only=True):
    """What the agent did since the last request, and with an `outcome`, how the part has ended."""

    part: OpaqueId
    number: Count
    reports: Annotated[list[AnyReport], Meta(max_length=MAX_REPORTS)] = []
    state: bytes | None = None
    ask: AskBody | None = None
    outcome: OutcomeMessage | None = None


class ReportResponse(msgspec.Struct, omit_defaults=True):
    """`next` is a part with a message that came in place of an answer. The same worker runs it."""

    lease_s: float
    next: PartMessage | None = None


class PartRoutes:
    """The routes of workers."""

    def __init__(self, access: SessionAccess, streams: StreamRegistry) -> None:
        self._access = access
        self._streams = streams

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/parts",
                self.wait_for_news,
                "Wait for parts of turns that a worker may run.",
                OffersBody,
                {200: OffersResponse},
            ),
            post_route("/api/parts/take", self.take, "Take a part.", TakeBody, {200: TakeResponse}),
            post_route("/api/parts/begin", self.begin, "Begin a part.", BeginBody, {200: PartMessage}),
            post_route(
                "/api/parts/file",
                self.read_file,
                "Read a file of the message of a part.",
                FileBody,
                {200: FileResponse},
            ),
            post_route(
                "/api/parts/report",
                self.report,
                "Report what the agent of a part did.",
                ReportBody,
                {200: ReportResponse},
            ),
        ]

    def _find_parts(self, request: Request, body: WorkerBody) -> tuple[OfferedParts, WorkerKey]:
        """Return the parts of an application, and who asks. Raise `Forbidden` or `NotFound`."""
        principal = get_identity(request.scope).principal
        if SOURCE not in principal.server_roles:
            raise Forbidden(f"expected the server role {SOURCE}: only it may answer for an application")
        app = self._access.sessions.apps.get(body.app)
        if app is None or app.remote_agent is None:
            raise NotFound(f"no application {quote(body.app)} whose agent runs elsewhere")
        if not app.remote_agent.may_serve(principal.name):
            raise Forbidden(f"{quote(body.app)} names its workers, and {quote(principal.name)} is none")
        return app.remote_agent.offered_parts, WorkerKey(principal.name, body.worker)

    async def wait_for_news(self, request: Request) -> Response:
        body = await read_json_body(request, OffersBody)
        parts, worker = self._find_parts(request, body)
        holds = [HeldPart(item.part, item.asks) for item in body.holds]
        # the request waits as long as nothing happens, so it counts as a stream
        with self._streams.count_stream(get_identity(request.scope)):
            news = await parts.wait_for_news(worker, body.free, holds)
        answers = [AnsweredAskBody(*item) for item in news.answers]
        return json_response(OffersResponse(news.offers, news.stopped, answers, parts.lease_s))

    async def take(self, request: Request) -> Response:
        body = await read_json_body(request, TakeBody)
        parts, worker = self._find_parts(request, body)
        part = parts.find(body.part)
        checkpoint = await part.take(worker, body.source, body.version)
        response = TakeResponse(part.session_id, part.channel)
        if checkpoint is not None:
            response.checkpoint = CheckpointBody(*checkpoint)
        return json_response(response)

    async def begin(self, request: Request) -> Response:
        body = await read_json_body(request, BeginBody)
        parts, worker = self._find_parts(request, body)
        introduction = WorkerIntroduction(
            body.can_read,
            body.fresh_agent.to_info(),
            body.agent.to_info() if body.agent is not None else None,
            body.problem,
        )
        return json_response(await parts.find(body.part).begin(worker, introduction))

    async def read_file(self, request: Request) -> Response:
        body = await read_json_body(request, FileBody)
        parts, worker = self._find_parts(request, body)
        return json_response(FileResponse(parts.find(body.part).read_file(worker, body.file, body.offset)))

    async def report(self, request: Request) -> Response:
        # a large body is read for those alone who may send one
        is_source = SOURCE in get_identity(request.scope).principal.server_roles
        body = await read_json_body(request, ReportBody, MAX_REPORT_BYTES if is_source else MAX_JSON_BYTES)
        parts, worker = self._find_parts(request, body)
        batch = ReportBatch(body.number, body.reports, body.state, outcome=body.outcome)
        if body.ask is not None:
            batch = batch._replace(ask=body.ask.number, questions=body.ask.questions)
        part = await parts.find(body.part).report(worker, batch)
        return json_response(ReportResponse(parts.lease_s, part))
