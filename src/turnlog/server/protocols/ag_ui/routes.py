"""AG-UI 1.0: runs of an application for clients of that protocol (protocol section 10).

`POST /ag-ui/{app}` takes RunAgentInput and responds with the run. `GET /ag-ui/{app}/{thread}` attaches to a
thread at any time: it begins with all messages and the state, and follows what runs. A thread id is the
caller's own name for a session, and empty until its first run; an id that begins with `sess_` is that of a
session. The message of a run id that the log has already is not stored twice: its client is attached.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import ClientEvent, Membership
from turnlog.errors import BadInput, NotFound, quote
from turnlog.log import SessionRecord
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.prompt_content import MAX_PROMPT_BODY_BYTES
from turnlog.server.protocols.ag_ui.capabilities import describe_capabilities
from turnlog.server.protocols.ag_ui.run_input import (
    ResumeEntry,
    RunAgentBody,
    insert_run_files,
    read_run_input,
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
from turnlog.server.protocols.visible_state import load_visible_state
from turnlog.server.request_body import read_json_body
from turnlog.server.responses import json_response
from turnlog.server.routes.messages import StopResponse
from turnlog.server.scope_keys import SESSION_KEY, TURN_KEY
from turnlog.server.streaming.streams import SSE_MEDIA_TYPE, EventStreamResponse
from turnlog.server.visible_apps import apps_for, find_guest_memberships
from turnlog.wire import sse
from turnlog.wire.dialects.ag_ui.dialect import AgUi
from turnlog.wire.dialects.ag_ui.messages import ThreadMessages
from turnlog.wire.dialects.ag_ui.writer import AgUiRun
from turnlog.wire.dialects.base import DialectOptions, no_history
from turnlog.wire.dialects.registry import CORE_DIALECTS

FRAMING = CORE_DIALECTS["ag-ui"].framing

CAPABILITIES = "capabilities"  # in the place of a thread id
ATTACH_QUERY = {"protocolVersion": "1.0 for a client of AG-UI 1.0; older clients get what they know"}


def options_of(protocol_version: str | None) -> DialectOptions:
    """Return the options for a client. Clients before 1.0 do not say their version."""
    return DialectOptions(ag_ui="1" if protocol_version else "0")


class AgUiProtocol:
    """The routes of AG-UI."""

    name = "ag-ui"

    def operations(self, server: ProtocolServer) -> list[Operation]:
        routes = AgUiRoutes(server)
        return [
            post_route(
                "/ag-ui/{app}",
                routes.run,
                "Run an application (AG-UI).",
                RunAgentBody,
                {200: None},
                media_type=SSE_MEDIA_TYPE,
            ),
            get_route("/ag-ui/{app}/" + CAPABILITIES, routes.get_capabilities, "What it can do (AG-UI)."),
            get_route(
                "/ag-ui/{app}/{thread:path}",
                routes.attach,
                "All messages of a thread, and what runs in it (AG-UI).",
                query=ATTACH_QUERY,
                media_type=SSE_MEDIA_TYPE,
            ),
            post_route(
                "/ag-ui/{app}/{thread:path}/stop",
                routes.stop,
                "Stop what runs in a thread.",
                None,
                {202: StopResponse},
            ),
        ]


class AgUiRoutes:
    def __init__(self, server: ProtocolServer) -> None:
        self._server = server
        self._access = server.access

    async def get_capabilities(self, request: Request) -> Response:
        app = find_served_app(self._access, request)
        principal = get_identity(request.scope).principal
        memberships = await find_guest_memberships(self._access.sessions, principal)
        if app not in apps_for(self._access.sessions, memberships):
            raise NotFound(f"no application {app.name}")
        shows_internals = memberships is None or any(
            one.app is app and one.event_view.shows_internals for one in memberships
        )
        return json_response(describe_capabilities(app, shows_internals=shows_internals))

    async def stop(self, request: Request) -> Response:
        membership = await self._find_membership(request)
        return json_response(StopResponse(await self._access.sessions.stop(membership)), 202)

    async def attach(self, request: Request) -> Response | EventStreamResponse:
        self._server.events.streams.check_quota(get_identity(request.scope))
        version = request.query_params.get("protocolVersion")
        thread_id = request.path_params["thread"]
        membership = await self._find_thread(request)
        if membership is None:
            return make_empty_thread(thread_id, version)
        return await self._attach(request, membership, thread_id, None, version)

    async def run(self, request: Request) -> EventStreamResponse:
        sessions = self._access.sessions
        self._server.events.streams.check_quota(get_identity(request.scope))
        app = find_served_app(self._access, request)
        body = await read_json_body(request, RunAgentBody, MAX_PROMPT_BODY_BYTES)
        if body.thread_id == CAPABILITIES:
            raise BadInput(
                "expected another thread id: this one is the path of the capabilities", "$.threadId"
            )
        membership = await open_thread(self._access, request, app, body.thread_id)
        request.scope[SESSION_KEY] = membership.session_id
        membership.require_member()

        message_id = make_run_event_id(membership, AgUiProtocol.name, body.run_id)
        await insert_run_files(body, StoredFiles(self._access, request, membership))
        waiting = await list_waiting_calls(sessions, membership)
        run_input = read_run_input(body, waiting, membership.effective_roles)
        if await sessions.log.find_events(membership.session_id, [message_id]):
            # CopilotKit answers a question under the id of the run that asked it.
            run_input = run_input._replace(prompt=None, action=None)
        if not (run_input.answers or run_input.action or run_input.prompt or run_input.stops):
            await self._check_answered(membership, body.resume)
            return await self._attach(request, membership, body.thread_id, body.run_id, body.protocol_version)

        record = await sessions.log.info(membership.session_id)
        events = list(run_input.answers)
        if run_input.action is not None:
            events.append(ClientEvent("ui.action", run_input.action, message_id))
        if run_input.prompt is not None:
            message = await make_message_event(
                sessions.log, membership, message_id, run_input.prompt, body.tools, run_input.prompt_id
            )
            events.append(message)
        if run_input.stops:
            await sessions.stop(membership)
        seqs = await sessions.post(membership, events) if events else []
        last_seq = max([record.last, *seqs])
        if run_input.stops or last_seq <= record.last:
            return await self._attach(request, membership, body.thread_id, body.run_id, body.protocol_version)
        return await self._respond(request, membership, body, record, message_id, last_seq)

    async def _check_answered(self, membership: Membership, entries: list[ResumeEntry]) -> None:
        """Raise `BadInput` for an interrupt that the thread never had: its client waits for an answer."""
        if not entries:
            return
        tree = await self._access.sessions.tree(membership)
        for index, entry in enumerate(entries):
            call_id = entry.interrupt_id
            if any(call_id in invocation.calls for invocation in tree.open.values()):
                continue
            if await self._access.sessions.log.closing_event(membership.session_id, call_id) is None:
                raise BadInput(
                    f"expected an interrupt of this thread, got {quote(call_id)}",
                    f"$.resume[{index}].interruptId",
                )

    async def _respond(
        self,
        request: Request,
        membership: Membership,
        body: RunAgentBody,
        before: SessionRecord,
        message_id: str,
        last_seq: int,
    ) -> EventStreamResponse:
        """Stream the turn of the event at `last_seq`, from the end of the log before the request on."""
        sessions = self._access.sessions
        session_id = membership.session_id
        meter = self._access.start_read_meter(request)
        [row] = await sessions.log.read(session_id, last_seq - 1, max_bytes=1)
        turn = row.trace or ""
        request.scope[TURN_KEY] = turn
        first_seq = before.last + 1
        run = AgUiRun(
            body.thread_id,
            body.run_id,
            body.parent_run_id,
            own_message=message_id,
            own_results=find_own_results(body.messages),
            messages=ThreadMessages(body.messages),
            state=await load_visible_state(sessions, membership, before.last, meter.charge),
        )
        dialect = AgUi(options_of(body.protocol_version), no_history, run, membership.effective_roles)
        stream = RunStream(sessions, membership, before, dialect, FRAMING, turn)
        bounds = await sessions.log.turn_bounds(session_id, turn)
        if bounds is not None:
            await stream.read_before(bounds[0], first_seq, meter.charge_and_wait)
        return stream.make_response(self._server, request, first_seq, last_seq, turn)

    async def _attach(
        self,
        request: Request,
        membership: Membership,
        thread_id: str,
        run_id: str | None,
        version: str | None,
    ) -> EventStreamResponse:
        """Stream all messages and the state, then what runs now. The run ends when nothing runs."""
        sessions = self._access.sessions
        meter = self._access.start_read_meter(request)
        record = await sessions.log.info(membership.session_id)
        run = AgUiRun(
            thread_id,
            run_id or "",
            sends_messages=True,
            state=await load_visible_state(sessions, membership, record.last, meter.charge),
        )
        dialect = AgUi(options_of(version), no_history, run, membership.effective_roles)
        stream = RunStream(sessions, membership, record, dialect, FRAMING, None)
        await stream.read_before(record.first, record.last + 1, meter.charge_and_wait)
        run.run_id = run_id or stream.last_turn or record.session_id
        first_seq = record.last + 1
        return stream.make_response(self._server, request, first_seq, record.last, stream.last_turn)

    async def _find_membership(self, request: Request) -> Membership:
        membership = await self._find_thread(request)
        if membership is None:
            raise NotFound(f"no thread {request.path_params['thread'][:80]}")
        return membership

    async def _find_thread(self, request: Request) -> Membership | None:
        """Return the caller's membership in the thread of a path; None for one that has no run yet."""
        thread_id = request.path_params["thread"]
        app = find_served_app(self._access, request)
        if len(thread_id) > MAX_ID_CHARS:
            raise NotFound(f"expected a thread id of at most {MAX_ID_CHARS} characters")
        membership = await find_thread(self._access, request, app, thread_id)
        if membership is not None:
            request.scope[SESSION_KEY] = membership.session_id
        return membership


def find_own_results(messages: list[dict[str, Any]]) -> frozenset[str]:
    """Return the ids of the calls whose results the client has."""
    return frozenset([str(item.get("toolCallId")) for item in messages if item.get("role") == "tool"])


def make_empty_thread(thread_id: str, version: str | None) -> Response:
    """Return the response for a thread that has no run yet: pages attach before their first message."""
    dialect = AgUi(options_of(version), no_history, AgUiRun(thread_id, thread_id, sends_messages=True))
    frames = [sse.encode(message) for message in [*dialect.begin(), *dialect.close()]]
    headers = {name.decode(): value.decode() for name, value in FRAMING.headers}
    return Response(b"".join(frames), headers=headers)
