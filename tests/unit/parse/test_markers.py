"""Markers: every vector whole, cut at every position, by letters; what goes out at once; bounds; deeds."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.scanner_work import count_characters, rescanning
from tests.support.tables import check_laws, for_each_row
from turnlog.events import ErrorInfo, ToolCall, ToolResult, Vocabulary
from turnlog.parse.inline.json_scanner import MAX_DEPTH
from turnlog.parse.inline.parsed_text import ParsedText
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS
from turnlog.team.markers import MARKERS, MarkerParser, TagAndMarkerParser, parse_route
from turnlog.team.tool_effects import MAX_HEAD_CHARS, TeamToolEffects, parse_artifact_meta
from turnlog.vocabularies import FULL_CATALOG

FOLDER = Path(__file__).parents[2] / "vectors" / "markers"
FILE = json.loads((FOLDER / "markers.json").read_text())
DEEDS = json.loads((FOLDER / "deeds.json").read_text())["vectors"]
STATUS = '[AGENT_STATUS] {"agents":[]}'
TAG = "<agent-event type='x' data='{}' />"

by_vector = pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: vector["id"])


def joined(parts: list[ParsedText]) -> ParsedText:
    return ParsedText(
        "".join(part.display_text for part in parts),
        [event for part in parts for event in part.events],
        [reject for part in parts for reject in part.rejects],
    )


def parse(*pieces: str) -> ParsedText:
    parser = MarkerParser()
    return joined([*(parser.feed(piece) for piece in pieces), parser.flush()])


def shown(payload: Any) -> dict[str, Any]:
    """A payload as it stands in a vector."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    return {"type": FULL_CATALOG.get_type_name(type(payload)), **fields}


def check_whole(vector: dict[str, Any]) -> None:
    parsed = parse(vector["text"])
    assert parsed.display_text == vector["display"]
    assert [shown(event.payload) for event in parsed.events] == vector.get("events", [])
    assert [reject.reason for reject in parsed.rejects] == vector.get("rejects", [])
    assert {reject.name for reject in parsed.rejects} <= {marker.strip("[]") for marker in MARKERS}
    assert {event.type for event in parsed.events} == {item["type"] for item in vector.get("events", [])}


def check_cut_at_every_position_and_by_letters(vector: dict[str, Any]) -> None:
    text = vector["text"]
    whole = parse(text)
    assert parse(*text) == whole
    with without_coverage():
        for at in range(len(text)):
            assert parse(text[:at], text[at:]) == whole


def check_a_parser_is_ready_for_the_next_text(vector: dict[str, Any]) -> None:
    parser = MarkerParser()
    for _ in range(2):
        assert joined([parser.feed(vector["text"]), parser.flush()]) == parse(vector["text"])


@by_vector
def test_vector(vector: dict[str, Any]) -> None:
    laws = [
        check_whole,
        check_cut_at_every_position_and_by_letters,
        check_a_parser_is_ready_for_the_next_text,
    ]
    check_laws(laws, vector)


def test_text_before_a_marker_goes_out_at_once_and_a_marker_never_does() -> None:
    parser = MarkerParser()
    said = [parser.feed(letter).display_text for letter in f"Hello, you! {STATUS} Bye."]
    assert "".join(said[: len("Hello, you!")]) == "Hello, you!"
    assert set(said[len("Hello, you!") : -len(" Bye.")]) == {""}
    assert "".join(said[-len(" Bye.") :]) == " Bye."


def test_what_cannot_become_a_marker_goes_out_at_once() -> None:
    parser = MarkerParser()
    assert parser.feed("see [AGE").display_text == "see"
    assert parser.feed("S]").display_text == " [AGES]"


@for_each_row("count", [64, 65, 200])
def test_white_space_between_a_marker_and_its_json_is_bounded(count: int) -> None:
    text = "a [AGENT_STATUS]" + " " * count + '{"agents":[]}'
    parsed = parse(text)
    assert (len(parsed.events), len(parsed.rejects)) == ((1, 0) if count <= 64 else (0, 1))
    assert parsed.display_text == "a" if count <= 64 else parsed.display_text.endswith('{"agents":[]}')
    for cut in (1, 7, 20, 81, 82, 83):
        pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
        assert parse(*pieces).display_text == parsed.display_text


@for_each_row("cut", [1 << 20, 4096, 1000])
@for_each_row("end", ['"}} b', '"}\nb', ""])
def test_json_that_is_too_long_is_refused_and_skipped(cut: int, end: str) -> None:
    text = 'a [JOB_HELP] {"suggestions": {"a": "' + "x" * MAX_TAG_CHARS + end
    parsed = parse(*(text[at : at + cut] for at in range(0, len(text), cut)))
    assert [(reject.reason, reject.length) for reject in parsed.rejects] == [("too_long", MAX_TAG_CHARS)]
    assert parsed == parse(text)
    assert parsed.display_text == ("a b" if end else "a")


def test_json_may_not_nest_without_end() -> None:
    deep = '[JOB_HELP] {"suggestions":' + "[" * MAX_DEPTH
    assert [reject.reason for reject in parse(deep).rejects] == ["bad_json"]


HOSTILE = {
    "markers": STATUS,
    "mentions": "[JOB_HELP] ",
    "brackets": "[",
    "beginnings": "[AGENT_STATU",
    "white space": " \n",
    "code": "`[JOB_HELP]` ",
    "an open string": '"',
    "backslashes": "\\",
    "digits": "1",
    "deep": "[",
    "a broken line": "x",
}
STARTS = {
    "an open string": '[JOB_HELP] {"a": ',
    "backslashes": '[JOB_HELP] {"a": "',
    "digits": '[JOB_HELP] {"a": ',
    "deep": '[JOB_HELP] {"a": ',
    "a broken line": "[JOB_HELP] {",
}


