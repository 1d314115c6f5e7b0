"""The content blocks of a prompt: the Messages API's form in, parts of a message out (protocol 8.3).

`check_prompt` decodes and checks everything before anything is stored. `store_prompt` then writes binary
content to the blobs of the session. Limits: the body's, the message's in characters, and for each image and
document that of the API.
"""

import binascii
from base64 import b64decode
from typing import Any, NamedTuple

import msgspec

from turnlog.agents.blob_urls import blob_url
from turnlog.agents.models.messages import (
    IMAGE_TYPES,
    MAX_IMAGE_CHARS,
    TEXT_DOCUMENT_TYPE,
    WEB_PREFIXES,
)
from turnlog.errors import BadInput, quote
from turnlog.events.content import (
    Address,
    PromptDocument,
    PromptImage,
    PromptPart,
    PromptText,
    describe_prompt,
)
from turnlog.events.payload import Name
from turnlog.log import Log
from turnlog.server.request_body import MAX_MESSAGE_CHARS, check_message_text

MAX_PROMPT_BODY_BYTES = 8 << 20  # one image of the API's largest size, and more of the usual ones
MAX_BLOCKS = 100  # of one prompt; the API takes 100 images
BLOB_TO_STORE = "blob"  # the address of content until it is stored
DOCUMENT_TYPES = frozenset({"application/pdf", TEXT_DOCUMENT_TYPE})


class Base64Source(msgspec.Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, tag_field="type", tag="url"):
    """An address on the web. The Messages API has no `media_type` for it; clients of other protocols do."""

    url: Address
    media_type: Name | None = None


class TextSource(msgspec.Struct, tag_field="type", tag="text"):
    data: str
    media_type: str = TEXT_DOCUMENT_TYPE


class TextContentBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class ImageContentBlock(msgspec.Struct, tag_field="type", tag="image"):
    source: Base64Source | UrlSource


class DocumentContentBlock(msgspec.Struct, tag_field="type", tag="document"):
    source: Base64Source | UrlSource | TextSource
    title: str | None = None
    context: str | None = None


ContentBlock = TextContentBlock | ImageContentBlock | DocumentContentBlock
UserPrompt = str | list[ContentBlock] | dict[str, Any]


class CheckedBlock(NamedTuple):
    """A part of the prompt, and its bytes. Binary content has no address before it is stored."""

    part: PromptPart
    data: bytes | None = None


class CheckedPrompt(NamedTuple):
    """A prompt that can be stored. `blocks` is empty for one that is a text."""

    text: str
    blocks: list[CheckedBlock]


def check_prompt(prompt: UserPrompt, path: str) -> CheckedPrompt:
    """Return the text and the blocks of a prompt. Raise `BadInput` with the path of what is wrong.

    An object is one content block, or a message with `content`; any other object is a text of JSON.
    """
    if isinstance(prompt, str):
        return CheckedPrompt(check_message_text(prompt, path), [])
    if isinstance(prompt, list):
        return check_blocks(prompt, path)
    if "type" in prompt:
        return check_blocks(convert_blocks([prompt], path), path)
    if prompt.get("role") == "user" and isinstance(prompt.get("content"), str | list):
        path += ".content"
        content = prompt["content"]
        return check_prompt(content if isinstance(content, str) else convert_blocks(content, path), path)
    return CheckedPrompt(check_message_text(msgspec.json.encode(prompt).decode(), path), [])


def check_blocks(values: list[ContentBlock], path: str) -> CheckedPrompt:
    if len(values) > MAX_BLOCKS:
        raise BadInput(f"expected at most {MAX_BLOCKS} content blocks, got {len(values)}", path)
    blocks = [check_block(block, f"{path}[{index}]") for index, block in enumerate(values)]
    text = check_message_text(describe_prompt(tuple([block.part for block in blocks])), path)
    return CheckedPrompt(text, blocks)


def convert_blocks(values: list[Any], path: str) -> list[ContentBlock]:
    try:
        return msgspec.convert(values, list[ContentBlock])
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise BadInput(message, path + place.rstrip("`")) from None


def check_block(block: ContentBlock, path: str) -> CheckedBlock:
    if isinstance(block, TextContentBlock):
        return CheckedBlock(PromptText(text=block.text))

    source = block.source
    media_type = source.media_type
    data = None
    src = BLOB_TO_STORE
    if isinstance(source, UrlSource):
        src = check_web_address(source.url, f"{path}.source.url")
    else:
        allowed = IMAGE_TYPES if isinstance(block, ImageContentBlock) else DOCUMENT_TYPES
        if media_type not in allowed:
            problem = f"expected one of {', '.join(sorted(allowed))}, got {quote(str(media_type))}"
            raise BadInput(problem, f"{path}.source.media_type")
        data = decode_source(source, f"{path}.source.data")

    size_bytes = None if data is None else len(data)
    if isinstance(block, ImageContentBlock):
        image = PromptImage(src=src, media_type=media_type, size_bytes=size_bytes)
        return CheckedBlock(image, data)
    document = PromptDocument(
        src=src, media_type=media_type, size_bytes=size_bytes, title=block.title, context=block.context
    )
    return CheckedBlock(document, data)


def check_web_address(url: str, path: str) -> str:
    if not url.startswith(WEB_PREFIXES):
        raise BadInput(f"expected an address with https:// or http://, got {quote(url)}", path)
    return url


def decode_source(source: Base64Source | TextSource, path: str) -> bytes:
    if isinstance(source, TextSource):
        if len(source.data) > MAX_MESSAGE_CHARS:
            raise BadInput(f"expected at most {MAX_MESSAGE_CHARS} characters, got {len(source.data)}", path)
        return source.data.encode()
    if len(source.data) > MAX_IMAGE_CHARS:
        raise BadInput(f"expected at most {MAX_IMAGE_CHARS} characters, got {len(source.data)}", path)
    try:
        data = b64decode(source.data, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("expected base64", path) from None
    if not data:
        raise BadInput("expected some data, got none", path)
    return data


async def store_prompt(log: Log, session_id: str, prompt: CheckedPrompt) -> tuple[PromptPart, ...]:
    """Store the binary content of a prompt as blobs of a session. Return its parts with their addresses."""
    parts: list[PromptPart] = []
    for part, data in prompt.blocks:
        if data is not None and not isinstance(part, PromptText):
            name = await log.put_blob(session_id, data, part.media_type or "")
            part = msgspec.structs.replace(part, src=blob_url(name))
        parts.append(part)
    return tuple(parts)
