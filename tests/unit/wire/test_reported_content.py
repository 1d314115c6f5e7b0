"""What was reported is sent as it was: results, errors of pages and providers, and labels for binary data."""

import json
from typing import Any

import pytest

from tests.support.written_logs import entry, scope
from turnlog.events import AgentStart, Citation, ErrorInfo, SessionError, ToolResult
from turnlog.events.content import PromptDocument, PromptImage, PromptText, describe_prompt
from turnlog.events.tool import Image
from turnlog.state.content_parts import result_text
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks, encode_citations
from turnlog.wire.dialects.blocks_meta import format_user_query, label_binary_data

IMAGE = Image(src="api/blobs/1", media_type="image/png")
KIND = "web_search_tool_result"


def failed(details: dict[str, Any] | None, kind: str | None = None) -> ToolResult:
    error = ErrorInfo(code="EXECUTION_ERROR", message="no", details=details)
    return ToolResult(call_id="c", tool="t", ok=False, error=error, kind=kind)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(call_id="c", tool="t", ok=True, result="yes"), "yes"),
        (ToolResult(call_id="c", tool="t", ok=True), "null"),
        (ToolResult(call_id="c", tool="t", ok=True, images=(IMAGE,)), ""),
        (ToolResult(call_id="c", tool="t", ok=True, kind=KIND), ""),
        (failed({"content": "The user closed the tab."}), "The user closed the tab."),
        (failed({"content": {"reason": "closed"}}), '{"reason":"closed"}'),
        (failed({"content": "x", "path": []}), None),
        (failed(None), None),
        (ToolResult(call_id="c", tool="t", ok=False), "null"),
        (
            failed({"content": {"error_code": "max_uses_exceeded"}}, KIND),
            '{"error_code":"max_uses_exceeded"}',
        ),
    ],
)
def test_result_is_what_was_reported(result: ToolResult, text: str | None) -> None:
    if text is None:
        text = json.dumps(
            {"code": "EXECUTION_ERROR", "message": "no"} | details_of(result), separators=(",", ":")
        )
    assert result_text(result) == text
    messages = Blocks().convert(*entry(result, scope("agt_1"))) if result.error or result.ok else []
    assert "".join(json.loads(message)["delta"] for message in messages) in (text, "")


def details_of(result: ToolResult) -> dict[str, Any]:
    return {"details": result.error.details} if result.error and result.error.details else {}


@pytest.mark.parametrize(
    ("provider_message", "message"), [(None, "The model is overloaded."), ("Overloaded", "Overloaded")]
)
def test_error_of_the_api_is_told_in_its_words(provider_message: str | None, message: str) -> None:
    error = SessionError(
        code="overloaded_error", message="The model is overloaded.", provider_message=provider_message
    )
    [told] = Blocks().convert(*entry(error, scope("agt_1")))
    assert json.loads(json.loads(told)["delta"]) == {"type": "overloaded_error", "message": message}


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"src": "https://a.example/b"}, {"type": "url", "url": "https://a.example/b"}),
        ({"src": "data:image/png;base64,AAAA"}, {"type": "base64", "data": "[base64, 0.0 KB]"}),
        ({"src": "api/blobs/1"}, {"type": "base64", "data": "[base64]"}),
        ({"src": "api/blobs/1", "size_bytes": 1_258_291}, {"type": "base64", "data": "[base64, 1.2 MB]"}),
    ],
)
def test_binary_data_is_told_by_its_size(fields: dict[str, Any], source: dict[str, Any]) -> None:
    part = {"type": "image", **fields}
    assert label_binary_data(part) == {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [part], "is_error": False}
    assert label_binary_data(result)["content"] == [{"type": "image", "source": source}]


def test_prompt_without_content_is_its_text() -> None:
    assert format_user_query(AgentStart(name="A", via="prompt", prompt="Hi")) == "Hi"
    assert format_user_query(AgentStart(name="A", via="prompt")) == ""


def test_prompt_of_parts_is_described_line_by_line() -> None:
    parts = (
        PromptText(text="Look:"),
        PromptImage(src="api/blobs/1"),
        PromptDocument(src="api/blobs/2", title="Report"),
        PromptDocument(src="api/blobs/3"),
    )
    assert describe_prompt(parts) == "Look:\n[image]\n[document: Report]\n[document]"


def test_citations_that_a_reader_wants_whole_are_one_message_each() -> None:
    url = "https://example.com/".ljust(5000, "a")
    citation = Citation(type="web_search_result_location", cited_text="x" * 5000, url=url, title="t" * 900)
    messages = encode_citations("1", (citation, citation), DialectOptions(citations="whole"))
    first, second = map(json.loads, messages)
    assert (first["url"], first["title"], first["delta"]) == (url, "t" * 900, "x" * 5000)
    assert (first["final"], second["final"]) == (False, True)
    assert "index" not in first
