"""The reader of the dialect `blocks`: every rule as a vector that the JavaScript reader shares."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.blocks_readers import transcript_text
from tests.support.coverage_pause import without_coverage
from tests.support.tables import check_laws, for_each_row
from turnlog.client.assembler import Assembler
from turnlog.client.blocks import AssembledBlock
from turnlog.wire.chunks import chunk
from turnlog.wire.sse import Decoder

VECTORS = Path(__file__).parents[2] / "vectors" / "wire"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "assemble.json").read_text())["cases"]
DIALECT: list[dict[str, Any]] = json.loads((VECTORS / "blocks.json").read_text())["cases"]


def text_of(message: object) -> str:
    return message if isinstance(message, str) else json.dumps(message)


def messages_of(case: dict[str, Any]) -> list[tuple[str, str]]:
    """The messages of a case: data and id."""
    if "stream" in case:
        return [(message.data, message.id) for message in Decoder().feed(case["stream"].encode())]
    return [
        (text_of(item[1]), item[0]) if isinstance(item, list) else (text_of(item), "")
        for item in case["feed"]
    ]


def assemble(messages: list[tuple[str, str]]) -> Assembler:
    assembler = Assembler()
    for data, id in messages:  # noqa: A001
        assembler.feed(data, id)
    assembler.flush()
    return assembler


def said(type: str, delta: str, final: bool, agent: str = "a1", **extra: object) -> str:
    return json.dumps({"type": type, "agent": agent, "final": final, "delta": delta, **extra})


def check_blocks_and_transcript(case: dict[str, Any]) -> None:
    assembler = assemble(messages_of(case))
    assert assembler.as_json() == case["expect"]
    assert transcript_text(assembler) == "\n".join(case["transcript"])


def check_as_bytes_read_after_every_message(case: dict[str, Any]) -> None:
    assembler = Assembler()
    for data, id in messages_of(case):  # noqa: A001
        assembler.feed(data.encode(), id)
        assembler.as_json()
        transcript_text(assembler)
    assembler.flush()
    assert assembler.as_json() == case["expect"]


def check_a_stream_that_ends_early(case: dict[str, Any]) -> None:
    messages = messages_of(case)
    for end in range(len(messages)):
        assembler = assemble(messages[:end])
        json.dumps(assembler.as_json(), allow_nan=False).encode()
        assert assembler.flush() == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_blocks_and_transcript,
        check_as_bytes_read_after_every_message,
        check_a_stream_that_ends_early,
    ]
    check_laws(laws, case)


@for_each_row("case", DIALECT, ids=lambda case: case["name"])
def test_what_the_dialect_says_is_read(case: dict[str, Any]) -> None:
    assert assemble([(json.dumps(message), "") for message in case["messages"]]).dropped == 0


def test_feed_tells_what_changed() -> None:
    assembler = Assembler()
    [text] = assembler.feed(said("text", "Hel", False))
    assert (text.type, text.text, text.complete) == ("text", "Hel", False)
    assert assembler.feed(said("text", "lo", False)) == [text]
    assert assembler.feed(said("text", "", True)) == [text]
    assert (text.text, text.complete) == ("Hello", True)
    assert assembler.feed(said("citation", "c", True)) == [text]
    assert assembler.feed(said("text", "", True)) == []
    assert assembler.feed(said("meta_init", "{", False)) == []
    assert assembler.feed(said("meta_init", "}", True)) == []
    assert assembler.feed("[DONE]") == []
    assert assembler.blocks == [text]


def test_a_result_changes_its_call() -> None:
    assembler = Assembler()
    [call] = assembler.feed(said("tool_call", "{}", True, id="t1", name="a"))
    assert assembler.feed(said("tool_result", "x", False, id="t1", name="a")) == [call]
    assert assembler.feed(said("tool_result_image", "", False, id="t1", name="a", src="/1")) == [call]
    assert assembler.feed(said("tool_result", "", True, id="t1", name="a")) == [call]
    [result] = call.results
    assert (result.call, result.text, result.images) == (call, "x", [{"src": "/1", "media_type": ""}])
    assert assembler.blocks == [call]


def test_a_rollback_tells_what_is_void() -> None:
    assembler = Assembler()
    [call] = assembler.feed(said("tool_call", "{}", True, id="t1", name="a"))
    assembler.feed(said("tool_result", "x", False, id="t1", name="a"))
    [text] = assembler.feed(said("text", "x", False))
    [result] = call.results
    assert assembler.feed(said("rollback", '{"blocks":1}', True)) == [text]
    assert (text.void, call.void) == (True, False)
    assert assembler.feed(said("rollback", '{"blocks":1}', True)) == [call]
    assert (call.void, result.void, assembler.blocks) == (True, True, [])


def test_a_rollback_of_a_result_changes_its_call() -> None:
    assembler = Assembler()
    [call] = assembler.feed(said("server_tool_call", "{}", True, id="s1", name="a"))
    assembler.feed(said("server_tool_result", "x", True, id="s1", name="a"))
    assert assembler.feed(said("rollback", '{"blocks":1}', True)) == [call]
    assert (call.void, call.results, assembler.blocks) == (False, [], [call])


def test_a_new_epoch_and_a_reset_tell_what_is_void() -> None:
    assembler = Assembler()
    [old] = assembler.feed(said("text", "a", False), "1:k1")
    changed = assembler.feed(said("text", "b", False), "0:k2")
    assert [(block.text, block.void) for block in changed] == [("a", True), ("b", False)]
    assert changed[0] is old
    assert assembler.feed('{"type":"reset"}', "0:k2") == changed[1:]
    assert (changed[1].void, assembler.blocks, assembler.agents) == (True, [], {})


def test_flush_tells_what_is_incomplete_and_ends_it() -> None:
    assembler = Assembler()
    [call] = assembler.feed(said("tool_call", "{}", True, id="t1", name="a"))
    [text] = assembler.feed(said("text", "par", False))
    assembler.feed(said("tool_result", "x", False, id="t1", name="a"))
    assembler.feed(said("meta_final", "{", False))
    assert assembler.flush() == [text, call]
    assert assembler.dropped == 1
    [other] = assembler.feed(said("text", "t", True))
    assert [(block.text, block.complete) for block in (text, other)] == [("par", False), ("t", True)]


def test_a_citation_in_two_chunks_is_not_continued_after_flush() -> None:
    assembler = Assembler()
    [text] = assembler.feed(said("citation", "a", False, index=0))
    assembler.flush()
    assembler.feed(said("citation", "b", True, index=0))
    assert [citation.cited_text for citation in text.citations] == ["a", "b"]


def test_bad_utf_8_is_replaced() -> None:
    assembler = Assembler()
    assembler.feed(b'{"type":"text","agent":"a","final":false,"delta":"\xff\xe2\x82"}')
    assert [block.text for block in assembler.blocks] == ["\ufffd\ufffd"]


def test_the_value_of_a_block_is_there_when_it_is_complete() -> None:
    [block] = Assembler().feed(said("tool_call", "null", True, id="t1", name="a"))
    assert block.value is None
    assert AssembledBlock("tool_call", "a").value is not None


def test_what_is_too_deep_for_any_stack_stays_text() -> None:
    assembler = Assembler()
    deep = "[" * 100_000 + "]" * 100_000
    assembler.feed(said("error", deep, True))
    assert assembler.as_json()["blocks"] == [{"type": "error", "agent": "a1", "raw": deep, "complete": True}]
    assembler.feed(f'{{"type":"text","agent":"a","final":true,"delta":"x","more":{deep}}}')
    assert assembler.dropped == 1


@without_coverage()
def test_a_big_payload_in_the_smallest_chunks() -> None:
    payload = "x\n😀" * 60_000  # joined anew for each chunk, this would be 3 GB of copying
    assembler = Assembler()
    messages = chunk("tool_result", "a", payload, 100, id="t1", name="a")
    assert len(messages) > 20_000
    for message in messages:
        assembler.feed(message)
    [block] = assembler.blocks
    assert (block.text, block.complete) == (payload, True)


def test_many_rollbacks_leave_nothing_behind() -> None:
    assembler = Assembler()
    for _ in range(500):
        assembler.feed(said("text", "x", True))
        assembler.feed(said("citation", "c", True))
        assembler.feed(said("tool_call", "{}", True, id="t1", name="a"))
        assembler.feed(said("tool_result", "x", False, id="t1", name="a"))
        assembler.feed(said("rollback", '{"blocks":2}', True))
    [agent] = assembler.agents.values()
    assert (assembler.blocks, agent.blocks, agent.model_blocks, agent.open_blocks) == ([], {}, [], {})
    assert (agent.complete_texts, agent.calls_by_id["t1"]) == ([], [])
