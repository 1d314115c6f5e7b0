"""Who may call a tool, and whether a person agreed. Pure: time and roles come in.

An approval is bound to one call and its arguments, counts once, and only until it expires. What `judge` finds
has two meanings: `DENIED` is the answer to the call, which is over; `VALIDATION_ERROR` refuses the decision
only, as one that was not for this call or not from somebody entitled to, and the call goes on waiting.
"""

from collections.abc import Collection
from math import isinf

from turnlog.agents.runtime.idempotency import hash_call_args
from turnlog.agents.tools import Tool
from turnlog.events import ApprovalDecision, ApprovalRequest, ErrorInfo, ToolCall
from turnlog.events.envelope import format_timestamp
from turnlog.events.roles import add_implied_roles

MAX_ROLES_SHOWN = 8  # roles that a message names

__all__ = ["build_approval_request", "check_decision", "check_tool_roles", "hash_call_args"]


def check_tool_roles(tool: Tool, roles: Collection[str]) -> ErrorInfo | None:
    """Why these roles may not use a tool, if they may not."""
    if has_any_role(tool.roles, roles):
        return None
    return ErrorInfo(code="DENIED", message=f"{tool.name} is for {format_roles(tool.roles)} only")


def build_approval_request(tool: Tool, call: ToolCall, now_ms: int) -> ApprovalRequest:
    """The question to a person, whether this call may run."""
    return ApprovalRequest(
        call_id=call.call_id,
        tool=call.tool,
        args_hash=hash_call_args(call.args),
        risk=tool.risk or tool.kind,
        reason=tool.description.partition("\n")[0] or None,  # what a person agrees to, in its words
        expires_at=None if isinf(tool.expires_s) else format_timestamp(now_ms + round(tool.expires_s * 1000)),
        roles=tool.roles,
    )


def check_decision(
    request: ApprovalRequest | None,
    decision: ApprovalDecision,
    call: ToolCall,
    roles: Collection[str],
    now_ms: int,
) -> ErrorInfo | None:
    """What stands against running a call after a decision; `request` is None once one has been made."""
    if request is None:
        return invalid_decision("no approval of this call is asked for", "call_id")
    if not decision.call_id == request.call_id == call.call_id:
        return invalid_decision("the decision is about another call", "call_id")
    if not decision.args_hash == request.args_hash == hash_call_args(call.args):
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
    """Whether it is too late to decide; times of one form compare as texts."""
    return request.expires_at is not None and format_timestamp(now_ms) >= request.expires_at


def has_any_role(required_roles: Collection[str], roles: Collection[str]) -> bool:
    """Whether one of the roles is wanted; none in particular means all of them. An operator is an owner."""
    return not required_roles or not add_implied_roles(frozenset(roles)).isdisjoint(required_roles)


def format_roles(roles: Collection[str]) -> str:
    """Roles in a sentence."""
    shown = sorted(roles)[:MAX_ROLES_SHOWN]
    return "the role " + " or ".join(shown) + (" or others" if len(roles) > MAX_ROLES_SHOWN else "")


def invalid_decision(message: str, field: str) -> ErrorInfo:
    """A decision that does not count."""
    return ErrorInfo(code="VALIDATION_ERROR", message=message, details={"path": [field]})
