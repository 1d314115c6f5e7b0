"""Parts of the UI message stream: how fields of our events are written in them."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from turnlog.events import AgentEnd, Citation, ToolResult, Usage
from turnlog.state.content_parts import result_text

Part = dict[str, Any]

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_steps": "length",
    "context_window": "length",
    "refusal": "content-filter",
}


def part(type: str, **fields: Any) -> Part:
    """Return a part without the fields that are None."""
    return {"type": type, **{name: value for name, value in fields.items() if value is not None}}


def message_id_of(source_id: str) -> str:
    """Return the id of the assistant's message in a turn, or after a person's message within a turn."""
    return "msg_" + sha256(source_id.encode()).hexdigest()[:24]


def citation_part(citation: Citation, source_id: str) -> Part:
    title = citation.title or citation.document_title
    if citation.url is not None:
        return part("source-url", sourceId=source_id, url=citation.url, title=title)
    return part("source-document", sourceId=source_id, mediaType="text/plain", title=title or citation.type)


def result_parts(payload: ToolResult, *, has_denial: bool) -> list[Part]:
    """Return the parts of a result. A client without approvals does not know that a call was denied."""
    call_id = payload.call_id
    if not payload.ok:
        code = payload.error.code if payload.error is not None else ""
        if code == "DENIED" and has_denial:
            return [part("tool-output-denied", toolCallId=call_id)]
        message = payload.error.message if payload.error is not None else result_text(payload)
        return [part("tool-output-error", toolCallId=call_id, errorText=message, dynamic=True)]

    output = payload.result
    if payload.images:
        images = [{"url": image.src, "mediaType": image.media_type} for image in payload.images]
        output = {"result": payload.result, "images": images}
    return [{"type": "tool-output-available", "toolCallId": call_id, "output": output, "dynamic": True}]


def finish_reason(end: AgentEnd | None, *, is_waiting: bool) -> str:
    if is_waiting:
        return "tool-calls"
    return FINISH_REASONS.get(end.stop_reason, "other") if end is not None else "other"


def total_usage(usages: Iterable[Usage]) -> dict[str, int]:
    """Return the tokens of all models together; empty if there are none."""
    total: Usage | None = None
    for usage in usages:
        total = usage if total is None else total + usage
    if total is None:
        return {}
    # The SDK counts cached tokens as part of the input, and not beside it.
    input_tokens = total.input_tokens + total.cache_read_tokens + total.cache_creation_tokens
    return {
        "inputTokens": input_tokens,
        "outputTokens": total.output_tokens,
        "totalTokens": input_tokens + total.output_tokens,
        "cachedInputTokens": total.cache_read_tokens,
    }
