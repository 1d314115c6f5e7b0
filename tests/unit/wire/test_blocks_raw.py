"""The dialect `blocks-raw`: vectors, and the provider's own client reads what we made up."""

import json
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import msgspec
import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.support.legacy_readers import read_tags
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import Item, entry, log, scope, vector_log
from turnlog.events import AgentEnd, AgentStart, AssistantMessage, AssistantThinking, ToolCall
from turnlog.state.history import Message
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE, DialectOptions
from turnlog.wire.dialects.blocks_raw import BlocksRaw

VECTORS = Path(__file__).parents[2] / "vectors" / "wire" / "blocks_raw.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
AGENT = scope("agt_" + "1" * 64)
START = AgentStart(name="Root", via="prompt", model="m")
API: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
KINDS = {
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
}


def said(dialect: BlocksRaw, items: list[Item]) -> list[bytes]:
    return [message for envelope, payload in items for message in dialect.convert(envelope, payload)]


def values(messages: list[bytes]) -> list[dict[str, Any]]:
    """The messages that are JSON."""
    return [json.loads(message) for message in messages if message.startswith(b"{")]


def shown(messages: list[bytes]) -> list[Any]:
    """The messages as a vector has them: JSON, or the text of tags."""
    return [json.loads(message) if message.startswith(b"{") else message.decode() for message in messages]


def dialect(case: dict[str, Any]) -> BlocksRaw:
    return BlocksRaw(msgspec.convert(case.get("options", {}), DialectOptions))


def replies(messages: list[bytes]) -> list[list[dict[str, Any]]]:
    """The events of the provider, message by message; each agent's are in order."""
    opened: dict[str, list[dict[str, Any]]] = {}
    closed = []
    for event in values(messages):
        if event["type"] in KINDS:
            if event["type"] == "message_start":
                assert event["agent"] not in opened
                opened[event["agent"]] = []
            opened[event["agent"]].append(event)
            if event["type"] == "message_stop":
                closed.append(opened.pop(event["agent"]))
    assert not opened
    return closed


def read(events: list[dict[str, Any]]) -> anthropic.types.Message:
    """What the real client makes of a stream of these events."""
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    headers = {"content-type": "text/event-stream"}
    answer = httpx2.Response(200, headers=headers, content="".join(frames).encode())
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)) as http:
        client = anthropic.Anthropic(api_key="none", base_url="http://provider.test", http_client=http)
        asked: Any = [{"role": "user", "content": "Hello"}]
        with client.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
            return stream.get_final_message()


def check_messages(case: dict[str, Any]) -> None:
    converting = dialect(case)
    messages = said(converting, vector_log(case["events"]))
    assert shown(messages) == case["messages"]
    assert converting.idle


def check_the_events_are_the_provider_s_and_the_indexes_dense(case: dict[str, Any]) -> None:
    for events in replies(said(dialect(case), vector_log(case["events"]))):
        for event in events:
            assert API.validate_python(event).type == event["type"]
        starts = [event["index"] for event in events if event["type"] == "content_block_start"]
        stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
        assert starts == sorted(stops) == list(range(len(starts)))
        assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]


def check_the_real_client_reads_every_message(case: dict[str, Any]) -> None:
    for events in replies(said(dialect(case), vector_log(case["events"]))):
        message = read(events)
        assert message.id == events[0]["message"]["id"]
        assert message.stop_reason == events[-2]["delta"]["stop_reason"]
        assert message.usage.output_tokens == events[-2]["usage"]["output_tokens"]
        started = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        assert [block.type for block in message.content] == [block["type"] for block in started]


def test_the_real_client_rebuilds_the_turn() -> None:
    first, second = map(read, replies(said(BlocksRaw(), vector_log(CASES[0]["events"]))))
    thinking, text, call = first.content
    assert isinstance(thinking, anthropic.types.ThinkingBlock)
    assert (thinking.thinking, thinking.signature) == ("I should search.", "c2ln")
    assert isinstance(text, anthropic.types.TextBlock)
    assert text.text == "Let me look.\nA moment <b>please</b>."
    assert isinstance(call, anthropic.types.ToolUseBlock)
    assert (call.id, call.name) == ("toolu_01", "grep_search")
    assert call.input == {"pattern": "TODO", "path": "src/"}
    assert (first.stop_reason, first.usage.input_tokens, first.usage.output_tokens) == ("tool_use", 900, 40)
    (answer,) = second.content
    assert isinstance(answer, anthropic.types.TextBlock)
    assert [item.cited_text for item in answer.citations or []] == ["The grass is green."]
    assert (second.model, second.stop_reason) == ("claude-sonnet-4-5", "end_turn")


def test_nothing_of_one_turn_is_left_for_the_next() -> None:
    converting = BlocksRaw()
    for case in CASES:
        if "options" not in case:
            messages = said(converting, vector_log(case["events"]))
            assert shown(messages) == case["messages"], case["name"]
            assert converting.idle


def check_a_reader_that_comes_back_gets_the_same_messages(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    assert said(dialect(case), items) == said(dialect(case), items)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_messages,
        check_the_events_are_the_provider_s_and_the_indexes_dense,
        check_the_real_client_reads_every_message,
        check_a_reader_that_comes_back_gets_the_same_messages,
    ]
    check_laws(laws, case)


@for_each_row("kind", sorted(FULL_CATALOG.types))
def test_every_event_can_be_converted(kind: str) -> None:
    payload = FULL_CATALOG.get_event_type(kind).decoder.decode(
        json.dumps(FULL_CATALOG.get_event_type(kind).payload_class.EXAMPLE).encode()
    )
    for message in said(BlocksRaw(), [entry(payload, AGENT)]):
        assert b"1" * 64 in message
        assert b"\n" not in message


def test_a_history_is_told_when_it_is_wanted() -> None:
    wanted = DialectOptions(stream_meta_history_and_tool_results=True)
    converting = BlocksRaw(wanted, lambda agent: [Message("user", [{"type": "text", "text": agent}])])
    first, last = said(converting, log((START, AGENT), (AgentEnd(stop_reason="end_turn"), AGENT)))
    told = [{"role": "user", "content": [{"type": "text", "text": AGENT.agent_id}]}]
    started, ended = read_tags([first.decode(), last.decode()])
    assert json.loads(started.attributes["data"])["message_history"] == told
    assert json.loads(ended.attributes["data"])["conversation_history"] == told


def test_a_response_ends() -> None:
    assert BlocksRaw().close() == [DONE]


@for_each_row("text", ["x" * 9_000, '"' * 5_000, "\x01" * 3_000, "€😀" * 2_000, "\\n\n" * 3_000])
def test_big_texts_are_cut_and_join_again(text: str) -> None:
    entries = [
        (START, AGENT),
        (AssistantThinking(text=text), AGENT),
        (AssistantMessage(text=text), AGENT),
        (ToolCall(call_id="c", tool="t", args={"text": text}), AGENT),
        (AgentEnd(stop_reason="end_turn"), AGENT),
    ]
    messages = said(BlocksRaw(), log(*entries))
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    thinking, said_text, call = read(replies(messages)[0]).content
    assert isinstance(thinking, anthropic.types.ThinkingBlock)
    assert thinking.thinking == text
    assert isinstance(said_text, anthropic.types.TextBlock)
    assert said_text.text == text
    assert isinstance(call, anthropic.types.ToolUseBlock)
    assert call.input == {"text": text}
