"""The dialect `blocks-xml`: the tags from before `blocks`, escaped as their readers expect it.

- A message is one line of at most 2048 bytes, except where one tag is longer: readers take a tag with
  attributes from one message. In text, thinking, citations, provider results and errors a backslash is
  doubled and a line break is a backslash and `n`; in tool results and files only line breaks are escaped.
- Text is not XML: `<b>` is passed on, and readers decode no entities. Only a `<` that a reader would take for
  one of our tags, or that has no `>` after it, is `&lt;`. It is held back until that is known.
- Every outer tag names its `agent`. If another agent or block writes in the middle of a block, the tag is
  closed; `continued="true"` opens it again and adds to the agent's last block of that tag.
- A block that begins before another of its agent and tag has ended is sent at its end: citations follow
  their text. `<rollback blocks="n"/>` voids the last n texts, thinkings, calls and server results.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
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
from turnlog.wire.dialects._common import call_args, call_kind, to_json_text
from turnlog.wire.dialects.agent_names import AgentNames
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.block_tracker import BlockTracker, OpenBlock
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder, awaited_calls, error_meta, files_meta

MAX_SLICE_CHARS = 1500  # plain text of this length fits into a message with its escapes and its tag

# `type` and `cited_text` of a citation are written elsewhere; `encrypted_index` is secret.
OMITTED_FIELDS = frozenset({"type", "cited_text", "encrypted_index"})

MAX_TAG_CHARS = 256  # of a tag in model text; a `<` without `>` within this length is no tag

_POSSIBLE_TAG = re.compile(r"<(?=[A-Za-z/!]|\Z)")
_OWN_TAG = re.compile(
    r"</?(?:content-block-|meta_init|meta_final|awaiting_frontend_tools|citations?(?![A-Za-z0-9_:-])"
    r"|[A-Za-z][A-Za-z0-9_:-]*_tool_result)|<!\[CDATA\["
)
_LINE_END = re.compile("\r\n?|\n")


@dataclass(slots=True)
class XmlAgentState:
    """An agent from its start to its end."""

    name: str
    tracker: BlockTracker
    running: bool = False


class OpenTag(NamedTuple):
    """The block whose tag is open in the output; there is at most one."""

    agent: str
    block_id: str
    kind: str


class BlocksXml:
    """One projection of a session's log."""

    def __init__(
        self, options: DialectOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history
    ) -> None:
        self._options = options
        self._names = AgentNames()
        self._meta = AgentMetaBuilder(options, history, self._names)
        self._agents: dict[str, XmlAgentState] = {}  # by agent id
        self._open_tag: OpenTag | None = None
        self._held_text = ""  # the end of the text in the open tag: it may begin a tag of its own
        self._parts: list[bytes] = []  # output of the event that is being converted

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []

        agent_id = envelope.agent_id or ""
        if isinstance(payload, AgentStart):
            self._names.start(agent_id, payload)
        agent = self._agents.pop(agent_id, None)
        if agent is None:
            agent = XmlAgentState(self._names.name_of(agent_id), BlockTracker(agent_id))
        convert(self, agent, payload)
        if agent.running or agent.tracker.open:
            self._agents[agent_id] = agent
        if isinstance(payload, AgentEnd):
            self._names.end(agent_id)
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
        self._close_tag()
        self._parts += encode_element(agent.name, tag, attributes, body)

    def _write_text(self, agent: XmlAgentState, block_id: str, block: OpenBlock, text: str) -> None:
        if self._open_tag != (agent.name, block_id, block.kind):
            self._close_tag()
            attributes = {"agent": agent.name}
            if block.has_started:
                attributes["continued"] = "true"
            self._parts.append(start_tag(f"content-block-{block.kind}", attributes))
            self._open_tag = OpenTag(agent.name, block_id, block.kind)

        if not block.has_started:
            block.has_started = True
            agent.tracker.record_output(block_id or None)
        shown, self._held_text = split_model_text(self._held_text + text)
        self._parts += split_to_fit(shown, encode_model_text)

    def _close_tag(self) -> None:
        if self._open_tag is None:
            return
        shown, _ = split_model_text(self._held_text, is_last=True)
        self._held_text = ""
        self._parts += split_to_fit(shown, encode_model_text)
        self._parts.append(end_tag(f"content-block-{self._open_tag.kind}"))
        self._open_tag = None

    def _agent_start(self, agent: XmlAgentState, payload: AgentStart) -> None:
        agent.running = True
        meta = self._meta.build_init(agent.tracker.agent_id, payload, "xml")
        self._write_element(agent, "meta_init", {"data": to_json_text(meta)})

    def _agent_end(self, agent: XmlAgentState, payload: AgentEnd) -> None:
        agent.running = False
        agent.tracker.open.clear()
        meta = self._meta.build_final(agent.tracker.agent_id, payload)
        if meta is not None:
            self._write_element(agent, "meta_final", {"data": to_json_text(meta)})
        elif self._open_tag is not None and self._open_tag.agent == agent.name:
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

        if self._open_tag is not None and self._open_tag[:2] == (agent.name, payload.block_id):
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
        block = agent.tracker.finish(payload.block_id)
        if payload.text and not (block is not None and block.has_started):
            self._write_text(agent, payload.block_id or "", OpenBlock(kind), payload.text)
            self._close_tag()

    def _retract(self, agent: XmlAgentState, payload: BlockRetract) -> None:
        agent.tracker.drop(payload.block_ids)
        count = agent.tracker.retract(payload.block_ids)
        if count:
            self._close_tag()
            self._parts.append(empty_tag("rollback", {"blocks": count, "agent": agent.name}))

    def _tool_call(self, agent: XmlAgentState, payload: ToolCall) -> None:
        agent.tracker.record_output(payload.block_id)
        arguments = to_json_text(call_args(payload))
        attributes = {"id": payload.call_id, "name": payload.tool, "arguments": arguments}
        self._write_element(agent, f"content-block-{call_kind(payload)}", attributes)

    def _tool_result(self, agent: XmlAgentState, payload: ToolResult) -> None:
        if payload.kind is None:
            self._close_tag()
            self._parts += encode_xml_result(agent.name, payload)
        elif self._options.stream_tool_results:
            agent.tracker.record_output(None)
            body = split_cdata(result_text(payload), encode_escaped_cdata)
            attributes = {"id": payload.call_id, "name": payload.kind}
            self._write_element(agent, "content-block-server_tool_result", attributes, body)

    def _tool_await(self, agent: XmlAgentState, payload: ToolAwait) -> None:
        self._close_tag()
        self._parts += encode_xml_await(agent.name, payload)

    def _files(self, agent: XmlAgentState, payload: AssistantFiles) -> None:
        self._close_tag()
        self._parts += encode_xml_files(agent.name, payload)

    def _error(self, agent: XmlAgentState, payload: SessionError) -> None:
        self._close_tag()
        self._parts += encode_xml_error(agent.name, payload)


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


