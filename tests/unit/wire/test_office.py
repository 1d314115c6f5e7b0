"""The dialect `office`: which events become which of the 22 types of document 004, and with which fields."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs

from tests.support.tables import for_each_row
from tests.support.typescript import declared, interfaces
from tests.support.written_logs import entry, log, scope, vector_log
from tests.test_seed_fields import interface_name
from tests.test_seed_names import NAMES
from turnlog import events as ev
from turnlog.errors import InvalidEvent
from turnlog.events.agent import StopReason
from turnlog.team.office import (
    CONVERTERS,
    ERROR_CODES,
    MAX_CONTENT_CHARS,
    MAX_REPLY_BLOCKS,
    STATE_CONVERTERS,
    Office,
    encode_heartbeat,
)
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.dialects.base import DONE

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors" / "office"
FILE: dict[str, Any] = json.loads((VECTORS / "messages.json").read_text())
INTERFACES = (VECTORS / "interfaces.ts").read_text()
CASES: list[dict[str, Any]] = FILE["cases"]
BEATS: list[dict[str, Any]] = FILE["heartbeats"]
SHOWN = [message for case in CASES for message in case["messages"]] + [beat["message"] for beat in BEATS]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
AGENT = scope("agt_1")


SHAPES = interfaces(INTERFACES, "ServerEvent")


def test_the_document_declares_23_interfaces() -> None:
    assert len(declared(INTERFACES)) == 23


def said(*payloads: ev.Payload) -> list[dict[str, Any]]:
    office = Office()
    items = log(*((payload, AGENT) for payload in payloads))
    return [json.loads(message) for item in items for message in office.convert(*item)]


@EACH
def test_vector(case: dict[str, Any]) -> None:
    office = Office()
    messages = [message for item in vector_log(case["events"]) for message in office.convert(*item)]
    assert [json.loads(message) for message in messages] == case["messages"]
    assert b"\n" not in b"".join(messages)
    assert office.idle, "the next turn begins like the first"
    assert office.close() == [DONE]


@for_each_row("beat", BEATS, ids=lambda beat: beat["session_id"])
def test_heartbeat(beat: dict[str, Any]) -> None:
    assert json.loads(encode_heartbeat(beat["seq"], beat["ts_ms"], beat["session_id"])) == beat["message"]


def test_all_22_types_are_said_and_no_other() -> None:
    assert {message["type"] for message in SHOWN} == set(NAMES["004"])


def test_the_common_fields_stand_first() -> None:
    assert {tuple(message)[:4] for message in SHOWN} == {("id", "ts", "sessionId", "type")}


@for_each_row("name", NAMES["004"])
def test_a_message_has_exactly_the_fields_of_its_interface(name: str) -> None:
    assert set(SHAPES) == {interface_name(one) for one in NAMES["004"]}
    shape, found = SHAPES[interface_name(name)], [message for message in SHOWN if message["type"] == name]
    assert found
    for message in found:
        assert shape.matches(message), message
    whole = max(found, key=len)
    assert set(whole) == set(shape.fields), "the optional fields are shown too"
    for field in whole:
        less = {key: value for key, value in whole.items() if key != field}
        assert shape.matches(less) == shape.fields[field].optional, f"without {field}"
    assert not shape.matches(whole | {"depth": 0})
    assert not shape.matches(whole | {"id": "0"})


def test_whatever_an_event_holds_its_message_has_the_fields() -> None:
    for kind in FULL_CATALOG:
        example = vector_log(
            [{"type": kind.name, "agent_id": "agt_1", "payload": kind.payload_class.EXAMPLE}]
        )
        for message in map(json.loads, Office().convert(*example[0])):
            assert SHAPES[interface_name(message["type"])].matches(message), message


def test_an_event_is_one_message_or_none_with_its_seq() -> None:
    for case in CASES:
        office = Office()
        for envelope, payload in vector_log(case["events"]):
            messages = [json.loads(message) for message in office.convert(envelope, payload)]
            assert [message["id"] for message in messages] in ([], [envelope.seq])


def test_what_has_no_counterpart() -> None:
    silent = {
        kind.name for kind in FULL_CATALOG if kind.payload_class not in {*CONVERTERS, *STATE_CONVERTERS}
    }
    assert silent == {
        "agent.checkpoint", "agent.handoff", "agent.usage", "approval.decision", "approval.request",
        "assistant.block", "assistant.files", "assistant.view", "block.delta", "block.end", "block.start",
        "parse.reject", "session.close", "session.invite", "session.invite_end", "session.member",
        "session.title",
        "server.code_use", "server.sign_out",
        "stream.append", "stream.close", "stream.create", "stream.delete", "stream.fork", "stream.touch",
        "tool.await", "tool.progress", "ui.action",
    }  # fmt: skip
    for name in silent:
        example = vector_log(
            [{"type": name, "payload": FULL_CATALOG.get_event_type(name).payload_class.EXAMPLE}]
        )
        assert Office().convert(*example[0]) == []


def test_the_content_of_a_tool_is_cut() -> None:
    def content(text: str, images: int = 0) -> str:
        image = ev.Image(src="api/blobs/sess_1/ab", media_type="image/png")
        result = ev.ToolResult(call_id="c", tool="Read", ok=True, result=text, images=(image,) * images)
        return str(said(result)[0]["content"])

    assert MAX_CONTENT_CHARS == 10_000
    assert content("x" * 10_000) == "x" * 10_000
    assert content("x" * 10_001) == "x" * 10_000
    assert content("€" * 20_000) == "€" * 10_000
    assert content("x" * 20_000, 2) == "api/blobs/sess_1/ab\n" * 2 + "x" * (10_000 - 40)


def one_of(event: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The only message of an event."""
    [message] = Office().convert(*vector_log([{"type": event, "payload": payload}])[0])
    return dict(json.loads(message))


