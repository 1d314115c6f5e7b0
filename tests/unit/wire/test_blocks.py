"""The dialect `blocks`: the examples of seed 003, interleaved agents, the limit (protocol law 7)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import turnlog
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, entry, scope, vector_log
from turnlog.errors import InvalidEvent
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    AwaitedCall,
    BlockDelta,
    BlockStart,
    Citation,
    Image,
    ToolAwait,
    ToolCall,
    ToolResult,
)
from turnlog.state.history import History, Message
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import MAX_TITLE_BYTES, Blocks, shorten_title

VECTORS = Path(__file__).parents[2] / "vectors" / "wire" / "blocks.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
AGENT = scope("agt_" + "1" * 64)
WORST = '"\\' * 64  # the longest name and key once they are escaped
EVERYTHING = DialectOptions(stream_meta_history_and_tool_results=True)


def said(blocks: Blocks, items: list[Item]) -> list[bytes]:
    return [message for envelope, payload in items for message in blocks.convert(envelope, payload)]


def projection(case: dict[str, Any]) -> Blocks:
    return Blocks(msgspec.convert(case.get("options", {}), DialectOptions))


def check_messages(case: dict[str, Any]) -> None:
    messages = said(projection(case), vector_log(case["events"]))
    assert [json.loads(message) for message in messages] == case["messages"]


def check_every_message_is_complete_and_begins_with_the_common_fields(case: dict[str, Any]) -> None:
    for message in said(projection(case), vector_log(case["events"])):
        assert list(json.loads(message))[:4] == ["type", "agent", "final", "delta"]
        assert b"\n" not in message
        assert len(message) <= MAX_MESSAGE_BYTES


def check_when_the_agents_have_ended_nothing_is_left(case: dict[str, Any]) -> None:
    blocks, items = projection(case), vector_log(case["events"])
    said(blocks, items)
    for agent_id in {envelope.agent_id for envelope, _ in items if envelope.agent_id}:
        said(blocks, [entry(AgentEnd(stop_reason="end_turn"), scope(agent_id))])
    assert blocks.idle
    assert vars(blocks) == vars(projection(case)), "the next turn begins like the first"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_messages,
        check_every_message_is_complete_and_begins_with_the_common_fields,
        check_when_the_agents_have_ended_nothing_is_left,
    ]
    check_laws(laws, case)


def test_what_is_open_or_can_be_retracted_is_the_state() -> None:
    blocks = Blocks()
    assert blocks.idle
    said(blocks, [entry(BlockStart(block_id="blk_1", kind="other"), AGENT)])
    assert blocks.idle, "such a block is not told"
    said(blocks, [entry(BlockStart(block_id="blk_2", kind="text"), AGENT)])
    assert not blocks.idle


def test_a_response_ends_with_its_sign() -> None:
    assert Blocks().close() == [b"[DONE]"]


def test_conversations_are_those_of_the_agent_at_hand() -> None:
    history = History()
    blocks = Blocks(EVERYTHING, history.messages)
    root, child = scope("agt_1"), scope("agt_2", 1)
    told = []
    for item in [
        entry(AgentStart(name="Guide", via="prompt", prompt="Oslo"), root),
        entry(AgentStart(name="Scout", via="call", prompt="sights", parent_id="agt_1"), child),
        entry(AssistantMessage(text="The harbour."), child),
        entry(AgentEnd(stop_reason="end_turn"), child),
    ]:
        history.apply(*item)
        told += [json.loads(message) for message in said(blocks, [item])]
    metas = [json.loads(fields["delta"]) for fields in told if fields["type"].startswith("meta_")]
    oslo, sights = [meta["message_history"] for meta in metas[:2]]
    assert oslo == [{"role": "user", "content": [{"type": "text", "text": "Oslo"}]}]
    assert sights == [{"role": "user", "content": [{"type": "text", "text": "sights"}]}]
    assert [turn["role"] for turn in metas[2]["conversation_history"]] == ["user", "assistant"]


@for_each_row("kind", sorted(FULL_CATALOG.types))
def test_every_event_can_be_converted(kind: str) -> None:
    payload = FULL_CATALOG.get_event_type(kind).decoder.decode(
        json.dumps(FULL_CATALOG.get_event_type(kind).payload_class.EXAMPLE).encode()
    )
    for options in (DialectOptions(), EVERYTHING):
        for message in said(Blocks(options), [entry(payload, AGENT)]):
            assert json.loads(message)["agent"] == "1" * 64


def joined(messages: list[bytes]) -> str:
    read = [json.loads(message) for message in messages]
    assert [fields["final"] for fields in read] == [False] * (len(read) - 1) + [True]
    assert len({(fields["type"], fields.get("id"), fields.get("name")) for fields in read}) == 1
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    return "".join(fields["delta"] for fields in read)


@for_each_row("text", ["x" * 10_000, '"' * 5_000, "\x01" * 3_000, "€😀" * 2_000, "\\n\n" * 3_000])
def test_a_big_result_is_cut_below_the_limit_and_joins_again(text: str) -> None:
    result = ToolResult(call_id=WORST, tool=WORST, ok=True, result=text)
    messages = said(Blocks(), [entry(result, AGENT)])
    assert len(messages) > 1
    assert joined(messages) == text


def test_big_arguments_prompts_questions_and_histories_are_cut_too() -> None:
    args = {"text": "long " * 2_000}
    call = ToolCall(call_id=WORST, tool=WORST, args=args)
    assert json.loads(joined(said(Blocks(), [entry(call, AGENT)]))) == args
    start = AgentStart(name=WORST, via="prompt", model=WORST, parent_id="agt_" + "2" * 64, prompt="q" * 9_000)
    assert json.loads(joined(said(Blocks(), [entry(start, AGENT)])))["user_query"] == "q" * 9_000
    asked = ToolAwait(calls=(AwaitedCall(call_id=WORST, tool=WORST, args=args),))
    assert json.loads(joined(said(Blocks(), [entry(asked, AGENT)])))[0]["input"] == args
    long = [Message("user", [{"type": "text", "text": "long " * 2_000}])]
    final = said(Blocks(EVERYTHING, lambda _: long), [entry(AgentEnd(stop_reason="end_turn"), AGENT)])
    assert json.loads(joined(final))["conversation_history"] == msgspec.to_builtins(long)


def test_a_big_delta_is_cut_and_none_of_its_messages_is_final() -> None:
    blocks = Blocks()
    said(blocks, [entry(BlockStart(block_id="blk_1", kind="text"), AGENT)])
    messages = said(blocks, [entry(BlockDelta(block_id="blk_1", text="word " * 1_000), AGENT)])
    read = [json.loads(message) for message in messages]
    assert len(read) == 3
    assert not any(fields["final"] for fields in read)
    assert "".join(fields["delta"] for fields in read) == "word " * 1_000


def test_the_longest_names_beside_an_image_fit() -> None:
    image = Image(src="/" * 1024, media_type=WORST)
    result = ToolResult(call_id=WORST, tool=WORST, ok=True, result="x", images=(image,))
    messages = said(Blocks(), [entry(result, AGENT)])
    assert [json.loads(message)["type"] for message in messages] == [
        "tool_result",
        "tool_result_image",
        "tool_result",
    ]
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES


def citation(text: str, label: str, number: int) -> Citation:
    """A citation with every field."""
    return Citation(
        type=WORST,
        cited_text=text,
        document_index=number,
        document_title=label,
        file_id=WORST,
        start_char_index=number,
        end_char_index=number,
        start_page_number=number,
        end_page_number=number,
        start_block_index=number,
        end_block_index=number,
        url=label,
        title=label,
        encrypted_index=label,
        source=label,
        search_result_index=number,
    )


@pytest.mark.parametrize("label", ["t" * 9_000, '"' * 9_000, "\x01" * 9_000, "€" * 9_000, "😀" * 9_000])
def test_the_longest_labels_beside_a_cited_text_fit(label: str) -> None:
    cited = citation("cited " * 500, label, 10**15)
    message = AssistantMessage(text="x", citations=(cited, cited))
    _, _, *messages = said(Blocks(), [entry(message, AGENT)])
    read = [json.loads(message) for message in messages]
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    for index in (0, 1):
        assert "".join(fields["delta"] for fields in read if fields["index"] == index) == "cited " * 500
    assert [fields["final"] for fields in read] == [False] * (len(read) - 1) + [True]
    assert all("encrypted_index" not in fields for fields in read)
    assert read[0]["title"].endswith("…")


@pytest.mark.parametrize("text", ["", "Example", "x" * 198, '"' * 99, "€" * 66])
def test_a_label_that_fits_is_not_touched(text: str) -> None:
    assert shorten_title(text) == text


@pytest.mark.parametrize("text", ["x" * 199, '"' * 100, "€" * 67, "\x01" * 34, "\x01" * 9_000])
def test_a_label_that_is_too_long_says_that_it_was_cut(text: str) -> None:
    cut = shorten_title(text)
    assert len(msgspec.json.encode(cut)) <= MAX_TITLE_BYTES
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert len(cut) > 20


def test_any_number_beside_a_cited_text_fits() -> None:
    message = AssistantMessage(text="x", citations=(citation("cited", "label", 2**53 - 1),))
    assert max(map(len, said(Blocks(), [entry(message, AGENT)]))) <= MAX_MESSAGE_BYTES
    larger = AssistantMessage(text="x", citations=(citation("cited", "label", 2**53),))
    with pytest.raises(InvalidEvent):
        turnlog.event(larger)
