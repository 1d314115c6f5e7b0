"""What the dialects share: options, small words, and what an agent said that can be retracted.

A dialect converts the events of one session in order. `convert` gives the messages of one event and never
fails on what the log has taken. `close` ends a response: it closes what the format opens and closes in pairs
(tags, provider messages), then says `[DONE]`; nothing is converted after it. In `blocks` every message stands
by itself, so a block that goes on elsewhere is left open, which readers can see.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from turnlog.events import Envelope, Payload, ToolCall, ToolResult, UnknownPayload, Usage
from turnlog.state.content_parts import result_text
from turnlog.state.history import Message

HistoryLookup = Callable[[str], list[Message]]  # an agent's messages as of the event at hand

DONE = b"[DONE]"
STREAMED_KINDS = ("text", "thinking")


class BlocksOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader may ask for beside the content."""

    stream_meta_history_and_tool_results: bool = False
    stream_tool_results: bool = True


DEFAULT_OPTIONS = BlocksOptions()


class Dialect(Protocol):
    """One projection of a session's log."""

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """The messages of one event."""
        ...

    def close(self) -> list[bytes]:
        """What ends a response."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing is open: the state is empty between turns."""
        ...


class RetractableBlocks:
    """What an agent said that can still be retracted, in order; what has no id is only counted."""

    def __init__(self) -> None:
        self._count = 0
        self._positions: dict[str, int] = {}  # in rising order

    def add(self, block_id: str | None) -> None:
        """One more block."""
        if block_id is not None:
            self._positions.setdefault(block_id, self._count)
        self._count += 1

    def retract(self, block_ids: tuple[str, ...]) -> int:
        """Forget everything from the first void block on; how much that was."""
        first = min(
            (self._positions[key] for key in block_ids if key in self._positions), default=self._count
        )
        count, self._count = self._count - first, first
        while self._positions:
            key, place = self._positions.popitem()
            if place < first:
                self._positions[key] = place
                break
        return count


def no_history(agent_id: str) -> list[Message]:
    """The conversation of whoever was not asked for it."""
    return []


def strip_agent_prefix(agent_id: str) -> str:
    """An agent id as these dialects write it."""
    return agent_id.removeprefix("agt_")


def to_json_text(value: object) -> str:
    """A value as JSON text."""
    return msgspec.json.encode(value).decode()


def call_kind(payload: ToolCall) -> str:
    """Whose call it is: the provider runs its own tools."""
    return "server_tool_call" if payload.executor == "provider" else "tool_call"


def call_args(payload: ToolCall) -> Any:
    """The arguments; what never became JSON is a text."""
    return payload.args if payload.incomplete is None else payload.incomplete


def result_text_with_images(payload: ToolResult) -> str:
    """The result of a call, or what went wrong, in one text after the addresses of its images."""
    text = payload.error.message if payload.error and not payload.ok else result_text(payload)
    return "\n".join([*(image.src for image in payload.images), text])


def usage_json(usage: Usage | None) -> dict[str, int]:
    """Tokens under the provider's names."""
    return {
        "input_tokens": usage.input_tokens if usage else 0,
        "output_tokens": usage.output_tokens if usage else 0,
        "cache_creation_input_tokens": usage.cache_creation_tokens if usage else 0,
        "cache_read_input_tokens": usage.cache_read_tokens if usage else 0,
    }
