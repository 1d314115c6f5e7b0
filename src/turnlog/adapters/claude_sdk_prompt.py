"""The message of a part for the Claude Code program: its text, and a content block for each file."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from typing import Any

from turnlog.adapters.part_files import PartFile
from turnlog.adapters.runner import Part
from turnlog.agents.models.messages import make_document_source, make_image_source

ContentBlock = dict[str, Any]


def make_prompt(part: Part, note: str | None = None) -> str | AsyncGenerator[dict[str, Any], None]:
    """Return what `ClaudeSDKClient.query` takes: the text, or a stream of one message with the files.

    `note` is for the model, before the text.
    """
    text = part.message or ""
    texts = [text] if note is None else [note, text]
    return stream_message(texts, part) if part.files or note is not None else text


async def stream_message(texts: list[str], part: Part) -> AsyncGenerator[dict[str, Any], None]:
    blocks: list[ContentBlock] = [{"type": "text", "text": text} for text in texts]
    blocks += [make_claude_block(file) for file in part.files]
    yield {"type": "user", "message": {"role": "user", "content": blocks}, "parent_tool_use_id": None}


def make_claude_block(file: PartFile) -> ContentBlock:
    """Return a file as a block of the Messages API, or a text that says why it cannot be sent."""
    if file.is_image:
        source = make_image_source(file.media_type, b64encode(file.data).decode())
        if isinstance(source, str):
            return {"type": "text", "text": source}
        return {"type": "image", "source": source}
    block: ContentBlock = {"type": "document", "source": make_document_source(file.media_type, file.data)}
    # the API refuses an empty title
    return block | {"title": file.name} if file.name else block
