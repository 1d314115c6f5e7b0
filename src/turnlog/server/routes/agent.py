"""`POST /agent/run` and `POST /agent/tool_results`: a turn and its response in one request (protocol 8.3).

The first sends a prompt, the second answers all calls that wait for the page; both answer with the turn's
stream in `blocks`, which ends with `[DONE]`. `agent_uuid` is the session, as `Turnlog-Session` gave it.
"""

import time
from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from turnlog.app import Posted, Seat
from turnlog.errors import BadInput, Conflict
from turnlog.events import UiMessage
from turnlog.events.payload import Name, Record
from turnlog.ids import new_id
from turnlog.server.auth.authentication import known_of, maker_of
from turnlog.server.request_body import body, checked_text
from turnlog.server.routes.api import MAX_EVENTS, Routes
from turnlog.server.streaming.event_stream import EventStream
from turnlog.server.streaming.query import wanted_dialect
from turnlog.server.streaming.streams import HEADERS, Pages, Reader
from turnlog.server.streaming.turn_response import Turn
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.registry import Wanted


class RunBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_prompt: Any
    agent_uuid: str | None = None
    agent_type: Name | None = None


class CallResult(msgspec.Struct, forbid_unknown_fields=True):
    tool_use_id: str
    content: Any
    is_error: bool = False


class ResultsBody(msgspec.Struct, forbid_unknown_fields=True):
    agent_uuid: str
    tool_results: Annotated[list[CallResult], msgspec.Meta(max_length=MAX_EVENTS)]


class AgentRoutes:
    """The two routes, on the streams of a server."""

    def __init__(self, stream: EventStream, routes: Routes) -> None:
        self._stream = stream
        self._routes = routes

    async def run(self, request: Request) -> Reader:
        """A prompt, and the turn it opens, or the one that waited: then what it answered comes first."""
        sessions, wanted = self._stream.sessions(), self._admitted(request)
        asked = await body(request, RunBody)
        prompt = asked.user_prompt
        text = prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode()
        message = UiMessage(text=checked_text(text, "$.user_prompt"), target=asked.agent_type)
        if asked.agent_uuid is None:
            maker = maker_of(request.scope)
            self._routes.budgets.create_session(maker, time.monotonic())
            seat = await sessions.create(maker)
        else:
            seat = await self._seat(request, asked.agent_uuid)
        sent = await sessions.send(seat, message)
        return await self._respond(request, seat, wanted, sent.turn, sent.seq - sent.freed, sent.seq)

    async def tool_results(self, request: Request) -> Reader:
        """The answers to everything that waits for the page, and how the turn goes on."""
        sessions, wanted = self._stream.sessions(), self._admitted(request)
        given = await body(request, ResultsBody)
        seat = await self._seat(request, given.agent_uuid)
        waiting = await sessions.awaited(seat)
        names = [result.tool_use_id for result in given.tool_results]
        if sorted(names) != sorted(waiting):
            calls = ", ".join(sorted(waiting)) or "none"
            head = await sessions.log.info(seat.session_id)
            raise Conflict(f"expected one result for each call that waits: {calls}", head.last)
        posted = [
            Posted("tool.result", result_of(result, waiting[result.tool_use_id][0]), new_id("evt_"))
            for result in given.tool_results
        ]
        if not posted:
            raise BadInput("expected at least one result", "$.tool_results")
        seqs = await sessions.post(seat, posted)
        return await self._respond(request, seat, wanted, waiting[names[0]][1], seqs[0], seqs[-1])

    async def _seat(self, request: Request, name: str) -> Seat:
        """The caller's seat in a session, by its name or by an agent in it, as `meta_init` tells them."""
        if name.startswith("sess_"):
            return await self._routes.seat(request, name)
        agent_id = f"agt_{name.removeprefix('agt_')}"
        return await self._stream.sessions().seat_beside(known_of(request.scope).principal, agent_id)

    def _admitted(self, request: Request) -> Wanted:
        """How the response is to be told; what cannot be told is refused before anything is done."""
        self._stream.readers.admit(known_of(request.scope))
        return wanted_dialect(request.query_params, self._stream.dialects, default="blocks")

    async def _respond(
        self, request: Request, seat: Seat, wanted: Wanted, turn: str, first: int, last: int
    ) -> Reader:
        """The turn's events from the first that was just appended; before the last one it does not rest."""
        sessions = self._stream.sessions()
        session_id = seat.session_id
        request.scope.update({"turnlog.session": session_id, "turnlog.turn": turn})
        head = await sessions.log.info(session_id)
        start = await sessions.log.turn_start(session_id, first - 1)
        frames = await Turn(sessions, seat, head, turn, start).response(wanted, Cursor(first - 1), last)
        named = [(b"turnlog-session", session_id.encode()), (b"turnlog-turn", turn.encode())]
        known = known_of(request.scope)
        return self._stream.readers.response(Pages(frames), known, [seat], [*HEADERS, *named])


def result_of(given: CallResult, tool: str) -> dict[str, Any]:
    """A result of 003 as ours."""
    if not given.is_error:
        return {"call_id": given.tool_use_id, "tool": tool, "ok": True, "result": given.content}
    text = given.content if isinstance(given.content, str) else msgspec.json.encode(given.content).decode()
    error = {"code": "EXECUTION_ERROR", "message": text}
    return {"call_id": given.tool_use_id, "tool": tool, "ok": False, "error": error}
