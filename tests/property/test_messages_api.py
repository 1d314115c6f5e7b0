"""Whatever the events: no exception, every block closed, everything storable, what is kept bounded."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.examples import examples
from turnlog.events import CATALOG, BlockDelta, BlockEnd, BlockStart, Payload, ToolCall
from turnlog.parse.blocks import MAX_REPLY_CHARS, MAX_REPLY_VALUE_BYTES
from turnlog.parse.messages_api import (
    BLOCK_OPENERS,
    DELTA_READERS,
    EVENT_READERS,
    STOP_REASONS,
    MessagesParser,
)
from turnlog.parse.reply import ReplyBuilder

SMALL_CHARS = 1 << 17  # what a parser of tags may hold, and names


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(words, inner, max_size=3)


words = st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8)
kinds = st.sampled_from(
    [*BLOCK_OPENERS, "web_search_tool_result", "mcp_tool_result", "compaction", "hologram"]
)
deltas = st.sampled_from([*DELTA_READERS, "citations_delta", "compaction_delta", "new_delta"])
pieces = (
    st.sampled_from(["", "{", "}", '{"a":1}', " ", "a <", "<agent-event", " type='x' />", "\n", "é"]) | words
)
indices = st.integers(0, 3) | values


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, each as it should be or as anything."""
    return st.fixed_dictionaries({}, optional={name: right | values for name, right in fields.items()})


citations = some(type=words, cited_text=words, url=words, document_index=st.integers(0, 5))
contents = some(
    type=words,
    text=pieces,
    error_code=words,
    content=st.lists(some(file_id=st.just("file_1")), max_size=2),
)
blocks = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    kinds,
    some(
        text=pieces,
        thinking=pieces,
        signature=words,
        data=words,
        id=st.sampled_from(["a", "b"]),
        name=st.just("weather"),
        input=st.dictionaries(words, values, max_size=2),
        tool_use_id=st.just("a"),
        content=contents,
        is_error=st.booleans(),
        citations=st.lists(citations, max_size=2),
        file_id=st.just("file_1"),
    ),
)
changes = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    deltas,
    some(text=pieces, thinking=pieces, partial_json=pieces, signature=words, citation=citations),
)
endings = some(stop_reason=st.sampled_from([*STOP_REASONS]), stop_details=values, container=some(id=words))
usages = some(input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9))
messages = some(id=words, model=words, usage=usages)
usual = st.one_of(
    st.builds(lambda i, b: {"type": "content_block_start", "index": i, "content_block": b}, indices, blocks),
    st.builds(lambda i, d: {"type": "content_block_delta", "index": i, "delta": d}, indices, changes),
    st.builds(lambda i: {"type": "content_block_stop", "index": i}, indices),
    st.builds(lambda m: {"type": "message_start", "message": m}, messages),
    st.builds(lambda d, u: {"type": "message_delta", "delta": d, "usage": u}, endings, usages),
    st.builds(lambda e: {"type": "error", "error": e}, some(type=words, message=words)),
    st.just({"type": "message_stop"}),
)
wild = st.builds(
    lambda kind, rest: {**rest, "type": kind}, st.sampled_from([*EVENT_READERS]) | values, objects(values)
)
streams = st.lists(usual | usual | usual | wild | values, max_size=25)


def parser() -> MessagesParser:
    numbers = count()
    return MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}"))


def fed(parsing: MessagesParser, events: Iterable[Any]) -> list[Payload]:
    return [payload for event in events for payload in parsing.feed(event)] + parsing.flush()


@given(streams)
@examples(48)
def test_no_stream_raises_and_whatever_comes_out_can_be_stored(events: list[Any]) -> None:
    for payload in fed(parser(), events):
        kind = CATALOG.get_event_type(CATALOG.get_type_name(type(payload)))
        origin: Any = "model" if kind.allows_origin(payload, "model") else "system"
        CATALOG.build_event(payload, id="evt_1", origin=origin)


