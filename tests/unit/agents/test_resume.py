"""What a new owner of a session does, for every state in which the last one may have left an agent or a call.

The events are fed to a turn loop as a new owner reads them: nothing follows from them until it resumes.
"""

from typing import Any

import pytest

from tests.support.agent_vectors import confirm, inquire, look
from tests.support.turn_loop import BEGIN, CHILD, END, MODEL, ROOT, SCOUT, TURN, USAGE, WRITER, Table, call
from turnlog.agents import Agent, tool
from turnlog.agents.runtime.turn_loop import (
    AppendEvents,
    CallModel,
    Effect,
    RequestApproval,
    RunTool,
    StartApprovalTimer,
    StartCallTimer,
)
from turnlog.events import (
    AgentHandoff,
    AgentStart,
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiMessage,
)
from turnlog.events.ui import InputSubmit


@tool(kind="write", approval=True)
def remove(what: str) -> str:
    """Remove something."""
    raise NotImplementedError


@tool(kind="write", approval=True, executor="frontend")
def sign(what: str) -> str:
    """Let the page sign what a person has approved."""
    raise NotImplementedError


@tool(executor="remote", timeout_s=30.0)
def weigh(what: str) -> str:
    """Weigh something in another process."""
    raise NotImplementedError


@tool(executor="remote", kind="write", approval=True, timeout_s=30.0)
def ship(what: str) -> str:
    """Ship something in another process, if a person approves."""
    raise NotImplementedError


@tool(executor="remote", roles=("admin",), timeout_s=30.0)
def burn(what: str) -> str:
    """Burn something in another process, for admins."""
    raise NotImplementedError


TOOLS = (look, confirm, inquire, remove, sign, weigh, ship, burn)
GUIDE = Agent("Guide", "", MODEL, tools=TOOLS, agents=[SCOUT], handoffs=[WRITER])

LOOK = call("look", args={"topic": "grass"})
PAGE = call("confirm", executor="frontend", args={"question": "Go?"})
INQUIRE = call("inquire", args={"question": "Where?"})
REMOVE = call("remove", args={"what": "weed"})
SIGN = call("sign", executor="frontend", args={"what": "form"})
WEIGH = call("weigh", executor="remote", args={"what": "stone"})
SHIP = call("ship", executor="remote", args={"what": "stone"})
BURN = call("burn", executor="remote", args={"what": "stone"})
SCOUTS = call("scout", args={"prompt": "Look around"})
PASS = call("handoff_to_writer", args={"prompt": "Write"})
PROVIDER = call("search", executor="provider")


def request(asked: ToolCall) -> ApprovalRequest:
    return ApprovalRequest(call_id=asked.call_id, tool=asked.tool, args_hash="h", risk="high")


def decide(asked: ToolCall, decision: Any) -> ApprovalDecision:
    return ApprovalDecision(call_id=asked.call_id, args_hash="h", decision=decision)


def awaiting(*calls: ToolCall) -> ToolAwait:
    return ToolAwait(
        calls=tuple(AwaitedCall(call_id=item.call_id, tool=item.tool, args=item.args) for item in calls)
    )


SUBMIT = UiAction(action=InputSubmit(values={"answer": "here"}), call_id="inquire")


def resume(*payloads: Payload, table: Table | None = None) -> list[Effect]:
    """Let a new owner read a message, the start of the guide and these events, and return what it does."""
    table = table or Table(GUIDE)
    for payload in (UiMessage(text="Go"), BEGIN, *payloads):
        is_input = isinstance(payload, UiMessage | UiAction | ApprovalDecision)
        table.feed(payload, TURN if isinstance(payload, UiMessage) else ROOT, "ui" if is_input else "system")
    # `feed` reacts as an owner would, and a new owner has not done so
    loop = Table(GUIDE)
    loop.loop.tree = table.loop.tree
    loop.loop.views = table.loop.views
    return loop.loop.resume()


def results(effects: list[Effect]) -> list[tuple[str, str | None]]:
    """Return the tools that are answered, with the code of their error."""
    found: list[tuple[str, str | None]] = []
    for effect in effects:
        assert isinstance(effect, AppendEvents)
        for item in effect.items:
            assert isinstance(item.payload, ToolResult)
            found.append((item.payload.tool, item.payload.error.code if item.payload.error else None))
    return found


RESUMED: dict[str, tuple[list[Payload], list[Effect]]] = {
    "model was not called": ([], [CallModel("agt_root")]),
    "model was called in vain": ([USAGE], [CallModel("agt_root")]),
    "all calls are answered": (
        [LOOK, USAGE, ToolResult(call_id="look", tool="look", ok=True)],
        [CallModel("agt_root")],
    ),
    "only the provider's call is open": ([PROVIDER, USAGE], [CallModel("agt_root")]),
    "tool was not started or may run twice": ([LOOK, USAGE], [RunTool("agt_root", LOOK)]),
    "person was not asked": ([REMOVE, USAGE], [RequestApproval("agt_root", REMOVE)]),
    "person was asked": (
        [REMOVE, USAGE, request(REMOVE)],
        [StartApprovalTimer("agt_root", request(REMOVE))],
    ),
    "person has approved": (
        [REMOVE, USAGE, request(REMOVE), decide(REMOVE, "approve")],
        [RunTool("agt_root", REMOVE)],
    ),
    "tool asked for input": ([INQUIRE, USAGE, awaiting(INQUIRE)], []),
    "tool was given its input": (
        [INQUIRE, USAGE, awaiting(INQUIRE), SUBMIT],
        [RunTool("agt_root", INQUIRE, {"answer": "here"})],
    ),
    "page was asked": ([PAGE, USAGE, awaiting(PAGE)], []),
    "remote call waits": ([WEIGH, USAGE], [StartCallTimer("agt_root", WEIGH, 30.0)]),
    "person was asked about a remote call": (
        [SHIP, USAGE, request(SHIP)],
        [StartApprovalTimer("agt_root", request(SHIP))],
    ),
    "person has approved a remote call": (
        [SHIP, USAGE, request(SHIP), decide(SHIP, "approve")],
        [StartCallTimer("agt_root", SHIP, 30.0)],
    ),
    "person was not asked about a remote call": ([SHIP, USAGE], [RequestApproval("agt_root", SHIP)]),
    "hand-off follows a question": ([PAGE, PASS, USAGE, awaiting(PAGE)], []),
}


