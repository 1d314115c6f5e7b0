"""One reply of a model as events, whatever the model. Pure: ids come in.

Every method returns a batch: events for one append. Prose streams without its tags, thinking and arguments
stream as they come; a block's end, its durable twin and what was found in it are one batch. Calls that this
side has to run, and every block that ends after one, wait for `done`: tools start when the message is
complete, so a reply that breaks off has nothing to take back. `done` or `abort` comes last, and closes what
is open. Limits: those of `blocks`; each block costs 64 of the characters, so their number is bounded too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from turnlog.errors import BadInput
from turnlog.events import (
    AssistantFiles,
    Citation,
    Fault,
    File,
    Payload,
    ToolCall,
    ToolResult,
    Usage,
    Vocabulary,
)
from turnlog.events.agent import StopReason
from turnlog.events.payload import Record
from turnlog.events.tool import Executor, contradiction
from turnlog.parse.blocks import (
    Block,
    CallBlock,
    Draft,
    OtherBlock,
    TextBlock,
    TextParser,
    ThinkingBlock,
    Whole,
)
from turnlog.parse.inline.markers import TagsAndMarkers
from turnlog.parse.inline.tags import AgentStreamParser
from turnlog.parse.json_values import as_key, as_name, plain, refused, valid

Stop = StopReason | Literal["tool_use", "pause_turn"]  # why a message ended; the last two: its agent goes on
Tags = Callable[[], TextParser]
B = TypeVar("B", bound=Block)
R = TypeVar("R", bound=Record)

NO_VOCABULARY = Vocabulary("none", [])  # an application without events: every tag is refused, none vanishes
BLOCK_CHARS = 64  # what a block or a citation costs beside its content


def tags_of(vocabulary: Vocabulary | None) -> Tags:
    """A parser of tags for each text of an application."""
    return partial(AgentStreamParser, vocabulary or NO_VOCABULARY)


def tags_and_markers_of(vocabulary: Vocabulary | None) -> Tags:
    """A parser of tags and of a team's markers for each text of an application."""
    return partial(TagsAndMarkers, vocabulary or NO_VOCABULARY)


def backend(tool: str) -> Executor:
    """Every tool runs here."""
    return "backend"


def is_call(tool: str, call_id: str | None) -> bool:
    """Whether an event can carry the names of a call."""
    return as_name(tool) is not None and (call_id is None or as_key(call_id) is not None)


def plain_object(data: Any) -> dict[str, Any] | None:
    """Return an object as the log can hold it, lone surrogates replaced; None if it cannot."""
    try:
        value = plain(data)
    except BadInput:
        return None
    return value if isinstance(value, dict) else None


def valid_record(record: R) -> R | None:
    """Return a record as the log can hold it, lone surrogates replaced; None if it cannot."""
    found: R | None = valid(plain_object(msgspec.to_builtins(record)), type(record))
    return found


def made(files: tuple[File, ...]) -> list[Payload]:
    """The event that names files, if there are any."""
    return [AssistantFiles(files=files)] if files else []


