"""A reply takes whatever a model of one's own says, and never raises."""

from typing import Any

from tests.support.tables import for_each_row
from turnlog.events import CATALOG, Citation, ErrorInfo, ParseReject, Payload, ToolCall, ToolResult
from turnlog.parse import ReplyBuilder

HALF = "a\ud800"  # as `json.loads` gives it
LONG = "€" * 43  # 129 bytes


def new_id(prefix: str) -> str:
    return f"{prefix}1"


def said(make: Any) -> list[Payload]:
    """What a reply says; every event of it can be appended."""
    reply = ReplyBuilder(new_id)
    batch = [*reply.text("Look."), *make(reply), *reply.done("end_turn")]
    for number, payload in enumerate(batch):
        origin: Any = "system" if isinstance(payload, ParseReject) else "model"
        CATALOG.build_event(payload, id=f"evt_{number}", origin=origin)
    return batch


def citation(text: str, kind: str = "page") -> Citation:
    return Citation(type=kind, cited_text=text)


def answer(**fields: Any) -> ToolResult:
    known: dict[str, Any] = {"call_id": "c", "tool": "search", "ok": True, "kind": "search_tool_result"}
    return ToolResult(**(known | fields))


MENDED: list[Any] = [
    (lambda reply: reply.call("t", {"x": HALF}), ToolCall),
    (lambda reply: reply.result(answer(result={"x": HALF})), ToolResult),
]
REFUSED: list[Any] = [
    (lambda reply: reply.call(LONG, {}), "bad_call"),
    (lambda reply: reply.call(HALF, {}), "bad_call"),
    (lambda reply: reply.call("t", {}, "two words"), "bad_call"),
    (lambda reply: reply.call("t", {"x": object()}), "bad_call"),
    (lambda reply: reply.call("t", [1]), "bad_call"),
    (lambda reply: reply.start_call(LONG), "bad_call"),
    (lambda reply: reply.cite(citation("x", LONG)), "bad_citation"),
    (lambda reply: reply.result(answer(tool=LONG)), "bad_result"),
    (lambda reply: reply.result(answer(ok=False)), "bad_result"),
]


@for_each_row(("make", "kind"), MENDED)
def test_reply_with_a_lone_surrogate_mends_it(make: Any, kind: type) -> None:
    (found,) = [payload for payload in said(make) if isinstance(payload, kind)]
    value = found.args if isinstance(found, ToolCall) else found.result  # type: ignore[attr-defined]
    assert value == {"x": "a\ufffd"}


def test_reply_with_a_lone_surrogate_in_a_citation_mends_it() -> None:
    (message,) = [
        payload for payload in said(lambda reply: reply.cite(citation(HALF))) if hasattr(payload, "citations")
    ]
    assert message.citations[0].cited_text == "a\ufffd"


@for_each_row(("make", "reason"), REFUSED)
def test_reply_with_what_no_event_can_carry_leaves_a_reject(make: Any, reason: str) -> None:
    rejects = [payload for payload in said(make) if isinstance(payload, ParseReject)]
    assert [reject.reason for reject in rejects] == [reason]


def test_reply_that_refused_a_call_has_no_call_to_take_its_arguments() -> None:
    batch = said(lambda reply: [*reply.start_call("a"), *reply.start_call(LONG), *reply.arguments("{}")])
    assert [p.reason for p in batch if isinstance(p, ParseReject)] == ["bad_call", "arguments_without_call"]


def test_reply_with_an_unusable_model_or_message_id_goes_without() -> None:
    reply = ReplyBuilder(new_id)
    reply.begin(LONG, "two words")
    assert (reply.model, reply.message_id) == (None, None)


def test_reply_with_a_good_result_that_failed_takes_it() -> None:
    fault = ErrorInfo(code="unavailable", message="unavailable")
    assert any(isinstance(p, ToolResult) for p in said(lambda r: r.result(answer(ok=False, error=fault))))
