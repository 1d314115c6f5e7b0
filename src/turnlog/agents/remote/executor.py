"""A remote executor: another process that runs tools and is only a client of the server.

It follows a session, runs the calls that are for another process (`executor="remote"`) and of its own tools,
and posts each result like a page would. A result has an id made from its call, so posting it again changes
nothing; a call that gets another answer meanwhile is stopped. It lives through restarts of the server: it
comes back with its cursor, later and later while that fails. Begun anew it asks from behind the end, is told
where the end is, and runs nothing before it has seen everything up to there: what was answered is not run
again. A process that dies between running and posting runs the call again when it is back; the call's
`idempotency_key` is for tools to whom that matters. A tool that needs approval waits until it is given, and
one for certain roles does not run for a member who has none of them. What does not reach the log from here:
progress, pictures, and questions of a tool.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url

import msgspec

from turnlog.agents.remote.http_client import GONE, Door
from turnlog.agents.runtime.approvals import check_tool_roles
from turnlog.agents.runtime.executor import Executor, HungTools
from turnlog.agents.runtime.idempotency import hash_call_args
from turnlog.agents.runtime.user_input import remote_answer_id
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import Tool, error_result
from turnlog.errors import CallerError, PeerError, quote
from turnlog.events import (
    CATALOG,
    ApprovalDecision,
    Envelope,
    SessionMember,
    ToolCall,
    ToolResult,
    UiAction,
    UiMessage,
    decode_envelope,
)
from turnlog.ids import new_id
from turnlog.wire.sse import Decoder, ServerSentEvent

log = logging.getLogger("turnlog.agents")

# the last ones only because the log of a session that waits ends with one: then its end is seen at once
EVENT_TYPES = "tool.call,tool.result,approval,ui.message,ui.action,agent,process,session"
MAX_TURNS = 1024  # whose people are remembered; those that are open are among the last
CURSOR_PAST_END = "9" * 18  # no log is that long: the server says where it ends, and begins at the beginning
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # between attempts; the last one for all that follow
CONFLICT = 409
ACCEPTED_STATUSES = (202, 404, CONFLICT)  # taken; or the call has been answered or given up meanwhile
TOO_MANY_REQUESTS = 429

Sleep = Callable[[float], Awaitable[None]]


class Reset(msgspec.Struct):
    """Where the log ends, as the stream says it."""

    last: int


class PendingCall(NamedTuple):
    """A call that is for this process."""

    tool: Tool
    call: ToolCall
    envelope: Envelope
    approved: bool


class ServerUnavailable(ConnectionError):
    """A server that cannot answer now."""


class RemoteExecutor:
    """Runs the remote calls of one session whose tools it has."""

    def __init__(
        self,
        url: str,
        session: str,
        tools: Iterable[Tool],
        token: str | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        hung: HungTools | None = None,
    ) -> None:
        self._tools = index_tools(tools)
        if others := [tool.name for tool in self._tools.values() if tool.executor != "remote"]:
            raise CallerError(f'expected tools with executor="remote", got {", ".join(others)}')
        self._http = Door(url, token)
        self._session = session
        self._sleep = sleep
        self._executor = Executor(reject_images, hung=hung)
        self._decoder = Decoder()
        self._replay_until: int | None = None
        self._pending: dict[str, PendingCall] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._actors: dict[str, str] = {}
        self._member_roles: dict[str, tuple[str, ...]] = {}
        self._unknown_tools: set[str] = set()  # tools of other executors, each reported once

    async def run(self) -> None:
        """Answer calls until the session is closed; cancelling stops what runs."""
        failures = 0
        try:
            while True:
                before = self._decoder.last_id
                try:
                    if await self._follow():
                        return
                except GONE as error:
                    log.warning("the stream of %s broke off: %r", self._session, error)
                failures = 1 if self._decoder.last_id != before else failures + 1
                self._decoder.flush()
                await self._sleep(backoff_s(failures))
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> bool:
        """Take what the stream brings; True if there is nothing more to come."""
        path = f"/api/events?session={quote_url(self._session)}&types={EVENT_TYPES}"
        headers = {"accept": "text/event-stream", "last-event-id": self._decoder.last_id or CURSOR_PAST_END}
        async with self._http.get(path, headers) as answer:
            if answer.status == 204:
                return True
            check_status(answer.status, b"" if answer.status == 200 else await answer.body(1000))
            async for piece in answer.pieces():
                self._process_messages(self._decoder.feed(piece))
        return False

    def _process_messages(self, messages: list[ServerSentEvent]) -> None:
        """Everything that came is known before a call is begun: its answer may be there too."""
        for message in messages:
            if signal := MESSAGE_HANDLERS.get(message.event):
                signal(self, message)
        for wanted in list(self._pending.values()):
            if wanted.approved and self._replay_until is None:
                self._start_call(self._pending.pop(wanted.call.call_id))

    def _on_event(self, message: ServerSentEvent) -> None:
        envelope = decode_envelope(message.data.encode())
        payload = CATALOG.decode_payload(envelope)
        self._executor.idempotency_cache.apply(envelope, payload)
        if step := EVENT_HANDLERS.get(type(payload)):
            step(self, envelope, payload)
        if self._replay_until is not None and envelope.seq >= self._replay_until:
            self._replay_until = None

    def _on_reset(self, message: ServerSentEvent) -> None:
        """The stream begins anew: what runs goes on, what waits comes again."""
        last = msgspec.json.decode(message.data, type=Reset).last
        self._replay_until = last if last >= 0 else None
        self._pending.clear()

    def _on_heartbeat(self, _: ServerSentEvent) -> None:
        """The stream is silent: nothing is left to be replayed."""
        self._replay_until = None

    def _on_user_event(self, envelope: Envelope, _: UiMessage | UiAction) -> None:
        """Calls are made for who spoke last in their turn."""
        if envelope.trace_id and envelope.actor:
            self._actors[envelope.trace_id] = envelope.actor
            if len(self._actors) > MAX_TURNS:
                del self._actors[next(iter(self._actors))]

    def _on_call(self, envelope: Envelope, call: ToolCall) -> None:
        if (
            call.executor == "remote"
            and call.tool not in self._tools
            and call.tool not in self._unknown_tools
        ):
            self._unknown_tools.add(call.tool)
            names = ", ".join(self._tools)
            log.warning("%s calls %s, which this executor does not have: %s", self._session, call.tool, names)
        tool = self._tools.get(call.tool) if call.executor == "remote" else None
        if tool is not None and call.call_id not in self._running and self._may_use(tool, envelope):
            self._pending[call.call_id] = PendingCall(
                tool, call, envelope, not tool.needs_approval(call.args)
            )

    def _may_use(self, tool: Tool, envelope: Envelope) -> bool:
        """Whether who spoke last may use a tool: the server denies it too, but later than it is seen here."""
        actor = self._actors.get(envelope.trace_id or "")
        return actor is None or check_tool_roles(tool, self._member_roles.get(actor, ())) is None

    def _on_member(self, _: Envelope, member: SessionMember) -> None:
        self._member_roles[member.principal] = member.roles

    def _on_decision(self, _: Envelope, decision: ApprovalDecision) -> None:
        """The server has judged who decided, and when; here it has to be about this very call."""
        wanted = self._pending.get(decision.call_id)
        if (
            wanted
            and decision.decision == "approve"
            and decision.args_hash == hash_call_args(wanted.call.args)
        ):
            self._pending[decision.call_id] = wanted._replace(approved=True)

    def _on_result(self, _: Envelope, result: ToolResult) -> None:
        self._pending.pop(result.call_id, None)
        if task := self._running.get(result.call_id):
            task.cancel()

    def _start_call(self, pending_call: PendingCall) -> None:
        task = asyncio.create_task(self._run_call(pending_call))
        self._running[pending_call.call.call_id] = task
        task.add_done_callback(partial(self._on_call_done, pending_call.call.call_id))

    def _on_call_done(self, call_id: str, task: asyncio.Task[None]) -> None:
        del self._running[call_id]
        if not task.cancelled() and (error := task.exception()):
            log.error("the result of %s could not be posted", call_id, exc_info=error)

    async def _run_call(self, pending_call: PendingCall) -> None:
        """Run one call and post its result."""
        call, envelope = pending_call.call, pending_call.envelope
        actor = self._actors.get(envelope.trace_id or "")
        context = ToolContext(call, self._session, envelope.agent_name or "", actor=actor)
        result = await self._executor.run(pending_call.tool, call, context)
        if isinstance(result, WaitForInput):
            result = error_result(
                call, "EXECUTION_ERROR", f"{call.tool} cannot ask for input from another process"
            )
        event_id = remote_answer_id(self._session, envelope.agent_id, call.call_id)
        status, problem = await self._post_result(event_id, result)
        if status == CONFLICT:
            # Either the call has another answer, or another event has this id: a fresh one tells them apart.
            status, problem = await self._post_result(new_id("evt_"), result)
        if status not in ACCEPTED_STATUSES:
            log.error("the result of %s was refused: %d %s", call.call_id, status, problem)
            refused = error_result(call, "EXECUTION_ERROR", f"the result of {call.tool} could not be sent")
            await self._post_result(event_id, refused)

    async def _post_result(self, event_id: str, result: ToolResult) -> tuple[int, str]:
        """Post a result until the server has taken or refused it."""
        event = {"type": "tool.result", "id": event_id, "payload": result}
        body = msgspec.json.encode({"session": self._session, "events": [event]})
        failures = 0
        while True:
            try:
                status, answer = await self._http.post("/api/events", body)
                if status < 500 and status != TOO_MANY_REQUESTS:
                    return status, error_text(answer)
                log.warning("the result of %s is not taken yet: %d", result.call_id, status)
            except GONE as error:
                log.warning("the result of %s is not sent yet: %r", result.call_id, error)
            failures += 1
            await self._sleep(backoff_s(failures))


MESSAGE_HANDLERS: dict[str, Callable[[RemoteExecutor, ServerSentEvent], None]] = {
    "message": RemoteExecutor._on_event,
    "reset": RemoteExecutor._on_reset,
    "heartbeat": RemoteExecutor._on_heartbeat,
}
EVENT_HANDLERS: dict[type, Callable[[RemoteExecutor, Envelope, Any], None]] = {
    ToolCall: RemoteExecutor._on_call,
    ToolResult: RemoteExecutor._on_result,
    ApprovalDecision: RemoteExecutor._on_decision,
    SessionMember: RemoteExecutor._on_member,
    UiMessage: RemoteExecutor._on_user_event,
    UiAction: RemoteExecutor._on_user_event,
}


def index_tools(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by their names, each of which may be there once."""
    found: dict[str, Tool] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise CallerError(f"expected each tool once, got {tool.name} twice")
    return found


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return BACKOFF_S[min(failures, len(BACKOFF_S)) - 1]


def check_status(status: int, body: bytes) -> None:
    """Refuse what is not a stream: for now, or for good."""
    if status >= 500 or status == TOO_MANY_REQUESTS:
        raise ServerUnavailable(f"the server answered {status}")
    if status != 200:
        raise PeerError(f"expected a stream of events, got {status}: {error_text(body)}")


def error_text(body: bytes) -> str:
    """What a refusal says."""
    return quote(body.decode(errors="replace"))


async def reject_images(data: bytes, media_type: str) -> str:
    """There is no door for pictures yet."""
    raise CallerError("expected a result without pictures from a process elsewhere")
