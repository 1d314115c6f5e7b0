"""The turn loop: an event in, effects out (protocol sections 4 and 8)."""

from itertools import count
from typing import Any

import pytest

from tests.support.turn_loop import CHILD, END, GUIDE, ROOT, SPENT, TURN, USAGE, Table, call, running
from turnlog.agents import ReplyBuilder
from turnlog.agents.runtime.turn_loop import (
    AppendEvents,
    CallModel,
    Effect,
    RequestApproval,
    RunTool,
    StopTurns,
)
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    AssistantFiles,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Cost,
    EventDraft,
    File,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    Usage,
)
from turnlog.events.ui import ButtonClick, InputSubmit, Stop, Summon
from turnlog.state.descriptions import describe_input

LOOK = call("look", args={"topic": "grass"})
PAGE = call("confirm", executor="frontend", args={"question": "Go?"})
PASS = call("handoff_to_writer", args={"prompt": "Write"})
REMOVE = call("remove", args={"what": "weed"})
REQUEST = ApprovalRequest(call_id="remove", tool="remove", args_hash="h", risk="high")


def awaiting(*calls: ToolCall) -> ToolAwait:
    return ToolAwait(
        calls=tuple(AwaitedCall(call_id=item.call_id, tool=item.tool, args=item.args) for item in calls)
    )


def said(effects: list[Effect]) -> list[Payload]:
    """What one `Say` says."""
    [effect] = effects
    assert isinstance(effect, AppendEvents)
    return [item.payload for item in effect.items]


def code(effects: list[Effect]) -> str:
    [result] = said(effects)
    assert isinstance(result, ToolResult)
    assert result.error
    return result.error.code


# turns


def test_a_message_starts_the_first_agent_of_the_team() -> None:
    table = Table()
    [say] = table.message("Hello")
    [item] = say.items  # type: ignore[union-attr]
    assert item.scope == Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Guide", depth=0)
    assert item.payload == AgentStart(
        name="Guide",
        via="prompt",
        model="scripted",
        prompt="Hello",
        tools=("look", "confirm", "inquire", "remove", "weigh", "scout", "handoff_to_writer"),
    )
    assert table.message("Again", Scope(trace_id="tr_2")) == [], "the first one is starting"


@pytest.mark.parametrize(("target", "name"), [("Writer", "Writer"), ("Scout", "Scout"), ("Nobody", "Guide")])
def test_a_message_may_name_the_agent_it_is_for(target: str, name: str) -> None:
    [start] = said(Table().message(target=target))
    assert isinstance(start, AgentStart)
    assert start.name == name


def test_messages_wait_in_line_whoever_they_are_for() -> None:
    table = running()
    assert table.message("Second", Scope(trace_id="tr_2"), target="Writer") == []
    assert table.message("Third", Scope(trace_id="tr_3")) == []
    [start] = said(table.feed(END))
    assert isinstance(start, AgentStart)
    assert (start.name, start.prompt) == ("Writer", "Second")


def test_an_action_that_answers_nothing_opens_a_turn() -> None:
    action = UiAction(action=ButtonClick(button_id="b1"), view_id="v1")
    [start] = said(Table().feed(action, TURN, "ui"))
    assert isinstance(start, AgentStart)
    assert (
        start.prompt
        == '[The user acted: {"action":{"kind":"button.click","button_id":"b1"},"view_id":"v1"}]'
        == describe_input("", action)
    )


def test_what_was_forgotten_begins_again() -> None:
    table = Table()
    table.message()
    assert table.loop.start_next_turn() == []
    table.loop.reset()
    assert len(table.loop.start_next_turn()) == 1


def test_an_agent_that_left_the_team_is_played_by_the_first() -> None:
    table = running()
    table.feed(AgentStart(name="Gone", via="call", parent_id="agt_root", call_id="x"), CHILD)
    assert table.loop.agent_of(table.loop.tree.open["agt_child"]) is GUIDE
    assert table.loop.agent_of(table.invocation) is GUIDE


def test_nobody_asks_the_model_of_an_agent_that_is_not_there() -> None:
    assert Table().loop.call_model("agt_9") == []
    assert Table().feed(USAGE) == []
    assert Table().result("x") == []


# calls


def test_a_completion_without_calls_causes_nothing() -> None:
    assert running().calls() == []


def test_a_tool_runs_when_the_completion_is_reported() -> None:
    assert running().calls(LOOK) == [RunTool("agt_root", LOOK)]


def test_calls_of_a_step_start_together_and_the_last_result_asks_the_model() -> None:
    table, other = running(), call("look", "look2")
    assert table.calls(LOOK, other) == [RunTool("agt_root", LOOK), RunTool("agt_root", other)]
    assert table.result("look") == []
    assert table.result("look2") == [CallModel("agt_root")]


