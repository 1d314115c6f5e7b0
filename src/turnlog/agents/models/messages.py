"""Convert a `Request` to the body of Anthropic's Messages API.

Parts have the API's form already (`state/history`); this module converts the differences. Images are read
from the log's blobs. Citations get exactly the fields that the API accepts. An image that cannot be sent
becomes a text, because a request that the API refuses once would be refused again in every later turn. A
conversation with calls declares their tools even if none may be called now: the API requires it.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from turnlog.agents.blob_urls import blob_name
from turnlog.agents.models.model import ReadBlob, Request, ToolSpec
from turnlog.errors import NotFound
from turnlog.state.content_parts import ContentPart
from turnlog.state.history import Message

Body = dict[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
TEXT_DOCUMENT_TYPE = "text/plain"
TEXT_TYPES = frozenset({TEXT_DOCUMENT_TYPE, "text/markdown", "text/csv", "application/json"})
WEB_PREFIXES = ("https://", "http://")
MAX_IMAGE_CHARS = 5 << 20  # the API's limit for one image, in base64
LOCATION_FIELDS = ("cited_text", "document_index", "document_title")
CITATION_FIELDS = {
    "char_location": (*LOCATION_FIELDS, "start_char_index", "end_char_index"),
    "page_location": (*LOCATION_FIELDS, "start_page_number", "end_page_number"),
    "content_block_location": (*LOCATION_FIELDS, "start_block_index", "end_block_index"),
    "web_search_result_location": ("cited_text", "url", "title", "encrypted_index"),
    "search_result_location": (
        *("cited_text", "source", "title"),
        *("search_result_index", "start_block_index", "end_block_index"),
    ),
}
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})


async def build_messages_body(request: Request, provider_tools: Iterable[Body] = ()) -> Body:
    messages: list[Body] = []
    for message in request.messages:
        content = [await to_api_part(part, request.read_blob) for part in message.content]
        messages.append({"role": message.role, "content": content})
    trim_end(messages)

    body: Body = {"messages": messages}
    if request.instructions.strip():
        body["system"] = request.instructions

    tools = [*map(tool_body, request.tools), *provider_tools]
    called_names = called_tool_names(request.messages)
    if not tools and called_names:
        schema = {"type": "object"}
        tools = [tool_body(ToolSpec(name, "Not available any more.", schema)) for name in called_names]
        body["tool_choice"] = {"type": "none"}
    if tools:
        body["tools"] = tools
    return body


def tool_body(spec: ToolSpec) -> Body:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.schema}


def called_tool_names(messages: Iterable[Message]) -> list[str]:
    parts = [part for message in messages for part in message.content]
    return list(dict.fromkeys(part["name"] for part in parts if part["type"] == "tool_use"))


def trim_end(messages: list[Body]) -> None:
    """Remove white space from the end of a last assistant text: the API refuses to continue it."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    content = messages[-1]["content"]
    if content[-1].get("type") == "text":
        content[-1] = content[-1] | {"text": content[-1]["text"].rstrip()}


def parts_since_user(messages: list[Message]) -> list[ContentPart]:
    """Return the assistant's parts since the last user message. Results of tools are no such message."""
    parts: list[ContentPart] = []
    for message in reversed(messages):
        if message.role == "assistant":
            parts = [*message.content, *parts]
        elif any(part["type"] != "tool_result" for part in message.content):
            break
    return parts


def may_think(messages: list[Message]) -> bool:
    """Return whether thinking can be enabled: the API refuses it in a turn that began without thinking."""
    parts = parts_since_user(messages)
    return not parts or parts[0]["type"] in THINKING_TYPES


async def to_api_part(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    converter = PART_CONVERTERS.get(part["type"])
    return await converter(part, read_blob) if converter else part


async def _convert_text(part: ContentPart, _: ReadBlob) -> ContentPart:
    if "citations" not in part:
        return part
    return part | {"citations": [to_api_citation(citation) for citation in part["citations"]]}


def to_api_citation(citation: ContentPart) -> ContentPart:
    fields = CITATION_FIELDS.get(citation["type"])
    if fields is None:
        return citation
    return {"type": citation["type"], **{name: citation.get(name) for name in fields}}


async def _convert_result(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    # the model resumes a called agent by its id, and the API has no field for it: it becomes a line of text
    fields = {name: value for name, value in part.items() if name != "agent_id"}
    id_line = f"[agent_id: {part['agent_id']}]" if "agent_id" in part else ""
    if isinstance(part["content"], str):
        lines = [text for text in (part["content"], id_line) if text]
        return fields | {"content": "\n".join(lines)}
    content = [await to_api_part(item, read_blob) for item in part["content"]]
    if id_line:
        content.append({"type": "text", "text": id_line})
    return fields | {"content": content}


async def _convert_image(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    source = await image_source(part["src"], part.get("media_type", ""), read_blob)
    if isinstance(source, str):
        return {"type": "text", "text": source}
    return {"type": "image", "source": source}


async def _convert_document(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    source = await document_source(part["src"], read_blob)
    if isinstance(source, str):
        return {"type": "text", "text": source}
    fields: ContentPart = {name: part[name] for name in ("title", "context") if name in part}
    return {"type": "document", "source": source, **fields}


async def document_source(src: str, read_blob: ReadBlob) -> Body | str:
    """Return the source of a document for the API, or a text that says why it cannot be sent."""
    if src.startswith(WEB_PREFIXES):
        return {"type": "url", "url": src}
    try:
        blob = await read_blob(blob_name(src) or src)
    except NotFound:
        return "[a document that is no longer kept]"
    return make_document_source(blob.media_type, blob.data)


def make_document_source(media_type: str, data: bytes) -> Body:
    if media_type in TEXT_TYPES:
        # The API knows plain text only.
        return {"type": "text", "media_type": TEXT_DOCUMENT_TYPE, "data": data.decode(errors="replace")}
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


async def image_source(src: str, media_type: str, read_blob: ReadBlob) -> Body | str:
    """Return the source of an image for the API, or a text that says why it cannot be sent."""
    if src.startswith(WEB_PREFIXES):
        return {"type": "url", "url": src}
    if src.startswith("data:"):
        head, _, data = src.partition(",")
        if not head.endswith(";base64"):
            return "[an image whose address cannot be read]"
        media_type = head.removeprefix("data:").partition(";")[0] or media_type
    else:
        try:
            blob = await read_blob(blob_name(src) or src)
        except NotFound:
            return "[an image that is no longer kept]"
        media_type = blob.media_type
        data = base64.b64encode(blob.data).decode()
    return make_image_source(media_type, data)


def make_image_source(media_type: str, data: str) -> Body | str:
    """Return the source of an image in base64, or a text that says why it cannot be sent."""
    if media_type not in IMAGE_TYPES:
        return f"[an image of type {media_type}, which cannot be shown]"
    if len(data) > MAX_IMAGE_CHARS:
        return "[an image that is too large to be shown]"
    return {"type": "base64", "media_type": media_type, "data": data}


PART_CONVERTERS: dict[str, Callable[[ContentPart, ReadBlob], Awaitable[ContentPart]]] = {
    "text": _convert_text,
    "tool_result": _convert_result,
    "image": _convert_image,
    "document": _convert_document,
}