@for_each_row("reason", ["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"])
def test_a_session_ends_for_one_of_four_reasons(reason: str) -> None:
    message = one_of("process.end", {"process": "model", "reason": reason, "exit_code": 1})
    assert (message["reason"], SHAPES["SessionEndEvent"].matches(message)) == (reason, True)


@for_each_row("method", ["oauth", "setup_token", "none"])
def test_a_sign_in_is_by_one_of_three_methods(method: str) -> None:
    message = one_of("process.auth", {"method": method, "needs_setup": True, "expires_in_minutes": 5})
    assert (message["authMethod"], SHAPES["AuthStateEvent"].matches(message)) == (method, True)


@for_each_row("seat", range(9))
@for_each_row("gender", ["man", "woman"])
def test_an_agent_is_a_man_or_a_woman_on_one_of_nine_seats(seat: int, gender: str) -> None:
    message = one_of("roster.join", {"name": "Lyra", "seat": seat, "gender": gender})
    agent = message["agent"]
    assert (agent["gridPosition"], agent["gender"]) == (seat, gender)
    assert SHAPES["AgentRegisteredEvent"].matches(message)


@for_each_row(
    ("event", "payload"),
    [
        ("roster.join", {"name": "Lyra", "seat": 9}),
        ("roster.join", {"name": "Lyra", "seat": -1}),
        ("roster.join", {"name": "Lyra", "seat": 0, "gender": "cat"}),
        ("roster.status", {"agents": [{"name": "Lyra", "status": "asleep", "seat": 0}]}),
        ("process.end", {"process": "model", "reason": "boredom"}),
        ("process.auth", {"method": "magic", "needs_setup": True}),
    ],
)
def test_another_value_is_not_taken(event: str, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        FULL_CATALOG.build_event(event, payload, id="evt_1", origin="system")


@for_each_row("status", ["alive", "idle", "shutdown"])
def test_an_agent_of_the_team_has_one_of_three_statuses(status: str) -> None:
    message = one_of("roster.status", {"agents": [{"name": "Lyra", "status": status, "seat": 0}]})
    assert message["agents"] == [{"name": "Lyra", "status": status, "gridPosition": 0}]
    assert SHAPES["AgentStatusEvent"].matches(message)


@for_each_row("code", sorted(ERROR_CODES | {"unknown"}))
def test_an_error_has_one_of_eight_codes(code: str) -> None:
    assert len(ERROR_CODES) == 7
    message = one_of("session.error", {"code": code, "message": "It failed."})
    assert (message["code"], SHAPES["ServerErrorEvent"].matches(message)) == (code, True)
    assert not SHAPES["ServerErrorEvent"].matches(message | {"code": "overloaded_error"})


def test_every_reason_is_one_of_the_three_results() -> None:
    found: dict[str, list[str]] = {}
    for reason in sorted(set(get_args(StopReason)) - {"handoff"}):
        [message] = said(ev.AgentEnd(stop_reason=reason))
        assert SHAPES["ClaudeResultEvent"].matches(message)
        found.setdefault(message["subtype"], []).append(reason)
    assert found == {
        "success": ["end_turn", "max_tokens", "refusal", "stop_sequence"],
        "error": ["cancelled", "context_window", "error", "max_steps"],
        "timeout": ["timeout"],
    }


@for_each_row("priced", [(True, False), (False, True), (True, True)])
def test_a_sum_with_an_unknown_price_in_it_is_unknown(priced: tuple[bool, bool]) -> None:
    office, usage, cost = Office(), ev.Usage(input_tokens=1, output_tokens=1), ev.Cost(total_cost=0.5)
    first, last = (ev.AgentEnd(stop_reason="handoff", usage=usage, cost=cost if p else None) for p in priced)
    assert office.convert(*entry(first, AGENT)) == []
    [message] = office.convert(*entry(structs.replace(last, stop_reason="end_turn"), AGENT))
    assert json.loads(message)["costUsd"] == (1.0 if all(priced) else None)


def test_the_sums_of_a_turn_that_is_being_handed_over_are_the_state() -> None:
    office, handed = Office(), ev.AgentEnd(stop_reason="handoff", steps=1)
    assert office.convert(*entry(handed, AGENT)) == []
    assert not office.idle
    other = office.convert(*entry(ev.AgentEnd(stop_reason="end_turn", steps=1), scope("agt_2", 0, "tr_2")))
    assert json.loads(other[0])["numTurns"] == 1, "another turn is not concerned"
    last = office.convert(*entry(ev.AgentEnd(stop_reason="error"), scope("agt_3")))
    assert json.loads(last[0])["numTurns"] == 1
    assert office.idle


def test_a_reply_of_very_many_blocks_continues_as_another_message_and_costs_linear_bytes() -> None:
    count = 3 * MAX_REPLY_BLOCKS
    blocks = [
        ev.AssistantMessage(text=f"{n}", block_id=f"blk_{n}", message_id="msg_01") for n in range(count)
    ]
    shown: dict[str, list[str]] = {}
    for message in said(*blocks):
        shown[message["messageId"]] = [part["text"] for part in message["content"]]
        assert len(message["content"]) <= MAX_REPLY_BLOCKS
    assert list(shown) == ["msg_01", "msg_01.2", "msg_01.3"]
    assert [text for texts in shown.values() for text in texts] == [f"{n}" for n in range(count)]


def test_an_agent_that_ends_leaves_no_reply_behind() -> None:
    office, block = Office(), ev.AssistantMessage(text="Hi.", block_id="blk_1", message_id="msg_01")
    for agent in (scope("agt_1"), scope("agt_2", 1), scope("agt_3", 0, "tr_2")):
        office.convert(*entry(block, agent))
    office.convert(*entry(ev.AgentEnd(stop_reason="end_turn"), scope("agt_1")))
    assert not office.idle, "another turn is open"
    office.convert(*entry(ev.AgentEnd(stop_reason="end_turn"), scope("agt_3", 0, "tr_2")))
    assert office.idle
