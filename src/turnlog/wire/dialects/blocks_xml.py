"""The dialect `blocks-xml`: the tags from before `blocks`. Joined, its messages are well-formed XML.

- A message is one line of at most 2048 bytes, except where one tag is longer. CR and LF are `&#13;` and
  `&#10;` (between CDATA sections), a tab in an attribute is `&#9;`, so an XML reader gets every text back.
  Characters that XML 1.0 cannot express arrive as U+FFFD.
- Model text cannot open or close a tag. Its messages never begin with `[` or `{`, as `[DONE]` and JSON do.
- Every outer tag names its `agent`. If another agent or block writes in the middle of a block, the tag is
  closed; `continued="true"` opens it again and adds to the agent's last block of that tag.
- A block that begins before another of its agent and tag has ended is sent at its end: citations follow
  their text. `<rollback blocks="n"/>` voids the last n texts, thinkings, calls and server results.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from turnlog.wire.dialects._common import call_args, call_kind, strip_agent_prefix, to_json_text
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, BlocksOptions, HistoryLookup, no_history
from turnlog.wire.dialects.block_tracker import BlockTracker, OpenBlock
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder, awaited_calls, error_meta, files_meta

MAX_SLICE_CHARS = 1500  # plain text of this length fits into a message with its escapes and its tag

# `type` and `cited_text` of a citation are written elsewhere; `encrypted_index` is secret.
OMITTED_FIELDS = frozenset({"type", "cited_text", "encrypted_index"})

_INVALID_XML_CHARS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_ENDS = re.compile("([\r\n]+)")


@dataclass(slots=True)
class XmlAgentState:
    """An agent from its start to its end."""

    id: str
    running: bool = False
    tracker: BlockTracker = field(default_factory=BlockTracker)


class OpenTag(NamedTuple):
    """The block whose tag is open in the output; there is at most one."""

    agent: str
    block_id: str
    kind: str


class BlocksXml:
    """One projection of a session's log."""

    def __init__(self, options: BlocksOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history) -> None:
        self._options = options
        self._meta = AgentMetaBuilder(options, history)
        self._agents: dict[str, XmlAgentState] = {}
        self._open_tag: OpenTag | None = None
        self._parts: list[bytes] = []  # output of the event that is being converted

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []

        name = strip_agent_prefix(envelope.agent_id or "")
        agent = self._agents.pop(name, None) or XmlAgentState(name)
        convert(self, agent, payload)
        if agent.running or agent.tracker.open:
            self._agents[name] = agent
        return self._take_messages()

    def close(self) -> list[bytes]:
        self._close_tag()
        return [*self._take_messages(), DONE]

    @property
    def idle(self) -> bool:
        return not self._agents and self._open_tag is None

    def _take_messages(self) -> list[bytes]:
        messages = pack_messages(self._parts)
        self._parts = []
        return messages

    def _write_element(
        self, agent: XmlAgentState, tag: str, attributes: dict[str, str], body: list[bytes] | None = None
    ) -> None:
        """Close the open tag and write an outer element."""
        self._close_tag()
        # The attributes from before `blocks` come first.
        self._parts.append(start_tag(tag, attributes | {"agent": agent.id}))
        self._parts += body or []
        self._parts.append(end_tag(tag))

    def _write_text(self, agent: XmlAgentState, block_id: str, block: OpenBlock, text: str) -> None:
        """Write a piece of a block, after its tag if another one is open."""
        if self._open_tag != (agent.id, block_id, block.kind):
            self._close_tag()
            attributes = {"agent": agent.id}
            if block.has_started:
                attributes["continued"] = "true"
            self._parts.append(start_tag(f"content-block-{block.kind}", attributes))
            self._open_tag = OpenTag(agent.id, block_id, block.kind)

        if not block.has_started:
            block.has_started = True
            agent.tracker.record_output(block_id or None)
        self._parts += split_to_fit(text, encode_model_text)

    def _close_tag(self) -> None:
        if self._open_tag is not None:
            self._parts.append(end_tag(f"content-block-{self._open_tag.kind}"))
            self._open_tag = None

    def _agent_start(self, agent: XmlAgentState, payload: AgentStart) -> None:
        agent.running = True
        meta = self._meta.build_init(agent.id, payload, "xml")
        self._write_element(agent, "meta_init", {"data": to_json_text(meta)})

    def _agent_end(self, agent: XmlAgentState, payload: AgentEnd) -> None:
        agent.running = False
        agent.tracker.open.clear()
        meta = self._meta.build_final(agent.id, payload)
        if meta is not None:
            self._write_element(agent, "meta_final", {"data": to_json_text(meta)})
        elif self._open_tag is not None and self._open_tag.agent == agent.id:
            self._close_tag()

    def _block_start(self, agent: XmlAgentState, payload: BlockStart) -> None:
        is_deferred = bool(agent.tracker.open_of_kind(payload.kind))
        agent.tracker.start(payload, is_deferred=is_deferred)

    def _block_delta(self, agent: XmlAgentState, payload: BlockDelta) -> None:
        block = agent.tracker.find_streamed(payload)
        if block is not None:
            self._write_text(agent, payload.block_id, block, payload.text)

    def _block_end(self, agent: XmlAgentState, payload: BlockEnd) -> None:
        block = agent.tracker.end(payload)
        is_aborted = payload.status == "aborted"
        if block is not None and is_aborted and not block.has_started and payload.text:
            self._write_text(agent, payload.block_id, block, payload.text)

        if self._open_tag is not None and self._open_tag[:2] == (agent.id, payload.block_id):
            self._close_tag()

    def _message(self, agent: XmlAgentState, payload: AssistantMessage) -> None:
        self._final_event(agent, "text", payload)
        # Without a text the citations would be taken for those of the text before.
        if payload.citations and payload.text:
            body: list[bytes] = []
            for citation in payload.citations:
                body += encode_citation(citation)
            self._write_element(agent, "citations", {}, body)

    def _thinking(self, agent: XmlAgentState, payload: AssistantThinking) -> None:
        self._final_event(agent, "thinking", payload)

    def _final_event(
        self, agent: XmlAgentState, kind: str, payload: AssistantMessage | AssistantThinking
    ) -> None:
        """Write the whole text, unless its deltas were written."""
        block = agent.tracker.finish(payload.block_id)
        if payload.text and not (block is not None and block.has_started):
            self._write_text(agent, payload.block_id or "", OpenBlock(kind), payload.text)
            self._close_tag()

    def _retract(self, agent: XmlAgentState, payload: BlockRetract) -> None:
        agent.tracker.drop(payload.block_ids)
        count = agent.tracker.retract(payload.block_ids)
        if count:
            self._close_tag()
            self._parts.append(empty_tag("rollback", {"blocks": count, "agent": agent.id}))

    def _tool_call(self, agent: XmlAgentState, payload: ToolCall) -> None:
        agent.tracker.record_output(payload.block_id)
        arguments = to_json_text(call_args(payload))
        attributes = {"id": payload.call_id, "name": payload.tool, "arguments": arguments}
        self._write_element(agent, f"content-block-{call_kind(payload)}", attributes)

    def _tool_result(self, agent: XmlAgentState, payload: ToolResult) -> None:
        tag = "content-block-tool_result"
        name = payload.tool
        if payload.kind is not None:
            if not self._options.stream_tool_results:
                return
            agent.tracker.record_output(None)
            tag = "content-block-server_tool_result"
            name = payload.kind

        body = split_to_fit(result_text(payload), encode_cdata)
        if payload.images:
            body = [b"<text>", *body, b"</text>"]
            for image in payload.images:
                body.append(empty_tag("image", {"src": image.src, "media_type": image.media_type}))
        self._write_element(agent, tag, {"id": payload.call_id, "name": name}, body)

    def _tool_await(self, agent: XmlAgentState, payload: ToolAwait) -> None:
        data = to_json_text(awaited_calls(payload))
        self._write_element(agent, "awaiting_frontend_tools", {"data": data})

    def _files(self, agent: XmlAgentState, payload: AssistantFiles) -> None:
        body = split_to_fit(to_json_text(files_meta(payload)), encode_cdata)
        self._write_element(agent, "content-block-meta_files", {}, body)

    def _error(self, agent: XmlAgentState, payload: SessionError) -> None:
        body = split_to_fit(to_json_text(error_meta(payload)), encode_cdata)
        self._write_element(agent, "content-block-error", {}, body)