def encode_element(
    agent: str, tag: str, attributes: dict[str, Any], body: list[bytes] | None = None
) -> list[bytes]:
    """Return an outer element. Without a body it is one part: readers take it from one message."""
    # The attributes from before `blocks` come first.
    start = start_tag(tag, attributes | {"agent": agent})
    if not body:
        return [start + end_tag(tag)]
    return [start, *body, end_tag(tag)]


def encode_xml_result(agent: str, payload: ToolResult) -> list[bytes]:
    """Return the result of a tool that this side ran."""
    body = split_cdata(result_text(payload), encode_cdata)
    if payload.images:
        body = [b"<text>", *body, b"</text>"]
        for image in payload.images:
            body.append(empty_tag("image", {"src": image.src, "media_type": image.media_type}))
    attributes = {"id": payload.call_id, "name": payload.tool}
    return encode_element(agent, "content-block-tool_result", attributes, body)


def encode_xml_await(agent: str, payload: ToolAwait) -> list[bytes]:
    return encode_element(agent, "awaiting_frontend_tools", {"data": to_json_text(awaited_calls(payload))})


def encode_xml_files(agent: str, payload: AssistantFiles) -> list[bytes]:
    body = split_to_fit(to_json_text(files_meta(payload)), encode_cdata)
    return encode_element(agent, "content-block-meta_files", {}, body)


def encode_xml_error(agent: str, payload: SessionError) -> list[bytes]:
    body = split_to_fit(to_json_text(error_meta(payload)), encode_escaped_cdata)
    return encode_element(agent, "content-block-error", {}, body)


def encode_citation(citation: Citation) -> list[bytes]:
    attributes: dict[str, Any] = {"type": citation.type}
    for key, value in msgspec.to_builtins(citation).items():
        if key not in OMITTED_FIELDS:
            attributes[key] = value
    body = split_cdata(citation.cited_text, encode_escaped_cdata)
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
    """Escape a value: its readers decode entities, also those of line ends and tabs."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace('"', "&quot;").replace("'", "&#x27;")
    return text.replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")


def split_model_text(text: str, *, is_last: bool = False) -> tuple[str, str]:
    """Return model text in which no `<` can be taken for one of our tags, and the end that is held back.

    Held back are a `<` whose `>` may still come, and blanks alone: readers skip a blank message.
    """
    pieces: list[str] = []
    done = 0
    held = len(text)
    if text.endswith("\r") and not is_last:
        held -= 1  # a line feed may follow
    for match in _POSSIBLE_TAG.finditer(text):
        at = match.start()
        has_end = text.find(">", at, at + MAX_TAG_CHARS) >= 0
        if not has_end and not is_last and len(text) - at < MAX_TAG_CHARS:
            held = at
            break
        if not has_end or _OWN_TAG.match(text, at):
            pieces += (text[done:at], "&lt;")
            done = at + 1
    pieces.append(text[done:held])
    shown = "".join(pieces)
    if not is_last and len(text) < MAX_TAG_CHARS and not shown.strip(" \t"):
        return "", text
    return shown, text[held:]


def encode_model_text(text: str) -> bytes:
    return escape_breaks_and_backslashes(text).encode()


def escape_line_breaks(text: str) -> str:
    """Return a text on one line: every line break is a backslash and `n`."""
    return _LINE_END.sub(r"\\n", text)


def escape_breaks_and_backslashes(text: str) -> str:
    return escape_line_breaks(text.replace("\\", "\\\\"))


def encode_cdata(text: str) -> bytes:
    return cdata_section(escape_line_breaks(text)).encode()


def encode_escaped_cdata(text: str) -> bytes:
    return cdata_section(escape_breaks_and_backslashes(text)).encode()


def split_cdata(text: str, encode: Callable[[str], bytes]) -> list[bytes]:
    return split_to_fit(_LINE_END.sub("\n", text), encode)  # first: no cut may come between CR and LF


def cdata_section(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def split_to_fit(text: str, encode: Callable[[str], bytes]) -> list[bytes]:
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
    messages: list[bytes] = []
    for part in parts:
        if messages and len(messages[-1]) + len(part) <= MAX_MESSAGE_BYTES:
            messages[-1] += part
        elif part == DONE:  # text of a model, which must not end the response
            messages += (part[:1], part[1:])
        else:
            messages.append(part)
    return messages