def hostile(name: str, size: int) -> str:
    return (STARTS.get(name, "") + HOSTILE[name] * size)[:size]


@pytest.mark.parametrize("name", HOSTILE)
@for_each_row("chunk", [1, 7, 500])
@without_coverage()
def test_twice_the_text_is_twice_the_work(name: str, chunk: int) -> None:
    once, twice = (count_characters(MarkerParser(), hostile(name, size), chunk) for size in (2000, 4000))
    assert twice <= 2.2 * once


@without_coverage()
def test_the_count_sees_what_is_not_linear() -> None:
    once, twice = (
        count_characters(rescanning(MarkerParser), hostile("brackets", size), 7) for size in (4000, 8000)
    )
    assert twice > 3.5 * once


def test_text_that_is_no_unicode_is_refused() -> None:
    assert [reject.reason for reject in parse('[JOB_HELP] {"suggestions": {"a": "\ud800"}}').rejects] == [
        "bad_json"
    ]


@for_each_row("size", [1, 5, 1000])
def test_tags_and_markers_of_one_text(size: int) -> None:
    text = f"a {STATUS} b {TAG} c <agent-event type='y' /> [JOB_HELP] d `{STATUS}` {TAG} [AGENT"
    parser = TagAndMarkerParser()
    fed = [parser.feed(text[at : at + size]) for at in range(0, len(text), size)]
    whole = joined([*fed, parser.flush()])
    assert whole.display_text == f"a b c d `{STATUS}` [AGENT"
    assert [event.type for event in whole.events] == ["roster.status", "x", "y", "x"]
    assert [reject.reason for reject in whole.rejects] == ["no_json"]
    assert parser.flush() == ParsedText("", [], [])


def test_rejects_of_tags_and_markers_come_in_document_order() -> None:
    parser = TagAndMarkerParser(Vocabulary("none", []))
    found = joined([parser.feed(f"[JOB_HELP] {TAG}"), parser.flush()])
    assert [reject.reason for reject in found.rejects] == ["no_json", "unknown_type"]


@for_each_row("size", [1, 5, 1000])
def test_a_tag_inside_the_json_of_a_marker_stays_in_the_json(size: int) -> None:
    how = "write <agent-event type='note' /> to log"
    text = f'a [JOB_HELP] {{"suggestions": {{"how": "{how}"}}}} b'
    parser = TagAndMarkerParser()
    found = joined([*(parser.feed(text[at : at + size]) for at in range(0, len(text), size)), parser.flush()])
    assert [event.type for event in found.events] == ["job.suggest"]
    assert found.events[0].data == {"suggestions": {"how": how}}
    assert (found.display_text, found.rejects) == ("a b", [])


@for_each_row("size", [1, 5, 1000])
def test_a_marker_inside_the_json_of_a_tag_stays_in_the_tag(size: int) -> None:
    text = 'a <agent-event type="note" data=\'{"x": "[JOB_HELP] {}"}\' /> b'
    parser = TagAndMarkerParser()
    found = joined([*(parser.feed(text[at : at + size]) for at in range(0, len(text), size)), parser.flush()])
    assert [(event.type, event.data) for event in found.events] == [("note", {"x": "[JOB_HELP] {}"})]
    assert (found.display_text, found.rejects) == ("a b", [])


def test_a_marker_behind_a_backtick_that_nothing_closes_is_taken_out() -> None:
    parsed = parse(f"it`s {STATUS} so")
    assert (parsed.display_text, len(parsed.events), parsed.rejects) == ("it`s so", 1, [])


def test_a_marker_in_a_fence_that_nothing_closes_leaves_a_reject() -> None:
    parsed = parse(f"```\n{STATUS}")
    assert (parsed.events, [reject.reason for reject in parsed.rejects]) == ([], ["unclosed_code"])


@for_each_row("case", FILE["routes"], ids=lambda case: case["text"][:40])
def test_whom_a_message_is_for(case: dict[str, Any]) -> None:
    assert parse_route(case["text"]) == (case["target"], case["rest"])


@for_each_row("vector", DEEDS, ids=lambda vector: vector["id"])
def test_what_calls_do(vector: dict[str, Any]) -> None:
    call = ToolCall(call_id="toolu_1", tool=vector["tool"], args=vector["args"])
    fault = ErrorInfo(code="EXECUTION_ERROR", message="no") if vector.get("failed") else None
    result = ToolResult(call_id="toolu_1", tool=call.tool, ok=fault is None, error=fault)
    deeds = TeamToolEffects("/opt/julian/memory/", "localhost:3848/cmd")
    found = deeds.on_call(call) + deeds.on_result(call, result, vector.get("account"))
    assert [shown(item) for item in found] == ([vector["event"]] if "event" in vector else [])
    assert TeamToolEffects().on_call(call) == TeamToolEffects().on_result(call, result, None) == []


def test_meta_tags_stand_in_the_head() -> None:
    tag = '<meta name="artifact-chapter" content="1">'
    assert parse_artifact_meta(" " * MAX_HEAD_CHARS + tag) is None
    assert parse_artifact_meta("<meta " * 20_000 + tag) is None
    assert parse_artifact_meta("<meta '\"" * 20_000 + tag) is None
