"""What a model is told of the application's events, and that the parser takes it (document 000)."""

import re
from typing import Any, ClassVar

import msgspec
import pytest

from turnlog import Vocabulary
from turnlog.agents.tag_instructions import (
    TAG_RULES,
    describe_tag_event,
    instructions_with_tags,
    is_for_models,
)
from turnlog.events import EventType, Payload
from turnlog.parse import AgentStreamParser, strip_event_tags
from turnlog_examples.broker.events import BROKER

EMITTED = [kind for kind in BROKER if is_for_models(kind)]
each = pytest.mark.parametrize("kind", EMITTED, ids=lambda kind: kind.tag)


class Note(Payload, frozen=True, kw_only=True):
    """Somebody's note.

    More about it.
    """

    TYPE: ClassVar = "app.note"
    ORIGINS: ClassVar[Any] = frozenset({"model"})
    EXAMPLE: ClassVar = {"text": "It's Ada's", "count": 2}

    text: str
    count: int = 1


class Old(Note, frozen=True, kw_only=True):
    """Nobody writes it any more."""

    TYPE: ClassVar = "app.old"
    LEGACY: ClassVar = True


class Chosen(Note, frozen=True, kw_only=True):
    """Who may emit it depends on what it says."""

    TYPE: ClassVar = "app.chosen"
    ORIGINS: ClassVar[Any] = staticmethod(lambda payload: {"model"} if payload.count == 2 else {"ui"})


APP = Vocabulary("app", [Note, Old, Chosen])


def test_without_events_the_instructions_stand_alone() -> None:
    assert instructions_with_tags("Be kind.", None) == "Be kind."
    assert instructions_with_tags("Be kind.", Vocabulary("none", [])) == "Be kind."


def test_the_section_stands_behind_the_instructions_and_says_where_tags_go() -> None:
    told = instructions_with_tags("Be kind.", APP)
    assert told.startswith("Be kind.\n\n" + TAG_RULES)
    assert "on its own line at the end of your message" in TAG_RULES
    assert re.findall(r"^### (\w+)", told, re.MULTILINE) == ["note", "chosen"], "old events are not offered"


def test_an_event_is_told_with_its_meaning_its_fields_and_what_it_needs() -> None:
    [note, *_] = APP
    told = describe_tag_event(note)
    assert told.split("\n")[:2] == ["### note", "Somebody's note."]
    assert '"count": {"type": "integer", "default": 1}' in told
    assert "Required: text\n" in told


def test_an_apostrophe_in_an_example_does_not_end_the_attribute() -> None:
    [note, *_] = APP
    display, [event] = parsed(note, APP)
    assert display == ""
    assert event == {"text": "It's Ada's", "count": 2}


def parsed(kind: EventType, vocabulary: Vocabulary) -> tuple[str, list[object]]:
    """What the parser makes of the tag in the prompt."""
    tag = describe_tag_event(kind).split("\n")[-1]
    stripped = strip_event_tags(tag, vocabulary)
    return stripped.display, [msgspec.to_builtins(event.data) for event in stripped.events]


@each
def test_what_the_prompt_shows_is_what_the_parser_reads(kind: EventType) -> None:
    display, [event] = parsed(kind, BROKER)
    assert display == ""
    assert event == kind.payload_class.EXAMPLE


@each
def test_it_is_read_the_same_in_pieces(kind: EventType) -> None:
    parser = AgentStreamParser(BROKER)
    tag = describe_tag_event(kind).split("\n")[-1]
    found = [event for piece in tag for event in parser.feed(piece).events] + parser.flush().events
    assert [event.type for event in found] == [kind.tag]


def test_the_model_is_told_of_what_it_may_emit_and_of_nothing_else() -> None:
    told = instructions_with_tags("", BROKER)
    assert {kind.tag for kind in EMITTED} == set(re.findall(r"^### (\w+)", told, re.MULTILINE))
    assert "submit_application" not in told
    assert len(EMITTED) > 10