CONVERTERS: dict[type, Callable[[BlocksXml, XmlAgentState, Any], None]] = {
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


def encode_citation(citation: Citation) -> list[bytes]:
    """Return one citation with every field that is set."""
    attributes: dict[str, Any] = {"type": citation.type}
    for key, value in msgspec.to_builtins(citation).items():
        if key not in OMITTED_FIELDS:
            attributes[key] = value
    body = split_to_fit(citation.cited_text, encode_cdata)
    return [start_tag("citation", attributes), *body, end_tag("citation")]


def start_tag(tag: str, attributes: dict[str, Any]) -> bytes:
    return f"<{tag}{format_attributes(attributes)}>".encode()


def empty_tag(tag: str, attributes: dict[str, Any]) -> bytes:
    return f"<{tag}{format_attributes(attributes)}/>".encode()


def end_tag(tag: str) -> bytes:
    return f"</{tag}>".encode()


def format_attributes(attributes: dict[str, Any]) -> str:
    return "".join([f' {key}="{escape_xml_attribute(str(value))}"' for key, value in attributes.items()])


def escape_xml_attribute(text: str) -> str:
    """Escape a value. Tabs are escaped too: an XML reader would turn them into blanks."""
    return escape_xml_text(text).replace('"', "&quot;").replace("'", "&#x27;").replace("\t", "&#9;")


def escape_xml_text(text: str) -> str:
    """Escape text so that no reader can take it for a tag or the end of a line."""
    text = replace_invalid_xml(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;").replace("\n", "&#10;")


def replace_invalid_xml(text: str) -> str:
    return _INVALID_XML_CHARS.sub("\N{REPLACEMENT CHARACTER}", text)


def encode_model_text(text: str) -> bytes:
    """Escape a piece of model text. A message that begins with it must not look like JSON or `[DONE]`."""
    first = text[0]
    escaped_first = f"&#{ord(first)};" if first in "[{" else escape_xml_text(first)
    return (escaped_first + escape_xml_text(text[1:])).encode()


def encode_cdata(text: str) -> bytes:
    """Return a text in CDATA sections, with its line ends between them."""
    pieces = []
    for index, piece in enumerate(_LINE_ENDS.split(replace_invalid_xml(text))):
        is_line_end = index % 2 == 1
        pieces.append(escape_xml_text(piece) if is_line_end else cdata_section(piece))
    return "".join(pieces).encode()


def cdata_section(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>" if text else ""


def split_to_fit(text: str, encode: Callable[[str], bytes]) -> list[bytes]:
    """Return a text in encoded pieces that fit into a message each. A piece that does not fit is halved."""
    pieces: list[bytes] = []
    for start in range(0, len(text), MAX_SLICE_CHARS):
        pieces += bisect_to_fit(text[start : start + MAX_SLICE_CHARS], encode)
    return pieces


def bisect_to_fit(text: str, encode: Callable[[str], bytes]) -> list[bytes]:
    piece = encode(text)
    if len(piece) <= MAX_MESSAGE_BYTES:
        return [piece]
    middle = len(text) // 2
    return bisect_to_fit(text[:middle], encode) + bisect_to_fit(text[middle:], encode)


def pack_messages(parts: list[bytes]) -> list[bytes]:
    """Join neighbouring parts into messages, as many as fit into each."""
    messages: list[bytes] = []
    for part in parts:
        if messages and len(messages[-1]) + len(part) <= MAX_MESSAGE_BYTES:
            messages[-1] += part
        else:
            messages.append(part)
    return messages