def test_only_the_first_result_of_a_call_counts() -> None:
    table = running()
    table.calls(LOOK)
    assert table.result("look") == [CallModel("agt_root")]
    assert table.result("look") == []
    assert table.result("never_called") == []


def test_results_of_the_provider_start_nothing() -> None:
    table = running()
    table.feed(call("search", executor="provider"), origin="model")
    assert table.result("search", origin="model", kind="search_result") == []


def test_an_agent_is_started_one_deeper_with_the_trace_of_its_caller() -> None:
    scout = call("scout", args={"prompt": "Look", "resume_agent_id": "agt_old"})
    [say] = running().calls(scout)
    assert isinstance(say, AppendEvents)
    [item] = say.items
    assert item.scope == Scope(trace_id="tr_1", agent_id="agt_2", agent_name="Scout", depth=1)
    assert item.payload == AgentStart(
        name="Scout",
        via="call",
        model="scripted",
        prompt="Look",
        parent_id="agt_root",
        call_id="scout",
        resumes="agt_old",
        conversation_id="old",
    )


@pytest.mark.parametrize("wrong", [7, "not an id", "agt_", "agt_not an id", "agt_" + "x" * 65, "agt_x\n"])
def test_what_is_no_id_of_an_agent_is_not_resumed(wrong: object) -> None:
    [start] = said(running().calls(call("scout", args={"prompt": "Find", "resume_agent_id": wrong})))
    assert isinstance(start, AgentStart)
    assert (start.resumes, start.prompt) == (None, "Find")


@pytest.mark.parametrize("args", [{}, {"prompt": " \n"}, {"prompt": None}, {"prompt": {"do": "it"}}])
def test_an_agent_that_is_not_told_what_to_do_is_not_started(args: dict[str, Any]) -> None:
    [result] = said(running().calls(call("scout", args=args)))
    assert isinstance(result, ToolResult)
    assert result.error
    assert (result.error.code, result.error.details) == ("VALIDATION_ERROR", {"path": ["prompt"]})


def test_the_id_of_a_call_that_was_answered_may_be_used_again() -> None:
    table = running()
    for used, effect in ((LOOK, RunTool(ROOT.agent_id or "", LOOK)), (PAGE, None)):
        for _ in range(2):
            effects = table.calls(used)
            assert effects == [effect] if effect else said(effects) == [awaiting(PAGE)]
            assert table.result(used.call_id) == [CallModel(ROOT.agent_id or "")]


def test_what_cannot_run_is_answered_at_once() -> None:
    assert code(running().calls(call("nothing"))) == "TOOL_NOT_FOUND"
    assert code(running().calls(call("look", incomplete='{"to'))) == "VALIDATION_ERROR"
    assert code(running().calls(call("confirm", executor="frontend", incomplete="{"))) == "VALIDATION_ERROR"
    assert code(running().calls(call("remove", args={"which": "weed"}))) == "VALIDATION_ERROR"


def test_the_page_is_asked_when_nothing_runs_any_more() -> None:
    table = running()
    assert table.calls(LOOK, PAGE) == [RunTool("agt_root", LOOK)]
    assert said(table.result("look")) == [awaiting(PAGE)]


def test_the_page_is_asked_once_although_others_answer_meanwhile() -> None:
    table = running()
    assert said(table.calls(PAGE, call("weigh", executor="remote"))) == [awaiting(PAGE)]
    assert table.result("weigh") == [], "the question is on its way to the log"


def test_a_page_that_says_no_by_itself_is_an_answer_like_another() -> None:
    table = running()
    table.calls(PAGE)
    table.feed(awaiting(PAGE))
    error = {"code": "CANCELLED", "message": "closed the dialog"}
    assert table.result("confirm", origin="ui", ok=False, error=error) == [CallModel("agt_root")]


def test_a_message_wakes_the_agents_whose_questions_it_cancels() -> None:
    table = running()
    table.calls(PAGE)
    table.feed(awaiting(PAGE))
    error = {"code": "CANCELLED", "message": "went on"}
    assert table.result("confirm", origin="system", ok=False, error=error) == []
    assert table.message("Never mind", ROOT) == [CallModel("agt_root")]
    assert table.message("And more", ROOT) == [], "nobody was freed by that one"


def test_an_agent_with_another_call_is_not_woken_by_a_message() -> None:
    table = running()
    table.calls(PAGE, call("scout"))
    table.feed(awaiting(PAGE))
    table.result("confirm", origin="system", ok=False, error={"code": "CANCELLED", "message": ""})
    assert table.message("Never mind", ROOT) == []
    assert table.result("scout") == [CallModel("agt_root")]


# inputs and approvals


