"""The dialect `blocks-xml`: the tags from before `blocks`. Joined, its messages are well-formed XML.

A message is one line: CR and LF are `&#13;` and `&#10;`, between two CDATA sections where there is CDATA, and
a tab in an attribute is `&#9;`, so an XML reader gets every text back. The exception is what XML 1.0 has no
way to say (most control characters, U+FFFE, U+FFFF, surrogates): that arrives as U+FFFD. Model text has its
`&<>` escaped and cannot open or close a tag; a message of it never begins with `[` or `{`, so it cannot
pass for `[DONE]` or for JSON either. A message has at most 2048 bytes, except where one tag is longer.

Added to the old tags: every outer tag names its `agent`. When another agent, or another block, speaks in the
middle of a block, the block's tag is closed, and when the block goes on it is opened again with
`continued="true"`, which adds to the agent's last block of that tag. A block that begins before another of
its agent and tag has ended is told at its end, so that sources follow their text. `<rollback blocks="n"/>`
voids the last n texts, thinkings, calls and server results of its agent. What `blocks` says in JSON is the
same JSON here. The state is what the running agents have open or can retract: it is empty between turns.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Citation,
    Envelope,
    Payload,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UnknownPayload,
)
from turnlog.state.content_parts import result_text
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import (
    DEFAULT_OPTIONS,
    DONE,
    STREAMED_KINDS,
    BlocksOptions,
    HistoryLookup,
    RetractableBlocks,
    call_args,
    call_kind,
    no_history,
    strip_agent_prefix,
    to_json_text,
)
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder, awaited_calls, error_meta, files_meta

MAX_SLICE_CHARS = 1500  # plain text of this length fits into a message with its escapes and its tag

OMITTED_FIELDS = frozenset({"type", "cited_text", "encrypted_index"})  # a citation's own places, and a secret

_INVALID_XML_CHARS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_ENDS = re.compile("([\r\n]+)")


@dataclass(slots=True)
class OpenXmlBlock:
    """A text or thinking block between its start and its durable twin."""

    tag: str
    is_deferred: bool = False  # told at its end: another one was open when it began
    has_started: bool = False


@dataclass(slots=True)
class XmlAgentState:
    """What has to be remembered of an agent, from its start to its end."""

    id: str
    running: bool = False
    blocks: dict[str, OpenXmlBlock] = field(default_factory=dict)
    retractable: RetractableBlocks = field(default_factory=RetractableBlocks)


class BlocksXml:
    """One projection of a session's log. `history` gives an agent's conversation as of the event at hand."""

    def __init__(self, options: BlocksOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history) -> None:
        self._options = options
        self._meta = AgentMetaBuilder(options, history)
        self._agents: dict[str, XmlAgentState] = {}
        self._open_tag: tuple[str, str, str] | None = None  # the open tag: its agent, block and name

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event."""
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []
        name = strip_agent_prefix(envelope.agent_id or "")
        agent = self._agents.pop(name, None) or XmlAgentState(name)
        parts = convert(self, agent, envelope, payload)
        if agent.running or agent.blocks:
            self._agents[name] = agent
        return pack_messages(parts)

    def close(self) -> list[bytes]:
        """What ends a response; the tag that is open is closed."""
        return [*self._close_tag(), DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not (self._agents or self._open_tag)

    def _agent_start(self, agent: XmlAgentState, _: Envelope, payload: AgentStart) -> list[bytes]:
        agent.running = True
        data = to_json_text(self._meta.build_init(agent.id, payload, "xml"))
        return self._close_tag() + encode_element("meta_init", agent.id, {"data": data})

    def _agent_end(self, agent: XmlAgentState, _: Envelope, payload: AgentEnd) -> list[bytes]:
        agent.running = False
        agent.blocks.clear()
        meta = self._meta.build_final(agent.id, payload)
        if meta is not None:
            return self._close_tag() + encode_element("meta_final", agent.id, {"data": to_json_text(meta)})
        return self._close_tag() if self._open_tag and self._open_tag[0] == agent.id else []

    def _block_start(self, agent: XmlAgentState, _: Envelope, payload: BlockStart) -> list[bytes]:
        if payload.kind in STREAMED_KINDS:
            tag = f"content-block-{payload.kind}"
            held = any(block.tag == tag for block in agent.blocks.values())
            agent.blocks[payload.block_id] = OpenXmlBlock(tag, held)
        return []

    def _block_delta(self, agent: XmlAgentState, _: Envelope, payload: BlockDelta) -> list[bytes]:
        block = agent.blocks.get(payload.block_id)
        if block is None or block.is_deferred or not payload.text:
            return []
        return self._write_text(agent, payload.block_id, block, payload.text)

    def _block_end(self, agent: XmlAgentState, _: Envelope, payload: BlockEnd) -> list[bytes]:
        """Close the tag. A complete block is kept for its twin, an aborted one has none."""
        key, parts = payload.block_id, []
        if payload.status == "aborted":
            block = agent.blocks.pop(key, None)
            if block and not block.has_started and payload.text:
                parts = self._write_text(agent, key, block, payload.text)
        return parts + (self._close_tag() if self._open_tag and self._open_tag[:2] == (agent.id, key) else [])

    def _message(self, agent: XmlAgentState, _: Envelope, payload: AssistantMessage) -> list[bytes]:
        """A text and its sources; without a word they would be taken for those of the text before."""
        parts = self._final_block(agent, "content-block-text", payload)
        if payload.citations and payload.text:
            body = [part for item in payload.citations for part in encode_citation(item)]
            parts += self._close_tag() + encode_element("citations", agent.id, {}, body)
        return parts

    def _thinking(self, agent: XmlAgentState, _: Envelope, payload: AssistantThinking) -> list[bytes]:
        return self._final_block(agent, "content-block-thinking", payload)

    def _final_block(
        self, agent: XmlAgentState, tag: str, payload: AssistantMessage | AssistantThinking
    ) -> list[bytes]:
        """A whole text, unless its deltas said it."""
        key = payload.block_id or ""
        block = agent.blocks.pop(key, None)
        if not payload.text or (block and block.has_started):
            return []
        return self._write_text(agent, key, OpenXmlBlock(tag), payload.text) + self._close_tag()

    def _write_text(self, agent: XmlAgentState, key: str, block: OpenXmlBlock, text: str) -> list[bytes]:
        """A piece of a block, after its tag if that is not the one that is open."""
        place = (agent.id, key, block.tag)
        parts: list[bytes] = []
        if self._open_tag != place:
            again = {"continued": "true"} if block.has_started else {}
            parts = [*self._close_tag(), start_tag(block.tag, {"agent": agent.id} | again)]
            self._open_tag = place
        if not block.has_started:
            block.has_started = True
            agent.retractable.add(key or None)
        return parts + split_to_fit(text, encode_model_text)

    def _close_tag(self) -> list[bytes]:
        """Close the open tag, whosever it is."""
        tag, self._open_tag = self._open_tag, None
        return [end_tag(tag[2])] if tag else []

    def _retract(self, agent: XmlAgentState, _: Envelope, payload: BlockRetract) -> list[bytes]:
        for key in payload.block_ids:
            agent.blocks.pop(key, None)
        count = agent.retractable.retract(payload.block_ids)
        return (
            [*self._close_tag(), empty_tag("rollback", {"blocks": count, "agent": agent.id})] if count else []
        )

    def _tool_call(self, agent: XmlAgentState, _: Envelope, payload: ToolCall) -> list[bytes]:
        agent.retractable.add(payload.block_id)
        args = to_json_text(call_args(payload))
        names = {"id": payload.call_id, "name": payload.tool, "arguments": args}
        return self._close_tag() + encode_element(f"content-block-{call_kind(payload)}", agent.id, names)

    def _tool_result(self, agent: XmlAgentState, _: Envelope, payload: ToolResult) -> list[bytes]:
        body = split_to_fit(result_text(payload), encode_cdata)
        if payload.images:
            images = [{"src": image.src, "media_type": image.media_type} for image in payload.images]
            body = [b"<text>", *body, b"</text>", *(empty_tag("image", image) for image in images)]
        if payload.kind is None:
            names = {"id": payload.call_id, "name": payload.tool}
            return self._close_tag() + encode_element("content-block-tool_result", agent.id, names, body)
        if not self._options.stream_tool_results:
            return []
        agent.retractable.add(None)
        names = {"id": payload.call_id, "name": payload.kind}
        return self._close_tag() + encode_element("content-block-server_tool_result", agent.id, names, body)

    def _tool_await(self, agent: XmlAgentState, _: Envelope, payload: ToolAwait) -> list[bytes]:
        data = to_json_text(awaited_calls(payload))
        return self._close_tag() + encode_element("awaiting_frontend_tools", agent.id, {"data": data})

    def _files(self, agent: XmlAgentState, _: Envelope, payload: AssistantFiles) -> list[bytes]:
        body = split_to_fit(to_json_text(files_meta(payload)), encode_cdata)
        return self._close_tag() + encode_element("content-block-meta_files", agent.id, {}, body)

    def _error(self, agent: XmlAgentState, _: Envelope, payload: SessionError) -> list[bytes]:
        body = split_to_fit(to_json_text(error_meta(payload)), encode_cdata)
        return self._close_tag() + encode_element("content-block-error", agent.id, {}, body)


CONVERTERS: dict[type, Callable[[BlocksXml, XmlAgentState, Envelope, Any], list[bytes]]] = {
    AgentStart: BlocksXml._agent_start,
    AgentEnd: BlocksXml._agent_end,
    BlockStart: BlocksXml._block_start,
    BlockDelta: BlocksXml._block_delta,
    BlockEnd: BlocksXml._block_end,
    BlockRetract: BlocksXml._retract,
    AssistantMessage: BlocksXml._message,
    AssistantThinking: BlocksXml._thinking,
    AssistantFiles: BlocksXml._files,
    ToolCall: BlocksXml._tool_call,
    ToolResult: BlocksXml._tool_result,
    ToolAwait: BlocksXml._tool_await,
    SessionError: BlocksXml._error,
}


def encode_element(
    tag: str, agent: str, attributes: dict[str, str], body: list[bytes] | None = None
) -> list[bytes]:
    """An outer element, in parts that may go into different messages. The old attributes come first."""
    return [start_tag(tag, attributes | {"agent": agent}), *(body or []), end_tag(tag)]


def encode_citation(item: Citation) -> list[bytes]:
    """One source of a text, with every field that is set."""
    fields: dict[str, Any] = msgspec.to_builtins(item)
    names = {"type": item.type} | {key: value for key, value in fields.items() if key not in OMITTED_FIELDS}
    return [start_tag("citation", names), *split_to_fit(item.cited_text, encode_cdata), end_tag("citation")]


def start_tag(tag: str, attributes: dict[str, Any]) -> bytes:
    return f"<{tag}{format_attributes(attributes)}>".encode()


def empty_tag(tag: str, attributes: dict[str, Any]) -> bytes:
    return f"<{tag}{format_attributes(attributes)}/>".encode()


def end_tag(tag: str) -> bytes:
    return f"</{tag}>".encode()


def format_attributes(attributes: dict[str, Any]) -> str:
    return "".join([f' {key}="{escape_xml_attribute(str(value))}"' for key, value in attributes.items()])


def escape_xml_attribute(text: str) -> str:
    """A value, HTML-escaped; white space that a reader would turn into blanks is escaped too."""
    return escape_xml_text(text).replace('"', "&quot;").replace("'", "&#x27;").replace("\t", "&#9;")


def escape_xml_text(text: str) -> str:
    """Text that no reader can take for a tag or the end of a line."""
    text = replace_invalid_xml(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;").replace("\n", "&#10;")


def replace_invalid_xml(text: str) -> str:
    return _INVALID_XML_CHARS.sub("\N{REPLACEMENT CHARACTER}", text)


def encode_model_text(text: str) -> bytes:
    """A piece of model text as it stands in a tag or in a message of its own."""
    first, rest = text[0], text[1:]
    return (
        (f"&#{ord(first)};" if first in "[{" else escape_xml_text(first)) + escape_xml_text(rest)
    ).encode()


def encode_cdata(text: str) -> bytes:
    """A text in CDATA sections, with its line ends between them."""
    pieces = enumerate(_LINE_ENDS.split(replace_invalid_xml(text)))
    return "".join(
        [escape_xml_text(piece) if place % 2 else cdata_section(piece) for place, piece in pieces]
    ).encode()


def cdata_section(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>" if text else ""


def split_to_fit(text: str, write: Callable[[str], bytes]) -> list[bytes]:
    """A text in written pieces that fit into a message each; a piece that does not fit is halved."""
    slices = (text[start : start + MAX_SLICE_CHARS] for start in range(0, len(text), MAX_SLICE_CHARS))
    return [piece for part in slices for piece in bisect_to_fit(part, write)]


def bisect_to_fit(text: str, write: Callable[[str], bytes]) -> list[bytes]:
    piece, middle = write(text), len(text) // 2
    if len(piece) <= MAX_MESSAGE_BYTES:
        return [piece]
    return bisect_to_fit(text[:middle], write) + bisect_to_fit(text[middle:], write)


def pack_messages(parts: list[bytes]) -> list[bytes]:
    """Parts joined into messages, as many as fit into each."""
    messages: list[bytes] = []
    for part in parts:
        if messages and len(messages[-1]) + len(part) <= MAX_MESSAGE_BYTES:
            messages[-1] += part
        else:
            messages.append(part)
    return messages
