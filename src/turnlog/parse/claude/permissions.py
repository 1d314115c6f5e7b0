"""The permissions that a Claude CLI process waits for: requests in, approvals and answers out. Pure."""

from typing import Any, NamedTuple

from turnlog.events import ApprovalDecision, ApprovalRequest, ToolCall
from turnlog.parse.claude.lines import allow_line, deny_line
from turnlog.parse.claude.message import CliAgent
from turnlog.parse.json_values import JsonObject, as_name, as_opaque_id
from turnlog.parse.messages_api import bounded_text

DEFAULT_RISK = "tool_use"  # the process does not report how dangerous a call is


class PermissionRequest(NamedTuple):
    """A request that the process waits for."""

    request_id: str
    call: ToolCall
    approval_request: ApprovalRequest
    agent: CliAgent

    @property
    def is_open(self) -> bool:
        return self.agent.owns_open_call(self.call.call_id)


class PermissionRequests:
    """The open requests, by call."""

    def __init__(self) -> None:
        self._by_call: dict[str, PermissionRequest] = {}

    def add(self, request: PermissionRequest) -> None:
        """Store a request. Requests whose calls have a result are dropped."""
        self._by_call = {call_id: other for call_id, other in self._by_call.items() if other.is_open}
        self._by_call[request.call.call_id] = request

    def decide(self, decision: ApprovalDecision, updated_args: JsonObject | None) -> bytes | None:
        request = self._by_call.get(decision.call_id)
        if request is None or not request.is_open:
            return None
        if request.approval_request.args_hash != decision.args_hash:
            return None

        del self._by_call[decision.call_id]
        if decision.decision == "approve":
            args = request.call.args if updated_args is None else updated_args
            return allow_line(request.request_id, args)
        return deny_line(request.request_id, decision.notes or f"The answer is: {decision.decision}.")

    def withdraw(self, request_id: Any) -> PermissionRequest | None:
        call_ids = [call_id for call_id, item in self._by_call.items() if item.request_id == request_id]
        return self._by_call.pop(call_ids[0]) if call_ids else None


def parse_requested_call(request: JsonObject) -> ToolCall | None:
    call_id = as_opaque_id(request.get("tool_use_id"))
    tool = as_name(request.get("tool_name"))
    args = request.get("input")
    if call_id is None or tool is None or not isinstance(args, dict):
        return None
    return ToolCall(call_id=call_id, tool=tool, args=args)


def make_approval_request(call: ToolCall, request: JsonObject) -> ApprovalRequest:
    reason = bounded_text(request.get("decision_reason")) or bounded_text(request.get("description"))
    return ApprovalRequest(
        call_id=call.call_id, tool=call.tool, args_hash=call.args_hash, risk=DEFAULT_RISK, reason=reason
    )
