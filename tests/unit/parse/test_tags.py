"""Inline tags: every vector however it is cut, what is held back, and that the work is linear."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.held_back import TAG, find_misfit
from tests.support.scanner_work import count_characters, rescanning
from tests.support.tables import check_laws, for_each_row
from turnlog.events import ParseReject, Payload, Vocabulary
from turnlog.events.payload import ANY_ORIGIN, UI_ORIGINS, Origins
from turnlog.parse import AgentStreamParser, ParsedText, StrippedText, TagEvent, strip_event_tags

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "parse" / "tags.json").read_text())["vectors"]
OPENER = "<agent-event"
REST = "\n\nThe end."

Result = tuple[str, list[Any], list[Any]]


class RecordContact(Payload, frozen=True, kw_only=True):
    mobile: str


class CloseCase(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar[Origins] = UI_ORIGINS


class Acknowledge(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar[Origins] = lambda payload: ANY_ORIGIN if payload.id == "service_status" else UI_ORIGINS
    EXAMPLE: ClassVar = {"id": "service_status"}

    id: str


class RequestDecision(Payload, frozen=True, kw_only=True):
    LEGACY: ClassVar[bool] = True


VOCABULARY = Vocabulary("demo", [RecordContact, CloseCase, Acknowledge, RequestDecision])


def join(text: str | list[Any]) -> str:
    return text if isinstance(text, str) else "".join(part * times for part, times in text)


def source(vector: dict[str, Any]) -> str:
    return "".join(vector["chunks"]) if "chunks" in vector else join(vector["text"])


def parser(vector: dict[str, Any]) -> AgentStreamParser:
    options = dict(vector.get("parser", {}))
    vocabulary = VOCABULARY if options.pop("vocabulary", False) else None
    return AgentStreamParser(vocabulary, **options)


def total(answers: Iterable[ParsedText]) -> Result:
    answers = list(answers)
    display = "".join(answer.display_text for answer in answers)
    events = [(event.type, event.data, event.payload) for answer in answers for event in answer.events]
    return display, events, [reject for answer in answers for reject in answer.rejects]


def run(vector: dict[str, Any], chunks: Iterable[str]) -> Result:
    """A parser that is used for a second message: the first must leave nothing behind."""
    streaming = parser(vector)
    total([streaming.feed(chunk) for chunk in ("a\n```", "<agent-event x='")] + [streaming.flush()])
    return total([*map(streaming.feed, chunks), streaming.flush()])


def expected(vector: dict[str, Any]) -> Result:
    events = []
    for event in vector["events"]:
        data = {key: join(value) if vector.get("long") else value for key, value in event["data"].items()}
        kind = VOCABULARY.find_tag(event["type"]) if vector.get("parser", {}).get("vocabulary") else None
        events.append((event["type"], data, kind and msgspec.convert(data, kind.payload_class)))
    rejects = []
    for entry in vector["rejects"]:
        times, reject = entry if isinstance(entry, list) else (1, entry)
        raw = join(reject["text"])
        sha256 = hashlib.sha256(raw.encode(errors="surrogatepass")).hexdigest()
        made = ParseReject(reason=reject["reason"], length=len(raw), sha256=sha256, name=reject.get("name"))
        rejects += [made] * times
    return join(vector["display"]), events, rejects


def run_in_pieces(vector: dict[str, Any], size: int) -> Result:
    text = source(vector)
    return run(vector, [text[at : at + size] for at in range(0, len(text), size)])


def check_whole(vector: dict[str, Any]) -> None:
    assert run(vector, [source(vector)]) == expected(vector)


def check_cut_anywhere(vector: dict[str, Any]) -> None:
    """Pieces of several sizes; a short text is also cut at every position."""
    text, wanted = source(vector), expected(vector)
    # Two pieces do not reach what a third finds in the parser: white space held from the one before.
    for size in (7,) if vector.get("long") else (1, 7):
        assert run_in_pieces(vector, size) == wanted, size
    with without_coverage():
        for size in (4093,) if vector.get("long") else (2, 3):
            assert run_in_pieces(vector, size) == wanted, size
        for at in range(0 if vector.get("long") else len(text) + 1):
            assert run(vector, [text[:at], "", text[at:]]) == wanted, at


@without_coverage()
def check_with_trailing_text(vector: dict[str, Any]) -> None:
    text = source(vector)
    followed = run(vector, [text + REST])
    assert run(vector, [text, REST]) == followed
    display, events, rejects = expected(vector)
    white = text[len(text.rstrip()) :]  # after a tag it is dropped at the end, but not before more prose
    between = REST if display.endswith(white) else white + REST
    if not vector.get("open"):
        assert followed == (display + between if display or not text else REST.lstrip(), events, rejects)


@without_coverage()
def check_only_what_is_open_is_held_back(vector: dict[str, Any]) -> None:
    text = source(vector)
    # after every character; of longer texts, after some
    for at in range(0, 0 if vector.get("long") else len(text) + 1, 1 + len(text) // 25):
        assert find_misfit(lambda: parser(vector), [TAG], text[:at]) is None, text[:at]


@without_coverage()
def check_rejects_are_payloads_that_can_be_stored(vector: dict[str, Any]) -> None:
    for reject in run(vector, [source(vector)])[2]:
        assert msgspec.json.decode(msgspec.json.encode(reject), type=ParseReject) == reject


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    laws = [
        check_whole,
        check_cut_anywhere,
        check_with_trailing_text,
        check_only_what_is_open_is_held_back,
        check_rejects_are_payloads_that_can_be_stored,
    ]
    check_laws(laws, vector)


def test_the_seed_shows_prose_at_once() -> None:
    streaming = AgentStreamParser()
    first = streaming.feed('Hi Sarah. Got it. <agent-event type="reco')
    assert first == ParsedText("Hi Sarah. Got it.", [], [])
    assert streaming.feed('rd_customer_contact" data=\'{"mobile":"07700 900 123') == ParsedText("", [], [])
    assert streaming.feed("\"}' />").events == [
        TagEvent("record_customer_contact", {"mobile": "07700 900 123"})
    ]
    assert streaming.flush() == ParsedText("", [], [])


def test_tag_with_a_bare_quote_that_is_cut_behind_the_next_one_is_refused() -> None:
    streaming = AgentStreamParser()
    pieces = [streaming.feed('<agent-event "/>" type="'), streaming.feed('t" />'), streaming.flush()]
    assert total(pieces) == total([AgentStreamParser().feed('<agent-event "/>" type="t" />')])


def test_a_whole_text_is_feed_and_flush() -> None:
    text = f"one {TAG} two <agent-event />"
    stripped = strip_event_tags(text)
    streaming = AgentStreamParser()
    display, events, rejects = total([streaming.feed(text), streaming.flush()])
    assert stripped == StrippedText(display, [TagEvent(*event) for event in events], rejects)
    assert strip_event_tags(TAG, VOCABULARY).rejects[0].reason == "unknown_type"
    assert strip_event_tags(TAG, nonce="n").rejects[0].reason == "missing_nonce"
    assert (
        strip_event_tags('<agent-event type="close_case" />', VOCABULARY, "ui").events[0].payload
        == CloseCase()
    )


def test_a_refusal_comes_at_the_limit_and_not_at_the_end() -> None:
    streaming = AgentStreamParser()
    assert streaming.feed(OPENER + " " + "x" * ((1 << 16) - len(OPENER) - 1)) == ParsedText("", [], [])
    assert [reject.reason for reject in streaming.feed("x").rejects] == ["too_long"]


HOSTILE = {
    "many <": "<",
    "unclosed tag": "x",
    "/> in strings": "/> ",
    "backslashes": "\\",
    "backslashed quotes": '\\\\"',
    "near-tags": "<agent-even",
    "openers": "<agent-event ",
    "open pairs": '<agent-event type="x">',
    "deep braces": "{",
    "backticks": "`",
    "white space": " ",
    "line breaks": "\n",
    "quotes": "\n> ",
    "list items": "\n- ",
    "fences in lists": "\n- ```",
    "dashes": "-",
    "tags": TAG,
}
STARTS = {
    "unclosed tag": '<agent-event type="t" data=\'{"a":"',
    "/> in strings": '<agent-event type="t" data=\'{"a":"',
    "backslashes": '<agent-event type="t" data=\'{"a":"',
    "backslashed quotes": '<agent-event type="t" data=\'{\\"a\\":\\"',
    "deep braces": '<agent-event type="t" data=\'',
    "dashes": "<!-- ",
}


def hostile(name: str, size: int) -> str:
    return (STARTS.get(name, "") + HOSTILE[name] * size)[:size]


@pytest.mark.parametrize("name", HOSTILE)
@for_each_row("chunk", [1, 7, 500])
@without_coverage()
def test_twice_the_text_is_twice_the_work(name: str, chunk: int) -> None:
    once, twice = (count_characters(AgentStreamParser(), hostile(name, size), chunk) for size in (2000, 4000))
    assert twice <= 2.2 * once


@without_coverage()
def test_the_count_sees_what_is_not_linear() -> None:
    once, twice = (
        count_characters(rescanning(AgentStreamParser), hostile("many <", size), 7) for size in (4000, 8000)
    )
    assert twice > 3.5 * once
