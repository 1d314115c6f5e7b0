"""A `tool.result` that contradicts itself is refused when it is appended, and read from a log that has it."""

from typing import Any

import pytest
from msgspec import Raw

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, ToolResult

FAULT = {"code": "EXECUTION_ERROR", "message": "it broke"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ok": True, "error": FAULT}, "expected no error in a result that is ok"),
    ({"ok": True, "result": 1, "error": FAULT}, "expected no error in a result that is ok"),
    ({"ok": False}, "expected an error in a result that is not ok"),
    ({"ok": False, "result": 1}, "expected an error in a result that is not ok"),
    ({"ok": False, "result": 1, "error": FAULT}, "expected no result beside an error"),
]
GOOD: list[dict[str, Any]] = [{"ok": True}, {"ok": True, "result": 0}, {"ok": False, "error": FAULT}]
CALL = {"call_id": "c", "tool": "t"}


@for_each_row(("fields", "problem"), WRONG)
def test_event_with_a_result_that_contradicts_itself_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem) as refused:
        CATALOG.build_event("tool.result", CALL | fields, id="evt_1", origin="tool")
    assert refused.value.path == "$.payload"


@for_each_row("fields", GOOD)
def test_event_with_a_result_that_is_of_one_mind_is_taken(fields: dict[str, Any]) -> None:
    CATALOG.build_event("tool.result", CALL | fields, id="evt_1", origin="tool")


def test_payload_of_a_stored_result_that_contradicts_itself_is_read() -> None:
    stored = b'{"call_id":"c","tool":"t","ok":false,"result":1,"error":null}'
    assert isinstance(CATALOG.decode_or_unknown("tool.result", Raw(stored)), ToolResult)
