"""`POST /agent/run` and `POST /agent/tool_results`: a turn and its response in one request (protocol 8.3).

The first sends a prompt, the second answers all calls that wait for the page. Both respond with the turn's
events as a stream that ends with `[DONE]`. Its dialect is the application's if that is one of document 003's
formats, else `blocks`. `agent_uuid` names the conversation: an id that the client chose, or the one in
`meta_init`, or a session id. A chosen id is an alias of the caller alone: the same id of another principal
names another session. Fields that the routes do not know are ignored, as document 003 does.
"""

import re
import time
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from turnlog.app import App, ClientEvent, Membership
from turnlog.errors import BadInput, Conflict, NotFound, quote
from turnlog.events import UiMessage
from turnlog.events.agent import strip_agent_prefix
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.openapi import Operation, post_route
from turnlog.server.prompt_content import MAX_PROMPT_BODY_BYTES, UserPrompt, check_prompt, store_prompt
from turnlog.server.request_body import read_json_body
from turnlog.server.routes.messages import MAX_EVENTS_PER_BODY
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.server.streaming.query import FORMAT_DIALECTS, parse_dialect_request, parse_format
from turnlog.server.streaming.streams import SSE_MEDIA_TYPE, EventStreamResponse, IteratorSource
from turnlog.server.streaming.turn_response import TurnResponse
from turnlog.server.trace_context import read_traceparent
from turnlog.state.content_parts import REPORTED_CONTENT
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.registry import DialectRequest

# The membership in a session, and the name that the caller gave it, if that is how it was found.
Conversation = tuple[Membership, str | None]
CONVERSATION_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RunBody(Record, frozen=True, kw_only=True):
    user_prompt: UserPrompt
    agent_uuid: str | None = None
    agent_type: Name | None = None


class ToolResultBody(msgspec.Struct):
    tool_use_id: str
    content: Any
    is_error: bool = False


class ToolResultsBody(msgspec.Struct):
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
        sessions = self._access.sessions
        self._stream.streams.check_quota(get_identity(request.scope))
        body = await read_json_body(request, RunBody, MAX_PROMPT_BODY_BYTES)
        prompt = check_prompt(body.user_prompt, "$.user_prompt")
        found = await self._find_conversation(request, body.agent_uuid) if body.agent_uuid else None
        app = found[0].app if found else sessions.get_app(None)
        dialect_request = self._parse_dialect_request(request, app)
        membership, alias = found or await self._create_conversation(request, body.agent_uuid)
        membership.require_member()

        message = UiMessage(
            text=prompt.text,
            target=body.agent_type,
            content=await store_prompt(sessions.log, membership.session_id, prompt),
            conversation_id=alias,
            traceparent=read_traceparent(request),
        )
        sent = await sessions.send(membership, message)
        first_seq = sent.seq - sent.cancelled_calls
        return await self._respond(request, membership, dialect_request, sent.turn, first_seq, sent.seq)

    async def post_tool_results(self, request: Request) -> EventStreamResponse:
        """Answer every call that waits for the page, and stream the rest of the turn.

        Raise `Conflict` unless there is exactly one result for each of these calls.
        """
        sessions = self._access.sessions
        self._stream.streams.check_quota(get_identity(request.scope))
        body = await read_json_body(request, ToolResultsBody)
        found = await self._find_conversation(request, body.agent_uuid)
        if found is None:
            raise NotFound(f"no conversation {body.agent_uuid[:80]}")
        membership, _ = found
        dialect_request = self._parse_dialect_request(request, membership.app)

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

    async def _create_conversation(self, request: Request, agent_uuid: str | None) -> Conversation:
        """Create a conversation under the name that the client chose, or without one."""
        sessions = self._access.sessions
        creator = get_session_creator(request.scope)
        self._access.rate_limiter.consume_session(creator, time.monotonic())
        if not agent_uuid:
            return await sessions.create(creator), None
        alias = strip_agent_prefix(agent_uuid)
        return await sessions.create_with_alias(creator, alias), alias

    async def _find_conversation(self, request: Request, agent_uuid: str) -> Conversation | None:
        """Return the conversation by a session id, an agent's id, or the caller's alias; None without one.

        The id of an agent that the caller may not see is no different from one that does not exist.
        """
        if agent_uuid.startswith("sess_"):
            return await self._access.find_membership(request, agent_uuid), None
        name = strip_agent_prefix(agent_uuid)
        if not name:
            return None
        if not CONVERSATION_ID_PATTERN.fullmatch(name):
            problem = "expected 1 to 64 of A-Z a-z 0-9 _ -, as a UUID has"
            raise BadInput(f"{problem}, got {quote(agent_uuid)}", "$.agent_uuid")

        sessions = self._access.sessions
        principal = get_identity(request.scope).principal
        with suppress(NotFound):
            return await sessions.get_membership_by_agent(principal, f"agt_{name}"), None
        membership = await sessions.find_by_alias(principal, name)
        return None if membership is None else (membership, name)

    def _parse_dialect_request(self, request: Request, app: App) -> DialectRequest:
        """Return the dialect of the response. Raise `BadInput` before anything is appended."""
        query = request.query_params
        dialects = self._stream.dialects
        default = self._stream.default_request(app)
        name = parse_format(query)
        if name is None:
            name = default.name if default.name in FORMAT_DIALECTS.values() else "blocks"
        return parse_dialect_request(query, dialects, dialects.request(name, default.options))

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
        response = TurnResponse(sessions, membership, record, turn, start_seq, self._stream.heartbeat_s)
        frames = await response.stream_frames(dialect_request, Cursor(first_seq - 1), last_seq)

        headers = [(b"turnlog-session", session_id.encode()), (b"turnlog-turn", turn.encode())]
        return self._stream.streams.make_response(
            IteratorSource(frames),
            get_identity(request.scope),
            [membership],
            dialect_request.framing,
            headers,
        )


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def to_tool_result(body: ToolResultBody, tool: str) -> dict[str, Any]:
    result = {"call_id": body.tool_use_id, "tool": tool, "ok": not body.is_error}
    if body.is_error:
        details = {REPORTED_CONTENT: body.content}
        error = {"code": "EXECUTION_ERROR", "message": to_text(body.content), "details": details}
        return {**result, "error": error}
    return {**result, "result": body.content}
