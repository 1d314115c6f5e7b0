"""Read the images that a reader of the block dialects gets in its messages (`images=`, protocol 7.6)."""

from turnlog.agents.blob_urls import blob_name
from turnlog.errors import NotFound
from turnlog.events import Payload, ToolResult, UnknownPayload
from turnlog.log import Log
from turnlog.wire.dialects.inline_images import addresses_to_inline, inline_images
from turnlog.wire.dialects.registry import BLOCK_DIALECTS, DialectRequest


class BlobImages:
    """Puts images of one session into its events, as far as a dialect and its options want it."""

    def __init__(self, log: Log, session_id: str, dialect_request: DialectRequest) -> None:
        self._log = log
        self._session_id = session_id
        self._dialect_request = dialect_request

    async def resolve(self, payload: Payload | UnknownPayload) -> Payload | UnknownPayload:
        """Return the event with data URIs. An image that is not stored keeps its address."""
        if self._dialect_request.name not in BLOCK_DIALECTS or not isinstance(payload, ToolResult):
            return payload
        blobs: dict[str, bytes] = {}
        for address in addresses_to_inline(payload, self._dialect_request.options):
            data = await self._read(address)
            if data is not None:
                blobs[address] = data
        return inline_images(payload, blobs) if blobs else payload

    async def _read(self, address: str) -> bytes | None:
        name = blob_name(address)
        # an image's address may name a blob of another session
        if name is None or not name.startswith(f"{self._session_id}/"):
            return None
        try:
            return (await self._log.get_blob(name)).data
        except NotFound:
            return None
