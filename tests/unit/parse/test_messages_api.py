"""The Messages API: every vector as dicts, as objects of the real SDK, as bytes cut anywhere, by letters."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from anthropic._models import construct_type
from anthropic.types import RawMessageStreamEvent

from tests.support.coverage_pause import without_coverage
from tests.support.tables import check_laws, for_each_row
from turnlog.events import CORE, BlockDelta, Catalog, ErrorInfo, ParseReject, Payload, ToolResult, Vocabulary
from turnlog.parse.blocks import MAX_REPLY_CHARS, MAX_REPLY_VALUE_BYTES
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import BLOCK_COST_CHARS, ReplyBuilder, tag_parser_factory
from turnlog.wire.sse import Decoder, encode

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "parse" / "messages_api.json").read_text())[
    "vectors"
]
PIECES = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


class Note(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"model"})

    a: int


VOCABULARY = Vocabulary("demo", [Note])
CATALOG = Catalog(CORE, VOCABULARY)


def counting() -> Callable[[str], str]:
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}{counts[prefix]}"

    return new_id


def parser() -> MessagesParser:
    reply = ReplyBuilder(
        counting(),
        tag_parser_factory(VOCABULARY),
        lambda tool: "frontend" if tool == "confirm" else "backend",
    )
    return MessagesParser(reply)


def run(events: Iterable[Any]) -> tuple[MessagesParser, list[Payload]]:
    parsing = parser()
    said = [payload for event in events for payload in parsing.feed(event)]
    return parsing, said + parsing.flush()


def shown(payload: Payload) -> dict[str, Any]:
    """A payload as it stands in a vector."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(payload))
    if isinstance(payload, ParseReject):
        fields = {name: fields[name] for name in ("reason", "name") if name in fields}
    return fields | {"type": CATALOG.get_type_name(type(payload))}


