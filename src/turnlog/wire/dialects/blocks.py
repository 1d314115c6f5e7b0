"""The dialect `blocks`: typed JSON messages of at most 2048 bytes, each complete by itself.

`convert` takes one event and gives the messages it becomes. Text and thinking are streamed delta by delta
and closed by an empty final message; everything else is buffered and its last message is final. A block
whose deltas are gone is told from its durable twin, and so is one that begins before another of its agent
and kind has ended (protocol 5.3): their deltas would be taken for one text. The state is what is open or can
still be retracted, so it is empty between turns. Converting never fails: names, ids and addresses are bounded
by the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
from turnlog.wire.chunks import available_payload_bytes, chunk, encode_json_lossy
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

BlockKey = tuple[str, str]  # an agent and one of its blocks

MAX_TITLE_BYTES = 200  # of a title that leaves too little room for the cited text; it is whole in the log
MIN_CITED_TEXT_BYTES = 256  # that every message of a citation has room for; less would make many messages


@dataclass(slots=True)
class OpenBlock:
    """A text or thinking between its start and its durable twin."""

    kind: str
    is_deferred: bool = False  # told at its end: another one was open when it began
    has_started: bool = False
    has_ended: bool = False


class Blocks:
    """One projection of a session's log. `history` gives an agent's conversation as of the event at hand."""

    def __init__(self, options: BlocksOptions = DEFAULT_OPTIONS, history: HistoryLookup = no_history) -> None:
        self._options = options
        self._meta = AgentMetaBuilder(options, history)
        self._open_blocks: dict[BlockKey, OpenBlock] = {}
        self._retractable: dict[str, RetractableBlocks] = {}  # by agent

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event."""
        convert = CONVERTERS.get(type(payload))
        return convert(self, strip_agent_prefix(envelope.agent_id or ""), payload) if convert else []

    def close(self) -> list[bytes]:
        """What ends a response; a block that goes on elsewhere is not called final."""
        return [DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not (self._open_blocks or self._retractable)

    def _agent_start(self, agent: str, payload: AgentStart) -> list[bytes]:
        return chunk("meta_init", agent, to_json_text(self._meta.build_init(agent, payload, "json")))

    def _agent_end(self, agent: str, payload: AgentEnd) -> list[bytes]:
        messages = self._close_agent(agent)
        meta = self._meta.build_final(agent, payload)
        return messages if meta is None else messages + chunk("meta_final", agent, to_json_text(meta))

    def _close_agent(self, agent: str) -> list[bytes]:
        """An agent is gone: what it left open is ended, and nothing of it is kept."""
        self._retractable.pop(agent, None)
        left = [self._open_blocks.pop(key) for key in list(self._open_blocks) if key[0] == agent]
        return [message for block in left for message in self._end_block(agent, block)]

    def _end_block(self, agent: str, block: OpenBlock) -> list[bytes]:
        """The final message of a block, unless it was said or there was no word before it."""
        return chunk(block.kind, agent, "") if block.has_started and not block.has_ended else []

    def _record_retractable(self, agent: str, block_id: str | None) -> None:
        """Remember what may be retracted; what no agent said never is, and nobody would end it."""
        if agent:
            self._retractable.setdefault(agent, RetractableBlocks()).add(block_id)

    def _block_start(self, agent: str, payload: BlockStart) -> list[bytes]:
        if payload.kind in STREAMED_KINDS:
            mine = (block for key, block in self._open_blocks.items() if key[0] == agent)
            held = any(block.kind == payload.kind and not block.has_ended for block in mine)
            self._open_blocks[agent, payload.block_id] = OpenBlock(payload.kind, held)
        return []

    def _block_delta(self, agent: str, payload: BlockDelta) -> list[bytes]:
        block = self._open_blocks.get((agent, payload.block_id))
        if block is None or block.is_deferred or not payload.text:
            return []
        if not block.has_started:
            block.has_started = True
            self._record_retractable(agent, payload.block_id)
        return chunk(block.kind, agent, payload.text, final=False)

    def _block_end(self, agent: str, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        key = (agent, payload.block_id)
        block = self._open_blocks.get(key)
        if block is None:
            return []
        messages = self._end_block(agent, block)
        block.has_ended = True
        if payload.status == "aborted":
            del self._open_blocks[key]
            if not block.has_started:
                return self._whole_block(block.kind, agent, payload.block_id, payload.text or "")
        return messages

    def _message(self, agent: str, payload: AssistantMessage) -> list[bytes]:
        """A text and its sources; without a word they would be taken for those of the text before."""
        said = self._final_block("text", agent, payload)
        return said + encode_citations(agent, payload.citations) if payload.text else said

    def _thinking(self, agent: str, payload: AssistantThinking) -> list[bytes]:
        return self._final_block("thinking", agent, payload)

    def _final_block(
        self, kind: str, agent: str, payload: AssistantMessage | AssistantThinking
    ) -> list[bytes]:
        """A text that was not streamed: its deltas are gone, or it never had a block."""
        block = self._open_blocks.pop((agent, payload.block_id or ""), None)
        if block and block.has_started:
            return self._end_block(agent, block)
        return self._whole_block(kind, agent, payload.block_id, payload.text)

    def _whole_block(self, kind: str, agent: str, block_id: str | None, text: str) -> list[bytes]:
        """A block told at once; one without a word is not told."""
        if not text:
            return []
        self._record_retractable(agent, block_id)
        return chunk(kind, agent, text, final=False) + chunk(kind, agent, "")

    def _retract(self, agent: str, payload: BlockRetract) -> list[bytes]:
        """End what is open, then say how many of the agent's last blocks are void."""
        keys = [(agent, block_id) for block_id in payload.block_ids]
        open_ = [self._open_blocks.pop(key) for key in keys if key in self._open_blocks]
        messages = [message for block in open_ for message in self._end_block(agent, block)]
        count = self._retractable.get(agent, RetractableBlocks()).retract(payload.block_ids)
        return messages + (chunk("rollback", agent, to_json_text({"blocks": count})) if count else [])

    def _tool_call(self, agent: str, payload: ToolCall) -> list[bytes]:
        self._record_retractable(agent, payload.block_id)
        args = to_json_text(call_args(payload))
        return chunk(call_kind(payload), agent, args, id=payload.call_id, name=payload.tool)

    def _tool_result(self, agent: str, payload: ToolResult) -> list[bytes]:
        if payload.kind is not None:
            if not self._options.stream_tool_results:
                return []
            self._record_retractable(agent, None)
            text = result_text(payload)
            return chunk("server_tool_result", agent, text, id=payload.call_id, name=payload.kind)
        names: dict[str, Any] = {"id": payload.call_id, "name": payload.tool}
        text = result_text(payload)
        if not payload.images:
            return chunk("tool_result", agent, text, final=True, **names)
        messages = chunk("tool_result", agent, text, final=False, **names)
        for image in payload.images:
            place = names | {"src": image.src, "media_type": image.media_type}
            messages += chunk("tool_result_image", agent, "", final=False, **place)
        return messages + chunk("tool_result", agent, "", final=True, **names)

    def _tool_await(self, agent: str, payload: ToolAwait) -> list[bytes]:
        return chunk("awaiting_frontend_tools", agent, to_json_text(awaited_calls(payload)))

    def _files(self, agent: str, payload: AssistantFiles) -> list[bytes]:
        return chunk("meta_files", agent, to_json_text(files_meta(payload)))

    def _session_error(self, agent: str, payload: SessionError) -> list[bytes]:
        return chunk("error", agent, to_json_text(error_meta(payload)))


CONVERTERS: dict[type, Callable[[Blocks, str, Any], list[bytes]]] = {
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


def encode_citations(agent: str, items: tuple[Citation, ...]) -> list[bytes]:
    """The sources of a text, after its final marker; `index` holds the chunks of one together."""
    messages: list[bytes] = []
    for index, item in enumerate(items):
        fields = citation_fields(agent, item, index)
        last = index == len(items) - 1
        messages += chunk("citation", agent, item.cited_text, final=last, **fields)
    return messages


def citation_fields(agent: str, item: Citation, index: int) -> dict[str, Any]:
    """Return the fields of a citation that are set, as far as they leave room for the cited text.

    Titles are shortened first; then the addresses go, for a part of an address leads nowhere.
    """
    fields: dict[str, Any] = {"citation_type": item.type, "index": index}
    fields |= {key: value for key, value in msgspec.to_builtins(item).items() if key in CITATION_FIELDS}
    needed = min(MIN_CITED_TEXT_BYTES, len(encode_json_lossy(item.cited_text)))
    if available_payload_bytes("citation", agent, fields) >= needed:
        return fields

    titles = {key: shorten_title(value) for key, value in fields.items() if key in TITLE_FIELDS}
    fields |= titles
    if available_payload_bytes("citation", agent, fields) >= needed:
        return fields
    return {key: value for key, value in fields.items() if key not in ADDRESS_FIELDS}


CITATION_FIELDS = frozenset(Citation.__struct_fields__) - {"type", "cited_text", "encrypted_index"}
TITLE_FIELDS = frozenset({"title", "document_title"})
ADDRESS_FIELDS = frozenset({"url", "source"})  # of a page, and of a search result


def shorten_title(text: str) -> str:
    """A label that fits beside a text, with a sign that it was cut."""
    if len(msgspec.json.encode(text)) <= MAX_TITLE_BYTES:
        return text
    cuts = (text[:size] + "…" for size in range(MAX_TITLE_BYTES, 0, -8))
    return next((cut for cut in cuts if len(msgspec.json.encode(cut)) <= MAX_TITLE_BYTES), "…")
