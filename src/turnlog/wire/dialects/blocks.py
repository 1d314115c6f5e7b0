"""The dialect `blocks`: typed JSON messages of at most 2048 bytes, each complete by itself.

Text and thinking are streamed delta by delta and closed by an empty final message. Everything else is
buffered, and its last message is final. A block is sent whole from its final event if its deltas are gone, or
if another block of its agent and kind was open when it began (protocol 5.3): readers would take the deltas of
both for one text. The state holds what is open or can be retracted, so it is empty between turns. Converting
never fails: the vocabulary bounds names, ids and addresses.
"""

from collections.abc import Callable, Iterable
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
from turnlog.wire.chunks import available_payload_bytes, chunk, encode_json_lossy, encode_whole
from turnlog.wire.dialects._common import (
    call_args,
    call_kind,
    chunk_json,
    to_json_text,
)
from turnlog.wire.dialects.agent_names import AgentNames
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.block_tracker import BlockTracker, OpenBlock
from turnlog.wire.dialects.blocks_meta import AgentMetaBuilder, awaited_calls, error_meta, files_meta

MAX_TITLE_BYTES = 200  # of a title that leaves too little room for the cited text; the log has it whole
MIN_CITED_TEXT_BYTES = 64  # room in every message of a citation; less would make many messages

CITATION_FIELDS = frozenset(Citation.__struct_fields__) - {"type", "cited_text", "encrypted_index"}
TITLE_FIELDS = frozenset({"title", "document_title"})
ADDRESS_FIELDS = frozenset({"url", "source"})  # of a page, and of a search result


class Blocks:
    """One projection of a session's log."""

    def __init__(
        self, options: DialectOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history
    ) -> None:
        self._options = options
        self._names = AgentNames()
        self._meta = AgentMetaBuilder(options, history, self._names)
        self._trackers: dict[str, BlockTracker] = {}  # by agent that has something open or retractable

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        convert = CONVERTERS.get(type(payload))
        if convert is None:
            return []

        agent_id = envelope.agent_id or ""
        if isinstance(payload, AgentStart):
            self._names.start(agent_id, payload)
        tracker = self._trackers.get(agent_id)
        if tracker is None:
            tracker = self._trackers[agent_id] = BlockTracker(agent_id)
        messages = convert(self, self._names.name_of(agent_id), tracker, payload)
        if not tracker.has_output and not tracker.open:
            self._trackers.pop(agent_id, None)
        if isinstance(payload, AgentEnd):
            self._names.end(agent_id)
        return messages

    def close(self) -> list[bytes]:
        return [DONE]

    @property
    def idle(self) -> bool:
        return not self._trackers

    def _agent_start(self, agent: str, tracker: BlockTracker, payload: AgentStart) -> list[bytes]:
        return chunk_json("meta_init", agent, self._meta.build_init(tracker.agent_id, payload, "json"))

    def _agent_end(self, agent: str, tracker: BlockTracker, payload: AgentEnd) -> list[bytes]:
        del self._trackers[tracker.agent_id]
        messages = encode_ends(agent, tracker.open.values())
        meta = self._meta.build_final(tracker.agent_id, payload)
        if meta is not None:
            messages += chunk_json("meta_final", agent, meta)
        return messages

    def _block_start(self, _: str, tracker: BlockTracker, payload: BlockStart) -> list[bytes]:
        is_deferred = any(not block.has_ended for block in tracker.open_of_kind(payload.kind))
        tracker.start(payload, is_deferred=is_deferred)
        return []

    def _block_delta(self, agent: str, tracker: BlockTracker, payload: BlockDelta) -> list[bytes]:
        block = tracker.find_streamed(payload)
        if block is None:
            return []
        if not block.has_started:
            block.has_started = True
            record_output(agent, tracker, payload.block_id)
        return chunk(block.kind, agent, payload.text, final=False)

    def _block_end(self, agent: str, tracker: BlockTracker, payload: BlockEnd) -> list[bytes]:
        block = tracker.open.get(payload.block_id)
        if block is None:
            return []
        messages = encode_ends(agent, [block])
        tracker.end(payload)
        if payload.status == "aborted" and not block.has_started:
            return self._whole_block(block.kind, agent, tracker, payload.block_id, payload.text or "")
        return messages

    def _message(self, agent: str, tracker: BlockTracker, payload: AssistantMessage) -> list[bytes]:
        messages = self._final_event("text", agent, tracker, payload)
        # Without a text the citations would be taken for those of the text before.
        if payload.text:
            messages += encode_citations(agent, payload.citations, self._options)
        return messages

    def _thinking(self, agent: str, tracker: BlockTracker, payload: AssistantThinking) -> list[bytes]:
        return self._final_event("thinking", agent, tracker, payload)

    def _final_event(
        self, kind: str, agent: str, tracker: BlockTracker, payload: AssistantMessage | AssistantThinking
    ) -> list[bytes]:
        block = tracker.finish(payload.block_id)
        if block is not None and block.has_started:
            return encode_ends(agent, [block])
        return self._whole_block(kind, agent, tracker, payload.block_id, payload.text)

    def _whole_block(
        self, kind: str, agent: str, tracker: BlockTracker, block_id: str | None, text: str
    ) -> list[bytes]:
        if not text:
            return []
        record_output(agent, tracker, block_id)
        return chunk(kind, agent, text, final=False) + chunk(kind, agent, "")

    def _retract(self, agent: str, tracker: BlockTracker, payload: BlockRetract) -> list[bytes]:
        messages = encode_ends(agent, tracker.drop(payload.block_ids))
        count = tracker.retract(payload.block_ids)
        if count:
            messages += chunk_json("rollback", agent, {"blocks": count})
        return messages

    def _tool_call(self, agent: str, tracker: BlockTracker, payload: ToolCall) -> list[bytes]:
        record_output(agent, tracker, payload.block_id)
        args = to_json_text(call_args(payload))
        return chunk(call_kind(payload), agent, args, id=payload.call_id, name=payload.tool)

    def _tool_result(self, agent: str, tracker: BlockTracker, payload: ToolResult) -> list[bytes]:
        if payload.kind is None:
            return encode_tool_result(agent, payload)
        if not self._options.stream_tool_results:
            return []
        record_output(agent, tracker, None)
        text = result_text(payload)
        return chunk("server_tool_result", agent, text, id=payload.call_id, name=payload.kind)

    def _tool_await(self, agent: str, _: BlockTracker, payload: ToolAwait) -> list[bytes]:
        return chunk_json("awaiting_frontend_tools", agent, awaited_calls(payload))

    def _files(self, agent: str, _: BlockTracker, payload: AssistantFiles) -> list[bytes]:
        return chunk_json("meta_files", agent, files_meta(payload))

    def _session_error(self, agent: str, _: BlockTracker, payload: SessionError) -> list[bytes]:
        return chunk_json("error", agent, error_meta(payload))


