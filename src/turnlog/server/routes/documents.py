"""`/api/documents`, `/api/log`: stored content of sessions, as a member may see it."""

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnlog.app.visible_rows import open_row_view_at
from turnlog.log import ListPosition
from turnlog.log.filter import EventFilter
from turnlog.log.transfer import export_session
from turnlog.server.auth.authentication import get_identity
from turnlog.server.openapi import Operation, get_route
from turnlog.server.responses import json_response
from turnlog.server.routes.paging import format_page_cursor, parse_limit, parse_page_cursor
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.query import resolve_cursor, resolve_resume_seq

EXPORT_CHUNK_BYTES = 64 * 1024  # sending a chunk costs as much as some hundred lines
# Sessions in one page of documents; each session has many.
PAGE_DOCUMENT_SESSIONS = 20
MAX_PAGE_DOCUMENT_SESSIONS = 100
DOCUMENTS_QUERY = {
    "session": "only of this session; of a page of the caller's sessions without it",
    "type": "only of this type",
    "category": "only of this category",
    "limit": (
        f"of how many sessions: {PAGE_DOCUMENT_SESSIONS} without it, {MAX_PAGE_DOCUMENT_SESSIONS} at most"
    ),
    "after": "the cursor: `next` of the page before",
}
LOG_QUERY = {"session": "the session", "after": "the cursor"}


class DocumentInfo(msgspec.Struct):
    """A document that the read models derived from events."""

    session_id: str
    id: str
    type: str
    category: str
    body: msgspec.Raw


class DocumentsResponse(msgspec.Struct, omit_defaults=True):
    """The documents of a page of sessions, the last active session first, ordered by id in each session.

    `next` is the cursor of the next page.
    """

    documents: list[DocumentInfo]
    next: str | None = None


class DocumentRoutes:
    """The routes of documents and exports."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            get_route(
                "/api/documents",
                self.list_documents,
                "Documents made from events.",
                DocumentsResponse,
                query=DOCUMENTS_QUERY,
            ),
            get_route(
                "/api/log",
                self.export_log,
                "A log as lines of JSON.",
                query=LOG_QUERY,
                media_type="application/jsonl",
            ),
        ]

    async def list_documents(self, request: Request) -> Response:
        query = request.query_params
        sessions = self._access.sessions
        meter = self._access.start_read_meter(request)
        position: ListPosition | None = None
        if "session" in query:
            memberships = [await self._access.find_membership(request, query["session"])]
        else:
            limit = parse_limit(query, "limit", PAGE_DOCUMENT_SESSIONS, MAX_PAGE_DOCUMENT_SESSIONS)
            principal = get_identity(request.scope).principal
            memberships, position = await sessions.list_memberships(
                principal, parse_page_cursor(query), limit
            )

        infos = []
        for membership in memberships:
            documents = await sessions.documents(
                membership, query.get("type"), query.get("category"), meter.charge
            )
            infos += [
                DocumentInfo(doc.session_id, doc.id, doc.type, doc.category, msgspec.Raw(doc.body))
                for doc in documents
            ]
        return json_response(DocumentsResponse(infos, format_page_cursor(position)))

    async def export_log(self, request: Request) -> Response:
        query = request.query_params
        membership = await self._access.find_membership(request, query.get("session", ""))
        record = membership.record
        after_seq = resolve_resume_seq(resolve_cursor(query.get("after", ""), record), record)
        meter = self._access.start_read_meter(request)
        view = await open_row_view_at(self._access.sessions.log, membership, after_seq)
        lines = export_session(
            self._access.sessions.log,
            membership.session_id,
            after_seq,
            EventFilter(channels=membership.visible_channels),
            meter.charge_and_wait,
            None if view is None else view.project_row,
        )
        headers = {"content-disposition": f'attachment; filename="{membership.session_id}.jsonl"'}
        return StreamingResponse(join_lines_in_chunks(lines), media_type="application/jsonl", headers=headers)


async def join_lines_in_chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size_bytes = 0
    async for line in lines:
        parts += (line, b"\n")
        size_bytes += len(line) + 1
        if size_bytes >= EXPORT_CHUNK_BYTES:
            yield b"".join(parts)
            parts = []
            size_bytes = 0
    yield b"".join(parts)
