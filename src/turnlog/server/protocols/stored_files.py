"""Files that a page has by their addresses only, since it loaded its messages from the server.

A page that sends such a message again gets the file from the session, if the member may read it.
"""

from base64 import b64encode
from typing import NamedTuple

from starlette.requests import Request

from turnlog.agents.blob_urls import blob_name
from turnlog.app import Membership
from turnlog.server.prompt_content import MAX_PROMPT_BODY_BYTES
from turnlog.server.request_body import OversizedBody
from turnlog.server.session_access import SessionAccess


class StoredFile(NamedTuple):
    """A file of a session: its media type, and its content as base64."""

    media_type: str
    data: str


class StoredFiles:
    """The files of a session for one request: together at most as large as the body of a message."""

    def __init__(self, access: SessionAccess, request: Request, membership: Membership) -> None:
        self._access = access
        self._request = request
        self._membership = membership
        self._size_bytes = 0

    async def load(self, url: object) -> StoredFile | None:
        """Return the file at an address; None if it is none of this session, or hidden from the member.

        Raise `NotFound` if the session has no such file, `OversizedBody` beyond the limit.
        """
        name = blob_name(url) if isinstance(url, str) else None
        if name is None or not name.startswith(f"{self._membership.session_id}/"):
            return None
        if not await self._access.may_read_blob(self._request, self._membership, name):
            return None
        blob = await self._access.sessions.log.get_blob(name)
        self._size_bytes += len(blob.data)
        if self._size_bytes > MAX_PROMPT_BODY_BYTES:
            raise OversizedBody(f"expected files of at most {MAX_PROMPT_BODY_BYTES} bytes together")
        return StoredFile(blob.media_type, b64encode(blob.data).decode())
