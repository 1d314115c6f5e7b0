"""`ServerConnection`: what a program does with a server, as methods.

    server = turnlog.connect("https://turnlog.example", token)
    session = await server.create("support")
    sent = await server.send(session, "Hi")
    async for event in server.follow(session, turn=sent.turn):
        print(event.type, event.payload)
    await server.aclose()

Each method sends its request again while the server cannot answer, and the request has its effect once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote_plus, urlencode
from uuid import uuid4

import msgspec

from turnlog.adapters.foreign_agent import ForeignAgent
from turnlog.agents.remote.server_client import ServerClient
from turnlog.connection.event_follower import EventFollower
from turnlog.connection.json_requests import JsonRequests, Sleep
from turnlog.connection.part_worker import PartWorker
from turnlog.connection.server_target import ServerTarget
from turnlog.errors import CallerError, NotFound, quote
from turnlog.events import Catalog, Vocabulary
from turnlog.ids import new_id
from turnlog.recording import RecordedTurn
from turnlog.vocabularies import FULL_CATALOG, VOCABULARIES

PAGE_SESSIONS = 100
MAX_PARTS = 10  # turns of one worker at a time; they mostly wait for models


class SessionOverview(msgspec.Struct):
    """A session as the server lists it; `state` is idle, running, waiting or closed."""

    session_id: str
    app: str
    title: str
    state: str
    created: str
    last_activity: str
    roles: tuple[str, ...] = ()


class SessionOverviewPage(msgspec.Struct):
    sessions: list[SessionOverview]
    next: str | None = None


class CreatedSession(msgspec.Struct):
    session_id: str


class MessageReceipt(msgspec.Struct, rename={"seq": "eventId"}):
    """Where a message is in the log, and the turn that answers it."""

    seq: int
    id: str
    turn: str


class StoredEvents(msgspec.Struct):
    seqs: list[int]


class StoredStop(msgspec.Struct, rename={"seq": "eventId"}):
    seq: int


class WaitingCall(msgspec.Struct):
    """A call that has no result. `waits_for` names who must act: `page`, `approval`, `remote` and others."""

    call_id: str
    tool: str
    args: dict[str, Any]
    waits_for: str
    agent_id: str
    agent_name: str
    turn: str | None = None
    approval: dict[str, Any] | None = None


class OpenItems(msgspec.Struct):
    calls: list[WaitingCall]


class StateWithOpenItems(msgspec.Struct):
    open: OpenItems


def connect(
    url: str,
    token: str | None = None,
    *,
    vocabularies: Sequence[Vocabulary] = (),
    trust_env: bool = False,
) -> "ServerConnection":
    """Return a connection to a server. Nothing is sent before its first method is called.

    `vocabularies` are those of applications whose events are read as their classes. With `trust_env` the
    proxies of the environment are used.
    """
    return ServerConnection(ServerClient(url, token, trust_env=trust_env), vocabularies)


class ServerConnection:
    """A server, as one principal sees it. Its connections close with `aclose`, or with `async with`."""

    def __init__(
        self, client: ServerClient, vocabularies: Sequence[Vocabulary] = (), sleep: Sleep = asyncio.sleep
    ) -> None:
        self.requests = JsonRequests(client, sleep)
        self.catalog = Catalog(*VOCABULARIES, *vocabularies) if vocabularies else FULL_CATALOG

    async def __aenter__(self) -> "ServerConnection":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.requests.client.aclose()

    # sessions

    async def sessions(self, page_size: int = PAGE_SESSIONS) -> AsyncIterator[SessionOverview]:
        """Yield the sessions of this principal, the last active first. Pages are read as they are needed."""
        path = f"/api/sessions?limit={page_size}"
        page = await self.requests.get(path, SessionOverviewPage)
        while True:
            for session in page.sessions:
                yield session
            if page.next is None:
                return
            page = await self.requests.get(f"{path}&after={quote_plus(page.next)}", SessionOverviewPage)

    async def session(self, session: str) -> SessionOverview:
        """Return one session. Raise `ServerRefused` with status 404 if there is none."""
        page = await self.requests.get(
            f"/api/sessions?{urlencode({'session': session})}", SessionOverviewPage
        )
        return page.sessions[0]

    async def create(
        self, app: str | None = None, title: str | None = None, *, key: str | None = None
    ) -> str:
        """Create a session and return its id. The same `key` returns the same session."""
        body = {name: value for name, value in (("app", app), ("title", title)) if value is not None}
        created = await self.requests.post("/api/sessions", body, CreatedSession, make_key_header(key))
        return created.session_id

    # messages and answers

    async def send(
        self,
        session: str,
        text: str,
        *,
        key: str | None = None,
        target: str | None = None,
        channel: str | None = None,
        traceparent: str | None = None,
    ) -> MessageReceipt:
        """Send a message. The same `key` sends it once, however often this is called.

        With a W3C `traceparent` the spans of the turn continue the trace of the caller (`turnlog.otel`).
        """
        body: dict[str, Any] = {"session": session, "message": text}
        if target is not None:
            body["targetAgent"] = target
        if channel is not None:
            body["channel"] = channel
        headers = make_key_header(key)
        if traceparent is not None:
            headers["traceparent"] = traceparent
        return await self.requests.post("/api/send", body, MessageReceipt, headers)

    async def post(
        self, session: str, type: str, payload: Mapping[str, Any], *, event_id: str | None = None
    ) -> int:
        """Post one event that a member may post, and return its seq."""
        event = {"type": type, "payload": payload, "id": event_id or new_id("evt_")}
        body = {"session": session, "events": [event]}
        stored = await self.requests.post("/api/events", body, StoredEvents)
        return stored.seqs[0]

    async def pending_calls(self, session: str) -> list[WaitingCall]:
        """Return the calls of a session that have no result."""
        query = urlencode({"session": session, "include": "open"})
        state = await self.requests.get(f"/api/state?{query}", StateWithOpenItems)
        return state.open.calls

    async def _find_pending_call(self, session: str, call_id: str) -> WaitingCall:
        for call in await self.pending_calls(session):
            if call.call_id == call_id:
                return call
        raise NotFound(f"no call {quote(call_id)} waits in {session}")

    async def answer(self, session: str, call_id: str, value: Any) -> int:
        """Answer a call that waits for the page with any JSON value."""
        call = await self._find_pending_call(session, call_id)
        result = {"call_id": call_id, "tool": call.tool, "ok": True, "result": value, "error": None}
        return await self.post(session, "tool.result", result)

    async def submit(self, session: str, call_id: str, values: Mapping[str, Any]) -> int:
        """Give a tool of the server the input that it asked for."""
        action = {"kind": "input.submit", "values": values}
        return await self.post(session, "ui.action", {"call_id": call_id, "action": action})

    async def approve(self, session: str, call_id: str, notes: str | None = None) -> int:
        """Approve a call with the arguments that it has now."""
        return await self._decide(session, call_id, "approve", notes)

    async def deny(self, session: str, call_id: str, notes: str | None = None) -> int:
        """Deny a call. The model reads `notes`."""
        return await self._decide(session, call_id, "deny", notes)

    async def _decide(self, session: str, call_id: str, decision: str, notes: str | None) -> int:
        call = await self._find_pending_call(session, call_id)
        if call.approval is None:
            raise CallerError(f"call {quote(call_id)} of {call.tool} does not wait for an approval")
        payload = {"call_id": call_id, "args_hash": call.approval["args_hash"], "decision": decision}
        if notes is not None:
            payload["notes"] = notes
        return await self.post(session, "approval.decision", payload)

    async def stop(self, session: str) -> int:
        """Stop what runs in a session. Return the seq of the command."""
        stored = await self.requests.post("/api/stop", {"session": session}, StoredStop)
        return stored.seq

    # reading

    def follow(
        self,
        session: str,
        after: str | int | None = None,
        *,
        types: Sequence[str] = (),
        turn: str | None = None,
    ) -> EventFollower:
        """Yield events after a cursor, for ever and over restarts of the server (`event_follower`).

        `after` is a seq, a stored `cursor`, or `end` for new events only. `turn` yields the events of one
        turn, and ends when it is over or all its agents wait.
        """
        return EventFollower(self.requests, self.catalog, session, after, types, turn)

    # recording

    def record(
        self,
        session: str,
        *,
        prompt: str | None = None,
        name: str = "Agent",
        model: str | None = None,
        channel: str | None = None,
    ) -> RecordedTurn:
        """Record one turn of an agent of this process: `async with server.record(session) as turn`.

        The token needs the server role `source`. See `turnlog.recording.RecordedTurn`.
        """
        target = ServerTarget(self.requests, self.catalog, session)
        return RecordedTurn(target, prompt=prompt, name=name, model=model, channel=channel)

    # answering

    async def serve(self, app: str, agent: ForeignAgent, *, max_parts: int = MAX_PARTS) -> None:
        """Answer the sessions of an application whose agent is a `RemoteAgent`, until this is cancelled.

        At most `max_parts` turns run at a time. The token needs the server role `source`. The server decides
        who may approve: the policies of its `RemoteAgent` count.
        """
        if agent.policies:
            raise CallerError("expected an agent without policies: those of the server's RemoteAgent count")
        if max_parts < 1:
            raise CallerError(f"expected max_parts of at least 1, got {max_parts}")
        await PartWorker(self.requests, app, agent.runner, max_parts).run()


def make_key_header(key: str | None) -> dict[str, str]:
    # without a key of the caller: so that the same request, sent again, has its effect once
    return {"idempotency-key": key or uuid4().hex}
