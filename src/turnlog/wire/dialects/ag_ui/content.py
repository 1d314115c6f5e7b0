"""The content of a tool's result as AG-UI has it: a text, or parts if there are images.

Clients before 1.0 take a text only. It ends with the URLs of the images, one per line.
"""

from typing import Any

from turnlog.events import Image, ToolResult
from turnlog.events.content import PromptDocument, PromptImage, PromptPart, list_files, strip_labels
from turnlog.state.content_parts import result_text

DATA_PREFIX = "data:"


def build_result_parts(payload: ToolResult, version: str) -> str | list[dict[str, Any]]:
    """Return the content for a client of a version."""
    text = result_text(payload)
    if not payload.images:
        return text
    if version == "0":
        urls = [image.src for image in payload.images if not image.src.startswith(DATA_PREFIX)]
        return "\n".join([text, *urls] if text else urls)
    parts: list[dict[str, Any]] = []
    if text:
        parts.append({"type": "text", "text": text})
    parts += [{"type": "image", "source": tool_image_source(image)} for image in payload.images]
    return parts


def tool_image_source(image: Image) -> dict[str, str]:
    if image.src.startswith(DATA_PREFIX):
        return {"type": "data", "value": image.src.partition(",")[2], "mimeType": image.media_type}
    return {"type": "url", "value": image.src, "mimeType": image.media_type}


def build_message_parts(text: str, content: tuple[PromptPart, ...]) -> list[dict[str, Any]]:
    """Return a message of a person with files as parts: its text as people see it, then the files."""
    files = list_files(content)
    shown_text = strip_labels(text, files)
    parts: list[dict[str, Any]] = [{"type": "text", "text": shown_text}] if shown_text else []
    return parts + [build_file_part(item) for item in files]


def build_file_part(file: PromptImage | PromptDocument) -> dict[str, Any]:
    source = {"type": "url", "value": file.src}
    if file.media_type is not None:
        source["mimeType"] = file.media_type
    if isinstance(file, PromptImage):
        return {"type": "image", "source": source}
    metadata = {"metadata": {"filename": file.title}} if file.title else {}
    return {"type": "document", "source": source, **metadata}
