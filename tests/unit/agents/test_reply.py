"""A reply as events: prose streams, tags wait for the end of their block, calls come last."""

import json
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import pytest

from turnlog.agents import Agent, Scripted, tool
from turnlog.agents.models import Done, Part, Text, ToolUse
from turnlog.agents.reply import Reply
from turnlog.events import (
    AssistantMessage,
    BlockDelta,
    BlockEnd,
    BlockStart,
    ParseReject,
    Payload,
    ToolCall,
    Usage,
    Vocabulary,
)


class NoteTrip(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"model"})

    city: str


class CloseCase(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"app"})


@tool
def weather(city: str) -> str:
    return "rain"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    raise NotImplementedError


MODEL = Scripted(lambda messages: [])
SCOUT = Agent("Scout", "Find it.", MODEL)
GUIDE = Agent("Guide", "Plan it.", MODEL, tools=(weather, confirm), agents=(SCOUT,))
VOCABULARY = Vocabulary("tour", [NoteTrip, CloseCase])


def tag(name: str, **data: object) -> str:
    return f"<agent-event type=\"{name}\" data='{json.dumps(data)}' />"


OSLO, ROME = tag("note_trip", city="Oslo"), tag("note_trip", city="Rome")


def counting() -> Callable[[str], str]:
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}{counts[prefix]}"

    return new_id


def begun(*parts: Part) -> tuple[Reply, list[Payload]]:
    """A reply after these parts, and what it has said."""
    reply = Reply(GUIDE, VOCABULARY, counting())
    return reply, [payload for part in parts for payload in reply.feed(part)]


def texts(*pieces: str) -> list[Part]:
    return [Text(piece) for piece in pieces]


def delta(text: str) -> BlockDelta:
    return BlockDelta(block_id="blk_1", text=text)


START = BlockStart(block_id="blk_1", kind="text")
END = BlockEnd(block_id="blk_1", status="complete")


def twin(text: str) -> AssistantMessage:
    return AssistantMessage(text=text, block_id="blk_1")


def test_prose_streams_and_ends_with_its_twin() -> None:
    reply, said = begun(*texts("Let me", " see."))
    assert said == [START, delta("Let me"), delta(" see.")]
    assert reply.text == "Let me see."
    assert reply.finish() == [END, twin("Let me see.")]


def test_white_space_at_the_end_is_held_until_something_follows() -> None:
    reply, said = begun(*texts("One ", "two "))
    assert said == [START, delta("One"), delta(" two")]
    assert reply.finish() == [delta(" "), END, twin("One two ")]


def test_a_block_starts_with_its_first_visible_character() -> None:
    reply, said = begun(*texts("\n", " ", ""))
    assert said == []
    assert reply.feed(Text("Hello")) == [START, delta("Hello")]


@pytest.mark.parametrize("pieces", [[], [""], [" \n"], ["\n", "\t", " "], [" " * 500, "\n" * 500]])
def test_blank_text_leaves_no_block(pieces: list[str]) -> None:
    reply, said = begun(*texts(*pieces))
    assert said == []
    assert reply.finish() == []
    assert reply.text == ""


def test_tags_leave_the_prose_and_wait_for_the_end_of_the_block() -> None:
    reply, said = begun(*texts("Noted. ", OSLO, " Also ", ROME, " this."))
    assert said == [START, delta("Noted."), delta(" Also"), delta(" this.")]
    assert reply.finish() == [END, twin("Noted. Also this."), NoteTrip(city="Oslo"), NoteTrip(city="Rome")]


@pytest.mark.parametrize("at", range(1, len(OSLO)))
def test_a_tag_may_be_cut_anywhere(at: int) -> None:
    reply, said = begun(*texts("Noted." + OSLO[:at], OSLO[at:]))
    assert said == [START, delta("Noted.")]
    assert reply.finish() == [END, twin("Noted."), NoteTrip(city="Oslo")]


def test_text_that_only_began_like_a_tag_is_said_at_the_end() -> None:
    reply, said = begun(*texts("a <agent-"))
    assert said == [START, delta("a")]
    assert reply.finish() == [delta(" <agent-"), END, twin("a <agent-")]


