"""A reply as events: prose streams, tags wait for the end of their block, calls for that of the message."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.support.tables import for_each_row
from turnlog.events import (
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Citation,
    ErrorInfo,
    File,
    ParseReject,
    Payload,
    ToolCall,
    ToolResult,
    Usage,
    Vocabulary,
)
from turnlog.events.tool import ExecutorKind
from turnlog.parse import AgentStreamParser
from turnlog.parse.blocks import MAX_REPLY_CHARS, UntypedEvent
from turnlog.parse.reply import BLOCK_COST_CHARS, ReplyBuilder, tag_parser_factory


class NoteTrip(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"model"})

    city: str


class CloseCase(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"app"})


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


def executor(tool: str) -> ExecutorKind:
    return "frontend" if tool == "confirm" else "backend"


def replying() -> ReplyBuilder:
    return ReplyBuilder(counting(), tag_parser_factory(VOCABULARY), executor)


def begun(*pieces: str) -> tuple[ReplyBuilder, list[Payload]]:
    """A reply after these pieces of text, and what it has said."""
    reply = replying()
    return reply, [payload for piece in pieces for payload in reply.text(piece)]


def finish(reply: ReplyBuilder) -> list[Payload]:
    return reply.done("end_turn")


def start(number: int = 1, kind: Any = "text", **fields: Any) -> BlockStart:
    return BlockStart(block_id=f"blk_{number}", kind=kind, **fields)


def delta(text: str, number: int = 1) -> BlockDelta:
    return BlockDelta(block_id=f"blk_{number}", text=text)


def end(number: int = 1) -> BlockEnd:
    return BlockEnd(block_id=f"blk_{number}", status="complete")


def aborted(text: str, number: int = 1) -> BlockEnd:
    return BlockEnd(block_id=f"blk_{number}", status="aborted", text=text)


def twin(text: str, number: int = 1, **fields: Any) -> AssistantMessage:
    return AssistantMessage(text=text, block_id=f"blk_{number}", **fields)


def called(number: int, tool: str, args: dict[str, Any], **fields: Any) -> ToolCall:
    """A call by its block; its own id is counted apart."""
    return ToolCall(tool=tool, args=args, block_id=f"blk_{number}", **fields)


START, END = start(), end()


def test_prose_streams_and_ends_with_its_twin() -> None:
    reply, said = begun("Let me", " see.")
    assert said == [START, delta("Let me"), delta(" see.")]
    assert reply.text_so_far == "Let me see."
    assert finish(reply) == [END, twin("Let me see.")]


def test_white_space_at_the_end_is_held_until_something_follows() -> None:
    reply, said = begun("One ", "two ")
    assert said == [START, delta("One"), delta(" two")]
    assert finish(reply) == [delta(" "), END, twin("One two ")]


def test_a_block_starts_with_its_first_visible_character() -> None:
    reply, said = begun("\n", " \n", "")
    assert said == []
    assert reply.text("Hello") == [START, delta("Hello")]


@for_each_row("pieces", [["    if x:"], ["\n", "  ", "  if x:"], [" \n\n    if x:"], ["    ", "if x:"]])
def test_blank_lines_before_a_text_go_and_its_indentation_stays(pieces: list[str]) -> None:
    _, said = begun(*pieces)
    assert said == [START, delta("    if x:")]


@for_each_row("pieces", [[], [""], [" \n"], ["\n", "\t", " "], [" " * 500, "\n" * 500]])
def test_blank_text_leaves_no_block(pieces: list[str]) -> None:
    reply, said = begun(*pieces)
    assert said == []
    assert finish(reply) == []
    assert (reply.text_so_far, reply.block_ids) == ("", ())


def test_tags_leave_the_prose_and_wait_for_the_end_of_the_block() -> None:
    reply, said = begun("Noted. ", OSLO, " Also ", ROME, " this.")
    assert said == [START, delta("Noted."), delta(" Also"), delta(" this.")]
    assert finish(reply) == [END, twin("Noted. Also this."), NoteTrip(city="Oslo"), NoteTrip(city="Rome")]


@for_each_row("at", range(1, len(OSLO)))
def test_a_tag_may_be_cut_anywhere(at: int) -> None:
    reply, said = begun("Noted." + OSLO[:at], OSLO[at:])
    assert said == [START, delta("Noted.")]
    assert finish(reply) == [END, twin("Noted."), NoteTrip(city="Oslo")]


def test_text_that_only_began_like_a_tag_is_said_at_the_end() -> None:
    reply, said = begun("a <agent-")
    assert said == [START, delta("a")]
    assert finish(reply) == [delta(" <agent-"), END, twin("a <agent-")]


def test_a_tag_without_prose_needs_no_block() -> None:
    reply, said = begun(" \n", OSLO, "\n")
    assert said == []
    assert finish(reply) == [NoteTrip(city="Oslo")]


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
    reply, said = begun("Noted.", text)
    assert said == [START, delta("Noted.")]
    *block, reject = finish(reply)
    assert block == [END, twin("Noted.")]
    assert isinstance(reject, ParseReject)
    assert (reject.reason, reject.length) == (reason, len(text))


@for_each_row("text", ["Noted. " + OSLO + "\n\nNext.\n" + ROME, "\n `code` <b> " + tag("no") + "x "])
def test_any_cut_of_the_text_gives_the_same_end(text: str) -> None:
    whole = finish(begun(text)[0])
    pieces, said = begun(*text)
    ended = [payload for payload in finish(pieces) if not isinstance(payload, BlockDelta)]
    assert ended == [payload for payload in whole if not isinstance(payload, BlockDelta)]
    assert sum(isinstance(payload, BlockStart) for payload in said) == 1


def test_any_cut_of_much_white_space_gives_the_same_end() -> None:
    assert finish(begun(" " * 100, "Hi")[0]) == finish(begun(" " * 100 + "Hi")[0])


def test_an_application_that_declares_no_events_passes_text_on_as_it_is() -> None:
    reply = ReplyBuilder(counting())
    pieces = ["Noted. ", "a <", "b [", OSLO[:9], OSLO[9:], ' {"a": [1, ', "2]}\n\n```", " \n"]
    said = [payload for piece in pieces for payload in reply.text(piece)]
    assert said == [START, *map(delta, pieces)]
    assert finish(reply) == [END, twin("".join(pieces))]


def test_an_application_whose_vocabulary_is_empty_refuses_every_tag() -> None:
    reply = ReplyBuilder(counting(), tag_parser_factory(Vocabulary("none", [])))
    reply.text("Noted. " + OSLO)
    assert [getattr(payload, "reason", None) for payload in finish(reply)][-1] == "unknown_type"


def test_where_nobody_says_who_runs_a_tool_it_runs_here() -> None:
    reply = ReplyBuilder(counting())
    reply.call("weather", {})
    reply.done("tool_use")
    assert [call.executor for call in reply.calls] == ["backend"]


def test_where_every_tag_is_an_event_it_has_its_bare_name() -> None:
    reply = ReplyBuilder(counting(), AgentStreamParser)
    reply.text(OSLO)
    assert finish(reply) == [UntypedEvent(type="note_trip", data={"city": "Oslo"})]


def test_calls_and_what_follows_them_wait_for_the_end_of_the_message_in_their_order() -> None:
    reply, said = begun("Let me see." + OSLO)
    said += reply.call("confirm", {"question": "Go?"})
    said += reply.call("weather", {}, "toolu_7")
    said += reply.text(" Soon.")
    said += reply.end()
    assert said == [
        START,
        delta("Let me see."),
        END,
        twin("Let me see."),
        NoteTrip(city="Oslo"),
        start(2, "tool_call", call_id="call_1", tool="confirm"),
        start(3, "tool_call", call_id="toolu_7", tool="weather"),
        start(4),
        delta(" Soon.", 4),
    ]
    assert (reply.has_deferred_calls, reply.calls) == (True, [])
    confirm = called(2, "confirm", {"question": "Go?"}, call_id="call_1", executor="frontend")
    weather = called(3, "weather", {}, call_id="toolu_7")
    assert reply.done("tool_use") == [end(2), confirm, end(3), weather, end(4), twin(" Soon.", 4)]
    assert (reply.has_deferred_calls, reply.calls) == (False, [confirm, weather])
    assert reply.block_ids == ("blk_1", "blk_2", "blk_3", "blk_4")


def test_arguments_stream_and_are_read_once() -> None:
    reply = replying()
    announced = start(1, "tool_call", call_id="call_1", tool="weather")
    assert reply.start_call("weather") == [announced]
    assert reply.arguments("") == []
    assert reply.arguments('{"city": "Os') + reply.arguments('lo"}') == [
        delta('{"city": "Os'),
        delta('lo"}'),
    ]
    call = called(1, "weather", {"city": "Oslo"}, call_id="call_1")
    assert reply.done("tool_use") == [END, call]
    assert reply.calls == [call]


@for_each_row("raw", ['{"city": "Os', "[1]", '{"a": NaN}', '{"a":' * 40 + "1" + "}" * 40, '{"a":"\\ud800"}'])
def test_arguments_that_never_became_json_are_kept_as_they_came(raw: str) -> None:
    reply = replying()
    reply.start_call("weather")
    reply.arguments(raw)
    call = called(1, "weather", {}, call_id="call_1", incomplete=raw)
    assert reply.done("max_tokens") == [END, call]
    assert reply.calls == [call]


def test_blank_arguments_are_none() -> None:
    reply = replying()
    reply.start_call("weather")
    reply.arguments(" \n")
    assert reply.done("tool_use") == [END, called(1, "weather", {}, call_id="call_1")]


def test_arguments_without_a_call_and_sources_without_a_text_leave_a_trace() -> None:
    reply = replying()
    rejects = [*reply.arguments("{}"), *reply.cite(Citation(type="page_location", cited_text="x"))]
    assert [getattr(reject, "reason", None) for reject in rejects] == [
        "arguments_without_call",
        "citation_without_text",
    ]
    reply.text(" ")
    reply.cite(Citation(type="page_location", cited_text="x"))
    assert [getattr(reject, "reason", None) for reject in finish(reply)] == ["citation_without_text"]


def test_a_text_has_its_sources() -> None:
    reply, _ = begun("Green.")
    citation = Citation(type="char_location", cited_text="is green", start_char_index=1, end_char_index=9)
    assert reply.cite(citation) == []
    assert finish(reply) == [END, twin("Green.", citations=(citation,))]


def test_thinking_streams_and_is_signed() -> None:
    reply = replying()
    assert reply.think("") + reply.think("Hm.") + reply.think(" <agent-event") == [
        start(1, "thinking"),
        delta("Hm."),
        delta(" <agent-event"),
    ]
    assert reply.sign("c2ln") == []
    thinking = AssistantThinking(text="Hm. <agent-event", signature="c2ln", block_id="blk_1")
    assert reply.text("Yes.") == [END, thinking, start(2), delta("Yes.", 2)]


def test_thinking_without_a_text_is_kept_for_its_signature() -> None:
    reply = replying()
    assert reply.sign("c2ln") == []
    thinking = AssistantThinking(text="", signature="c2ln", block_id="blk_1")
    assert finish(reply) == [start(1, "thinking"), END, thinking]
    nothing = replying()
    assert nothing.think("") + finish(nothing) == []


def whole_block(reply: ReplyBuilder, kind: str, data: dict[str, Any]) -> list[Payload]:
    block = reply.open_other(kind, data)
    assert block is not None
    return block.start() + reply.close(block)


def test_redacted_thinking_is_kept_as_it_is() -> None:
    reply = replying()
    thinking = AssistantThinking(text="", redacted="ZW5j", block_id="blk_1")
    block = reply.open_thinking()
    assert block is not None
    assert block.redact("ZW5j") + reply.close(block) == [start(1, "thinking"), END, thinking]


def test_blocks_of_another_kind_are_kept_whole() -> None:
    reply = replying()
    data = {"type": "hologram", "x": [1]}
    assert whole_block(reply, "hologram", data) == [
        start(1, "other"),
        END,
        AssistantBlock(kind="hologram", data=data, block_id="blk_1"),
    ]


def test_results_of_the_provider_stand_where_they_came() -> None:
    reply = replying()
    result = ToolResult(call_id="srv_1", tool="code", ok=True, result={}, kind="code_tool_result")
    file = File(file_id="file_1", filename="a.png", storage_location="here")
    assert reply.result(result, (file,)) == [result, AssistantFiles(files=(file,))]
    reply.call("weather", {})
    assert reply.result(result) == []
    assert reply.done("tool_use")[2:] == [result]


def test_neighbouring_texts_keep_the_white_space_between_them() -> None:
    reply, said = begun("The grass is")
    said += reply.end() + reply.text(" \n") + reply.end() + reply.text(" green") + reply.end()
    texts = [payload.text for payload in said if isinstance(payload, AssistantMessage)]
    assert texts == ["The grass is", " \n green"]
    assert reply.text_so_far == "The grass is \n green"
    reply.think("Hm.")
    reply.text("\n\nYes.")
    assert [payload.text for payload in finish(reply) if isinstance(payload, AssistantMessage)] == ["Yes."]


def test_what_is_known_of_a_reply_afterwards() -> None:
    reply = replying()
    assert (reply.usage, reply.complete) == (Usage(input_tokens=0, output_tokens=0), False)
    assert reply.begin("claude", "msg_1") == []
    reply.text("Hi")
    assert reply.done("stop_sequence", Usage(input_tokens=3, output_tokens=1)) == [
        END,
        twin("Hi", message_id="msg_1"),
    ]
    assert (reply.model, reply.message_id, reply.stop_reason) == ("claude", "msg_1", "stop_sequence")
    assert (reply.usage, reply.complete) == (Usage(input_tokens=3, output_tokens=1), True)


def test_an_aborted_reply_keeps_what_was_said_and_voids_the_rest() -> None:
    reply, _ = begun("Noted. " + OSLO + "Then " + tag("no_such"))
    *ends, reject = reply.abort(ErrorInfo(code="overloaded_error", message="Try later."))
    assert ends == [aborted("Noted. Then")]
    assert getattr(reject, "reason", None) == "unknown_type"
    assert (reply.complete, reply.calls) == (False, [])
    assert reply.error == ErrorInfo(code="overloaded_error", message="Try later.")


def test_an_aborted_reply_without_a_word_leaves_nothing() -> None:
    assert begun(" ", OSLO)[0].abort() == []


def test_the_calls_of_an_aborted_reply_are_void_and_what_ended_stays() -> None:
    reply = replying()
    reply.call("weather", {"city": "Oslo"})
    reply.text("Soon.")
    reply.end()
    reply.start_call("weather")
    reply.arguments('{"ci')
    assert reply.abort() == [aborted('{"city":"Oslo"}', 1), end(2), twin("Soon.", 2), aborted('{"ci', 3)]
    assert reply.error is None


def test_the_calls_of_a_refused_reply_are_void() -> None:
    reply, _ = begun("Sure.")
    reply.call("weather", {})
    whole_block(reply, "hologram", {})
    ended = reply.done("refusal")
    assert ended[0] == aborted("", 2)
    assert isinstance(ended[-1], AssistantBlock)
    assert (reply.calls, reply.complete) == ([], True)


def test_a_text_is_bounded_and_the_rest_of_it_leaves_a_trace() -> None:
    reply, _ = begun("x" * (MAX_REPLY_CHARS - BLOCK_COST_CHARS - 1), "yé", "z" * 10)
    *ends, reject = finish(reply)
    assert ends == [aborted("x" * (MAX_REPLY_CHARS - BLOCK_COST_CHARS - 1) + "y")]
    assert isinstance(reject, ParseReject)
    assert (reject.reason, reject.length, reject.block_id) == ("too_long", 11, "blk_1")
    full = [
        reply.text("x"),
        reply.think("x"),
        reply.sign("x"),
        reply.start_call("x"),
        reply.call("x", {}),
        reply.result(ToolResult(call_id="x", tool="x", ok=True)),
    ]
    assert [[getattr(payload, "reason", None) for payload in batch] for batch in full] == [["too_long"]] * 6
    assert (reply.open_thinking(), reply.open_other("x", {})) == (None, None)
    assert reply.done("end_turn") == []


@for_each_row("begin", ["think", "arguments", "redact"])
def test_everything_that_streams_is_bounded(begin: str) -> None:
    reply = replying()
    if begin == "arguments":
        reply.start_call("weather")
    stream: Any = reply.open_thinking() if begin == "redact" else reply
    said = getattr(stream, begin)("x" * MAX_REPLY_CHARS)
    ended = [payload for payload in said + finish(reply) if isinstance(payload, BlockEnd | ParseReject)]
    assert [getattr(payload, "reason", None) or getattr(payload, "status", None) for payload in ended] == [
        "aborted",
        "too_long",
    ]
    assert reply.calls == []


def test_sources_and_what_comes_whole_are_bounded() -> None:
    reply, _ = begun("x")
    citation = Citation(type="page_location", cited_text="x" * (1 << 20))
    rejects = [payload for _ in range(65) for payload in reply.cite(citation)]
    assert {getattr(reject, "reason", None) for reject in rejects} == {"too_long"}
    assert 1 <= len(rejects) <= 3


def test_lone_surrogates_are_replaced() -> None:
    reply, said = begun("a\ud800b", "é")
    assert said[1:] == [delta("a\ufffdb"), delta("é")]
    assert reply.text_so_far == "a\ufffdbé"
