"""Download files that tools of the provider created, and store them as blobs of the session.

A stream has only their ids, and the provider deletes them after a while. A file that cannot be downloaded, or
is too large, keeps the location `provider:<id>`, which is readable with the provider's key.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import structs

from turnlog.agents.blob_urls import blob_url
from turnlog.agents.models.model import PutBlob
from turnlog.events import AssistantFiles, Payload
from turnlog.events.assistant import File

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

log = logging.getLogger("turnlog.agents")

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_FILENAME_CHARS = 255
FETCH_TIMEOUT_S = 30.0  # for one file; the model's output waits for it


async def download_files(batch: list[Payload], client: "AsyncAnthropic", put_blob: PutBlob) -> list[Payload]:
    result: list[Payload] = []
    for payload in batch:
        if isinstance(payload, AssistantFiles):
            files = [await download_file(file, client, put_blob) for file in payload.files]
            payload = structs.replace(payload, files=tuple(files))
        result.append(payload)
    return result


async def download_file(file: File, client: "AsyncAnthropic", put_blob: PutBlob) -> File:
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            metadata = await client.beta.files.retrieve_metadata(file.file_id)
            file = structs.replace(file, filename=metadata.filename[:MAX_FILENAME_CHARS] or file.filename)
            if metadata.downloadable is False or metadata.size_bytes > MAX_FILE_BYTES:
                return file
            response = await client.beta.files.download(file.file_id)
            media_type = metadata.mime_type or "application/octet-stream"
            name = await put_blob(await response.read(), media_type)
            return structs.replace(file, storage_location=blob_url(name))
    except Exception as error:  # noqa: BLE001  the model's output continues without the file
        log.warning("file %s was not downloaded: %s", file.file_id, type(error).__name__)
        return file