def merged(payloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring deltas of one block joined."""
    result = []
    for (_, block_id), group in groupby(
        payloads, lambda item: (item["type"] == "block.delta" or id(item), item.get("block_id"))
    ):
        items = list(group)
        joined = "".join(item["text"] for item in items) if items[0]["type"] == "block.delta" else None
        result.append(items[0] if joined is None else {**items[0], "text": joined, "block_id": block_id})
    return result


def known(parsing: MessagesParser) -> dict[str, Any]:
    """What is known afterwards, as it stands in a vector."""
    reply = parsing.reply
    facts: dict[str, Any] = {
        "complete": reply.complete,
        "stop_reason": reply.stop_reason,
        "usage": msgspec.to_builtins(reply.usage),
        "calls": [call.call_id for call in reply.calls],
        "error": msgspec.to_builtins(reply.error),
        "stop_details": parsing.stop_details,
        "container": parsing.container,
    }
    return {name: fact for name, fact in facts.items() if fact is not None or name == "stop_reason"}


def as_object(event: Any) -> Any:
    """An event as the SDK hands it out."""
    return construct_type(type_=RawMessageStreamEvent, value=event)


def letters(event: Any) -> list[Any]:
    """A delta as one delta for each of its characters."""
    delta: Any = event.get("delta") if isinstance(event, dict) else None
    name = PIECES.get(str(delta.get("type"))) if isinstance(delta, dict) else None
    if name is None or not isinstance(delta.get(name), str):
        return [event]
    return [{**event, "delta": {**delta, name: letter}} for letter in delta[name]]


def check(vector: dict[str, Any], events: Iterable[Any]) -> None:
    parsing, said = run(events)
    assert merged(map(shown, said)) == merged(vector["expected"])
    assert known(parsing) == vector["reply"]


def check_as_dicts(vector: dict[str, Any]) -> None:
    parsing, said = run(vector["events"])
    assert [shown(payload) for payload in said] == vector["expected"]
    assert known(parsing) == vector["reply"]


@without_coverage()
def check_as_objects_of_the_sdk(vector: dict[str, Any]) -> None:
    if vector.get("dicts_only"):
        return
    objects = [as_object(event) for event in vector["events"]]
    check(vector, objects)
    rejects = [
        [payload for payload in run(events)[1] if isinstance(payload, ParseReject)]
        for events in (vector["events"], objects)
    ]
    assert rejects[0] == rejects[1], "down to their hashes"


def bare(value: Any) -> Any:
    """An event as objects of no SDK: fields and nothing else."""
    if isinstance(value, dict) and all(type(name) is str for name in value):
        return SimpleNamespace(**{name: bare(item) for name, item in value.items()})
    return [bare(item) for item in value] if isinstance(value, list) else value


@without_coverage()
def check_as_objects_of_no_sdk(vector: dict[str, Any]) -> None:
    check(vector, [bare(event) for event in vector["events"]])


def untraced(payloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the traces of deltas that were refused: each letter leaves its own."""
    refusals = ("no_block", "bad_delta", "after_the_end")
    return [item for item in payloads if item.get("reason") not in refusals]


@without_coverage()
def check_letter_by_letter(vector: dict[str, Any]) -> None:
    parsing, said = run(letter for event in vector["events"] for letter in letters(event))
    assert merged(untraced(map(shown, said))) == merged(untraced(vector["expected"]))
    assert known(parsing) == vector["reply"]


@without_coverage()
def check_bytes_cut_at_every_position(vector: dict[str, Any]) -> None:
    frames = [encode(json.dumps(event).encode(), event="x") for event in vector["events"]]
    stream = b"".join(frames)
    decoder = Decoder()
    whole = [*decoder.feed(stream), *decoder.flush()]
    check(vector, [json.loads(message.data) for message in whole])
    for at in range(len(stream)):
        assert [*decoder.feed(stream[:at]), *decoder.feed(stream[at:])] == whole


@without_coverage()
def check_every_event_can_be_stored(vector: dict[str, Any]) -> None:
    for payload in run(vector["events"])[1]:
        kind = CATALOG.get_event_type(CATALOG.get_type_name(type(payload)))
        origin = "model" if kind.allows_origin(payload, "model") else "system"
        assert CATALOG.build_event(payload, id="evt_1", origin=origin).payload == payload  # type: ignore[arg-type]


@without_coverage()
def check_every_block_begins_once_and_ends_once(vector: dict[str, Any]) -> None:
    for at in range(len(vector["events"]) + 1):
        said = [shown(payload) for payload in run(vector["events"][:at])[1]]
        begun = [item["block_id"] for item in said if item["type"] == "block.start"]
        ended = [item["block_id"] for item in said if item["type"] == "block.end"]
        assert sorted(begun) == sorted(ended)
        assert len(set(begun)) == len(begun)


@without_coverage()
def check_every_batch_holds_an_end_with_its_twin(vector: dict[str, Any]) -> None:
    parsing = parser()
    for event in [*vector["events"], None]:
        batch = [shown(p) for p in (parsing.feed(event) if event else parsing.flush())]
        complete = {item["block_id"] for item in batch if item.get("status") == "complete"}
        twins = {
            item["block_id"]
            for item in batch
            if item["type"].startswith(("assistant.", "tool.call")) and "block_id" in item
        }
        assert complete == twins


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    laws = [
        check_as_dicts,
        check_as_objects_of_the_sdk,
        check_as_objects_of_no_sdk,
        check_letter_by_letter,
        check_bytes_cut_at_every_position,
        check_every_event_can_be_stored,
        check_every_block_begins_once_and_ends_once,
        check_every_batch_holds_an_end_with_its_twin,
    ]
    check_laws(laws, vector)


def test_a_stream_that_the_transport_broke_says_why() -> None:
    parsing = parser()
    parsing.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}})
    fault = ErrorInfo(code="RemoteProtocolError", message="peer closed connection")
    assert [shown(payload)["type"] for payload in parsing.flush(fault)] == ["block.end"]
    assert parsing.reply.error == fault
    assert parsing.flush(fault) == []


def begin(parsing: MessagesParser, index: int, **content: Any) -> list[Payload]:
    return parsing.feed({"type": "content_block_start", "index": index, "content_block": content})


def reasons(payloads: Iterable[Payload]) -> list[str]:
    return [payload.reason for payload in payloads if isinstance(payload, ParseReject)]


def fill(parsing: MessagesParser) -> None:
    """Leave room for no other block."""
    begin(parsing, 0, type="text", text="x" * (MAX_REPLY_CHARS - BLOCK_COST_CHARS))


@for_each_row(
    "content",
    [
        {"type": "text", "text": ""},
        {"type": "thinking"},
        {"type": "redacted_thinking", "data": ""},
        {"type": "tool_use", "id": "a", "name": "b"},
        {"type": "web_search_tool_result", "tool_use_id": "a"},
        {"type": "hologram"},
    ],
    ids=lambda content: content["type"],
)
def test_where_there_is_no_room_a_block_leaves_a_trace(content: dict[str, Any]) -> None:
    parsing = parser()
    fill(parsing)
    assert reasons(begin(parsing, 1, **content)) == ["too_long"]


