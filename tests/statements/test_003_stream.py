"""Statements of document 003 about the model's stream: what each event of the API becomes in `blocks`."""

import json
from itertools import count
from typing import Any

import pytest

from tests.statements.room import TOUR
from tests.support.written_logs import entry, scope
from turnlog.events import Vocabulary
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder, tag_parser_factory
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks

SOURCE = {
    "type": "char_location",
    "cited_text": "The grass is green.",
    "document_index": 0,
    "document_title": "My Document",
    "start_char_index": 0,
    "end_char_index": 20,
}
FOUND = [{"type": "web_search_result", "title": "Result 1", "url": "https://example.com"}]
START = {"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": {}}}
STOP: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]

Said = list[tuple[str, bool, str]]  # type, final, delta


def block(content: dict[str, Any], *deltas: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    """A content block of the API."""
    begun = {"type": "content_block_start", "index": index, "content_block": content}
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begun, *pieces, {"type": "content_block_stop", "index": index}]


def messages(
    events: list[dict[str, Any]], vocabulary: Vocabulary | None = None, **options: Any
) -> list[list[Any]]:
    """The messages of each event of the API, whole."""
    numbers = count(1)
    make_text_parser = tag_parser_factory(vocabulary)
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}", make_text_parser))
    blocks = Blocks(DialectOptions(**options))
    said = []
    for event in [START, *events, *STOP]:
        items = [entry(payload, scope("agt_1")) for payload in parser.feed(event)]
        said.append([json.loads(message) for item in items for message in blocks.convert(*item)])
    return said[1:]


def told(events: list[dict[str, Any]], vocabulary: Vocabulary | None = None, **options: bool) -> list[Said]:
    """The messages of each event of the API."""
    return [
        [(message["type"], message["final"], message["delta"]) for message in said]
        for said in messages(events, vocabulary, **options)
    ]


@pytest.mark.parametrize(
    ("content", "kind", "field"),
    [
        ({"type": "text", "text": ""}, "text", "text"),
        ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", "thinking"),
    ],
)
def test_a_delta_of_the_api_is_passed_on_at_once_and_the_stop_is_an_empty_message(
    content: dict[str, Any], kind: str, field: str
) -> None:
    deltas = [{"type": f"{kind}_delta", field: piece} for piece in ("The grass", " is green.")]
    begun, first, second, stopped, *_ = told(block(content, *deltas))
    assert (begun, first, second) == ([], [(kind, False, "The grass")], [(kind, False, " is green.")])
    assert stopped == [(kind, True, "")]


PIECES = ("\n", "Based on the document, ", "the grass <", "3 is green. ")


def test_of_a_text_every_delta_is_passed_on_as_it_is() -> None:
    deltas = [{"type": "text_delta", "text": piece} for piece in PIECES]
    _, blank, *said, stopped, _, _ = told(block({"type": "text", "text": ""}, *deltas))
    assert blank == []
    assert [delta for [(_, _, delta)] in said] == list(PIECES[1:])
    assert stopped == [("text", True, "")]


def test_of_a_text_with_a_vocabulary_only_what_may_belong_to_a_tag_waits_for_the_next_delta() -> None:
    pieces = PIECES
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    _, blank, *said, stopped, _, _ = told(block({"type": "text", "text": ""}, *deltas), TOUR.vocabulary)
    assert (blank, [delta for [(_, _, delta)] in said]) == (
        [],
        ["Based on the document,", " the grass", " <3 is green."],
    )
    assert stopped == [("text", False, " "), ("text", True, "")]
    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    _, *said, _, _, _ = told(block({"type": "thinking", "thinking": "", "signature": ""}, *thoughts))
    assert [delta for [(_, _, delta)] in said] == list(pieces), "in which no tag is looked for"


def test_signatures_pings_and_the_ends_of_messages_are_not_passed_on() -> None:
    signed = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}]
    events = block({"type": "thinking", "thinking": "", "signature": ""}, *signed)
    assert told([{"type": "ping"}, *events]) == [
        [],
        [],
        [("thinking", False, "Hm.")],
        [],
        [("thinking", True, "")],
        [],
        [],
    ]


def test_citations_follow_the_stop_of_their_text() -> None:
    deltas: list[dict[str, Any]] = [
        {"type": "citations_delta", "citation": SOURCE},
        {"type": "text_delta", "text": "Green."},
        {"type": "citations_delta", "citation": {**SOURCE, "cited_text": "Again."}},
    ]
    *before, stopped, _, _ = told(block({"type": "text", "text": "", "citations": []}, *deltas))
    assert [said for messages in before for said in messages] == [("text", False, "Green.")]
    assert stopped == [
        ("text", True, ""),
        ("citation", False, "The grass is green."),
        ("citation", True, "Again."),
    ]


def test_a_call_is_collected_and_sent_whole_when_its_message_is_complete() -> None:
    content = {"type": "tool_use", "id": "toolu_01", "name": "grep_search", "input": {}}
    pieces = ['{"pattern":', '"TODO"', ',"path":"src/"}']
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    *before, last = told(block(content, *deltas))
    assert not any(before)
    [(kind, final, delta)] = last
    assert (kind, final, json.loads(delta)) == ("tool_call", True, {"pattern": "TODO", "path": "src/"})


def test_calls_and_results_of_the_provider_are_sent_at_the_stop_of_their_blocks() -> None:
    asked = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {}}
    query = {"type": "input_json_delta", "partial_json": '{"query":"latest ai news"}'}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": FOUND}
    events = [*block(asked, query), *block(found, index=1)]
    begun, delta, call, _, result, *_ = told(events)
    assert (begun, delta) == ([], [])
    assert call == [("server_tool_call", True, '{"query":"latest ai news"}')]
    [(kind, final, text)] = result
    assert (kind, final, json.loads(text)) == ("server_tool_result", True, FOUND)
    assert told(events, stream_tool_results=False)[4] == []
    names = [(message["id"], message["name"]) for said in messages(events) for message in said]
    assert names == [("srvtoolu_01", "web_search"), ("srvtoolu_01", "web_search_tool_result")]


def test_files_that_a_container_made_are_told() -> None:
    asked = {"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {"command": "ls"}}
    made = {"type": "bash_code_execution_output", "file_id": "file_01"}
    content = {
        "type": "bash_code_execution_result",
        "stdout": "",
        "stderr": "",
        "return_code": 0,
        "content": [made],
    }
    ran = {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": content}
    said = [message for messages in told([*block(asked), *block(ran, index=1)]) for message in messages]
    assert [name for name, _, _ in said] == ["server_tool_call", "server_tool_result", "meta_files"]
    file = {"file_id": "file_01", "filename": "file_01", "storage_location": "provider:file_01"}
    assert json.loads(said[-1][2]) == {"files": [file]}, "the API tells no more than its id"


def test_a_call_that_broke_off_is_not_sent() -> None:
    content = {"type": "tool_use", "id": "toolu_01", "name": "grep_search", "input": {}}
    numbers = count(1)
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}"))
    blocks = Blocks()
    begun = block(content, {"type": "input_json_delta", "partial_json": '{"pat'})[:-1]
    payloads = [payload for event in [START, *begun] for payload in parser.feed(event)] + parser.flush()
    assert [blocks.convert(*entry(payload, scope("agt_1"))) for payload in payloads] == [[]] * len(payloads)
