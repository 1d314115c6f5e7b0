"""The payloads of the package: their bytes, their defaults, and what each of them refuses."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.tables import for_each_row
from turnlog.events import EventType, ToolResult, UiAction, UiCommand
from turnlog.events.ui import (
    ButtonClick,
    EndSession,
    FormSubmit,
    InputSubmit,
    JobHelp,
    OfferWork,
    StartSession,
    Stop,
    Summon,
    TableAddRow,
    TableDeleteRow,
    TableSave,
    Wake,
    WakeAgent,
)
from turnlog.vocabularies import FULL_CATALOG

KINDS = list(FULL_CATALOG)
LIVE = {"block.delta", "tool.progress"}

ACTIONS: list[tuple[Any, dict[str, Any]]] = [
    (
        FormSubmit(form_id="f", values={"a": None}),
        {"kind": "form.submit", "form_id": "f", "values": {"a": None}},
    ),
    (TableSave(table_id="t", rows=({"a": 1},)), {"kind": "table.save", "table_id": "t", "rows": [{"a": 1}]}),
    (TableAddRow(table_id="t"), {"kind": "table.add_row", "table_id": "t"}),
    (
        TableDeleteRow(table_id="t", row_id="r"),
        {"kind": "table.delete_row", "table_id": "t", "row_id": "r"},
    ),
    (ButtonClick(button_id="b"), {"kind": "button.click", "button_id": "b"}),
    (InputSubmit(values={}), {"kind": "input.submit", "values": {}}),
]

LYRA = {
    "name": "Lyra",
    "color": "#c9b1ff",
    "color_name": "lavender",
    "seat": 8,
    "has_soul": True,
    "has_transcript": False,
}
COMMANDS: list[tuple[Any, dict[str, Any]]] = [
    (Summon(), {"kind": "summon"}),
    (Wake(agents=(msgspec.convert(LYRA, WakeAgent),)), {"kind": "wake", "agents": [LYRA]}),
    (StartSession(), {"kind": "session.start"}),
    (StartSession(demo_mode=True), {"kind": "session.start", "demo_mode": True}),
    (EndSession(), {"kind": "session.end"}),
    (
        OfferWork(agent="Lyra", jobs=("librarian",)),
        {"kind": "offer_work", "agent": "Lyra", "jobs": ["librarian"]},
    ),
    (JobHelp(form={"name": ""}), {"kind": "job_help", "form": {"name": ""}}),
    (Stop(), {"kind": "stop"}),
    (
        Stop(turn="tr_1", agent_id="agt_1"),
        {"kind": "stop", "turn": "tr_1", "agent_id": "agt_1"},
    ),
]

NULLS = {"result": None, "error": None}
RESULT = {"call_id": "a", "tool": "b"}
RESULTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (RESULT | {"ok": True}, RESULT | {"ok": True} | NULLS),
    (RESULT | {"ok": True} | NULLS, RESULT | {"ok": True} | NULLS),
    (
        RESULT | {"ok": True, "result": {"saved": 1}},
        RESULT | {"ok": True, "result": {"saved": 1}, "error": None},
    ),
    (
        RESULT | {"ok": False, "error": {"code": "TIMEOUT", "message": "late"}},
        RESULT | {"ok": False, "result": None, "error": {"code": "TIMEOUT", "message": "late"}},
    ),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("process.start", {"pid": -1}, "$.pid"),
    ("process.start", {"process": "page"}, "$.process"),
    ("process.end", {"reason": "bored"}, "$.reason"),
    ("process.auth", {"method": "password"}, "$.method"),
    ("session.error", {"code": ""}, "$.code"),
    ("ui.message", {"speaker": "a\nb"}, "$.speaker"),
    ("ui.action", {"call_id": "a b"}, "$.call_id"),
    ("ui.command", {"command": {"kind": "stop", "turn": "agt_1"}}, "$.command.turn"),
    ("ui.command", {"command": {"kind": "wake", "agents": [LYRA | {"seat": 9}]}}, "$.command.agents[0].seat"),
    ("agent.start", {"via": "magic"}, "$.via"),
    ("agent.start", {"parent_id": "tr_1"}, "$.parent_id"),
    ("agent.start", {"tools": ["ok", ""]}, "$.tools[1]"),
    ("agent.end", {"stop_reason": "tired"}, "$.stop_reason"),
    ("agent.end", {"steps": -1}, "$.steps"),
    ("agent.end", {"usage": {"input_tokens": -1, "output_tokens": 0}}, "$.usage.input_tokens"),
    ("agent.end", {"cost": {"total_cost": -0.5}}, "$.cost.total_cost"),
    ("agent.end", {"cost": {"total_cost": 1, "currency": "EUR"}}, "$.cost.currency"),
    ("agent.handoff", {"to_agent_id": "Writer"}, "$.to_agent_id"),
    ("agent.usage", {"duration_ms": 1.5}, "$.duration_ms"),
    ("context.compact", {"tokens_after": -1}, "$.tokens_after"),
    ("agent.checkpoint", {"blob": "two words"}, "$.blob"),
    ("agent.checkpoint", {"size_bytes": -1}, "$.size_bytes"),
    ("block.start", {"kind": "poem"}, "$.kind"),
    ("block.delta", {"text": None}, "$.text"),
    ("block.end", {"status": "open"}, "$.status"),
    ("block.retract", {"block_ids": "blk_1"}, "$.block_ids"),
    ("assistant.message", {"citations": [{"type": "char_location"}]}, "$.citations[0]"),
    ("assistant.thinking", {"block_id": "é"}, "$.block_id"),
    ("session.member", {"roles": ["Owner"]}, "$.roles[0]"),
    ("session.invite", {"invite_id": "inv_1", "roles": [], "expires_ms": 1}, "$.roles"),
    ("session.invite_end", {"invite_id": "inv_1", "reason": "lost"}, "$.reason"),
    ("session.title", {"title": ""}, "$.title"),
    ("session.close", {"by": ""}, "$.by"),
    ("session.close", {"reason": "two\nlines"}, "$.reason"),
    ("assistant.view", {"view": {"kind": "a2ui.v2", "view_id": "v", "tree": {}}}, "$.view.kind"),
    ("assistant.block", {"data": []}, "$.data"),
    ("assistant.files", {"files": [{"file_id": "f"}]}, "$.files[0]"),
    ("tool.call", {"args": []}, "$.args"),
    ("tool.call", {"executor": "cloud"}, "$.executor"),
    ("tool.progress", {"call_id": 7}, "$.call_id"),
    ("tool.await", {"calls": [{"call_id": "a", "tool": "b", "args": None}]}, "$.calls[0].args"),
    ("tool.result", {"ok": None}, "$.ok"),
    ("tool.result", {"error": {"code": "TIMEOUT"}}, "$.error"),
    ("tool.result", {"images": [{"src": "data:", "media_type": ""}]}, "$.images[0].media_type"),
    ("approval.request", {"expires_at": "tomorrow"}, "$.expires_at"),
    ("approval.decision", {"decision": "maybe"}, "$.decision"),
    ("parse.reject", {"length": -1}, "$.length"),
    ("roster.join", {"seat": 9}, "$.seat"),
    ("roster.join", {"gender": "robot"}, "$.gender"),
    ("roster.status", {"agents": [{"name": "Lyra", "status": "asleep", "seat": 0}]}, "$.agents[0].status"),
    ("roster.offer", {"jobs": [1]}, "$.jobs[0]"),
    ("artifact.write", {"size_bytes": -1}, "$.size_bytes"),
    ("screen.command", {"expression": ""}, "$.expression"),
    ("job.suggest", {"suggestions": []}, "$.suggestions"),
    ("server.code_use", {"number": ""}, "$.number"),
    ("server.sign_out", {"until": -1}, "$.until"),
    ("stream.create", {"path": ""}, "$.path"),
    ("stream.create", {"ttl_s": -1}, "$.ttl_s"),
    ("stream.append", {"producer": {"id": "p", "epoch": 0, "seq": -1}}, "$.producer.seq"),
    ("stream.append", {"data": "not base64!"}, "$.data"),
    ("stream.close", {"producer": {"id": "", "epoch": 0, "seq": 0}}, "$.producer.id"),
    ("stream.fork", {"session_id": "x"}, "$.session_id"),
]


@for_each_row("kind", KINDS, ids=lambda kind: kind.name)
def test_the_example_is_what_is_written(kind: EventType) -> None:
    payload = kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE))
    assert json.loads(msgspec.json.encode(payload)) == kind.payload_class.EXAMPLE


@for_each_row("kind", KINDS, ids=lambda kind: kind.name)
def test_every_required_field_is_missed(kind: EventType) -> None:
    required = [field.encode_name for field in msgspec.structs.fields(kind.payload_class) if field.required]
    for name in required:
        with pytest.raises(msgspec.ValidationError, match=f"missing required field `{name}`"):
            kind.decoder.decode(
                json.dumps({key: value for key, value in kind.payload_class.EXAMPLE.items() if key != name})
            )


@for_each_row(("name", "wrong", "path"), REFUSED)
def test_a_wrong_field_is_refused(name: str, wrong: dict[str, Any], path: str) -> None:
    kind = FULL_CATALOG.get_event_type(name)
    with pytest.raises(msgspec.ValidationError) as caught:
        kind.decoder.decode(json.dumps({**kind.payload_class.EXAMPLE, **wrong}))
    assert str(caught.value).endswith(f"- at `{path}`")


def test_every_type_is_tried() -> None:
    with_fields = {kind.name for kind in FULL_CATALOG if kind.payload_class.__struct_fields__}
    assert {name for name, _, _ in REFUSED} == with_fields


@for_each_row(("given", "written"), RESULTS)
def test_a_tool_result_always_says_ok_result_and_error(
    given: dict[str, Any], written: dict[str, Any]
) -> None:
    payload = msgspec.convert(given, ToolResult)
    assert json.loads(msgspec.json.encode(payload)) == written


@for_each_row(("action", "written"), ACTIONS)
def test_every_action_has_its_own_shape(action: Any, written: dict[str, Any]) -> None:
    line = msgspec.json.encode(UiAction(action=action))
    assert json.loads(line) == {"action": written}
    assert msgspec.json.decode(line, type=UiAction).action == action


@for_each_row(("command", "written"), COMMANDS)
def test_every_command_has_its_own_shape(command: Any, written: dict[str, Any]) -> None:
    line = msgspec.json.encode(UiCommand(command=command))
    assert json.loads(line) == {"command": written}
    assert msgspec.json.decode(line, type=UiCommand).command == command


def test_live_types_are_the_deltas() -> None:
    assert {kind.name for kind in FULL_CATALOG if kind.payload_class.LIVE} == LIVE