def test_an_input_runs_the_tool_again_once() -> None:
    table, asks = running(), call("inquire", args={"question": "Which?"})
    table.calls(asks)
    table.feed(awaiting(asks))
    action = UiAction(action=InputSubmit(values={"answer": "green"}), call_id="inquire")
    assert table.feed(action, ROOT, "ui") == [RunTool("agt_root", asks, {"answer": "green"})]
    assert table.feed(action, ROOT, "ui") == [], "a second answer changes nothing"


def test_an_action_on_a_call_of_the_page_comes_with_the_result() -> None:
    table = running()
    table.calls(PAGE)
    table.feed(awaiting(PAGE))
    assert table.feed(UiAction(action=InputSubmit(values={}), call_id="confirm"), ROOT, "ui") == []
    assert table.result("confirm", origin="ui") == [CallModel("agt_root")]


def asked() -> Table:
    table = running()
    assert table.calls(REMOVE) == [RequestApproval("agt_root", REMOVE)]
    table.feed(REQUEST)
    return table


def decided(table: Table, decision: str, **fields: Any) -> list[Effect]:
    made = ApprovalDecision(call_id="remove", args_hash="h", decision=decision, **fields)  # type: ignore[arg-type]
    return table.feed(made, ROOT, "ui")


def test_an_approved_call_runs_once() -> None:
    table = asked()
    assert decided(table, "approve") == [RunTool("agt_root", REMOVE)]
    assert decided(table, "approve") == []
    assert decided(table, "expired") == []


@pytest.mark.parametrize(
    ("decision", "notes", "why"),
    [
        ("deny", "too risky", "too risky"),
        ("deny", None, "a person said no"),
        ("expired", None, "no person answered in time"),
    ],
)
def test_a_call_that_was_not_approved_is_denied(decision: str, notes: str | None, why: str) -> None:
    [result] = said(decided(asked(), decision, notes=notes))
    assert isinstance(result, ToolResult)
    assert result.error
    assert (result.error.code, result.error.message) == ("DENIED", why)


def test_a_decision_about_nothing_changes_nothing() -> None:
    assert decided(Table(), "approve") == []
    assert decided(running(), "approve") == []


# hand-offs


def test_a_hand_off_is_one_batch_and_nothing_follows_from_half_of_it() -> None:
    table = running()
    [say] = table.calls(PASS, call("handoff_to_writer", "again"))
    assert isinstance(say, AppendEvents)
    types = [type(item.payload) for item in say.items]
    assert types == [ToolResult, ToolResult, AgentHandoff, AgentEnd, AgentStart]
    table.message("Next", Scope(trace_id="tr_2"))
    effects = [table.feed(item.payload, item.scope, item.origin) for item in say.items]
    assert effects == [[], [], [], [], [CallModel("agt_2")]]
    [start] = said(table.feed(END, say.items[-1].scope))
    assert isinstance(start, AgentStart)
    assert start.prompt == "Next"


def test_a_hand_off_gives_its_caller_and_its_depth() -> None:
    table = running()
    table.calls(call("scout"))
    table.feed(AgentStart(name="Guide", via="call", parent_id="agt_root", call_id="scout"), CHILD)
    [say] = table.calls(PASS, at=CHILD)
    assert isinstance(say, AppendEvents)
    start = say.items[-1]
    assert (start.scope.depth, start.scope.trace_id) == (1, "tr_1")
    assert isinstance(start.payload, AgentStart)
    assert (start.payload.parent_id, start.payload.call_id) == ("agt_root", "scout")


def test_a_hand_off_comes_after_tools_and_the_page_and_closes_what_the_provider_left() -> None:
    table = running()
    table.feed(call("search", executor="provider"), origin="model")
    assert table.calls(PASS, LOOK, PAGE) == [RunTool("agt_root", LOOK)]
    assert said(table.result("look")) == [awaiting(PAGE)]
    table.feed(awaiting(PAGE))
    batch = said(table.result("confirm", origin="ui"))
    results = [(item.call_id, item.ok) for item in batch if isinstance(item, ToolResult)]
    assert results == [("handoff_to_writer", True), ("search", False)]


def test_a_hand_off_without_arguments_that_can_be_read_does_not_take_place() -> None:
    assert code(running().calls(call("handoff_to_writer", incomplete="{"))) == "VALIDATION_ERROR"


# stops


def test_a_stop_halts_what_it_is_for() -> None:
    def stop(channel: str | None = None, **fields: Any) -> list[Effect]:
        return running().feed(UiCommand(command=Stop(**fields)), Scope(channel=channel), "ui")

    assert stop() == stop(turn="tr_1") == stop(agent_id="agt_root") == [StopTurns(None)]
    assert stop(turn="tr_0") == stop(agent_id="agt_9") == []
    assert stop("side") == [StopTurns("side")]
    assert running().feed(UiCommand(command=Summon()), Scope(), "ui") == []


