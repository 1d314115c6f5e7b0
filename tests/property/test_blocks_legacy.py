"""`blocks-xml` and `blocks-raw` on legal logs: readers that know only the format get everything back."""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal
from xml.etree import ElementTree

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.logs import Item, entry, log, scope
from turnlog import events as ev
from turnlog.wire.blocks_raw import BlocksRaw
from turnlog.wire.blocks_xml import BlocksXml
from turnlog.wire.chunks import LIMIT_BYTES
from turnlog.wire.dialect import DONE, bare

Dialect = BlocksXml | BlocksRaw
Script = list[ev.Payload]
Placed = list[tuple[ev.Payload, ev.Scope]]
Said = dict[str, list[tuple[str, Any]]]  # by agent: the kind and content of what stands

quick = settings(
    derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)

IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
FORGING = [
    "<", ">", "&", '"', "'", "]]>", "<![CDATA[", "&#10;", "&lt;", "[DONE]", "{", "[", "\r", "\n", "\t",
    "\r\n", "</content-block-text>", '<rollback blocks="9" agent="1"/>', "<content-block-text>", "</log>",
    "<!--", "<?x?>", ' agent="2"', "\0", "\x1b", "\x85", "\u2028", "\ufeff", "\ufffe", "é", "😀", " ", "word",
]  # fmt: skip
hostile = st.lists(st.sampled_from(FORGING), min_size=1, max_size=12).map("".join)
anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
big = st.builds(str.__mul__, st.sampled_from(FORGING), st.integers(400, 3_000))
texts = st.one_of(hostile, anything, st.just("plain words "), big)
executors: st.SearchStrategy[Literal["backend", "frontend"]] = st.sampled_from(["backend", "frontend"])


class Writer:
    """Draws the parts of a legal log; ids are numbers."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ids: Iterator[int] = count(1)

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def block(self) -> tuple[str, Script]:
        """A text or thinking: complete with its twin, or aborted, perhaps before its first delta."""
        key, pieces = f"blk_{next(self.ids)}", self.draw(st.lists(texts, max_size=3))
        text, thinking = "".join(pieces), self.maybe()
        opened: Script = [ev.BlockStart(block_id=key, kind="thinking" if thinking else "text")]
        opened += [ev.BlockDelta(block_id=key, text=piece) for piece in pieces]
        if not text or self.maybe():
            return key, [*opened, ev.BlockEnd(block_id=key, status="aborted", text=text)]
        cited = (ev.Citation(type="char_location", cited_text=text, title=text),) * (len(text) % 3)
        twin: ev.Payload = ev.AssistantMessage(text=text, block_id=key, citations=cited)
        if thinking:
            twin = ev.AssistantThinking(text=text, block_id=key, signature="c2ln")
        return key, [*opened, ev.BlockEnd(block_id=key, status="complete"), twin]

    def search(self) -> tuple[str, Script]:
        """A call that the provider answers itself."""
        key, text, found = f"blk_{next(self.ids)}", self.draw(texts), "x_tool_result"
        call = ev.ToolCall(call_id=key, tool="x", args={"q": text}, executor="provider", block_id=key)
        return key, [call, ev.ToolResult(call_id=key, tool="x", ok=True, result=text, kind=found)]

    def attempt(self) -> tuple[tuple[str, ...], Script]:
        parts = [self.block() if self.maybe() else self.search() for _ in range(self.draw(st.integers(0, 3)))]
        return tuple(key for key, _ in parts), [payload for _, script in parts for payload in script]

    def failed(self) -> Script:
        """An attempt that is retracted, before or after its last block is ended."""
        void, script = self.attempt()
        last = [script.pop()] if script and isinstance(script[-1], ev.BlockEnd) and self.maybe() else []
        return [*script, ev.BlockRetract(block_ids=void, reason="overloaded_error"), *last]

    def step(self) -> Script:
        """One completion with its retries, its calls, what the page is asked, and the results."""
        script = [*(self.failed() if self.maybe() else []), *self.attempt()[1]]
        calls = [
            ev.ToolCall(call_id=f"c{next(self.ids)}", tool="t", args={"a": text}, executor=executor)
            for text, executor in self.draw(st.lists(st.tuples(texts, executors), max_size=2))
        ]
        usage = ev.AgentUsage(model="m", usage=ev.Usage(input_tokens=1, output_tokens=2))
        asked = [call for call in calls if call.executor == "frontend"]
        waits = [ev.AwaitedCall(call_id=call.call_id, tool=call.tool, args=call.args) for call in asked]
        script += [*calls, usage, *([ev.ToolAwait(calls=tuple(waits))] if waits else [])]
        for call in calls:
            text = self.draw(texts)
            images = (ev.Image(src="/api/blobs/1", media_type="image/png"),) * (len(text) % 3)
            script.append(ev.ToolResult(call_id=call.call_id, tool="t", ok=True, result=text, images=images))
        return script + (
            [ev.SessionError(code="c", message="m"), ev.AssistantMessage(text="m")] * self.maybe()
        )

    def agent(self, trace_id: str) -> Placed:
        """All of an agent, and of the one it hands off to."""
        at = scope(f"agt_{next(self.ids)}", 0, trace_id)
        reason: Any = self.draw(st.sampled_from(["end_turn", "max_tokens", "error", "handoff"]))
        script: Script = [ev.AgentStart(name="Agent", via="prompt", prompt=self.draw(texts))]
        for _ in range(self.draw(st.integers(0, 3))):
            script += self.step()
        script.append(ev.AgentEnd(stop_reason=reason))
        return [(item, at) for item in script] + (self.agent(trace_id) if reason == "handoff" else [])

    def turn(self) -> Placed:
        """A message and the agents it starts, interleaved in any way."""
        trace_id = f"tr_{next(self.ids)}"
        agents = [self.agent(trace_id) for _ in range(self.draw(st.integers(1, 3)))]
        merged: Placed = [(ev.UiMessage(text="Hello"), ev.Scope(trace_id=trace_id))]
        order = self.draw(st.lists(st.integers(0, 5), min_size=1, max_size=40))
        for place in range(sum(map(len, agents))):
            speaking = [script for script in agents if script]
            merged.append(speaking[order[place % len(order)] % len(speaking)].pop(0))
        return merged


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Item], list[int]]:
    """A log, and the seqs where its turns begin."""
    writer, entries, turns = Writer(draw), Placed(), list[int]()
    for _ in range(draw(st.integers(1, 2))):
        turns.append(len(entries))
        entries += writer.turn()
    return log(*entries), turns


def pruned(items: list[Item]) -> list[Item]:
    """The log after its live events are gone."""
    return [item for item in items if not isinstance(item[1], ev.BlockDelta)]


def expected(items: list[Item]) -> Said:
    """What stands of each agent's output, by the log alone."""
    blocks: dict[str, dict[str, tuple[str, Any]]] = {}
    for envelope, payload in items:
        mine = blocks.setdefault(bare(envelope.agent_id or ""), {})
        key = getattr(payload, "block_id", None) or envelope.id
        match payload:
            case ev.BlockStart(kind=kind):
                mine[key] = (kind, "")
            case ev.BlockDelta(text=text) if key in mine:
                mine[key] = (mine[key][0], mine[key][1] + text)
            case ev.BlockEnd(status="aborted", text=text) if key in mine:
                mine[key] = (mine[key][0], text)
            case ev.AssistantMessage(text=text) | ev.AssistantThinking(text=text):
                mine[key] = ("text" if isinstance(payload, ev.AssistantMessage) else "thinking", text)
            case ev.ToolCall(args=args):
                mine[key] = ("call", args)
            case ev.ToolResult(kind="x_tool_result"):
                mine[f"{list(mine)[-1]} result"] = ("result", payload.result)
            case ev.BlockRetract(block_ids=void):
                blocks[bare(envelope.agent_id or "")] = {
                    at: it for at, it in mine.items() if at.split()[0] not in void
                }
    return standing({agent: [item for item in mine.values() if item[1]] for agent, mine in blocks.items()})


