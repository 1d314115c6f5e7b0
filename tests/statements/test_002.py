"""Statements of document 002 (statements.md) that no other test says in so many words."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

import turnlog
from turnlog import Scope
from turnlog.errors import InvalidEvent
from turnlog.events import EventType, Origin, encode_envelope
from turnlog.vocabularies import FULL_CATALOG

ENTRY = {"measured_at": "2026-01-08", "weight_lbs": 187.6}
ROW = {"measured_at": "2026-01-08T12:00:00-05:00", "weight_lbs": 187.6, "notes": ""}
SUBMIT = {"kind": "form.submit", "form_id": "weight_entry", "values": ENTRY}
SAVE = {"call_id": "toolu_01", "tool": "weight_entry_save_batch"}
SAVED = {"saved": 1, "ids": ["wt_1"]}
PATH = {"path": ["rows", 0, "weight_lbs"]}
FAULT = {"code": "VALIDATION_ERROR", "message": "weight_lbs must be > 0", "details": PATH}
EXAMPLES: list[tuple[str, Origin, dict[str, Any]]] = [
    ("ui.message", "ui", {"text": "Weigh-in 187.6 today"}),
    ("ui.action", "ui", {"view_id": "view_1", "action": SUBMIT}),
    ("assistant.message", "model", {"text": "Got it. Please confirm the entry:"}),
    ("assistant.view", "model", {"view": {"kind": "a2ui.v1", "view_id": "view_1", "tree": {}}}),
    ("tool.call", "model", {**SAVE, "args": {"rows": [ROW]}}),
    ("tool.result", "tool", {**SAVE, "ok": True, "result": SAVED, "error": None}),
    ("tool.result", "tool", {**SAVE, "ok": False, "result": None, "error": FAULT}),
]


def written(name: str, origin: Origin, payload: Mapping[str, Any], trace: str | None = "tr_1") -> Any:
    """An event as it stands in the log."""
    event = turnlog.event(name, payload, origin=origin, scope=Scope(trace_id=trace))
    return json.loads(encode_envelope(event, session_id="sess_1", seq=7, ts_ms=1_767_875_696_789))


@pytest.mark.parametrize(("name", "origin", "payload"), EXAMPLES)
def test_an_example_is_written_as_it_stands_there(name: str, origin: Origin, payload: Any) -> None:
    said = written(name, origin, payload)
    assert said.pop("id").startswith("evt_")
    place = {"type": name, "ts": "2026-01-08T12:34:56.789Z", "session_id": "sess_1", "trace_id": "tr_1"}
    assert said == {**place, "seq": 7, "origin": origin, "payload": payload}


@pytest.mark.parametrize(("name", "origin", "payload"), EXAMPLES[:2])
def test_what_a_page_sends_needs_no_trace(name: str, origin: Origin, payload: Any) -> None:
    assert "trace_id" not in written(name, origin, payload, None)


@pytest.mark.parametrize("kind", list(FULL_CATALOG), ids=lambda kind: kind.name)
def test_every_event_has_the_common_envelope(kind: EventType) -> None:
    payload = msgspec.convert(kind.payload_class.EXAMPLE, kind.payload_class)
    origins: tuple[Origin, ...] = ("system", "model", "ui", "tool")
    origin = next(origin for origin in origins if kind.allows_origin(payload, origin))
    said = written(kind.name, origin, kind.payload_class.EXAMPLE)
    assert (said["type"], type(said["payload"])) == (kind.name, dict)
    places = " ".join(said[name] for name in ("id", "ts", "trace_id", "session_id"))
    assert re.fullmatch(r"evt_\S+ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z tr_\S+ sess_\S+", places)


def test_a_page_cannot_call_a_tool_and_a_model_cannot_speak_for_a_page() -> None:
    wrong: list[Origin] = ["model", "model", "ui"]
    for (name, _, payload), origin in zip((*EXAMPLES[:2], EXAMPLES[4]), wrong, strict=True):
        with pytest.raises(InvalidEvent, match=f"may not come from {origin}"):
            written(name, origin, payload)
