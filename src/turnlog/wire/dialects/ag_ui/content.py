"""The content of a tool's result as AG-UI has it: a text, or parts if there are images.

Clients before 1.0 take a text only. It ends with the URLs of the images, one per line.
"""

from typing import Any

from turnlog.events import Image, ToolResult
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
