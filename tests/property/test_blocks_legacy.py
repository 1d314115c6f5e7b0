"""`blocks-xml` and `blocks-raw` on legal logs: readers that know only the format get everything back."""

import json
import re
from typing import Any
from xml.etree import ElementTree

from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.random_logs import Legal, Said, expected, hostile, logs, pruned, standing
from tests.support.written_logs import Item, entry, scope
from turnlog import events as ev
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE
from turnlog.wire.dialects.blocks_raw import BlocksRaw
from turnlog.wire.dialects.blocks_xml import BlocksXml

Dialect = BlocksXml | BlocksRaw

quick = examples(13)

IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read_xml(messages: list[bytes]) -> Said:
    root = ElementTree.fromstring(b"<log>%b</log>" % b"".join(messages))
    assert not root.text
    said: Said = {}
    for outer in root:
        assert not outer.tail
        stands, body = said.setdefault(outer.attrib["agent"], []), "".join(outer.itertext())
        match outer.tag:
            case "content-block-text" | "content-block-thinking":
                kind = outer.tag.removeprefix("content-block-")
                place = max((at for at, item in enumerate(stands) if item[0] == kind), default=-1)
                if outer.get("continued"):
                    stands[place] = (kind, stands[place][1] + body)
                else:
                    stands.append((kind, body))
            case "content-block-tool_call" | "content-block-server_tool_call":
                stands.append(("call", json.loads(outer.attrib["arguments"])))
            case "content-block-server_tool_result":
                stands.append(("result", body))
            case "rollback":
                del stands[-int(outer.attrib["blocks"]) :]
    return standing(said)


def read_raw(messages: list[bytes]) -> Said:
    """The content of each message as the provider's own client rebuilds it."""
    said: Said = {}
    snapshots: dict[str, Any] = {}
    buffers: dict[str, dict[int, bytes]] = {}
    for event in map(json.loads, messages):
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


def possible(text: str) -> str:
    """A text as XML can say it."""
    return IMPOSSIBLE.sub("\ufffd", text)


def possible_json(value: Any) -> Any:
    """A value as XML can say its JSON, where other control characters are escapes."""
    return json.loads(possible(json.dumps(value, ensure_ascii=False)))


def said(dialect: Dialect, items: list[Item]) -> list[bytes]:
    return [message for item in items for message in dialect.convert(*item)]


@quick
@given(logs())
def test_an_xml_reader_gets_everything_back(drawn: Legal) -> None:
    items = drawn.items
    wanted = {
        agent: [
            (kind, possible_json(it) if kind == "call" else possible(it))
            for kind, it in mine
            if kind != "other"
        ]
        for agent, mine in expected(items).items()
    }
    wanted = standing(wanted)
    messages = said(BlocksXml(), items)
    assert read_xml(messages) == wanted
    assert read_xml(said(BlocksXml(), pruned(items))) == wanted
    for message in messages:
        assert message not in (b"", DONE)
        assert not set(message) & set(b"\r\n")
        assert message[:1] not in b"[{"
        assert len(message) <= MAX_MESSAGE_BYTES or message.count(b"<") == 1


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
            b"content_block_start|citations_delta", message[:90]
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
    root = ElementTree.fromstring(b"<log>%b</log>" % b"".join(messages))
    start, streamed, whole, (source,), call, result, error = root
    assert {outer.tail for outer in root} == {None}
    assert json.loads(start.attrib["data"])["user_query"] == possible_json(text)
    assert json.loads(call.attrib["arguments"]) == possible_json({text: text})
    assert source.attrib == {"type": "x", "title": possible(text)}
    for outer in (streamed, whole, source, result):
        assert (outer.text, len(outer)) == (possible(text), 0)
    assert json.loads(error.text or "")["message"] == possible_json(text)
