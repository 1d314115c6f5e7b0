"""Approvals: bound to the call and its arguments, for once, for a while, from somebody entitled to."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from turnlog.agents.runtime.approvals import build_approval_request, check_decision, check_tool_roles
from turnlog.agents.tools import tool
from turnlog.events import CATALOG, ApprovalDecision, ApprovalRequest, ErrorInfo, ToolCall
from turnlog.events.tool import hash_args

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "calls" / "approvals.json").read_text())
CALL = ToolCall(call_id="call_1", tool="erase", args={"ids": ["w1"]})


@tool(kind="write", approval=True, roles=("coach", "doctor"), risk="db_write", expires_s=60)
def erase(ids: list[str]) -> None:
    """Delete entries."""


@tool(kind="write")
def save(rows: list[str]) -> None:
    """Save entries."""


def test_a_request_names_call_arguments_risk_and_time() -> None:
    asked = build_approval_request(erase, CALL, 2000)
    assert asked == ApprovalRequest(
        call_id="call_1",
        tool="erase",
        args_hash=hash_args({"ids": ["w1"]}),
        risk="db_write",
        reason="Delete entries.",
        expires_at="1970-01-01T00:01:02.000Z",
        roles=("coach", "doctor"),
    )
    CATALOG.build_event(asked, id="evt_1", origin="system")


def test_what_is_not_said_follows_from_the_tool() -> None:
    asked = build_approval_request(save, structs.replace(CALL, tool="save"), 0)
    assert (asked.risk, asked.expires_at, asked.roles) == ("write", "1970-01-01T01:00:00.000Z", ())
    decision = ApprovalDecision(call_id="call_1", args_hash=asked.args_hash, decision="approve")
    assert check_decision(asked, decision, CALL, (), 1) is None, "no roles: anyone may decide"
    forever = structs.replace(asked, expires_at=None)
    lasting = tool(kind="write", expires_s=math.inf)(save.function)
    assert build_approval_request(lasting, structs.replace(CALL, tool="save"), 0) == forever
    assert check_decision(forever, decision, CALL, (), 10**15) is None


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_a_decision_is_judged(case: dict[str, Any]) -> None:
    asked = build_approval_request(erase, CALL, 2000) if case.get("asked", True) else None
    decision = ApprovalDecision(call_id="call_1", args_hash=CALL.args_hash, decision="approve")
    decision = structs.replace(decision, **case.get("decision", {}))
    call = structs.replace(CALL, **case.get("call", {}))
    found = check_decision(asked, decision, call, case.get("roles", ["coach"]), case.get("now_ms", 2000))
    assert (found and [found.code, found.details]) == case["fault"]


def test_a_denial_carries_the_words_of_who_denied() -> None:
    asked = build_approval_request(erase, CALL, 0)
    decision = ApprovalDecision(
        call_id="call_1", args_hash=asked.args_hash, decision="deny", notes="not today"
    )
    found = check_decision(asked, decision, CALL, ("coach",), 0)
    assert found is not None
    assert found.message == "not today"


def test_a_tool_is_for_its_roles() -> None:
    assert check_tool_roles(save, ()) is None
    assert check_tool_roles(erase, ("visitor", "coach")) is None
    assert check_tool_roles(erase, ("visitor",)) == ErrorInfo(
        code="DENIED", message="erase is for the role coach or doctor only"
    )


def test_many_roles_make_a_short_sentence() -> None:
    @tool(roles=tuple(f"role{number:02}" for number in range(20)))
    def busy() -> None:
        """Nothing."""

    found = check_tool_roles(busy, ())
    assert found is not None
    assert found.message.endswith("or role07 or others only")