# the ends of completions


def replied(*calls: str, stop: Any = "end_turn", text: str = "Said.") -> tuple[ReplyBuilder, list[Payload]]:
    numbers = count(1)
    reply = ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}")
    batch = reply.text(text)
    for name in calls:
        batch += reply.call(name, {}, name)
    return reply, batch + reply.done(stop, SPENT)


def finished(
    table: Table, reply: ReplyBuilder, ending: list[Payload], price: Cost | None = None
) -> list[EventDraft]:
    return table.loop.completion_events(table.invocation, reply, ending, price)


def ends(items: list[EventDraft]) -> list[AgentEnd]:
    return [item.payload for item in items if isinstance(item.payload, AgentEnd)]


def test_a_reply_with_calls_or_a_pause_ends_with_its_usage() -> None:
    for calls, stop in ((["look"], "tool_use"), ([], "pause_turn")):
        items = finished(running(), *replied(*calls, stop=stop))
        assert items[-1] == EventDraft(AgentUsage(model="unknown", usage=SPENT), ROOT, "system")
        assert ends(items) == []


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("tool_use", "end_turn"),
    ],
)
def test_another_reply_ends_its_agent(stop: str, reason: str) -> None:
    table = running()
    table.feed(USAGE)
    price = Cost(total_cost=0.5)
    [end] = ends(finished(table, *replied(stop=stop), price))
    assert (end.stop_reason, end.steps, end.result) == (reason, 2, "Said.")
    assert end.usage == Usage(input_tokens=6, output_tokens=4)
    assert end.cost is None, "the first completion had no price"
    assert (table.invocation.steps, table.invocation.usage) == (1, SPENT), (
        "the log tells the tree, nobody else"
    )


def test_at_the_limit_of_steps_calls_are_void_and_none_of_them_starts() -> None:
    table = running()
    table.feed(USAGE)
    table.feed(USAGE)
    items = finished(table, *replied("look", stop="tool_use"))
    assert ends(items)[0].stop_reason == "max_steps"
    effects = [table.feed(item.payload, item.scope, item.origin) for item in items]
    assert effects == [[]] * len(items)


def test_an_end_tells_of_every_file_and_closes_what_the_provider_left() -> None:
    table = running()
    first, last = (
        File(file_id=name, filename=f"{name}.txt", storage_location="s") for name in ("one", "two")
    )
    table.feed(AssistantFiles(files=(first,)), origin="model")
    table.feed(call("search", executor="provider"), origin="model")
    table.feed(call("code", executor="provider"), origin="model")
    reply, ending = replied()
    answer = ToolResult(call_id="code", tool="code", ok=True, kind="code_result")
    items = finished(table, reply, [*ending, AssistantFiles(files=(last,)), answer])
    assert ends(items)[0].files == (first, last)
    closed = next(item.payload for item in items if item.origin == "system")
    assert isinstance(closed, ToolResult)
    assert closed.call_id == "search"


def test_the_end_of_a_called_agent_answers_its_caller_in_the_same_batch() -> None:
    table = running()
    table.calls(call("scout"))
    table.feed(AgentStart(name="Scout", via="call", parent_id="agt_root", call_id="scout"), CHILD)
    child = table.loop.tree.open["agt_child"]
    end, answer = table.loop.completion_events(child, *replied(), None)[-2:]
    assert isinstance(end.payload, AgentEnd)
    assert answer == EventDraft(
        ToolResult(call_id="scout", tool="scout", ok=True, result="Said."), ROOT, "tool"
    )
    problem = SessionError(code="overloaded_error", message="Busy.")
    [*_, failure] = table.loop.failure_events(child, replied()[0], problem)
    assert isinstance(failure.payload, ToolResult)
    assert failure.payload.error
    assert (failure.payload.error.code, failure.payload.error.message) == ("EXECUTION_ERROR", "Busy.")


def test_an_agent_whose_model_failed_leaves_no_block_open() -> None:
    table = running()
    for payload in (BlockStart(block_id="blk_1", kind="text"), BlockDelta(block_id="blk_1", text="I was")):
        table.feed(payload, origin="model")
    numbers = count(1)
    reply = ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}")
    reply.text("I was")
    problem = SessionError(code="overloaded_error", message="Busy.")
    for broken_off in (reply, replied()[0]):
        items = table.loop.failure_events(table.invocation, broken_off, problem)
        closed = [item.payload for item in items if isinstance(item.payload, BlockEnd)]
        assert closed == [BlockEnd(block_id="blk_1", status="aborted", text="I was")]
        assert ends(items)[0].stop_reason == "error"


def test_events_that_are_nobodys_business_cause_nothing() -> None:
    assert running().feed(SessionError(code="c", message="m")) == []