def standing(said: Said) -> Said:
    return {agent: stands for agent, stands in said.items() if stands}


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
    return kind, block[{"call": "input", "result": "content"}.get(kind, kind)]


def possible(text: str) -> str:
    """A text as XML can say it."""
    return IMPOSSIBLE.sub("\ufffd", text)


def possible_json(value: Any) -> Any:
    """A value as XML can say its JSON, where other control characters are escapes."""
    return json.loads(possible(json.dumps(value, ensure_ascii=False)))


def convert(dialect: Dialect, items: list[Item]) -> list[tuple[int, int, bytes]]:
    """Messages with their places: the seq and the number within the event."""
    return [
        (envelope.seq, number, message)
        for envelope, payload in items
        for number, message in enumerate(dialect.convert(envelope, payload))
    ]


def said(dialect: Dialect, items: list[Item]) -> list[bytes]:
    return [message for _, _, message in convert(dialect, items)]


@quick
@given(logs())
def test_an_xml_reader_gets_everything_back(drawn: tuple[list[Item], list[int]]) -> None:
    items, _ = drawn
    wanted = {
        agent: [(kind, possible_json(it) if kind == "call" else possible(it)) for kind, it in mine]
        for agent, mine in expected(items).items()
    }
    messages = said(BlocksXml(), items)
    assert read_xml(messages) == wanted
    assert read_xml(said(BlocksXml(), pruned(items))) == wanted
    for message in messages:
        assert message not in (b"", DONE)
        assert not set(message) & set(b"\r\n")
        assert message[:1] not in b"[{"
        assert len(message) <= LIMIT_BYTES or message.count(b"<") == 1


@quick
@given(logs())
def test_the_provider_s_client_gets_everything_back(drawn: tuple[list[Item], list[int]]) -> None:
    items, _ = drawn
    messages = said(BlocksRaw(), items)
    assert read_raw(messages) == expected(items)
    assert read_raw(said(BlocksRaw(), pruned(items))) == expected(items)
    for message in messages:
        assert b"\n" not in message
        assert len(message) <= LIMIT_BYTES or re.search(b"content_block_start|citations_delta", message[:90])


@pytest.mark.parametrize("make", [BlocksXml, BlocksRaw])
@quick
@given(logs(), st.integers(0, 2**16))
def test_a_reader_that_comes_back_misses_and_repeats_nothing(
    make: type[Dialect], drawn: tuple[list[Item], list[int]], cut: int
) -> None:
    items, turns = drawn
    dialect = make()
    whole = []
    for item in items:
        assert dialect.idle or item[0].seq not in turns
        whole += convert(dialect, [item])
    assert dialect.idle
    place = whole[cut % len(whole)][:2]
    turn = max(turn for turn in turns if turn <= place[0])
    again = [one for one in convert(make(), items[turn:]) if one[:2] > place]
    assert [one for one in whole if one[:2] <= place] + again == whole


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
