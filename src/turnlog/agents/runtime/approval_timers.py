"""The timers of approvals that expire: one for each request that no person has decided yet.

The timers use the clock of the event loop, and the times that the requests name. When the time of a request
is over, a decision says so in the log. The timers end with the runner: the next owner starts them again.
"""

import asyncio
from typing import TYPE_CHECKING

from turnlog.events import (
    AgentEnd,
    ApprovalDecision,
    ApprovalRequest,
    Envelope,
    EventDraft,
    Payload,
    ToolResult,
    UnknownPayload,
)
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.ids import now_ms
from turnlog.state.tree import Invocation, Tree

if TYPE_CHECKING:
    from turnlog.agents.runtime.session_runner import SessionRunner

CallKey = tuple[str, str]  # the id of an agent and of one of its calls


class ApprovalTimers:
    """Appends that an approval has expired, when its time is over and no person has decided."""

    def __init__(self, host: "SessionRunner") -> None:
        self._host = host
        self._timers: dict[CallKey, asyncio.TimerHandle] = {}

    def start(self, agent_id: str, request: ApprovalRequest) -> None:
        """Start the timer of a request, unless it never expires."""
        if request.expires_at is None:
            return
        expires_ms = parse_timestamp_ms(request.expires_at)
        delay_s = max(0.0, (expires_ms - now_ms()) / 1000)
        self.cancel(agent_id, request.call_id)
        timer = asyncio.get_running_loop().call_later(delay_s, self._expire, agent_id, request)
        self._timers[agent_id, request.call_id] = timer

    def _expire(self, agent_id: str, request: ApprovalRequest) -> None:
        self._timers.pop((agent_id, request.call_id), None)
        invocation = self._host.tree.open.get(agent_id)
        if invocation is not None:
            self._host.spawn(self._append_expiry(invocation, request), invocation.scope.trace_id)

    async def _append_expiry(self, invocation: Invocation, request: ApprovalRequest) -> None:
        await self._host.wait_for_head()
        call = self._host.tree.find_call(invocation.agent_id, request.call_id)
        if call is not None and call.approval_request == request:
            decision = ApprovalDecision(
                call_id=request.call_id, args_hash=request.args_hash, decision="expired"
            )
            await self._host.append([EventDraft(decision, invocation.scope, "system")])

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Stop the timers of requests that are decided, and of agents that have ended."""
        if isinstance(payload, ApprovalDecision | ToolResult):
            self.cancel(envelope.agent_id or "", payload.call_id)
        elif isinstance(payload, AgentEnd):
            self.cancel_agent(envelope.agent_id or "")

    def cancel(self, agent_id: str, call_id: str) -> None:
        timer = self._timers.pop((agent_id, call_id), None)
        if timer is not None:
            timer.cancel()

    def cancel_agent(self, agent_id: str) -> None:
        for key in [key for key in self._timers if key[0] == agent_id]:
            self.cancel(*key)

    def cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel(*key)


def next_expiry_ms(tree: Tree) -> int | None:
    """Return when the first open approval expires; None if none does.

    From the tree and not from the timers: a stop may come between a request and its timer.
    """
    expiries_ms: list[int] = []
    for invocation in tree.open.values():
        for call in invocation.calls.values():
            request = call.approval_request
            if request is not None and request.expires_at is not None:
                expiries_ms.append(parse_timestamp_ms(request.expires_at))
    return min(expiries_ms, default=None)