class Reply:
    """A reply while it is made, and what is known of it afterwards."""

    def __init__(
        self,
        new_id: Callable[[Any], str],
        tags: Tags = tags_of(None),  # noqa: B008
        executor: Callable[[str], Executor] = backend,
    ) -> None:
        self._draft = Draft(new_id)
        self._tags, self._executor = tags, executor
        self._open: list[Block] = []
        self._held: list[Block] = []
        self._texts: list[TextBlock] = []
        self.model: str | None = None
        self.calls: list[ToolCall] = []
        self.usage = Usage(input_tokens=0, output_tokens=0)
        self.stop_reason: Stop | None = None
        self.complete = False
        self.error: Fault | None = None

    @property
    def message_id(self) -> str | None:
        """The provider's id of the message."""
        return self._draft.message_id

    @property
    def block_ids(self) -> tuple[str, ...]:
        """The blocks that were shown; a retry retracts them."""
        return tuple(self._draft.block_ids)

    @property
    def said(self) -> str:
        """The text, all blocks of it."""
        return "".join(block.text for block in self._texts)

    @property
    def calling(self) -> bool:
        """Whether calls wait for the end of the message."""
        return any(block.waits for block in self._held)

    def begin(self, model: str | None = None, message_id: str | None = None) -> list[Payload]:
        """What is known of the message before its first block."""
        self.model, self._draft.message_id = as_name(model), as_key(message_id)
        return []

    def text(self, piece: str) -> list[Payload]:
        """A piece of text; it goes on with the text that is open."""
        block = self._last(TextBlock)
        return block.feed(piece) if block else self._new(self.open_text, piece, lambda new: new.feed(piece))

    def cite(self, citation: Citation) -> list[Payload]:
        """A source of the open text."""
        block = self._last(TextBlock)
        if block is None:
            return [refused("citation_without_text", citation)]
        mended = valid_record(citation)
        return self.cited(block, mended) if mended else [refused("bad_citation", citation)]

    def think(self, piece: str) -> list[Payload]:
        """A piece of thinking."""
        block = self._last(ThinkingBlock)
        return (
            block.feed(piece) if block else self._new(self.open_thinking, piece, lambda new: new.feed(piece))
        )

    def sign(self, signature: str) -> list[Payload]:
        """The signature of the open thinking, or of one without a text."""
        block = self._last(ThinkingBlock)
        if block:
            return block.sign(signature)
        return self._new(self.open_thinking, signature, lambda new: new.sign(signature))

    def redacted(self, data: str) -> list[Payload]:
        """A thinking that only the provider can read."""
        return self._new(self.open_thinking, data, lambda new: [*new.redact(data), *self.close(new)])

    def start_call(self, tool: str, call_id: str | None = None) -> list[Payload]:
        """A call begins; its arguments follow in pieces."""
        if not is_call(tool, call_id):
            return [*self.end(), refused("bad_call", [tool, call_id], tool)]
        return self._new(partial(self.open_call, tool, call_id), tool, CallBlock.start)

    def arguments(self, piece: str) -> list[Payload]:
        """A piece of the open call's arguments, which are one JSON object."""
        block = self._last(CallBlock)
        return block.feed(piece) if block else [refused("arguments_without_call", piece)]

    def call(self, tool: str, args: dict[str, Any], call_id: str | None = None) -> list[Payload]:
        """A whole call at once."""
        given = plain_object(args)
        if given is None or not is_call(tool, call_id):
            return [*self.end(), refused("bad_call", [tool, args], tool)]
        opened = partial(self.open_call, tool, call_id, args=given)
        return self._new(opened, [tool, args], lambda new: [*new.start(), *self.close(new)])

    def other(self, kind: str, data: dict[str, Any]) -> list[Payload]:
        """A whole block of another kind."""
        given = plain_object(data)
        if given is None or as_name(kind) is None:
            return [*self.end(), refused("bad_block", data, kind)]
        opened = partial(self.open_other, kind, given)
        return self._new(opened, data, lambda new: [*new.start(), *self.close(new)])

    def result(self, result: ToolResult, files: tuple[File, ...] = ()) -> list[Payload]:
        """What a tool of the provider answered."""
        mended = valid_record(result)
        if mended is None or contradiction(mended):
            return [*self.end(), refused("bad_result", result, result.tool)]
        return self._new(partial(self.open_result, mended, files), result, self.close)

    def end(self) -> list[Payload]:
        """The open block is complete."""
        return [payload for block in tuple(self._open) for payload in self.close(block)]

    def done(self, stop_reason: Stop, usage: Usage | None = None) -> list[Payload]:
        """The message is complete. Calls of one that was refused are void."""
        batch = self.end()
        void = stop_reason == "refusal"
        for block in self._release():
            batch += block.abort() if void and block.waits else block.end()
        self.calls = [
            payload for payload in batch if isinstance(payload, ToolCall) and payload.executor != "provider"
        ]
        self.usage = usage or self.usage
        self.stop_reason, self.complete = stop_reason, True
        return batch

    def release(self) -> list[Payload]:
        """What waits for the end of the message, now: its source has begun to run the calls."""
        return [payload for block in self._release() for payload in block.end()]

    def abort(self, error: Fault | None = None) -> list[Payload]:
        """The message will not be completed: what is open is closed with what there was, calls are void."""
        batch: list[Payload] = []
        for block in self._release():
            batch += block.abort() if block.waits else block.end()
        for block in self._open:
            batch += block.abort()
        self._open = []
        self.error = error or self.error
        return batch

    def open_text(self) -> TextBlock | None:
        """A text, for a source that names its blocks; None if there is no room for another block."""
        block = self._opened(TextBlock(self._draft, self._tags()))
        if block:
            self._texts.append(block)
        return block

    def open_thinking(self) -> ThinkingBlock | None:
        """A thinking."""
        return self._opened(ThinkingBlock(self._draft))

    def open_call(
        self,
        tool: str,
        call_id: str | None = None,
        executor: Executor | None = None,
        args: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> CallBlock | None:
        """A call; `args` count if no piece of them comes; who runs it is known or follows from the tool."""
        call = ToolCall(
            call_id=call_id or self._draft.new_id("call_"),
            tool=tool,
            args=args or {},
            executor=executor or self._executor(tool),
            message_id=self.message_id,
            extra=extra,
        )
        return self._opened(CallBlock(self._draft, call), call)

    def open_other(self, kind: str, data: dict[str, Any], files: tuple[File, ...] = ()) -> OtherBlock | None:
        """A block of another kind, and the files it names."""
        return self._opened(OtherBlock(self._draft, kind, data, made(files)), data)

    def open_result(self, result: ToolResult, files: tuple[File, ...] = ()) -> Whole | None:
        """What a tool of the provider answered, and the files it made."""
        return self._opened(Whole([result, *made(files)]), result)

    def cited(self, block: TextBlock, citation: Citation) -> list[Payload]:
        """A source of a text."""
        if not self._draft.afford(BLOCK_CHARS, citation):
            return [refused("too_long", citation, citation.type)]
        block.cite(citation)
        return []

    def close(self, block: Block) -> list[Payload]:
        """A block is complete; its end is said now, or with the end of the message."""
        self._open.remove(block)
        return self._settle(block)

    def drop(self, block: Block) -> list[Payload]:
        """A block will not be completed, although the message goes on."""
        self._open.remove(block)
        return block.abort()

    def _settle(self, block: Block) -> list[Payload]:
        if not self._held and not block.waits:
            return block.end()
        self._held.append(block)
        return []

    def _release(self) -> list[Block]:
        held, self._held = self._held, []
        return held

    def _last(self, kind: type[B]) -> B | None:
        """The block that is open, if it is of this kind."""
        block = self._open[-1] if self._open else None
        return block if isinstance(block, kind) else None

    def _new(
        self, opened: Callable[[], B | None], thing: object, go: Callable[[B], list[Payload]]
    ) -> list[Payload]:
        """End what is open and go on with a new block, if there is room for one."""
        batch, block = self.end(), opened()
        return [*batch, *(go(block) if block else [refused("too_long", thing)])]

    def _opened(self, block: B, whole: object = None) -> B | None:
        if not self._draft.afford(BLOCK_CHARS, whole):
            return None
        if not isinstance(block, TextBlock):
            self._draft.white = None
        self._open.append(block)
        return block
