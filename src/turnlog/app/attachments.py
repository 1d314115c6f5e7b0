"""Files that members attach to messages: which an application accepts, and what becomes of them.

A member uploads a file first; it is a blob of the session that no event names yet. A message then names it.
In the log an attachment is a part of the message's `content`, like the images and documents of any other
prompt: it has an address, a title, a media type and a size. The media type and the size are those of the
stored blob, whatever the client says. Text files must be UTF-8; of other types the first bytes must fit.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import structs

from turnlog.agents.blob_urls import blob_name, blob_url
from turnlog.agents.models.messages import IMAGE_TYPES, MAX_IMAGE_CHARS, TEXT_TYPES
from turnlog.app.image_headers import check_image_size
from turnlog.errors import BadInput, quote
from turnlog.events import UiMessage
from turnlog.events.content import PromptDocument, PromptImage, PromptPart, PromptText, describe_prompt
from turnlog.events.payload import Name, Record
from turnlog.log import Log
from turnlog.log.records import BlobInfo

KIB = 1024
MIB = 1024 * KIB
PDF_TYPE = "application/pdf"
ATTACHABLE_TYPES = IMAGE_TYPES | TEXT_TYPES | {PDF_TYPE}  # no type that a browser runs
# The first bytes of a file; some formats have more than one beginning.
SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    PDF_TYPE: (b"%PDF-",),
}
WEBP_MARK = b"WEBP"  # behind `RIFF` and four bytes of size
# Embeddings, overrides and isolates: with them `x<U+202E>fdp.bat` reads as `xtab.pdf`.
DIRECTION_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])


class Attachments(NamedTuple):
    """The files that members may attach. `max_count` is that of one message; 0 accepts none.

    Types beside `ATTACHABLE_TYPES` are not possible: a model could not read them.
    """

    media_types: Collection[str] = tuple(sorted(ATTACHABLE_TYPES))
    max_bytes: int = 8 * MIB
    max_image_bytes: int = MAX_IMAGE_CHARS * 3 // 4  # what a model takes, in base64
    max_text_bytes: int = 256 * KIB  # about 64,000 tokens
    max_count: int = 10

    def max_bytes_of(self, media_type: str) -> int:
        limit = self.max_bytes
        if media_type in IMAGE_TYPES:
            limit = min(limit, self.max_image_bytes)
        if media_type in TEXT_TYPES:
            limit = min(limit, self.max_text_bytes)
        return limit

    def check_type(self, media_type: str) -> None:
        """Raise `BadInput` for a type that the application does not accept."""
        if not self.max_count:
            raise BadInput("this application accepts no files", "media_type")
        if media_type not in self.media_types:
            names = ", ".join(sorted(self.media_types))
            problem = f"expected a file of one of the types {names}, got {quote(media_type)}"
            raise BadInput(problem, "media_type")


class AttachmentBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that a member has uploaded, and its name for people and the model."""

    blob: str
    name: Name


def check_file(data: bytes, media_type: str) -> None:
    """Raise `BadInput` if the bytes cannot be of this type, or are an image with too many pixels."""
    if not data:
        raise BadInput("expected a file with some content")
    is_valid = is_text(data) if media_type in TEXT_TYPES else data.startswith(SIGNATURES[media_type])
    if media_type == "image/webp":
        is_valid = is_valid and data[8:12] == WEBP_MARK
    if not is_valid:
        raise BadInput(f"the content is not {media_type}")
    check_image_size(data, media_type)


def is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


async def attach_files(
    log: Log, policy: Attachments, session_id: str, text: str, files: Sequence[AttachmentBody], path: str
) -> tuple[PromptPart, ...]:
    """Return the content of a message with files. Raise `BadInput` for one that is not in the session."""
    if len(files) > policy.max_count:
        raise BadInput(f"expected at most {policy.max_count} files, got {len(files)}", path)
    kept = await log.keep_uploads(session_id, [file.blob for file in files])
    parts: list[PromptPart] = [PromptText(text=text)] if text.strip() else []
    for index, file in enumerate(files):
        info = kept.get(file.blob)
        if info is None:
            raise BadInput("expected a file of this session: upload it first", f"{path}[{index}].blob")
        parts.append(make_part(file, info))
    return tuple(parts)


def make_part(file: AttachmentBody, info: BlobInfo) -> PromptPart:
    kind = PromptImage if info.media_type in IMAGE_TYPES else PromptDocument
    title = clean_file_name(file.name)
    return kind(src=blob_url(file.blob), media_type=info.media_type, size_bytes=info.size_bytes, title=title)


def clean_file_name(name: str) -> str | None:
    """Return a name whose letters show in their order; None if nothing is left."""
    return name.translate(DIRECTION_CONTROLS).strip() or None


def clean_part(part: PromptPart) -> PromptPart:
    if isinstance(part, PromptText) or part.title is None:
        return part
    return structs.replace(part, title=clean_file_name(part.title))


def message_text(text: str, content: tuple[PromptPart, ...]) -> str:
    """Return the text of a message: what the person wrote, or else the labels of the files."""
    return text if text.strip() else describe_prompt(content)


async def settle_content(log: Log, session_id: str, message: UiMessage) -> UiMessage:
    """Return a message whose blobs are blobs of its session, with their true type and size, and clean names.

    Raise `BadInput` for any other blob: a member must not make a model read what it cannot read itself.
    """
    message = structs.replace(message, content=tuple([clean_part(part) for part in message.content]))
    names = [blob_name(part.src) for part in message.content if not isinstance(part, PromptText)]
    own_names = [name for name in names if name is not None]
    if not own_names:
        return message
    kept = await log.keep_uploads(session_id, own_names)
    parts: list[PromptPart] = []
    for index, part in enumerate(message.content):
        name = None if isinstance(part, PromptText) else blob_name(part.src)
        if isinstance(part, PromptText) or name is None:
            parts.append(part)
            continue
        info = kept.get(name)
        if info is None:
            raise BadInput("expected a file of this session", f"$.content[{index}].src")
        parts.append(structs.replace(part, media_type=info.media_type, size_bytes=info.size_bytes))
    return structs.replace(message, content=tuple(parts))