def test_a_tag_without_prose_needs_no_block() -> None:
    reply, said = begun(*texts(" \n", OSLO, "\n"))
    assert said == []
    assert reply.finish() == [NoteTrip(city="Oslo")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (tag("no_such"), "unknown_type"),
        (tag("note_trip", town="Oslo"), "bad_payload"),
        (tag("close_case"), "wrong_origin"),
        ("<agent-event type='note_trip' data='{' />", "bad_json"),
        ("<agent-event type='note_trip' data='{}", "unclosed"),
    ],
)
def test_a_refused_tag_leaves_a_reject_and_no_text(text: str, reason: str) -> None:
    reply, said = begun(*texts("Noted.", text))
    assert said == [START, delta("Noted.")]
    *block, reject = reply.finish()
    assert block == [END, twin("Noted.")]
    assert isinstance(reject, ParseReject)
    assert (reject.reason, reject.length) == (reason, len(text))


def test_calls_come_last_in_the_order_they_were_asked_for() -> None:
    uses = [
        ToolUse("confirm", {"question": "Go?"}),
        ToolUse("weather", {}),
        ToolUse("scout", {"prompt": "x"}),
    ]
    reply, said = begun(Text("Let me see." + OSLO), *uses, ToolUse("nothing", {}))
    assert said == [START, delta("Let me see.")]
    calls = [
        ToolCall(call_id="call_1", tool="confirm", args={"question": "Go?"}, executor="frontend"),
        ToolCall(call_id="call_2", tool="weather", args={}, executor="backend"),
        ToolCall(call_id="call_3", tool="scout", args={"prompt": "x"}, executor="backend"),
        ToolCall(call_id="call_4", tool="nothing", args={}, executor="backend"),
    ]
    assert reply.calls == calls
    assert reply.finish() == [END, twin("Let me see."), NoteTrip(city="Oslo"), *calls]


def test_calls_without_a_word_need_no_block() -> None:
    reply, said = begun(ToolUse("weather", {}))
    assert said == []
    assert reply.finish() == [ToolCall(call_id="call_1", tool="weather", args={})]


def test_the_usage_is_kept_and_not_said() -> None:
    reply, said = begun(Text("Hi"), Done(Usage(input_tokens=3, output_tokens=1)))
    assert said == [START, delta("Hi")]
    assert reply.usage == Usage(input_tokens=3, output_tokens=1)
    assert begun()[0].usage == Usage(input_tokens=0, output_tokens=0)


def test_an_aborted_reply_keeps_what_was_said_and_voids_the_rest() -> None:
    reply, _ = begun(Text("Noted. " + OSLO + "Then"), ToolUse("weather", {}))
    assert reply.abort() == [BlockEnd(block_id="blk_1", status="aborted", text="Noted. Then")]


def test_an_aborted_reply_without_a_word_leaves_nothing() -> None:
    assert begun(*texts(" ", OSLO))[0].abort() == []


@pytest.mark.parametrize(
    "text", ["Noted. " + OSLO + "\n\nNext.\n" + ROME, "\n `code` <b> " + tag("no") + "x "]
)
def test_any_cut_of_the_text_gives_the_same_end(text: str) -> None:
    whole = begun(Text(text))[0].finish()
    pieces, said = begun(*texts(*text))
    ended = [payload for payload in pieces.finish() if not isinstance(payload, BlockDelta)]
    assert ended == [payload for payload in whole if not isinstance(payload, BlockDelta)]
    assert sum(isinstance(payload, BlockStart) for payload in said) == 1


def test_without_a_vocabulary_a_tag_does_not_vanish() -> None:
    reply = Reply(GUIDE, None, counting())
    reply.feed(Text("Noted. " + OSLO))
    assert len(reply.finish()) > 2


def test_any_cut_of_much_white_space_gives_the_same_end() -> None:
    assert begun(*texts(" " * 100, "Hi"))[0].finish() == begun(*texts(" " * 100 + "Hi"))[0].finish()
