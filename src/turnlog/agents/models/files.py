"""Files that tools of the provider made: fetched while it has them, and kept as blobs of the session.

A stream names their ids alone. What cannot be fetched, or is too large, stays where it is: `provider:<id>`,
for whoever has the provider's key.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import structs

from turnlog.agents.models.model import PutBlob
from turnlog.events import AssistantFiles, Payload
from turnlog.events.assistant import File

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

log = logging.getLogger("turnlog.agents")

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_FILENAME_CHARS = 255
FETCH_TIMEOUT_S = 30.0  # for one file; the model's words wait for it


async def download_files(batch: list[Payload], client: "AsyncAnthropic", put_blob: PutBlob) -> list[Payload]:
    """What a model said, with the files in it kept."""
    return [
        structs.replace(
            said, files=tuple([await download_file(file, client, put_blob) for file in said.files])
        )
        if isinstance(said, AssistantFiles)
        else said
        for said in batch
    ]


async def download_file(file: File, client: "AsyncAnthropic", put_blob: PutBlob) -> File:
    """A file by its own name, and where its content is now."""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            about = await client.beta.files.retrieve_metadata(file.file_id)
            file = structs.replace(file, filename=about.filename[:MAX_FILENAME_CHARS] or file.filename)
            if about.downloadable is False or about.size_bytes > MAX_FILE_BYTES:
                return file
            body = await client.beta.files.download(file.file_id)
            place = await put_blob(await body.read(), about.mime_type or "application/octet-stream")
            return structs.replace(file, storage_location=f"api/blobs/{place}")
    except Exception as error:  # noqa: BLE001  whatever it is, the model's words go on without the file
        log.warning("file %s was not fetched: %s", file.file_id, type(error).__name__)
        return file
