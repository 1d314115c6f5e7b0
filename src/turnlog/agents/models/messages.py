"""A request as the body of Anthropic's Messages API: a conversation in, JSON values out.

Parts have the API's form already (`state/history`); what differs is done here. Images are read from the log's
blobs, citations get the fields the API wants back and no other. An image that cannot be sent is said in
words: a request that is refused once is refused for ever. A conversation with calls names their tools even
if none may be called now, because the API insists.
"""

import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from turnlog.agents.models.model import ReadBlob, Request, ToolSpec
from turnlog.errors import NotFound
from turnlog.state.content_parts import ContentPart
from turnlog.state.history import Message

Body = dict[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
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
    """What a request says about its conversation: `system`, `messages`, `tools`."""
    messages = [
        {
            "role": message.role,
            "content": [await to_api_part(part, request.read_blob) for part in message.content],
        }
        for message in request.messages
    ]
    trim_end(messages)
    body: Body = {"messages": messages}
    if request.instructions.strip():
        body["system"] = request.instructions
    tools = [*map(tool_body, request.tools), *provider_tools]
    if not tools and (names := called_tool_names(request.messages)):
        tools = [tool_body(ToolSpec(name, "Not available any more.", {"type": "object"})) for name in names]
        body["tool_choice"] = {"type": "none"}
    return body | ({"tools": tools} if tools else {})


def tool_body(spec: ToolSpec) -> Body:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.schema}


def called_tool_names(messages: Iterable[Message]) -> list[str]:
    """The tools a conversation names, each once."""
    parts = [part for message in messages for part in message.content]
    return list(dict.fromkeys(part["name"] for part in parts if part["type"] == "tool_use"))


def trim_end(messages: list[Body]) -> None:
    """A model that goes on with its own words does not take white space at their end."""
    last = messages[-1]["content"][-1] if messages and messages[-1]["role"] == "assistant" else {}
    if last.get("type") == "text":
        messages[-1]["content"][-1] = last | {"text": last["text"].rstrip()}


def parts_since_user(messages: list[Message]) -> list[ContentPart]:
    """What the model said in the turn it goes on with; nothing if the user has spoken since."""
    said: list[ContentPart] = []
    for message in reversed(messages):
        if message.role == "assistant":
            said = [*message.content, *said]
        elif any(part["type"] != "tool_result" for part in message.content):
            break
    return said


def may_think(messages: list[Message]) -> bool:
    """Whether a model may think now: a turn that began without a thinking goes on without one."""
    said = parts_since_user(messages)
    return not said or said[0]["type"] in THINKING_TYPES


async def to_api_part(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    """A part as the API takes it."""
    send = PART_CONVERTERS.get(part["type"])
    return await send(part, read_blob) if send else part


async def _convert_text(part: ContentPart, _: ReadBlob) -> ContentPart:
    if "citations" not in part:
        return part
    return part | {"citations": [to_api_citation(citation) for citation in part["citations"]]}


def to_api_citation(citation: ContentPart) -> ContentPart:
    """A source with every field the API wants, null included, and none that it only gives."""
    fields = CITATION_FIELDS.get(citation["type"])
    if fields is None:
        return citation
    return {"type": citation["type"], **{name: citation.get(name) for name in fields}}


async def _convert_result(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    """A result; which agent gave it, if one did, is a line of its own."""
    fields = {name: value for name, value in part.items() if name != "agent_id"}
    line = f"[agent_id: {part['agent_id']}]" if "agent_id" in part else ""
    if isinstance(part["content"], str):
        return fields | {"content": "\n".join(filter(None, [part["content"], line]))}
    named = [{"type": "text", "text": line}] if line else []
    return fields | {"content": [*[await to_api_part(item, read_blob) for item in part["content"]], *named]}


async def _convert_image(part: ContentPart, read_blob: ReadBlob) -> ContentPart:
    source = await image_source(part["src"], part["media_type"], read_blob)
    return (
        {"type": "text", "text": source} if isinstance(source, str) else {"type": "image", "source": source}
    )


async def image_source(src: str, media_type: str, read_blob: ReadBlob) -> Body | str:
    """Where the API finds an image; a text that says why it does not get one."""
    if src.startswith(("https://", "http://")):
        return {"type": "url", "url": src}
    if src.startswith("data:"):
        head, _, data = src.partition(",")
        if not head.endswith(";base64"):
            return "[an image whose address cannot be read]"
        media_type = head.removeprefix("data:").partition(";")[0] or media_type
    else:
        try:
            found = await read_blob(src.removeprefix("/").removeprefix("api/blobs/"))
        except NotFound:
            return "[an image that is no longer kept]"
        media_type, data = found.media_type, base64.b64encode(found.data).decode()
    if media_type not in IMAGE_TYPES:
        return f"[an image of type {media_type}, which cannot be shown]"
    if len(data) > MAX_IMAGE_CHARS:
        return "[an image that is too large to be shown]"
    return {"type": "base64", "media_type": media_type, "data": data}


PART_CONVERTERS: dict[str, Callable[[ContentPart, ReadBlob], Awaitable[ContentPart]]] = {
    "text": _convert_text,
    "tool_result": _convert_result,
    "image": _convert_image,
}
