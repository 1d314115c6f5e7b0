"""Envelopes of other systems become events: their origin, turn, time and call ids (protocol 6.6)."""

from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import EnvelopeDraft, Event, UnknownPayload
from turnlog.log.drafts import DraftBuilder, parse_draft_time_ms

CALL = {"tool": "save", "args": {}}
RESULT = {"tool": "save", "ok": True, "result": 1, "error": None}


def draft(type: str, payload: dict[str, Any], id: str = "evt_1", **more: Any) -> EnvelopeDraft:
    return EnvelopeDraft(type=type, id=id, session_id="sess_1", payload=payload, **more)


def call_id_of(event: Event) -> str:
    assert not isinstance(event.payload, UnknownPayload)
    return str(getattr(event.payload, "call_id", ""))


@for_each_row(
    ("type", "payload", "origin"),
    [
        ("ui.message", {"text": "Hello"}, "ui"),
        ("ui.action", {"view_id": "v", "action": {"kind": "button.click", "button_id": "b"}}, "ui"),
        ("assistant.message", {"text": "Hello"}, "model"),
        ("assistant.view", {"view": {"kind": "a2ui.v1", "view_id": "v", "tree": {}}}, "model"),
        ("tool.call", CALL, "model"),
        ("tool.result", {"call_id": "c", **RESULT}, "tool"),
        ("tool.progress", {"call_id": "c", "text": "half"}, "tool"),
        ("agent.start", {"name": "A", "via": "prompt"}, "system"),
        ("case.note", {"text": 1}, "app"),
    ],
)
def test_build_sets_the_origin_by_the_party_that_emits_the_type(type: str, payload: Any, origin: str) -> None:
    assert DraftBuilder().build(draft(type, payload)).origin == origin


def test_build_keeps_a_valid_turn_and_no_other() -> None:
    for trace, stored in (("tr_1", "tr_1"), ("tr_...", None), (None, None)):
        event = DraftBuilder().build(draft("ui.message", {"text": "Hello"}, trace_id=trace))
        assert event.scope.trace_id == stored


@for_each_row(
    ("ts", "time_ms"),
    [
        ("2026-01-08T12:34:56.789Z", 1_767_875_696_789),
        ("2026-02-31T12:34:56.789Z", None),
        ("2026-01-08", None),
        ("...", None),
        (None, None),
    ],
)
def test_parse_draft_time_ms_of_another_form_is_none(ts: str | None, time_ms: int | None) -> None:
    assert parse_draft_time_ms(draft("ui.message", {"text": "Hello"}, ts=ts)) == time_ms


def test_build_pairs_a_result_with_the_only_open_call_of_its_tool() -> None:
    drafts = DraftBuilder()
    assert call_id_of(drafts.build(draft("tool.call", CALL, "evt_a"))) == "evt_a"
    assert call_id_of(drafts.build(draft("tool.call", {**CALL, "tool": "other"}, "evt_b"))) == "evt_b"
    assert call_id_of(drafts.build(draft("tool.result", RESULT, "evt_c"))) == "evt_a"
    with pytest.raises(InvalidEvent, match="expected one open call of 'save' before it, got 0"):
        drafts.build(draft("tool.result", RESULT, "evt_d"))


def test_build_pairs_within_the_turn_that_a_result_names() -> None:
    drafts = DraftBuilder()
    for trace in ("tr_1", "tr_2"):
        drafts.build(draft("tool.call", {**CALL, "call_id": f"c_{trace}"}, f"evt_{trace}", trace_id=trace))
    with pytest.raises(InvalidEvent, match="expected one open call of 'save' before it, got 2"):
        drafts.build(draft("tool.result", RESULT, "evt_r"))
    assert call_id_of(drafts.build(draft("tool.result", RESULT, "evt_r", trace_id="tr_2"))) == "c_tr_2"
    assert call_id_of(drafts.build(draft("tool.result", RESULT, "evt_s"))) == "c_tr_1"


@for_each_row(
    ("type", "payload", "problem"),
    [
        ("ui.message", {}, "missing required field text"),
        ("tool.call", {**CALL, "call_id": []}, "expected str, got array"),
        ("tool.result", {**RESULT, "call_id": {}}, "expected str, got object"),
        ("tool.result", {"call_id": "c", **RESULT, "ok": False}, "expected an error in a result"),
    ],
)
def test_build_of_a_payload_that_does_not_fit_is_refused(type: str, payload: Any, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        DraftBuilder().build(draft(type, payload))