def test_what_comes_whole_is_bounded() -> None:
    parsing, data = parser(), "x" * (4 << 20)
    said = []
    for index in range((MAX_REPLY_VALUE_BYTES >> 22) + 1):
        said += begin(parsing, index, type="web_fetch_tool_result", tool_use_id=f"a{index}", content=data)
    assert reasons(said) == ["too_long", "too_long"]
    assert reasons(begin(parser(), 0, type="hologram", data="x" * (13 << 20))) == ["bad_block"]


def test_fields_of_a_block_that_nobody_knows_are_bounded() -> None:
    parsing = parser()
    begin(parsing, 0, type="hologram")
    for _ in range(3):
        delta = {"type": "x_delta", "x": ["y" * (1 << 20)]}
        parsing.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    said = parsing.feed({"type": "content_block_stop", "index": 0})
    assert [shown(payload)["type"] for payload in said] == ["block.end", "parse.reject"]
    assert reasons(said) == ["too_long"]


def nest(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@for_each_row("text", ["x", "\ud800"], ids=["text", "no text"])
@pytest.mark.parametrize(
    "value",
    [object(), {object()}, {(1, 2): 3}, nest(990), nest(100_000), circle()],
    ids=["an object", "a set", "a key", "deep", "very deep", "a circle"],
)
def test_what_json_cannot_say_is_refused(text: str, value: Any) -> None:
    odd = {"type": "hologram", "text": text, "value": value}
    ending = {"type": "message_delta", "delta": {"stop_details": odd}}
    parsing = parser()
    assert reasons(begin(parsing, 0, **odd)) == ["bad_block"]
    begin(parsing, 1, type="text", text="")
    delta = {"type": "content_block_delta", "index": 1, "delta": odd}
    said = [*parsing.feed(delta), *parsing.feed(ending), *parsing.feed(odd)]
    assert reasons(said) == ["bad_delta", "bad_stop_details", "unknown_event"]


@for_each_row(
    "value",
    [float("nan"), "\ud800", {"\ud800": 1}, {1: 2}],
    ids=["NaN", "a surrogate", "a key", "a number as key"],
)
def test_what_json_can_hardly_say_is_mended(value: Any) -> None:
    parsing = parser()
    begin(parsing, 0, type="web_search_tool_result", tool_use_id="a", content=value)
    (result,) = parsing.feed({"type": "content_block_stop", "index": 0})
    assert isinstance(result, ToolResult)
    assert CATALOG.build_event(result, id="evt_1", origin="model").payload == result


class Endless(dict[str, Any]):
    """What holds itself."""

    def __init__(self) -> None:
        super().__init__(type="hologram")
        self["self"] = self


@for_each_row("value", [object(), Endless(), {"a": b"\xff" * 3, "b": object()}], ids=type)
def test_what_json_cannot_say_leaves_a_trace(value: Any) -> None:
    parsing = parser()
    assert reasons(begin(parsing, 0, type="web_search_tool_result", tool_use_id="a", content=value)) == [
        "bad_block"
    ]
    begin(parsing, 0, type="text", text="")
    delta = {"type": "citations_delta", "citation": value}
    assert reasons(parsing.feed({"type": "content_block_delta", "index": 0, "delta": delta})) == ["bad_delta"]
    delta = {"stop_reason": None, "stop_details": value}
    assert reasons(parsing.feed({"type": "message_delta", "delta": delta})) == ["bad_stop_details"]
    assert reasons(parsing.feed(value)) == ["unknown_event"]


def test_a_count_that_is_no_unicode_is_refused() -> None:
    usage = {"output_tokens": "\ud800"}
    assert reasons(parser().feed({"type": "message_delta", "delta": {}, "usage": usage})) == ["bad_usage"]


def test_a_name_in_a_reject_is_short_and_printable() -> None:
    (reject,) = parser().feed({"type": "a\n\ud800" + "é" * 300})
    assert isinstance(reject, ParseReject)
    assert reject.name == "a�" + "é" * 30
    (reject,) = parser().feed({"type": "\n"})
    assert isinstance(reject, ParseReject)
    assert reject.name is None


def test_deltas_are_handed_on_at_once() -> None:
    parsing = parser()
    begin(parsing, 0, type="text", text="")
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
    assert [type(payload) for payload in parsing.feed(event)][-1] is BlockDelta
