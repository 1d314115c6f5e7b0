"""`POST /agent/run` and `POST /agent/tool_results`: a turn and its response in one request (protocol 8.3).

The first sends a prompt, the second answers all calls that wait for the page. Both respond with the turn's
events as a stream, in the dialect `blocks` by default, which ends with `[DONE]`. `agent_uuid` is the session
id, as the response header `Turnlog-Session` gave it, or the id of an agent in it.
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
from turnlog.server.openapi import Operation, post_route
from turnlog.server.request_body import check_message_text, read_json_body
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.server.streaming.query import parse_dialect_request
from turnlog.server.streaming.streams import (
    SSE_MEDIA_TYPE,
    STREAM_HEADERS,
    EventStreamResponse,
    IteratorSource,
)
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
    """The routes that respond with the stream of a turn."""

    def __init__(self, access: SessionAccess, stream: EventStreamRoute) -> None:
        self._access = access
        self._stream = stream

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/agent/run",
                self.run,
                "A prompt, and its turn as a response.",
                RunBody,
                {200: None},
                media_type=SSE_MEDIA_TYPE,
            ),
            post_route(
                "/agent/tool_results",
                self.post_tool_results,
                "Tool results, and the rest of the turn as a response.",
                ToolResultsBody,
                {200: None},
                media_type=SSE_MEDIA_TYPE,
            ),
        ]

    async def run(self, request: Request) -> EventStreamResponse:
        """Send a prompt and stream its turn. Results of calls that the prompt cancelled come first."""
        sessions = self._access.sessions
        dialect_request = self._check_quota_and_dialect(request)
        body = await read_json_body(request, RunBody)
        text = check_message_text(to_text(body.user_prompt), "$.user_prompt")
        message = UiMessage(text=text, target=body.agent_type)

        if body.agent_uuid is None:
            creator = get_session_creator(request.scope)
            self._access.rate_limiter.consume_session(creator, time.monotonic())
            membership = await sessions.create(creator)
        else:
            membership = await self._find_membership(request, body.agent_uuid)

        sent = await sessions.send(membership, message)
        first_seq = sent.seq - sent.cancelled_calls
        return await self._respond(request, membership, dialect_request, sent.turn, first_seq, sent.seq)

    async def post_tool_results(self, request: Request) -> EventStreamResponse:
        """Answer every call that waits for the page, and stream the rest of the turn.

        Raise `Conflict` unless there is exactly one result for each of these calls.
        """
        sessions = self._access.sessions
        dialect_request = self._check_quota_and_dialect(request)
        body = await read_json_body(request, ToolResultsBody)
        membership = await self._find_membership(request, body.agent_uuid)

        waiting = await sessions.list_frontend_calls(membership)
        call_ids = [result.tool_use_id for result in body.tool_results]
        if sorted(call_ids) != sorted(waiting):
            names = ", ".join(sorted(waiting)) or "none"
            record = await sessions.log.info(membership.session_id)
            raise Conflict(f"expected one result for each call that waits: {names}", record.last)
        if not call_ids:
            raise BadInput("expected at least one result", "$.tool_results")

        events = []
        for result in body.tool_results:
            tool, _ = waiting[result.tool_use_id]
            events.append(ClientEvent("tool.result", to_tool_result(result, tool), new_id("evt_")))
        seqs = await sessions.post(membership, events)
        _, turn = waiting[call_ids[0]]
        return await self._respond(request, membership, dialect_request, turn, seqs[0], seqs[-1])

    async def _find_membership(self, request: Request, name: str) -> Membership:
        """Return the caller's membership by a session id, or by the id of an agent as `meta_init` has it."""
        if name.startswith("sess_"):
            return await self._access.find_membership(request, name)
        agent_id = f"agt_{name.removeprefix('agt_')}"
        principal = get_identity(request.scope).principal
        return await self._access.sessions.get_membership_by_agent(principal, agent_id)

    def _check_quota_and_dialect(self, request: Request) -> DialectRequest:
        """Return the dialect of the response. Raise before anything is appended if it cannot be streamed."""
        self._stream.streams.check_quota(get_identity(request.scope))
        return parse_dialect_request(request.query_params, self._stream.dialects, default="blocks")

    async def _respond(
        self,
        request: Request,
        membership: Membership,
        dialect_request: DialectRequest,
        turn: str,
        first_seq: int,
        last_seq: int,
    ) -> EventStreamResponse:
        """Stream the turn from `first_seq` on. The response does not end before `last_seq`.

        Both are seqs of events that this request appended.
        """
        sessions = self._access.sessions
        session_id = membership.session_id
        request.scope[SESSION_KEY] = session_id
        request.scope[TURN_KEY] = turn

        record = await sessions.log.info(session_id)
        start_seq = await sessions.log.oldest_open_turn_start(session_id, first_seq - 1)
        response = TurnResponse(sessions, membership, record, turn, start_seq)
        frames = await response.stream_frames(dialect_request, Cursor(first_seq - 1), last_seq)

        headers = [
            *STREAM_HEADERS,
            (b"turnlog-session", session_id.encode()),
            (b"turnlog-turn", turn.encode()),
        ]
        identity = get_identity(request.scope)
        return self._stream.streams.make_response(IteratorSource(frames), identity, [membership], headers)


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def to_tool_result(body: ToolResultBody, tool: str) -> dict[str, Any]:
    result = {"call_id": body.tool_use_id, "tool": tool, "ok": not body.is_error}
    if body.is_error:
        return {**result, "error": {"code": "EXECUTION_ERROR", "message": to_text(body.content)}}
    return {**result, "result": body.content}
