"""A remote executor: a process that runs tools and is only a client of the server.

Input: the event stream of one session. Output: a posted `tool.result` for each call with `executor="remote"`
of a tool that it has. The id of a result is derived from its call, so posting it again changes nothing. A
call that gets another answer meanwhile is stopped.

After a restart of the server it reconnects with its cursor and a growing delay. A new executor asks for a
cursor past the end; the server answers with the position of the end and replays from the beginning. No call
runs before that position is reached, so answered calls do not run again. If the process dies between running
and posting, the call runs again: tools to which that matters use the call's `idempotency_key`.
Not supported from here: progress, images, and tools that ask for input.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url

import msgspec

from turnlog.agents.remote.server_client import (
    MAX_ERROR_BYTES,
    TOO_MANY_REQUESTS,
    ServerClient,
    ServerUnavailable,
    check_status,
    error_text,
    read_response_body,
)
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.runtime.approvals import check_tool_roles
from turnlog.agents.runtime.executor import Executor, HungTools
from turnlog.agents.runtime.user_input import remote_answer_id
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import Tool, error_result
from turnlog.errors import CallerError
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

# agent, process and session are requested because the log of an idle session ends with one of them: with a
# server that sends no `caught-up`, the end of the replay would be noticed only with the next heartbeat
EVENT_TYPES = "tool.call,tool.result,approval,ui.message,ui.action,agent,process,session"
MAX_TURNS = 1024  # whose actors are remembered; open turns are among the last
CURSOR_PAST_END = "9" * 18  # no log is that long: the server sends a reset and replays from the beginning
RECONNECT = RetryPolicy(initial_delay_s=0.1, max_delay_s=30.0)  # without a last attempt
CONFLICT = 409
ACCEPTED_STATUSES = (202, 404, CONFLICT)  # 404 and 409: the call was answered or given up meanwhile

Sleep = Callable[[float], Awaitable[None]]


class Reset(msgspec.Struct):
    """The data of a `reset` message: the seq at which the log ends."""

    last: int


class PendingCall(NamedTuple):
    """A call of one of this executor's tools that has not started."""

    tool: Tool
    call: ToolCall
    envelope: Envelope
    approved: bool


