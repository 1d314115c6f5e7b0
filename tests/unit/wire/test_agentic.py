"""The dialect `agentic`: which events become which classes of document 001, with their names and fields."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.tables import for_each_row
from tests.support.written_logs import Item, log, place, scope, vector_log
from tests.test_seed_names import NAMES
from turnlog import events as ev
from turnlog.events import CORE, Catalog, Vocabulary
from turnlog.team.events import TEAM
from turnlog.wire.dialects._common import CORE_FAMILIES
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.base import DONE

VECTORS = Path(__file__).parents[2] / "vectors" / "agentic" / "messages.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
BASE = ["type", "agent", "depth", "payload"]
WIRE = {  # a class: its wire name, what its payload holds (None: anything), and what stands beside it
    "Prompt": ("prompt", None, {"request_id"}),
    "PromptStarted": ("prompt_started", {"content"}, set()),
    "Output": ("output", None, set()),
    "ChatOutput": ("chat_output", {"content", "role"}, set()),
    "ToolCall": ("tool_call", {"name", "arguments", "tool_call_id"}, set()),
    "ToolOutput": ("tool_output", {"name", "output", "tool_call_id"}, set()),
    "ToolResult": ("tool_result", {"name", "result", "is_log", "tool_call_id"}, {"result"}),
    "ToolError": ("tool_error", {"name", "error", "tool_call_id"}, set()),
    "SubAgentCall": ("subagent_call", {"target_agent", "message"}, set()),
    "SubAgentResult": ("subagent_result", {"source_agent", "result"}, set()),
    "StartCompletion": ("completion_start", set[str](), set()),
    "ReasoningContent": ("reasoning_content", {"reasoning_content"}, set()),
    "FinishCompletion": ("completion_end", {"usage", "metadata", "llm_message"}, set()),
    "TurnEnd": ("turn_end", {"messages"}, set()),
    "TurnCancelled": ("turn_cancelled", set[str](), set()),
    "SetState": ("set_state", None, set()),
    "AddChild": ("add_child", None, {"handoff", "child_id"}),
    "WaitForInput": ("wait_for_input", None, set()),
    "ResumeWithInput": ("resume_with_input", None, {"request_id"}),
}
SHOWN = [message for case in CASES for message in case["messages"]]
AGENT = scope("agt_1")
START = ev.AgentStart(name="A", via="prompt")


def told(agentic: Agentic, items: list[Item]) -> list[dict[str, Any]]:
    return [json.loads(message) for item in items for message in agentic.convert(*item)]


def case_named(name: str) -> list[dict[str, Any]]:
    case = next(case for case in CASES if case["name"].startswith(name))
    return told(Agentic(), vector_log(case["events"]))


@EACH
def test_vector(case: dict[str, Any]) -> None:
    agentic = Agentic()
    assert told(agentic, vector_log(case["events"])) == case["messages"]
    assert agentic.idle, "the next turn begins like the first"
    assert agentic.close() == [DONE]


@for_each_row("name", WIRE)
def test_a_class_has_its_wire_name_and_its_fields(name: str) -> None:
    wire, inside, beside = WIRE[name]
    found = [message for message in SHOWN if message["type"] == wire]
    assert found
    for message in found:
        assert list(message)[:4] == BASE
        assert set(message) - {*BASE, "agent_id", "parent_id"} == beside
        assert inside is None or set(message["payload"]) == inside


def test_no_message_is_of_another_class() -> None:
    assert {message["type"] for message in SHOWN} == {wire for wire, _, _ in WIRE.values()}


def test_the_names_of_the_document_are_classes() -> None:
    assert set(NAMES["001"]) <= set(WIRE)


def test_output_of_a_running_tool_is_no_result() -> None:
    outputs = [message["payload"] for message in SHOWN if message["type"] == "tool_output"]
    assert [(one["name"], one["output"]) for one in outputs] == [("grep", "120 of 400 files"), ("", "half")]
    assert not any(message["payload"]["is_log"] for message in SHOWN if message["type"] == "tool_result")


def test_every_message_of_an_invocation_has_its_id_and_that_of_its_caller() -> None:
    messages = case_named("an agent calls another")
    ids = {(message["agent"], message["agent_id"], message.get("parent_id")) for message in messages}
    assert ids == {("A", "agt_1", None), ("B", "agt_2", "agt_1")}
    for message in case_named("who took over"):
        assert message.get("parent_id") == (None if message["agent"] == "A" else "agt_1")


def test_a_hand_off_names_the_invocation_that_goes_on() -> None:
    messages = case_named("a hand-off")
    [child] = [message["child_id"] for message in messages if message["type"] == "add_child"]
    assert child == messages[-1]["agent_id"]


def test_a_prompt_names_the_agent_that_gets_it_when_that_agent_starts() -> None:
    agentic = Agentic()
    asked = (ev.UiMessage(text="Hello"), ev.Scope(trace_id="tr_1"))
    assert told(agentic, log(asked)) == []
    prompt, _ = told(agentic, log((ev.AgentStart(name="A", via="prompt", prompt="Hello"), AGENT)))
    assert (prompt["type"], prompt["agent"], prompt["payload"]) == ("prompt", "A", "Hello")
    [more] = told(agentic, log((ev.UiMessage(text="And?"), AGENT)))
    assert (more["type"], more["agent"], more["payload"]) == ("prompt", "A", "And?")


def test_every_message_says_who_and_how_deep() -> None:
    for message in SHOWN:
        assert isinstance(message["agent"], str)
        assert isinstance(message["depth"], int)


def test_the_text_of_the_top_agent_is_its_chat_output_at_depth_0() -> None:
    said = [one for one in case_named("an agent calls another") if one["type"] == "chat_output"]
    assert [(one["agent"], one["depth"], one["payload"]["content"]) for one in said] == [
        ("A", 0, "I ask B."),
        ("B", 1, "I see."),
    ]


def test_usage_is_tracked_by_the_ends_of_completions_alone() -> None:
    ends = [
        one["payload"]["usage"] for one in case_named("an agent calls") if one["type"] == "completion_end"
    ]
    assert [(one["input_tokens"], one["output_tokens"], one["cost"]) for one in ends] == [
        (900, 120, 0.0045)
    ] * 2


def test_every_agent_that_spoke_ends_its_turn_and_begins_it() -> None:
    for name in ("a turn", "an agent calls", "a hand-off", "who took over", "a turn that is cancelled"):
        kinds = Counter((one["agent"], one["type"]) for one in case_named(name))
        for agent in {agent for agent, _ in kinds}:
            assert (kinds[agent, "prompt_started"], kinds[agent, "turn_end"]) == (1, 1)


def test_a_hand_off_has_the_order_of_the_diagram() -> None:
    messages = case_named("a hand-off")
    order = [(one["agent"], one["type"]) for one in messages]
    assert order.index(("A", "add_child")) < order.index(("A", "turn_end"))
    assert order.index(("A", "turn_end")) < order.index(("H", "prompt_started"))
    assert {one["depth"] for one in messages} == {0}


def test_a_response_ends_the_completions_that_are_open() -> None:
    agentic = Agentic()
    open_text = [
        START,
        ev.BlockStart(block_id="blk_1", kind="text"),
        ev.BlockDelta(block_id="blk_1", text="Hi"),
    ]
    told(agentic, log(*((payload, AGENT) for payload in open_text)))
    assert not agentic.idle
    end, done = agentic.close()
    assert (json.loads(end)["type"], done) == ("completion_end", DONE)
    assert json.loads(end)["payload"]["llm_message"]["content"] == "Hi"


class Fact(ev.Payload, frozen=True, kw_only=True):
    """Something an application knows."""

    value: float


def test_events_of_an_application_are_state_whether_its_classes_are_known_or_not() -> None:
    vocabulary = Vocabulary("desk", [Fact])
    catalog = Catalog(CORE, TEAM, vocabulary)
    event = catalog.build_event(Fact(value=1.5), id="evt_1", scope=AGENT)
    envelope, payload = place(event, 0, catalog)
    [known] = Agentic().convert(envelope, payload)
    [unknown] = Agentic().convert(envelope, ev.UnknownPayload(envelope.payload))
    assert known == unknown
    assert json.loads(known)["payload"] == {"desk.fact": {"value": 1.5}}


def test_an_application_may_be_called_like_a_family_of_the_core() -> None:
    catalog = Catalog(CORE, TEAM, Vocabulary("session", [Fact]))
    envelope, payload = place(catalog.build_event(Fact(value=1.5), id="evt_1", scope=AGENT), 0, catalog)
    [known] = Agentic().convert(envelope, payload)
    assert json.loads(known)["payload"] == {"session.fact": {"value": 1.5}}
    assert Agentic().convert(envelope, ev.UnknownPayload(envelope.payload)) == [], (
        "it may be a newer core event"
    )


def test_a_core_event_that_cannot_be_read_says_nothing() -> None:
    assert {"agent", "tool", "ui"} <= CORE_FAMILIES
    assert "roster" not in CORE_FAMILIES
    [(envelope, _)] = log((START, AGENT))
    assert Agentic().convert(envelope, ev.UnknownPayload(msgspec.Raw(b"{}"))) == []
