"""`POST /agent/run` and `POST /agent/tool_results`: a turn and its response in one request (protocol 8.3).

The first sends a prompt, the second answers all calls that wait for the page; both answer with the turn's
stream in `blocks`, which ends with `[DONE]`. `agent_uuid` is the session, as `Turnlog-Session` gave it.
"""

import time
from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from turnlog.app import ClientEvent, Membership
from turnlog.errors import BadInput, Conflict
from turnlog.events import UiMessage
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.request_body import check_message_text, read_json_body
from turnlog.server.routes.api import MAX_EVENTS_PER_BODY, ApiRoutes
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.server.streaming.query import parse_dialect_request
from turnlog.server.streaming.streams import STREAM_HEADERS, EventStreamResponse, IteratorSource
from turnlog.server.streaming.turn_response import TurnResponse
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.registry import DialectRequest


class RunBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_prompt: Any
    agent_uuid: str | None = None
    agent_type: Name | None = None


class ToolResultBody(msgspec.Struct, forbid_unknown_fields=True):
    tool_use_id: str
    content: Any
    is_error: bool = False


class ToolResultsBody(msgspec.Struct, forbid_unknown_fields=True):
    agent_uuid: str
    tool_results: Annotated[list[ToolResultBody], msgspec.Meta(max_length=MAX_EVENTS_PER_BODY)]


class AgentRoutes:
    """The two routes, on the streams of a server."""

    def __init__(self, stream: EventStreamRoute, routes: ApiRoutes) -> None:
        self._stream = stream
        self._routes = routes

    async def run(self, request: Request) -> EventStreamResponse:
        """A prompt, and the turn it opens, or the one that waited: then what it answered comes first."""
        sessions, wanted = self._stream.sessions(), self._check_quota_and_dialect(request)
        asked = await read_json_body(request, RunBody)
        prompt = asked.user_prompt
        text = prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode()
        message = UiMessage(text=check_message_text(text, "$.user_prompt"), target=asked.agent_type)
        if asked.agent_uuid is None:
            maker = get_session_creator(request.scope)
            self._routes.rate_limiter.consume_session(maker, time.monotonic())
            seat = await sessions.create(maker)
        else:
            seat = await self._find_membership(request, asked.agent_uuid)
        sent = await sessions.send(seat, message)
        return await self._respond(
            request, seat, wanted, sent.turn, sent.seq - sent.cancelled_calls, sent.seq
        )

    async def post_tool_results(self, request: Request) -> EventStreamResponse:
        """The answers to everything that waits for the page, and how the turn goes on."""
        sessions, wanted = self._stream.sessions(), self._check_quota_and_dialect(request)
        given = await read_json_body(request, ToolResultsBody)
        seat = await self._find_membership(request, given.agent_uuid)
        waiting = await sessions.list_frontend_calls(seat)
        names = [result.tool_use_id for result in given.tool_results]
        if sorted(names) != sorted(waiting):
            calls = ", ".join(sorted(waiting)) or "none"
            head = await sessions.log.info(seat.session_id)
            raise Conflict(f"expected one result for each call that waits: {calls}", head.last)
        posted = [
            ClientEvent("tool.result", to_tool_result(result, waiting[result.tool_use_id][0]), new_id("evt_"))
            for result in given.tool_results
        ]
        if not posted:
            raise BadInput("expected at least one result", "$.tool_results")
        seqs = await sessions.post(seat, posted)
        return await self._respond(request, seat, wanted, waiting[names[0]][1], seqs[0], seqs[-1])

    async def _find_membership(self, request: Request, name: str) -> Membership:
        """The caller's seat in a session, by its name or by an agent in it, as `meta_init` tells them."""
        if name.startswith("sess_"):
            return await self._routes.find_membership(request, name)
        agent_id = f"agt_{name.removeprefix('agt_')}"
        return await self._stream.sessions().get_membership_by_agent(
            get_identity(request.scope).principal, agent_id
        )

    def _check_quota_and_dialect(self, request: Request) -> DialectRequest:
        """How the response is to be told; what cannot be told is refused before anything is done."""
        self._stream.streams.check_quota(get_identity(request.scope))
        return parse_dialect_request(request.query_params, self._stream.dialects, default="blocks")

    async def _respond(
        self,
        request: Request,
        membership: Membership,
        dialect_request: DialectRequest,
        turn: str,
        first: int,
        last: int,
    ) -> EventStreamResponse:
        """The turn's events from the first that was just appended; before the last one it does not rest."""
        sessions = self._stream.sessions()
        session_id = membership.session_id
        request.scope.update({"turnlog.session": session_id, "turnlog.turn": turn})
        head = await sessions.log.info(session_id)
        start = await sessions.log.oldest_open_turn_start(session_id, first - 1)
        frames = await TurnResponse(sessions, membership, head, turn, start).stream_frames(
            dialect_request, Cursor(first - 1), last
        )
        named = [(b"turnlog-session", session_id.encode()), (b"turnlog-turn", turn.encode())]
        known = get_identity(request.scope)
        return self._stream.streams.make_response(
            IteratorSource(frames), known, [membership], [*STREAM_HEADERS, *named]
        )


def to_tool_result(body: ToolResultBody, tool: str) -> dict[str, Any]:
    """A result of 003 as ours."""
    if not body.is_error:
        return {"call_id": body.tool_use_id, "tool": tool, "ok": True, "result": body.content}
    text = body.content if isinstance(body.content, str) else msgspec.json.encode(body.content).decode()
    error = {"code": "EXECUTION_ERROR", "message": text}
    return {"call_id": body.tool_use_id, "tool": tool, "ok": False, "error": error}
