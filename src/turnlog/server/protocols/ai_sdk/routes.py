"""The UI message stream of the Vercel AI SDK, for `useChat` of clients 5, 6 and 7 (protocol section 11).

`POST /ai-sdk/{app}/chat` sends what is new in a chat and responds with the assistant's message. `GET
/ai-sdk/{app}/chat/{id}/stream` replays the message that is being written or was just completed, or responds
204. `GET /ai-sdk/{app}/chat/{id}` has all messages, for a page that is loaded again. A chat id is the
caller's own name for a session. The header `Turnlog-AI-SDK` is the client's version; without it the
application's option counts.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import App, Membership
from turnlog.app.visible_rows import open_row_view
from turnlog.errors import BadInput, NotFound
from turnlog.events import decode_envelope
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.ids import now_ms
from turnlog.log import Row, envelope_json
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.prompt_content import MAX_PROMPT_BODY_BYTES
from turnlog.server.protocols.ai_sdk.chat_input import (
    ChatRequestBody,
    insert_chat_files,
    read_chat_input,
)
from turnlog.server.protocols.base import ProtocolServer
from turnlog.server.protocols.client_input import MAX_ID_CHARS
from turnlog.server.protocols.run_stream import RunStream
from turnlog.server.protocols.stored_files import StoredFiles
from turnlog.server.protocols.threads import (
    find_served_app,
    find_thread,
    list_waiting_calls,
    make_message_event,
    make_run_event_id,
    open_thread,
)
from turnlog.server.request_body import read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.messages import StopResponse
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.streaming.query import parse_dialect_options
from turnlog.server.streaming.streams import SSE_MEDIA_TYPE, EventStreamResponse
from turnlog.state.tree import restrict_to_channels
from turnlog.wire.dialects.ai_sdk.dialect import AiSdk
from turnlog.wire.dialects.ai_sdk.messages import ChatMessages
from turnlog.wire.dialects.ai_sdk.writer import AiSdkRun
from turnlog.wire.dialects.base import DialectOptions, no_history
from turnlog.wire.dialects.registry import AI_SDK_FRAMING
from turnlog.wire.dialects.run_outcome import is_running

# The last events of a response: its turn has ended, or waits for a person.
ENDING_TYPES = ("agent.end", "tool.await", "approval.request")
RECENT_END_MS = 30_000  # a page takes less from loading the messages to resuming
VERSION_HEADER = "turnlog-ai-sdk"
STREAM_PATH = "/stream"


class AiSdkProtocol:
    """The routes of the AI SDK."""

    name = "ai-sdk"

    def operations(self, server: ProtocolServer) -> list[Operation]:
        routes = AiSdkRoutes(server)
        chat = "/ai-sdk/{app}/chat"
        return [
            post_route(
                chat,
                routes.send,
                "Send to a chat, and its answer (AI SDK).",
                ChatRequestBody,
                {200: None},
                media_type=SSE_MEDIA_TYPE,
            ),
            get_route(
                chat + "/{chat:path}" + STREAM_PATH,
                routes.resume,
                "The message that is being written (AI SDK).",
                responses={200: None, 204: None},
                media_type=SSE_MEDIA_TYPE,
            ),
            get_route(chat + "/{chat:path}", routes.list_messages, "All messages of a chat (AI SDK)."),
            post_route(
                chat + "/{chat:path}/stop",
                routes.stop,
                "Stop what runs in a chat.",
                None,
                {202: StopResponse},
            ),
        ]


class AiSdkRoutes:
    def __init__(self, server: ProtocolServer) -> None:
        self._server = server
        self._access = server.access

    async def stop(self, request: Request) -> Response:
        membership = await self._require_membership(request)
        return json_response(StopResponse(await self._access.sessions.stop(membership)), 202)

    async def list_messages(self, request: Request) -> Response:
        membership = await self._find_membership(request)
        if membership is None:
            return json_response([])
        sessions = self._access.sessions
        meter = self._access.start_read_meter(request)
        catalog = membership.app.catalog
        options = self._read_options(request, membership.app)
        # A message of client 6 can have approvals that were decided: its stream has no part for them.
        if options.ai_sdk == "6":
            options = msgspec.structs.replace(options, ai_sdk="7")
        dialect = AiSdk(options, no_history, roles=membership.effective_roles)
        view = open_row_view(membership)
        chat = ChatMessages()
        record = await sessions.log.info(membership.session_id)
        after = record.first - 1
        while page := await sessions.log.read(membership.session_id, after, replay_from=-1):
            meter.charge(page.size_bytes)
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if not membership.may_see(row.channel):
                    continue
                payload = catalog.decode_payload(envelope)
                projected = (envelope, payload) if view is None else view.project(envelope, payload)
                if projected is None:
                    continue
                envelope, payload = projected
                chat.apply_person(envelope, payload)
                for message in dialect.convert(envelope, payload):
                    chat.apply(msgspec.json.decode(message))
            after = page.last
        return json_response(chat.messages)

    async def resume(self, request: Request) -> Response | EventStreamResponse:
        self._server.events.streams.check_quota(get_identity(request.scope))
        membership = await self._find_membership(request)
        if membership is None:
            return Response(status_code=204)
        turn = await self._find_running_turn(membership)
        if turn is None:
            return Response(status_code=204)
        return await self._replay(request, membership, turn)

    async def send(self, request: Request) -> Response | EventStreamResponse:
        sessions = self._access.sessions
        self._server.events.streams.check_quota(get_identity(request.scope))
        app = find_served_app(self._access, request)
        options = self._read_options(request, app)
        body = await read_json_body(request, ChatRequestBody, MAX_PROMPT_BODY_BYTES)
        if body.id.endswith(STREAM_PATH):
            raise BadInput(
                f"expected a chat id that does not end with {STREAM_PATH}: the path of its messages would be"
                " that of another chat's stream",
                "$.id",
            )
        membership = await open_thread(self._access, request, app, body.id)
        membership.require_member()
        await insert_chat_files(body, StoredFiles(self._access, request, membership))

        chat_input = read_chat_input(body, await list_waiting_calls(sessions, membership))
        message_id = make_run_event_id(membership, AiSdkProtocol.name, chat_input.key)
        prompt = chat_input.prompt
        known = await sessions.log.find_events(membership.session_id, [message_id])
        if prompt is not None and known:
            return await self._replay(request, membership, known[message_id].trace or "")
        events = list(chat_input.answers)
        if prompt is not None:
            message = await make_message_event(
                sessions.log, membership, message_id, prompt, body.tools, chat_input.prompt_id
            )
            events.append(message)
        if not events:
            raise BadInput("expected a user message at the end, or an answer that a call waits for")

        record = await sessions.log.info(membership.session_id)
        seqs = await sessions.post(membership, events)
        last_seq = max([record.last, *seqs])
        [row] = await sessions.log.read(membership.session_id, last_seq - 1, max_bytes=1)
        turn = row.trace or ""
        run = AiSdkRun(own_message=message_id if prompt is not None else None)
        dialect = AiSdk(options, no_history, run, membership.effective_roles)
        stream = RunStream(sessions, membership, record, dialect, AI_SDK_FRAMING, turn)
        meter = self._access.start_read_meter(request)
        bounds = await sessions.log.turn_bounds(membership.session_id, turn)
        if bounds is not None:
            await stream.read_before(bounds[0], record.last + 1, meter.charge_and_wait)
        return self._make_response(request, membership, stream, record.last + 1, last_seq, turn)

    async def _find_running_turn(self, membership: Membership) -> str | None:
        """Return the newest turn that works, waits for its start or has just ended; None if there is none."""
        tree = restrict_to_channels(await self._access.sessions.tree(membership), membership.may_see)
        if tree.queued_turns:
            return list(tree.queued_turns)[-1]
        if is_running(tree):
            return list(tree.open.values())[-1].scope.trace_id
        return await self._find_recent_turn(membership)

    async def _find_recent_turn(self, membership: Membership) -> str | None:
        """Return the last turn if it has just ended, or begun to wait.

        A page loads the messages, and then resumes. Without this, a message that was complete between the two
        requests would stay as the page has loaded it.
        """
        log = self._access.sessions.log
        last_seq = await log.last_seq(membership.session_id)

        def is_visible(row: Row) -> bool:
            return membership.may_see(row.channel)

        row = await log.last_of_types(membership.session_id, ENDING_TYPES, last_seq + 1, is_visible)
        if row is None:
            return None
        ended_ms = parse_timestamp_ms(decode_envelope(envelope_json(row)).ts)
        return row.trace if now_ms() - ended_ms < RECENT_END_MS else None

    async def _replay(self, request: Request, membership: Membership, turn: str) -> EventStreamResponse:
        """Stream the last message of a turn from its start, and what is still written of it."""
        sessions = self._access.sessions
        meter = self._access.start_read_meter(request)
        record = await sessions.log.info(membership.session_id)
        options = self._read_options(request, membership.app)
        dialect = AiSdk(options, no_history, AiSdkRun(replays=True), membership.effective_roles)
        stream = RunStream(sessions, membership, record, dialect, AI_SDK_FRAMING, turn)
        bounds = await sessions.log.turn_bounds(membership.session_id, turn)
        first_seq = bounds[0] if bounds else record.first
        await stream.read_before(first_seq, record.last + 1, meter.charge_and_wait)
        return self._make_response(request, membership, stream, record.last + 1, record.last, turn)

    def _make_response(
        self,
        request: Request,
        membership: Membership,
        stream: RunStream,
        first_seq: int,
        earliest_end_seq: int,
        turn: str,
    ) -> EventStreamResponse:
        request.scope[SESSION_KEY] = membership.session_id
        request.scope[TURN_KEY] = turn
        return stream.make_response(self._server, request, first_seq, earliest_end_seq, turn)

    def _read_options(self, request: Request, app: App) -> DialectOptions:
        version = request.headers.get(VERSION_HEADER)
        query = {} if version is None else {"ai_sdk": version}
        return parse_dialect_options(query, app.dialect_options)

    async def _find_membership(self, request: Request) -> Membership | None:
        chat_id = request.path_params["chat"]
        if len(chat_id) > MAX_ID_CHARS:
            return None
        app = find_served_app(self._access, request)
        return await find_thread(self._access, request, app, chat_id)

    async def _require_membership(self, request: Request) -> Membership:
        membership = await self._find_membership(request)
        if membership is None:
            raise NotFound(f"no chat {request.path_params['chat'][:80]}")
        return membership
