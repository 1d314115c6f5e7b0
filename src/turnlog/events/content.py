"""The parts of a prompt: texts, images and documents, as the client sent them and in its order.

Binary content is a blob of the session; a part has its address. An address on the web is passed on to the
model's provider, and never fetched by the server.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from turnlog.events.payload import Count, Name, Record

# Printable ASCII without quotes and backslashes: it needs no escaping, and fits into one SSE message.
Address = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^[!#-\[\]-~]+$(?!\n)")]
SizeBytes = Annotated[Count | None, Meta(description="The size of the blob.")]


class PromptText(Record, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class PromptImage(Record, frozen=True, kw_only=True, tag_field="type", tag="image"):
    src: Address
    media_type: Name | None = None
    size_bytes: SizeBytes = None
    title: Annotated[str | None, Meta(description="The name of the file.")] = None


class PromptDocument(Record, frozen=True, kw_only=True, tag_field="type", tag="document"):
    src: Address
    media_type: Name | None = None
    size_bytes: SizeBytes = None
    title: str | None = None
    context: str | None = None


PromptPart = PromptText | PromptImage | PromptDocument


def describe_prompt(parts: tuple[PromptPart, ...]) -> str:
    """Return the texts of a prompt, one per line, with a label for each image and document."""
    return "\n".join([part.text if isinstance(part, PromptText) else f"[{label_of(part)}]" for part in parts])


def label_files(text: str, parts: tuple[PromptPart, ...]) -> str:
    """Return the text of a message with a label for each file, for readers that get a text alone."""
    labels = [f"[{label_of(part)}]" for part in parts if not isinstance(part, PromptText)]
    return "\n".join([text, *[label for label in labels if label not in text]])


def list_files(parts: Iterable[PromptPart]) -> list[PromptImage | PromptDocument]:
    return [part for part in parts if not isinstance(part, PromptText)]


def strip_labels(text: str, files: Iterable[PromptImage | PromptDocument]) -> str:
    """Return the text of a message without the labels of files, for readers that get these apart."""
    lines = text.split("\n")
    for file in files:
        label = f"[{label_of(file)}]"
        if label in lines:
            lines.remove(label)
    return "\n".join(lines)


def label_of(part: PromptImage | PromptDocument) -> str:
    kind = "image" if isinstance(part, PromptImage) else "document"
    return f"{kind}: {part.title}" if part.title else kind
