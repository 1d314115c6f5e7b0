"""Helpers that several dialects share: JSON text, and fields of payloads as these formats write them."""

from typing import Any

import msgspec

from turnlog.events import CORE, AwaitedCall, Envelope, Payload, ToolCall, ToolResult, UnknownPayload, Usage
from turnlog.state.content_parts import result_text
from turnlog.wire.chunks import chunk

# An unknown type of these families may come from a newer version of the package.
CORE_FAMILIES = frozenset(event_type.name.partition(".")[0] for event_type in CORE)


def to_json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def chunk_json(type: str, agent: str, value: object) -> list[bytes]:
    return chunk(type, agent, to_json_text(value))


def call_kind(payload: ToolCall) -> str:
    return "server_tool_call" if payload.executor == "provider" else "tool_call"


def call_args(payload: ToolCall) -> Any:
    """Return the arguments; a text if the model's output never became complete JSON."""
    return payload.args if payload.incomplete is None else payload.incomplete


def result_text_with_images(payload: ToolResult) -> str:
    text = payload.error.message if payload.error and not payload.ok else result_text(payload)
    return "\n".join([*(image.src for image in payload.images), text])


def usage_json(usage: Usage | None) -> dict[str, int]:
    """Return the tokens under the provider's names; zeros if the usage is unknown."""
    usage = usage or Usage(input_tokens=0, output_tokens=0)
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
    }


def is_foreign_event(envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
    if envelope.type in CORE.types:
        return False
    is_newer = isinstance(payload, UnknownPayload) and envelope.type.partition(".")[0] in CORE_FAMILIES
    return not is_newer


def question_text(call: AwaitedCall) -> str:
    """Return the question to the person; the arguments as JSON if the call has none."""
    question = call.args.get("question")
    return question if isinstance(question, str) else to_json_text(call.args)
