"""Content parts of the Messages API, built from payloads.

Two tables map payload classes to parts. `PROVIDER_PARTS` builds what a provider accepts back in a
conversation. `DISPLAY_PARTS` builds what people read: documents and the dialect `office`. A builder returns
None if the payload has no part. Images in results carry their address; only an adapter resolves it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.events import AssistantBlock, AssistantMessage, AssistantThinking, ToolCall, ToolResult
from turnlog.events.content import PromptPart

ContentPart = dict[str, Any]
PartBuilder = Callable[[Any], ContentPart | None]

REPORTED_CONTENT = "content"  # in the details of an error: what the page or the provider reported
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
TYPED_KINDS = THINKING_TYPES | {"text", "tool_use", "server_tool_use", "mcp_tool_use"}  # have their own event


def text_part(text: str) -> ContentPart:
    return {"type": "text", "text": text}


def prompt_parts(content: tuple[PromptPart, ...], text: str) -> list[ContentPart]:
    """Return the parts of a prompt: its content, or its text if it is no more than that."""
    return [msgspec.to_builtins(part) for part in content] or [text_part(text)]


def redacted_thinking_part(data: str) -> ContentPart:
    return {"type": "redacted_thinking", "data": data}


def tool_use_part(kind: str, payload: ToolCall) -> ContentPart:
    return {"type": kind, "id": payload.call_id, "name": payload.tool, "input": payload.args}


def message_part(payload: AssistantMessage) -> ContentPart:
    part = text_part(payload.text)
    if payload.citations:
        part["citations"] = [msgspec.to_builtins(citation) for citation in payload.citations]
    return part


def thinking_part(payload: AssistantThinking) -> ContentPart | None:
    if payload.redacted is not None:
        return redacted_thinking_part(payload.redacted)
    # Providers refuse a thinking without a signature.
    if payload.signature is None:
        return None
    return {"type": "thinking", "thinking": payload.text, "signature": payload.signature}


def call_part(payload: ToolCall) -> ContentPart:
    kind = "server_tool_use" if payload.executor == "provider" else "tool_use"
    return tool_use_part(kind, payload) | (payload.extra or {})


def block_part(payload: AssistantBlock) -> ContentPart:
    return {"type": payload.kind, **payload.data}


def provider_block_part(payload: AssistantBlock) -> ContentPart | None:
    """Return a block of another kind; None for kinds with an event of their own, which lacked a field."""
    part = block_part(payload)
    kind = part["type"]
    if not isinstance(kind, str) or kind in TYPED_KINDS or kind.endswith("_tool_result"):
        return None
    return part


def provider_result_part(payload: ToolResult) -> ContentPart:
    content = payload.result if payload.ok else provider_error_content(payload)
    part = {"type": payload.kind, "tool_use_id": payload.call_id, "content": content}
    return part | (payload.extra or {})


def provider_error_content(payload: ToolResult) -> Any:
    error = payload.error
    if error is not None and error.details and REPORTED_CONTENT in error.details:
        return error.details[REPORTED_CONTENT]
    # Without the provider's own content only the code is known, in an older log not even that.
    code = error.code if error is not None else "unavailable"
    return {"type": f"{payload.kind}_error", "error_code": code}


def result_part(payload: ToolResult, agent_id: str | None = None) -> ContentPart:
    """Return a tool result for the model. `agent_id` names the agent that gave it, so it can be resumed."""
    text = result_text(payload)
    content: str | list[ContentPart] = text
    if payload.images:
        texts = [text_part(text)] if text.strip() else []
        images = [{"type": "image", **msgspec.to_builtins(image)} for image in payload.images]
        content = [*texts, *images]

    part: ContentPart = {
        "type": "tool_result",
        "tool_use_id": payload.call_id,
        "content": content,
        "is_error": not payload.ok,
    }
    if agent_id:
        part["agent_id"] = agent_id
    return part


def result_text(payload: ToolResult) -> str:
    """Return the content of a result, or of its error, as one text. Values other than text become JSON."""
    value = result_content(payload)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def result_content(payload: ToolResult) -> Any:
    """Return what was reported for a call: by the tool, the page or the provider; else our own error."""
    if payload.ok:
        # A tool that returned only images has no text, and a result of the provider may have no content.
        has_no_text = payload.result is None and bool(payload.images or payload.kind)
        return "" if has_no_text else payload.result
    if payload.kind is not None:
        return provider_error_content(payload)
    details = payload.error.details if payload.error is not None else None
    if details and details.keys() == {REPORTED_CONTENT}:
        return details[REPORTED_CONTENT]
    return payload.error


def display_text_part(payload: AssistantMessage) -> ContentPart | None:
    return text_part(payload.text) if payload.text.strip() else None


def display_thinking_part(payload: AssistantThinking) -> ContentPart | None:
    return {"type": "thinking", "thinking": payload.text} if payload.text.strip() else None


def display_call_part(payload: ToolCall) -> ContentPart:
    return tool_use_part("tool_use", payload)


PROVIDER_PARTS: dict[type, PartBuilder] = {
    AssistantMessage: message_part,
    AssistantThinking: thinking_part,
    AssistantBlock: provider_block_part,
    ToolCall: call_part,
}
DISPLAY_PARTS: dict[type, PartBuilder] = {
    AssistantMessage: display_text_part,
    AssistantThinking: display_thinking_part,
    ToolCall: display_call_part,
}