class RemoteExecutor:
    """Runs the remote calls of one session whose tools it has.

    `client` is a client that its owner closes; without one the executor opens and closes its own.
    """

    def __init__(
        self,
        url: str,
        session: str,
        tools: Iterable[Tool],
        token: str | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        hung: HungTools | None = None,
        client: ServerClient | None = None,
        trust_env: bool = False,
    ) -> None:
        self._tools = index_tools(tools)
        if others := [tool.name for tool in self._tools.values() if tool.executor != "remote"]:
            raise CallerError(f'expected tools with executor="remote", got {", ".join(others)}')
        self._owns_client = client is None
        self._client = client or ServerClient(url, token, trust_env=trust_env)
        self._session = session
        self._sleep = sleep
        self._executor = Executor(reject_images, hung=hung)
        self._decoder = Decoder()
        self._replay_until: int | None = None  # a seq; None: the replay is complete
        self._pending: dict[str, PendingCall] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._actors: dict[str, str] = {}  # by turn
        self._member_roles: dict[str, tuple[str, ...]] = {}
        self._unknown_tools: set[str] = set()  # each is reported once

    @property
    def is_idle(self) -> bool:
        """Return whether no call runs or waits."""
        return not self._pending and not self._running

    async def run(self) -> None:
        """Answer calls until the session is closed. Cancelling stops the tools that run."""
        failures = 0
        try:
            while True:
                last_id = self._decoder.last_id
                try:
                    if await self._follow():
                        return
                except ServerUnavailable as error:
                    log.warning("the stream of %s broke off: %s", self._session, error)

                has_progressed = self._decoder.last_id != last_id
                failures = 1 if has_progressed else failures + 1
                self._decoder.flush()
                await self._sleep(RECONNECT.delay_s(failures))
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._owns_client:
            await self._client.aclose()

    # the stream

    async def _follow(self) -> bool:
        """Process one stream to its end. Return True if the session is closed."""
        path = f"/api/events?session={quote_url(self._session)}&dialect=turnlog&types={EVENT_TYPES}"
        headers = {"accept": "text/event-stream", "last-event-id": self._decoder.last_id or CURSOR_PAST_END}
        async with self._client.stream(path, headers) as response:
            status = response.status_code
            if status == 204:
                return True
            if status != 200:
                check_status(status, await read_response_body(response, MAX_ERROR_BYTES))
            async for chunk in response.aiter_raw():
                self._process_messages(self._decoder.feed(chunk))
        return False

    def _process_messages(self, messages: list[ServerSentEvent]) -> None:
        """Apply all messages before a call starts: its answer may be among them."""
        for message in messages:
            handler = MESSAGE_HANDLERS.get(message.event)
            if handler is not None:
                handler(self, message)

        if self._replay_until is not None:
            return
        for pending_call in list(self._pending.values()):
            if pending_call.approved:
                self._start_call(self._pending.pop(pending_call.call.call_id))

    def _on_event(self, message: ServerSentEvent) -> None:
        envelope = decode_envelope(message.data.encode())
        payload = CATALOG.decode_payload(envelope)
        self._executor.idempotency_cache.apply(envelope, payload)
        handler = EVENT_HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, envelope, payload)
        if self._replay_until is not None and envelope.seq >= self._replay_until:
            self._replay_until = None

    def _on_reset(self, message: ServerSentEvent) -> None:
        # the server replays from the beginning: running calls continue, waiting calls come again
        last = msgspec.json.decode(message.data, type=Reset).last
        self._replay_until = last if last >= 0 else None
        self._pending.clear()

    def _on_history_end(self, _: ServerSentEvent) -> None:
        # `caught-up`; an older server sends only heartbeats, when it has nothing left to replay
        self._replay_until = None

    def _on_user_event(self, envelope: Envelope, _: UiMessage | UiAction) -> None:
        # a call is made on behalf of the last sender in its turn
        if envelope.trace_id and envelope.actor:
            self._actors[envelope.trace_id] = envelope.actor
            if len(self._actors) > MAX_TURNS:
                del self._actors[next(iter(self._actors))]

    def _on_call(self, envelope: Envelope, call: ToolCall) -> None:
        if call.executor != "remote":
            return
        tool = self._tools.get(call.tool)
        if tool is None:
            self._report_unknown_tool(call.tool)
            return
        if call.call_id not in self._running and self._may_use(tool, envelope):
            approved = not tool.needs_approval(call.args)
            self._pending[call.call_id] = PendingCall(tool, call, envelope, approved)

    def _report_unknown_tool(self, name: str) -> None:
        if name in self._unknown_tools:
            return
        self._unknown_tools.add(name)
        names = ", ".join(self._tools)
        log.warning("%s calls %s, which this executor does not have: %s", self._session, name, names)

    def _may_use(self, tool: Tool, envelope: Envelope) -> bool:
        # the server denies such a call too, but its denial comes after the call
        actor = self._actors.get(envelope.trace_id or "")
        return actor is None or check_tool_roles(tool, self._member_roles.get(actor, ())) is None

    def _on_member(self, _: Envelope, member: SessionMember) -> None:
        self._member_roles[member.principal] = member.roles

    def _on_decision(self, _: Envelope, decision: ApprovalDecision) -> None:
        # the server has checked who decided and when; here the decision must be about the same arguments
        pending_call = self._pending.get(decision.call_id)
        if pending_call is None or decision.decision != "approve":
            return
        if decision.args_hash == pending_call.call.args_hash:
            self._pending[decision.call_id] = pending_call._replace(approved=True)

    def _on_result(self, _: Envelope, result: ToolResult) -> None:
        self._pending.pop(result.call_id, None)
        task = self._running.get(result.call_id)
        if task is not None:
            task.cancel()

    # calls

    def _start_call(self, pending_call: PendingCall) -> None:
        task = asyncio.create_task(self._run_call(pending_call))
        self._running[pending_call.call.call_id] = task
        task.add_done_callback(partial(self._on_call_done, pending_call.call.call_id))

    def _on_call_done(self, call_id: str, task: asyncio.Task[None]) -> None:
        del self._running[call_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the result of %s could not be posted", call_id, exc_info=error)

    async def _run_call(self, pending_call: PendingCall) -> None:
        call = pending_call.call
        envelope = pending_call.envelope
        actor = self._actors.get(envelope.trace_id or "")
        context = ToolContext(call, self._session, envelope.agent_name or "", actor=actor)
        result = await self._executor.run(pending_call.tool, call, context)
        if isinstance(result, WaitForInput):
            message = f"{call.tool} cannot ask for input from another process"
            result = error_result(call, "EXECUTION_ERROR", message)

        event_id = remote_answer_id(self._session, envelope.agent_id, call.call_id)
        status, refusal = await self._post_result(event_id, result)
        if status == CONFLICT:
            # either the call has another answer, or another event has this id: a fresh id tells them apart
            status, refusal = await self._post_result(new_id("evt_"), result)

        if status not in ACCEPTED_STATUSES:
            log.error("the result of %s was refused: %d %s", call.call_id, status, refusal)
            message = f"the result of {call.tool} could not be sent"
            await self._post_result(event_id, error_result(call, "EXECUTION_ERROR", message))

    async def _post_result(self, event_id: str, result: ToolResult) -> tuple[int, str]:
        """Post a result until the server accepts or refuses it. Return the status and the refusal's text."""
        event = {"type": "tool.result", "id": event_id, "payload": result}
        body = msgspec.json.encode({"session": self._session, "events": [event]})
        failures = 0
        while True:
            try:
                status, response_body = await self._client.post("/api/events", body)
                if status < 500 and status != TOO_MANY_REQUESTS:
                    return status, error_text(response_body)
                log.warning("the server does not accept the result of %s now: %d", result.call_id, status)
            except ServerUnavailable as error:
                log.warning("the result of %s is not sent yet: %s", result.call_id, error)
            failures += 1
            await self._sleep(RECONNECT.delay_s(failures))


MESSAGE_HANDLERS: dict[str, Callable[[RemoteExecutor, ServerSentEvent], None]] = {
    "message": RemoteExecutor._on_event,
    "reset": RemoteExecutor._on_reset,
    "caught-up": RemoteExecutor._on_history_end,
    "heartbeat": RemoteExecutor._on_history_end,
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
    """Return the tools by name. Raise `CallerError` if two have the same name."""
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if by_name.setdefault(tool.name, tool) is not tool:
            raise CallerError(f"expected each tool once, got {tool.name} twice")
    return by_name


async def reject_images(data: bytes, media_type: str) -> str:
    """Raise `CallerError`: the server has no route to which a remote executor could send an image."""
    raise CallerError("expected a result without images from a remote executor")
