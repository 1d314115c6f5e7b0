"""The files of a message, as an agent of another framework gets them: their bytes, beside the text.

The text has a label of each file in any case. A file whose blob is gone, and an address on the web, are
labels only: the server fetches nothing.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from turnlog.agents.blob_urls import blob_name
from turnlog.agents.models.messages import TEXT_TYPES
from turnlog.errors import NotFound
from turnlog.events.content import PromptPart, PromptText
from turnlog.log import Log

DROPPED_TEXT = "[a file that is no longer kept]"  # in place of a file that a history has no room for
MAX_SAVED_FILES_BYTES = 8 << 20  # of a checkpoint: one of the largest size; a worker can send 11 MiB


class PartFile(NamedTuple):
    """A file that a person attached."""

    name: str
    media_type: str
    data: bytes

    @property
    def is_text(self) -> bool:
        return self.media_type in TEXT_TYPES

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    def to_base64(self) -> str:
        return b64encode(self.data).decode()

    def to_data_uri(self) -> str:
        return f"data:{self.media_type};base64,{self.to_base64()}"

    def describe_text(self) -> str:
        """Return the content of a text file, under its name."""
        return f"{self.name}:\n{self.data.decode(errors='replace')}"


async def read_part_files(log: Log, parts: Sequence[PromptPart]) -> tuple[PartFile, ...]:
    files: list[PartFile] = []
    for part in parts:
        name = None if isinstance(part, PromptText) else blob_name(part.src)
        if isinstance(part, PromptText) or name is None:
            continue
        try:
            blob = await log.get_blob(name)
        except NotFound:
            continue
        files.append(PartFile(part.title or "", blob.media_type, blob.data))
    return tuple(files)
