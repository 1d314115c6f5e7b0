"""Check who may call a tool, and whether a person approved a call. Pure: time and roles are passed in.

An approval is bound to one call and its arguments, counts once, and only until it expires. `check_decision`
returns two kinds of errors: `DENIED` is the answer to the call; `VALIDATION_ERROR` refuses only the decision,
because it is about another call or its sender lacks the role, and the call keeps waiting.
"""

from collections.abc import Collection
from math import isinf

from turnlog.agents.tools import Tool
from turnlog.events import ApprovalDecision, ApprovalRequest, ErrorInfo, ToolCall
from turnlog.events.envelope import format_timestamp
from turnlog.events.roles import add_implied_roles

MAX_ROLES_SHOWN = 8  # roles that a message names


def check_tool_roles(tool: Tool, roles: Collection[str]) -> ErrorInfo | None:
    if has_any_role(tool.roles, roles):
        return None
    return ErrorInfo(code="DENIED", message=f"{tool.name} is for {format_roles(tool.roles)} only")


def build_approval_request(tool: Tool, call: ToolCall, now_ms: int) -> ApprovalRequest:
    expires_at = None
    if not isinf(tool.expires_s):
        expires_at = format_timestamp(now_ms + round(tool.expires_s * 1000))
    return ApprovalRequest(
        call_id=call.call_id,
        tool=call.tool,
        args_hash=call.args_hash,
        risk=tool.risk or tool.kind,
        reason=tool.description.partition("\n")[0] or None,
        expires_at=expires_at,
        roles=tool.roles,
    )


def check_decision(
    request: ApprovalRequest | None,
    decision: ApprovalDecision,
    call: ToolCall,
    roles: Collection[str],
    now_ms: int,
) -> ErrorInfo | None:
    """Return why a call may not run after a decision, or None. `request` is None if no approval is open."""
    if request is None:
        return invalid_decision("no approval of this call is asked for", "call_id")
    if not decision.call_id == request.call_id == call.call_id:
        return invalid_decision("the decision is about another call", "call_id")
    if not decision.args_hash == request.args_hash == call.args_hash:
        return invalid_decision("the decision is about other arguments", "args_hash")
    if decision.decision == "expired" or is_approval_expired(request, now_ms):
        return ErrorInfo(code="DENIED", message="the approval has expired", details={"reason": "expired"})
    if not has_any_role(request.roles, roles):
        return invalid_decision(f"{format_roles(request.roles)} may decide this", "roles")
    if decision.decision == "deny":
        return ErrorInfo(
            code="DENIED", message=decision.notes or "a person said no", details={"reason": "denied"}
        )
    return None


def is_approval_expired(request: ApprovalRequest, now_ms: int) -> bool:
    # timestamps have one form, so they compare as texts
    return request.expires_at is not None and format_timestamp(now_ms) >= request.expires_at


def has_any_role(required_roles: Collection[str], roles: Collection[str]) -> bool:
    """Return whether one of these roles is required, or none is. An operator counts as owner."""
    return not required_roles or not add_implied_roles(frozenset(roles)).isdisjoint(required_roles)


def format_roles(roles: Collection[str]) -> str:
    names = sorted(roles)[:MAX_ROLES_SHOWN]
    if len(roles) > MAX_ROLES_SHOWN:
        names.append("others")
    return "the role " + " or ".join(names)


def invalid_decision(message: str, field: str) -> ErrorInfo:
    return ErrorInfo(code="VALIDATION_ERROR", message=message, details={"path": [field]})