@pytest.mark.parametrize("name", RESUMED)
def test_new_owner_does_what_is_left(name: str) -> None:
    payloads, effects = RESUMED[name]
    assert resume(*payloads) == effects


@pytest.mark.parametrize("decision", ["deny", "expired"])
def test_call_that_was_denied_is_answered(decision: str) -> None:
    effects = resume(REMOVE, USAGE, request(REMOVE), decide(REMOVE, decision))
    assert results(effects) == [("remove", "DENIED")]


def test_remote_call_that_was_denied_is_answered() -> None:
    effects = resume(SHIP, USAGE, request(SHIP), decide(SHIP, "deny"))
    assert results(effects) == [("ship", "DENIED")]


def test_remote_call_for_another_role_is_denied() -> None:
    assert results(resume(BURN, USAGE)) == [("burn", "DENIED")]


def test_call_of_a_tool_that_is_gone_is_answered() -> None:
    assert results(resume(call("gone"), USAGE)) == [("gone", "TOOL_NOT_FOUND")]


def test_call_whose_arguments_are_not_complete_is_answered() -> None:
    assert results(resume(call("look", incomplete='{"to'), USAGE)) == [("look", "VALIDATION_ERROR")]


@pytest.mark.parametrize(
    "payloads",
    [[PAGE, USAGE], [SIGN, USAGE, request(SIGN), decide(SIGN, "approve")]],
    ids=["without approval", "after approval"],
)
def test_page_that_was_not_asked_is_asked(payloads: list[Payload]) -> None:
    [effect] = resume(*payloads)
    assert isinstance(effect, AppendEvents)
    [item] = effect.items
    assert isinstance(item.payload, ToolAwait)
    assert [asked.call_id for asked in item.payload.calls] == [getattr(payloads[0], "call_id", "")]


def test_page_is_not_asked_while_a_tool_runs() -> None:
    assert resume(LOOK, PAGE, USAGE) == [RunTool("agt_root", LOOK)]


def test_agent_that_was_called_and_not_started_starts_once() -> None:
    [effect] = resume(SCOUTS, USAGE)
    assert isinstance(effect, AppendEvents)
    [item] = effect.items
    assert isinstance(item.payload, AgentStart)
    assert (item.payload.name, item.payload.call_id, item.scope.depth) == ("Scout", "scout", 1)


def test_agent_that_was_called_and_runs_goes_on_and_is_not_started_again() -> None:
    table = Table(GUIDE)
    for payload in (BEGIN, SCOUTS, USAGE):
        table.feed(payload)
    table.feed(AgentStart(name="Scout", via="call", parent_id="agt_root", call_id="scout"), CHILD)
    assert table.loop.resume() == [CallModel("agt_child")]
    table.feed(END, CHILD)
    table.result("scout")
    assert table.loop.resume() == [CallModel("agt_root")]


def test_hand_off_that_did_not_take_place_takes_place() -> None:
    [effect] = resume(PASS, USAGE)
    assert isinstance(effect, AppendEvents)
    kinds = [type(item.payload).__name__ for item in effect.items]
    assert kinds == ["ToolResult", "AgentHandoff", "AgentEnd", "AgentStart"]


def test_hand_off_that_took_place_calls_the_model_of_the_successor() -> None:
    table = Table(GUIDE)
    table.feed(BEGIN)
    table.feed(AgentHandoff(to="Writer", to_agent_id="agt_child"))
    table.feed(END)
    table.feed(AgentStart(name="Writer", via="handoff"), CHILD)
    assert table.loop.resume() == [CallModel("agt_child")]


def test_several_calls_of_a_step_are_resumed_each_by_its_state() -> None:
    effects = resume(LOOK, REMOVE, WEIGH, PASS, USAGE, request(REMOVE))
    assert effects == [
        RunTool("agt_root", LOOK),
        StartApprovalTimer("agt_root", request(REMOVE)),
        StartCallTimer("agt_root", WEIGH, 30.0),
    ]


def test_queued_message_starts_after_the_wait_of_another_channel_is_resumed() -> None:
    table = Table(GUIDE)
    for payload in (BEGIN, PAGE, USAGE, awaiting(PAGE)):
        table.feed(payload)
    table.message("Later", Scope(trace_id="tr_2", channel="staff"), channel="staff")
    table.loop.reset()
    [effect] = table.loop.resume()
    assert isinstance(effect, AppendEvents)
    assert effect.items[0].scope.trace_id == "tr_2"


def test_result_after_a_resume_calls_the_model_once() -> None:
    table = Table(GUIDE)
    for payload in (BEGIN, LOOK, USAGE):
        table.feed(payload)
    table.loop.reset()
    assert table.loop.resume() == [RunTool("agt_root", LOOK)]
    assert table.loop.start_calls(table.invocation) == [], "its call has started"
    assert table.result("look") == [CallModel("agt_root")]
