"""`/api/blobs`: upload a file for a message, and read binary content of a session (protocol section 8.3)."""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnlog.agents.blob_urls import blob_url
from turnlog.agents.tools import IMAGE_TYPES
from turnlog.app.attachments import check_file
from turnlog.errors import BadInput, NotFound, SessionClosed
from turnlog.log import Log
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, get_route, post_route
from turnlog.server.request_body import OversizedBody, read_body
from turnlog.server.responses import json_response
from turnlog.server.session_access import SessionAccess

# A page of another site can send a form as text, but not this type.
UPLOAD_BODY_TYPE = "application/octet-stream"
UPLOAD_QUERY = {"session": "the session", "media_type": "the media type of the file"}
MAX_LENGTH_DIGITS = 18  # of Content-Length; int() of a very long text is slow
BLOB_HEADERS = {
    "content-disposition": "attachment",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
}


class UploadResponse(msgspec.Struct):
    """The name of the blob, which a message names, its stored type, and its address on this server."""

    blob: str
    media_type: str
    size_bytes: int
    url: str


class BlobRoutes:
    """The routes of blobs."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            post_route(
                "/api/blobs",
                self.upload,
                "Upload a file that a message will name.",
                bytes,
                {201: UploadResponse},
                query=UPLOAD_QUERY,
                body_type=UPLOAD_BODY_TYPE,
            ),
            get_route(
                "/api/blobs/{session}/{digest}",
                self.get_blob,
                "Binary content, as an attachment.",
                media_type="application/octet-stream",
            ),
        ]

    async def upload(self, request: Request) -> Response:
        """Store a file. It is dropped after a day unless a message names it."""
        query = request.query_params
        membership = await self._access.find_membership(request, query.get("session", ""))
        membership.require_member()
        if membership.record.closed:
            raise SessionClosed(f"{membership.session_id} is closed")
        policy = membership.app.attachments
        media_type = query.get("media_type", "")
        policy.check_type(media_type)

        limit_bytes = policy.max_bytes_of(media_type)
        size_bytes = declared_bytes(request, limit_bytes)
        principal = get_identity(request.scope).principal
        self._access.rate_limiter.consume_upload(principal, size_bytes, time.monotonic())
        data = bytes(await read_body(request, UPLOAD_BODY_TYPE, limit_bytes))
        check_file(data, media_type)
        log = self._access.sessions.log
        name = await log.put_upload(membership.session_id, data, media_type)
        await refuse_deleted(log, membership.session_id)
        # the same bytes may be stored under another type, and the first one stays
        stored = await log.get_blob(name)
        return json_response(UploadResponse(name, stored.media_type, len(data), blob_url(name)), 201)

    async def get_blob(self, request: Request) -> Response:
        """Send a blob as a sandboxed attachment: a browser must never open it as a page of this server."""
        membership = await self._access.find_membership(request, request.path_params["session"])
        name = f"{membership.session_id}/{request.path_params['digest']}"
        if not await self._access.may_read_blob(request, membership, name):
            raise NotFound(f"no blob {name[:80]}")
        blob = await self._access.sessions.log.get_blob(name)
        media_type = blob.media_type if blob.media_type in IMAGE_TYPES else "application/octet-stream"
        return Response(blob.data, media_type=media_type, headers=BLOB_HEADERS)


async def refuse_deleted(log: Log, session_id: str) -> None:
    """Raise `NotFound` if the session was deleted while the body came, and erase what was stored since."""
    if (await log.info(session_id)).is_erased:
        await log.erase(session_id)
        raise NotFound(f"no session {session_id}")


def declared_bytes(request: Request, limit_bytes: int) -> int:
    """Return the size of the body by its header; `limit_bytes` if it declares none. Raise if it is over."""
    text = request.headers.get("content-length")
    if text is None:
        return limit_bytes
    if not text.isascii() or not text.isdigit() or len(text) > MAX_LENGTH_DIGITS:
        raise BadInput("expected a Content-Length that is a number")
    if int(text) > limit_bytes:
        raise OversizedBody(f"expected at most {limit_bytes} bytes")
    return int(text)