@given(streams)
@examples(29)
def test_every_block_begins_once_ends_once_and_has_its_pieces_between(events: list[Any]) -> None:
    said = fed(parsing := parser(), events)
    opened: dict[str, list[str]] = {}
    ended: set[str] = set()
    for payload in said:
        if isinstance(payload, BlockStart):
            assert payload.block_id not in opened
            opened[payload.block_id] = []
        elif isinstance(payload, BlockDelta):
            assert payload.block_id not in ended
            opened[payload.block_id].append(payload.text)
        elif isinstance(payload, BlockEnd):
            assert payload.block_id not in ended
            ended.add(payload.block_id)
    assert ended == set(opened) == set(parsing.reply.block_ids)


@given(streams)
@examples(48)
def test_calls_come_out_only_of_a_message_that_is_complete(events: list[Any]) -> None:
    said = fed(parsing := parser(), events)
    calls = [payload for payload in said if isinstance(payload, ToolCall) and payload.executor == "backend"]
    assert calls == parsing.reply.calls
    assert not calls or parsing.reply.complete


def kept(thing: object, seen: set[int]) -> int:
    """The characters that an object remembers, wherever it does."""
    if isinstance(thing, str | bytes):
        return len(thing)
    if id(thing) in seen or callable(thing):
        return 0
    seen.add(id(thing))
    if isinstance(thing, dict):
        return sum(kept(item, seen) for pair in thing.items() for item in pair)
    if isinstance(thing, list | tuple | set):
        return sum(kept(item, seen) for item in thing)
    names = getattr(thing, "__struct_fields__", None) or getattr(thing, "__dict__", {})
    return sum(kept(getattr(thing, name), seen) for name in names)


BIG = "x" * (1 << 18)
LARGE: dict[str, list[Any]] = {
    "text": [{"type": "text", "text": ""}, {"type": "text_delta", "text": BIG}],
    "thinking": [{"type": "thinking"}, {"type": "thinking_delta", "thinking": BIG}],
    "signatures": [{"type": "thinking"}, {"type": "signature_delta", "signature": BIG}],
    "arguments": [
        {"type": "tool_use", "id": "a", "name": "b"},
        {"type": "input_json_delta", "partial_json": BIG},
    ],
    "fields": [{"type": "hologram"}, {"type": "x", "y": BIG, "z": [BIG]}],
    "sources": [
        {"type": "text", "text": "x"},
        {"type": "citations_delta", "citation": {"type": "a", "cited_text": BIG, "url": BIG}},
    ],
    "results": [{"type": "web_fetch_tool_result", "tool_use_id": "a", "content": BIG * 16}],
    "calls": [{"type": "tool_use", "id": "a", "name": "b", "input": {"a": BIG * 16}}],
}


@given(st.sampled_from([*LARGE]), st.booleans())
@examples(4)
@example("fields", False)
@example("results", False)
@example("calls", True)
def test_what_is_remembered_is_bounded(name: str, stopped: bool) -> None:
    parsing = parser()
    content, *changed = LARGE[name]
    for index in range(24):
        parsing.feed({"type": "content_block_start", "index": index, "content_block": content})
        for delta in changed * 4:
            parsing.feed({"type": "content_block_delta", "index": index, "delta": delta})
        if stopped:
            parsing.feed({"type": "content_block_stop", "index": index})
    assert kept(parsing, set()) <= MAX_REPLY_CHARS + MAX_REPLY_VALUE_BYTES + SMALL_CHARS


@given(st.sampled_from([{"type": "text", "text": "a"}, {"type": "hologram"}, {"type": "tool_use"}]))
@examples(2)
def test_the_number_of_blocks_is_bounded(content: dict[str, Any]) -> None:
    parsing = parser()
    for index in range(MAX_REPLY_CHARS // 64 + 1000):
        parsing.feed({"type": "content_block_start", "index": index, "content_block": content})
    assert len(parsing.reply.block_ids) <= MAX_REPLY_CHARS // 64
