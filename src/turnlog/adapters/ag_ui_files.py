"""Files of a message as parts of a user message of AG-UI. Pure.

AG-UI 1.0 has `image` and `document` parts with a `source`. Servers before ag-ui-protocol 0.1.15 know `binary`
parts. A text file is a part `text`, which every server reads. A message without files stays a string.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from turnlog.adapters.part_files import DROPPED_TEXT, PartFile
from turnlog.parse.json_values import JsonObject

FileParts = Literal["media", "binary", "labels"]
MEDIA_TYPES = frozenset({"image", "document", "audio", "video", "binary"})


def make_user_content(text: str, files: Sequence[PartFile], file_parts: FileParts) -> str | list[JsonObject]:
    """Return the content of a message. Its text has the labels of the files already."""
    make_part = PART_MAKERS.get(file_parts)
    if not files or make_part is None:
        return text
    parts: list[JsonObject] = [{"type": "text", "text": text}]
    for file in files:
        parts.append({"type": "text", "text": file.describe_text()} if file.is_text else make_part(file))
    return parts


def make_media_part(file: PartFile) -> JsonObject:
    source = {"type": "data", "value": file.to_base64(), "mimeType": file.media_type}
    part: JsonObject = {"type": "image" if file.is_image else "document", "source": source}
    if file.name:
        part["metadata"] = {"filename": file.name}
    return part


def make_binary_part(file: PartFile) -> JsonObject:
    part: JsonObject = {"type": "binary", "mimeType": file.media_type, "data": file.to_base64()}
    if file.name:
        part["filename"] = file.name
    return part


PART_MAKERS: Mapping[str, Callable[[PartFile], JsonObject]] = {
    "media": make_media_part,
    "binary": make_binary_part,
}


def has_files(message: JsonObject) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(is_file_part(part) for part in content)


def is_file_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in MEDIA_TYPES


def drop_files(message: JsonObject) -> JsonObject:
    """Return a message without its files. The text of a message has their labels; a result may have none."""
    parts = [part for part in message["content"] if not is_file_part(part)]
    return {**message, "content": parts or DROPPED_TEXT}
