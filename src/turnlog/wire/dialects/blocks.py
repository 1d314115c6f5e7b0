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
    Unknown,
)
from turnlog.state.history import result_text
from turnlog.wire.chunks import chunk, escape, room
from turnlog.wire.dialects.base import (
    DEFAULT,
    DONE,
    STREAMED,
    BlocksOptions,
    Conversation,
    Shown,
    bare,
    call_args,
    call_kind,
    compact,
    untold,
)
from turnlog.wire.dialects.blocks_meta import Meta, awaited_calls, error_meta, files_meta

Key = tuple[str, str]  # an agent and one of its blocks

LABEL_BYTES = 200  # of a title that leaves too little room for the cited text; it is whole in the log
CITED_BYTES = 256  # that every message of a citation has room for; less would make many messages


@dataclass(slots=True)
class Streamed:
    """A text or thinking between its start and its durable twin."""

    kind: str
    held: bool = False  # told at its end: another one was open when it began
    told: bool = False
    ended: bool = False


class Blocks:
    """One projection of a session's log. `history` gives an agent's conversation as of the event at hand."""

    def __init__(self, options: BlocksOptions = DEFAULT, history: Conversation = untold) -> None:
        self._options = options
        self._meta = Meta(options, history)
        self._blocks: dict[Key, Streamed] = {}
        self._shown: dict[str, Shown] = {}  # by agent

    def convert(self, envelope: Envelope, payload: Payload | Unknown) -> list[bytes]:
        """The messages of one event."""
        convert = CONVERT.get(type(payload))
        return convert(self, bare(envelope.agent_id or ""), payload) if convert else []

    def close(self) -> list[bytes]:
        """What ends a response; a block that goes on elsewhere is not called final."""
        return [DONE]

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        return not (self._blocks or self._shown)

    def _agent_start(self, agent: str, payload: AgentStart) -> list[bytes]:
        return chunk("meta_init", agent, compact(self._meta.init(agent, payload, "json")))

    def _agent_end(self, agent: str, payload: AgentEnd) -> list[bytes]:
        messages = self._forget(agent)
        meta = self._meta.final(agent, payload)
        return messages if meta is None else messages + chunk("meta_final", agent, compact(meta))

    def _forget(self, agent: str) -> list[bytes]:
        """An agent is gone: what it left open is ended, and nothing of it is kept."""
        self._shown.pop(agent, None)
        left = [self._blocks.pop(key) for key in list(self._blocks) if key[0] == agent]
        return [message for block in left for message in self._end(agent, block)]

    def _end(self, agent: str, block: Streamed) -> list[bytes]:
        """The final message of a block, unless it was said or there was no word before it."""
        return chunk(block.kind, agent, "") if block.told and not block.ended else []

    def _show(self, agent: str, block_id: str | None) -> None:
        """Remember what may be retracted; what no agent said never is, and nobody would end it."""
        if agent:
            self._shown.setdefault(agent, Shown()).add(block_id)

    def _block_start(self, agent: str, payload: BlockStart) -> list[bytes]:
        if payload.kind in STREAMED:
            mine = (block for key, block in self._blocks.items() if key[0] == agent)
            held = any(block.kind == payload.kind and not block.ended for block in mine)
            self._blocks[agent, payload.block_id] = Streamed(payload.kind, held)
        return []

    def _block_delta(self, agent: str, payload: BlockDelta) -> list[bytes]:
        block = self._blocks.get((agent, payload.block_id))
        if block is None or block.held or not payload.text:
            return []
        if not block.told:
            block.told = True
            self._show(agent, payload.block_id)
        return chunk(block.kind, agent, payload.text, final=False)

    def _block_end(self, agent: str, payload: BlockEnd) -> list[bytes]:
        """A complete block waits for its twin, an aborted one has none."""
        key = (agent, payload.block_id)
        block = self._blocks.get(key)
        if block is None:
            return []
        messages = self._end(agent, block)
        block.ended = True
        if payload.status == "aborted":
            del self._blocks[key]
            if not block.told:
                return self._say(block.kind, agent, payload.block_id, payload.text or "")
        return messages

    def _message(self, agent: str, payload: AssistantMessage) -> list[bytes]:
        """A text and its sources; without a word they would be taken for those of the text before."""
        said = self._twin("text", agent, payload)
        return said + citations(agent, payload.citations) if payload.text else said

    def _thinking(self, agent: str, payload: AssistantThinking) -> list[bytes]:
        return self._twin("thinking", agent, payload)

    def _twin(self, kind: str, agent: str, payload: AssistantMessage | AssistantThinking) -> list[bytes]:
        """A text that was not streamed: its deltas are gone, or it never had a block."""
        block = self._blocks.pop((agent, payload.block_id or ""), None)
        if block and block.told:
            return self._end(agent, block)
        return self._say(kind, agent, payload.block_id, payload.text)

    def _say(self, kind: str, agent: str, block_id: str | None, text: str) -> list[bytes]:
        """A block told at once; one without a word is not told."""
        if not text:
            return []
        self._show(agent, block_id)
        return chunk(kind, agent, text, final=False) + chunk(kind, agent, "")

    def _retract(self, agent: str, payload: BlockRetract) -> list[bytes]:
        """End what is open, then say how many of the agent's last blocks are void."""
        keys = [(agent, block_id) for block_id in payload.block_ids]
        open_ = [self._blocks.pop(key) for key in keys if key in self._blocks]
        messages = [message for block in open_ for message in self._end(agent, block)]
        count = self._shown.get(agent, Shown()).retract(payload.block_ids)
        return messages + (chunk("rollback", agent, compact({"blocks": count})) if count else [])

    def _tool_call(self, agent: str, payload: ToolCall) -> list[bytes]:
        self._show(agent, payload.block_id)
        args = compact(call_args(payload))
        return chunk(call_kind(payload), agent, args, id=payload.call_id, name=payload.tool)

    def _tool_result(self, agent: str, payload: ToolResult) -> list[bytes]:
        if payload.kind is not None:
            if not self._options.stream_tool_results:
                return []
            self._show(agent, None)
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
        return chunk("awaiting_frontend_tools", agent, compact(awaited_calls(payload)))

    def _files(self, agent: str, payload: AssistantFiles) -> list[bytes]:
        return chunk("meta_files", agent, compact(files_meta(payload)))

    def _session_error(self, agent: str, payload: SessionError) -> list[bytes]:
        return chunk("error", agent, compact(error_meta(payload)))


CONVERT: dict[type, Callable[[Blocks, str, Any], list[bytes]]] = {
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


def citations(agent: str, items: tuple[Citation, ...]) -> list[bytes]:
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
    needed = min(CITED_BYTES, len(escape(item.cited_text)))
    if room("citation", agent, fields) >= needed:
        return fields

    titles = {key: shorten(value) for key, value in fields.items() if key in TITLES}
    fields |= titles
    if room("citation", agent, fields) >= needed:
        return fields
    return {key: value for key, value in fields.items() if key not in ADDRESSES}


CITATION_FIELDS = frozenset(Citation.__struct_fields__) - {"type", "cited_text", "encrypted_index"}
TITLES = frozenset({"title", "document_title"})
ADDRESSES = frozenset({"url", "source"})  # of a page, and of a search result


def shorten(text: str) -> str:
    """A label that fits beside a text, with a sign that it was cut."""
    if len(msgspec.json.encode(text)) <= LABEL_BYTES:
        return text
    cuts = (text[:size] + "…" for size in range(LABEL_BYTES, 0, -8))
    return next((cut for cut in cuts if len(msgspec.json.encode(cut)) <= LABEL_BYTES), "…")
