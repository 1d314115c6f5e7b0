"""`blocks-xml` and `blocks-raw` on legal logs: readers that know only the format get everything back."""

import json
import re
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.legacy_readers import read_tags
from tests.support.random_logs import Legal, Said, expected, hostile, logs, pruned, standing
from tests.support.written_logs import Item, entry, scope
from turnlog import events as ev
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import MAX_TAG_CHARS, BlocksXml

Dialect = BlocksXml | BlocksRaw

quick = examples(13)

WHOLE = re.compile(b"content_block_st|citations_delta|meta_init|meta_final|awaiting_frontend_tools")


def read_xml(messages: list[bytes]) -> Said:
    said: Said = {}
    for outer in read_tags([message.decode() for message in messages]):
        assert outer.tag, "nothing is outside of a tag"
        stands, body = said.setdefault(outer.attributes["agent"], []), outer.text.replace("&lt;", "<")
        match outer.tag:
            case "content-block-text" | "content-block-thinking":
                kind = outer.tag.removeprefix("content-block-")
                place = max((at for at, item in enumerate(stands) if item[0] == kind), default=-1)
                if outer.attributes.get("continued"):
                    stands[place] = (kind, stands[place][1] + body)
                else:
                    stands.append((kind, body))
            case "content-block-tool_call" | "content-block-server_tool_call":
                stands.append(("call", json.loads(outer.attributes["arguments"])))
            case "content-block-server_tool_result":
                stands.append(("result", body))
            case "rollback":
                del stands[-int(outer.attributes["blocks"]) :]
    return standing(said)


def shown(text: str) -> str:
    """A text as readers of tags show it: backslashes are doubled, and one before `n` becomes a line break."""
    text = re.sub("\r\n?", "\n", text).replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace("\\n", "\n").replace("&lt;", "<")


def read_raw(messages: list[bytes]) -> Said:
    """The content of each message as the provider's own client rebuilds it."""
    said: Said = {}
    snapshots: dict[str, Any] = {}
    buffers: dict[str, dict[int, bytes]] = {}
    for event in [json.loads(message) for message in messages if message.startswith(b"{")]:
        agent = event["agent"]
        stands = said.setdefault(agent, [])
        if event["type"] == "rollback":
            del stands[-json.loads(event["delta"])["blocks"] :]
        if event["type"] == "message_start":
            assert agent not in snapshots
            buffers[agent] = {}
        if event["type"].startswith(("message_", "content_block_")):
            snapshots[agent] = accumulate_event(
                event=event, current_snapshot=snapshots.get(agent), json_bufs=buffers[agent]
            )
        if event["type"] == "message_stop":
            stands += [content(block.to_dict()) for block in snapshots.pop(agent).content]
    assert not snapshots
    return standing(said)


def content(block: dict[str, Any]) -> tuple[str, Any]:
    kinds = {"tool_use": "call", "server_tool_use": "call", "x_tool_result": "result"}
    kind = kinds.get(block["type"], block["type"])
    if kind == "compaction":
        return "other", block
    return kind, block[{"call": "input", "result": "content"}.get(kind, kind)]


def client(kind: str, value: Any) -> tuple[str, Any]:
    """A block as the provider's client has it: what never became JSON is an empty object."""
    return kind, {} if kind == "call" and isinstance(value, str) else value


def said(dialect: Dialect, items: list[Item]) -> list[bytes]:
    return [message for item in items for message in dialect.convert(*item)]


@quick
@given(logs())
def test_an_xml_reader_gets_everything_back(drawn: Legal) -> None:
    items = drawn.items
    wanted = {
        agent: [(kind, it if kind == "call" else shown(it)) for kind, it in mine if kind != "other"]
        for agent, mine in expected(items).items()
    }
    wanted = standing(wanted)
    messages = said(BlocksXml(), items)
    assert read_xml(messages) == wanted
    assert read_xml(said(BlocksXml(), pruned(items))) == wanted
    for message in messages:
        assert message not in (b"", DONE)
        assert not set(message) & set(b"\r\n")
        assert message.strip() or len(message) >= MAX_TAG_CHARS
        # attributes cannot be split: a tag with large ones is a message alone, or with its end
        assert len(message) <= MAX_MESSAGE_BYTES or message.count(b"<") <= 2


@quick
@given(logs())
def test_the_provider_s_client_gets_everything_back(drawn: Legal) -> None:
    items = drawn.items
    messages = said(BlocksRaw(), items)
    wanted = {agent: [client(*item) for item in mine] for agent, mine in expected(items).items()}
    assert read_raw(messages) == wanted
    assert read_raw(said(BlocksRaw(), pruned(items))) == wanted
    for message in messages:
        assert b"\n" not in message
        assert len(message) <= MAX_MESSAGE_BYTES or re.search(
            b"content_block_start|citations_delta|content_block_stop|meta_init|meta_final|awaiting_frontend",
            message[:90],
        )


@quick
@given(hostile, st.integers(0, 60))
def test_no_text_can_forge_a_tag(text: str, cut: int) -> None:
    payloads = [
        ev.AgentStart(name="Root", via="prompt", prompt=text),
        ev.BlockStart(block_id="blk_1", kind="text"),
        ev.BlockDelta(block_id="blk_1", text=text[:cut]),
        ev.BlockDelta(block_id="blk_1", text=text[cut:]),
        ev.BlockEnd(block_id="blk_1", status="complete"),
        ev.AssistantMessage(text=text, citations=(ev.Citation(type="x", cited_text=text, title=text),)),
        ev.ToolCall(call_id="c", tool="t", args={text: text}),
        ev.ToolResult(call_id="c", tool="t", ok=True, result=text),
        ev.SessionError(code="c", message=text),
    ]
    messages = said(BlocksXml(), [entry(payload, scope("agt_1")) for payload in payloads])
    nodes = read_tags([message.decode() for message in messages])
    start, streamed, whole, sources, call, result, error = nodes
    [source] = sources.children
    assert json.loads(start.attributes["data"])["user_query"] == text
    assert json.loads(call.attributes["arguments"]) == {text: text}
    assert source.attributes == {"type": "x", "title": text}
    for outer in (streamed, whole, source):
        assert outer.text.replace("&lt;", "<") == shown(text)
        assert not [child for child in outer.children if child.tag]
    assert result.text == re.sub("\r\n?", "\n", text).replace("\\n", "\n")
    assert error.tag == "content-block-error"