CONVERTERS: dict[type, Callable[[Blocks, str, BlockTracker, Any], list[bytes]]] = {
    AgentStart: Blocks._agent_start,
    AgentEnd: Blocks._agent_end,
    BlockStart: Blocks._block_start,
    BlockDelta: Blocks._block_delta,
    BlockEnd: Blocks._block_end,
    BlockRetract: Blocks._retract,
    AssistantMessage: Blocks._message,
    AssistantThinking: Blocks._thinking,
    AssistantFiles: Blocks._files,
    ToolCall: Blocks._tool_call,
    ToolResult: Blocks._tool_result,
    ToolAwait: Blocks._tool_await,
    SessionError: Blocks._session_error,
}


def record_output(agent: str, tracker: BlockTracker, block_id: str | None) -> None:
    # Output without an agent is never retracted, and no `agent.end` would release its state.
    if agent:
        tracker.record_output(block_id)


def encode_ends(agent: str, blocks: Iterable[OpenBlock]) -> list[bytes]:
    """Return the empty final message of each streamed block; none if it sent no delta or has ended."""
    messages: list[bytes] = []
    for block in blocks:
        if block.has_started and not block.has_ended:
            messages += chunk(block.kind, agent, "")
    return messages


def encode_tool_result(agent: str, payload: ToolResult) -> list[bytes]:
    text = result_text(payload)
    names: dict[str, Any] = {"id": payload.call_id, "name": payload.tool}
    if not payload.images:
        return chunk("tool_result", agent, text, final=True, **names)

    messages = chunk("tool_result", agent, text, final=False, **names)
    for image in payload.images:
        fields = names | {"src": image.src, "media_type": image.media_type}
        messages.append(encode_whole("tool_result_image", agent, "", final=False, **fields))
    return messages + chunk("tool_result", agent, "", final=True, **names)


def encode_citations(agent: str, citations: tuple[Citation, ...], options: DialectOptions) -> list[bytes]:
    """Return the citations of a text, to send after its final message. `index` joins the chunks of one."""
    messages: list[bytes] = []
    for index, citation in enumerate(citations):
        is_last = index == len(citations) - 1
        fields: dict[str, Any] = {"citation_type": citation.type}
        for key, value in msgspec.to_builtins(citation).items():
            if key in CITATION_FIELDS:
                fields[key] = value
        if options.citations == "whole":
            messages.append(encode_whole("citation", agent, citation.cited_text, final=is_last, **fields))
        else:
            fields = fit_citation_fields(agent, citation, {"citation_type": "", "index": index} | fields)
            messages += chunk("citation", agent, citation.cited_text, final=is_last, **fields)
    return messages


def fit_citation_fields(agent: str, citation: Citation, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a citation, as far as they leave room for the cited text.

    Titles are shortened first; then addresses are left out, because a part of an address leads nowhere.
    """
    needed = min(MIN_CITED_TEXT_BYTES, len(encode_json_lossy(citation.cited_text)))
    if available_payload_bytes("citation", agent, fields) >= needed:
        return fields

    for key in TITLE_FIELDS & fields.keys():
        fields[key] = shorten_title(fields[key])
    if available_payload_bytes("citation", agent, fields) >= needed:
        return fields
    return {key: value for key, value in fields.items() if key not in ADDRESS_FIELDS}


def shorten_title(text: str) -> str:
    """Return a title of at most `MAX_TITLE_BYTES` of JSON, with an ellipsis if it was cut."""
    if len(msgspec.json.encode(text)) <= MAX_TITLE_BYTES:
        return text
    size = MAX_TITLE_BYTES
    while len(msgspec.json.encode(text[:size] + "…")) > MAX_TITLE_BYTES:
        size -= 8
    return text[:size] + "…"
