"""Who may call a tool, and whether a person agreed. Pure: time and roles come in.

An approval is bound to one call and its arguments, counts once, and only until it expires. What `judge` finds
has two meanings: `DENIED` is the answer to the call, which is over; `VALIDATION_ERROR` refuses the decision
only, as one that was not for this call or not from somebody entitled to, and the call goes on waiting.
"""

from collections.abc import Collection
from math import isinf

from turnlog.agents.runtime.idempotency import args_hash
from turnlog.agents.tools import Tool
from turnlog.events import ApprovalDecision, ApprovalRequest, Fault, ToolCall
from turnlog.events.envelope import timestamp
from turnlog.events.roles import implied

SHOWN = 8  # roles that a message names

__all__ = ["args_hash", "judge", "permits", "request"]


def permits(tool: Tool, roles: Collection[str]) -> Fault | None:
    """Why these roles may not use a tool, if they may not."""
    if entitled(tool.roles, roles):
        return None
    return Fault(code="DENIED", message=f"{tool.name} is for {named(tool.roles)} only")


def request(tool: Tool, call: ToolCall, now_ms: int) -> ApprovalRequest:
    """The question to a person, whether this call may run."""
    return ApprovalRequest(
        call_id=call.call_id,
        tool=call.tool,
        args_hash=args_hash(call.args),
        risk=tool.risk or tool.kind,
        reason=tool.description.partition("\n")[0] or None,  # what a person agrees to, in its words
        expires_at=None if isinf(tool.expires_s) else timestamp(now_ms + round(tool.expires_s * 1000)),
        roles=tool.roles,
    )


def judge(
    request: ApprovalRequest | None,
    decision: ApprovalDecision,
    call: ToolCall,
    roles: Collection[str],
    now_ms: int,
) -> Fault | None:
    """What stands against running a call after a decision; `request` is None once one has been made."""
    if request is None:
        return refused("no approval of this call is asked for", "call_id")
    if not decision.call_id == request.call_id == call.call_id:
        return refused("the decision is about another call", "call_id")
    if not decision.args_hash == request.args_hash == args_hash(call.args):
        return refused("the decision is about other arguments", "args_hash")
    if decision.decision == "expired" or is_over(request, now_ms):
        return Fault(code="DENIED", message="the approval has expired", details={"reason": "expired"})
    if not entitled(request.roles, roles):
        return refused(f"{named(request.roles)} may decide this", "roles")
    if decision.decision == "deny":
        return Fault(
            code="DENIED", message=decision.notes or "a person said no", details={"reason": "denied"}
        )
    return None


def is_over(request: ApprovalRequest, now_ms: int) -> bool:
    """Whether it is too late to decide; times of one form compare as texts."""
    return request.expires_at is not None and timestamp(now_ms) >= request.expires_at


def entitled(wanted: Collection[str], roles: Collection[str]) -> bool:
    """Whether one of the roles is wanted; none in particular means all of them. An operator is an owner."""
    return not wanted or not implied(frozenset(roles)).isdisjoint(wanted)


def named(roles: Collection[str]) -> str:
    """Roles in a sentence."""
    shown = sorted(roles)[:SHOWN]
    return "the role " + " or ".join(shown) + (" or others" if len(roles) > SHOWN else "")


def refused(message: str, field: str) -> Fault:
    """A decision that does not count."""
    return Fault(code="VALIDATION_ERROR", message=message, details={"path": [field]})
