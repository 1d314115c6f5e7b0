"""The timers of approvals that expire: one for each request that no person has decided yet.

The timers use the clock of the event loop, and the times that the requests name. They end with the runner:
the next owner starts them again.
"""

import asyncio
from collections.abc import Callable

from turnlog.events import ApprovalRequest
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.ids import now_ms

CallKey = tuple[str, str]  # the id of an agent and of one of its calls


class ApprovalTimers:
    """Calls `on_expiry` with the agent and the request when the time of a request is over."""

    def __init__(self, on_expiry: Callable[[str, ApprovalRequest], None]) -> None:
        self._on_expiry = on_expiry
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
        self._on_expiry(agent_id, request)

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
