"""`/v1/stream/{path}`: the routes of the Durable Streams protocol.

A path names a stream of the caller. A path that is a session id names that session: its members read its
events as a JSON stream, and no request of this protocol changes it. Errors are JSON, as everywhere.
"""

import time
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Membership
from turnlog.errors import BadInput, NotFound
from turnlog.events import is_session_id
from turnlog.server.auth.authentication import get_identity, get_session_creator
from turnlog.server.limits.read_cost import ReadMeter
from turnlog.server.openapi import Operation
from turnlog.server.protocols.base import ProtocolServer
from turnlog.server.protocols.durable_streams.directory import (
    StreamConflict,
    StreamDirectory,
    StreamKey,
    not_found,
)
from turnlog.server.protocols.durable_streams.live import (
    STREAM_FRAMING,
    LiveEncoders,
    LiveSource,
    make_cursor,
)
from turnlog.server.protocols.durable_streams.open_stream import OpenStream
from turnlog.server.protocols.durable_streams.reading import (
    ContentPage,
    Readable,
    make_readable_session,
    make_readable_stream,
    read_contents,
    wait_for_content,
)
from turnlog.server.request_body import FORM_MEDIA_TYPE, UnsupportedBody, decode_json_body, read_bytes
from turnlog.server.responses import json_error
from turnlog.server.scope_keys import SESSION_KEY
from turnlog.server.streaming.streams import EventStreamResponse
from turnlog.wire.durable_streams.events import MAX_PATH_CHARS, Producer, StreamAppend
from turnlog.wire.durable_streams.framing import StreamFormat, format_of, join_contents
from turnlog.wire.durable_streams.offsets import NOW
from turnlog.wire.durable_streams.requests import (
    DEFAULT_CONTENT_TYPE,
    AppendHeaders,
    CreateRequest,
    LiveMode,
    ReadRequest,
    media_type_of,
    parse_append,
    parse_create,
    parse_read,
)
from turnlog.wire.durable_streams.responses import (
    CLOSED,
    HISTORY_CACHE,
    NEXT_OFFSET,
    TAIL_CACHE,
    UP_TO_DATE,
    VARY,
    answer_append,
    describe_expiry,
    describe_stream,
    make_etag,
    matches_etag,
)
from turnlog.wire.durable_streams.state import AppendRequestBody, Outcome, StreamDecision, plan_stream_append

PREFIX = "/v1/stream/"
MAX_APPEND_BYTES = 1 << 20  # of one request; as everywhere
MAX_RESPONSE_BYTES = 1 << 20  # of a page; the client asks for the next one
LONG_POLL_S = 20.0
FORM_TYPES = ("", "text/plain", "multipart/form-data", FORM_MEDIA_TYPE)
READ_QUERY = {
    "offset": "the offset to read after, -1 for the start or now for the end",
    "live": "long-poll or sse to wait for new data",
    "cursor": "the Stream-Cursor of the response before",
}


class OpenedStream(NamedTuple):
    """What a GET reads: `stream` for a stream, `membership` for a session."""

    readable: Readable
    stream: OpenStream | None = None
    membership: Membership | None = None


class DurableStreams:
    """The protocol. A long poll without new data ends after `long_poll_s`."""

    name = "durable-streams"

    def __init__(self, long_poll_s: float = LONG_POLL_S) -> None:
        self._long_poll_s = long_poll_s

    def operations(self, server: ProtocolServer) -> list[Operation]:
        routes = StreamRoutes(server, self._long_poll_s)
        path = PREFIX + "{path:path}"
        operations = [
            Operation("HEAD", path, routes.describe, "Describe a stream."),
            Operation("GET", path, routes.read, "Read a stream.", query=READ_QUERY, media_type="*/*"),
            Operation("PUT", path, routes.create, "Create a stream.", responses={201: None, 200: None}),
            Operation("POST", path, routes.append, "Append to a stream, or close it.", responses={204: None}),
            Operation("DELETE", path, routes.delete, "Delete a stream.", responses={204: None}),
        ]
        return [operation._replace(bypasses_router=True) for operation in operations]


class StreamRoutes:
    """The routes of one server."""

    def __init__(self, server: ProtocolServer, long_poll_s: float) -> None:
        self._access = server.access
        self._streams = server.events.streams
        self._heartbeat_s = server.limits.heartbeat_interval_s
        self._long_poll_s = long_poll_s
        self._encoders = LiveEncoders()
        self._directory: StreamDirectory | None = None

    @property
    def directory(self) -> StreamDirectory:
        """Return the streams of the log that is open now. A server that starts again opens another one."""
        log = self._access.sessions.log
        if self._directory is None or self._directory.log is not log:
            self._directory = StreamDirectory(log)
        return self._directory

    # PUT

    async def create(self, request: Request) -> Response:
        key = self._writable_key(request)
        creator = get_session_creator(request.scope)
        create = with_source_path(parse_create(request.headers), request)
        data = await read_bytes(request, MAX_APPEND_BYTES)

        def consume_session() -> None:
            self._access.rate_limiter.consume_session(creator, time.monotonic())

        try:
            first = await self._decode_first(request, key, create, data)
            stream, is_new = await self.directory.create(key, create, first, consume_session)
        except StreamConflict as error:
            return json_error(str(error), 409)
        request.scope[SESSION_KEY] = stream.session_id
        headers = describe_stream(stream.state, stream.offset_at(stream.state.tail))
        if is_new:
            headers["location"] = str(request.url.replace(path=quote(request.url.path), query=""))
        return Response(status_code=201 if is_new else 200, headers=headers)

    async def _decode_first(
        self, request: Request, key: StreamKey, create: CreateRequest, data: bytearray
    ) -> StreamAppend | None:
        """Return what a new stream begins with; None for an empty body, or an empty array of messages."""
        if not data:
            return None
        content_type = create.content_type or DEFAULT_CONTENT_TYPE
        if create.fork is not None and create.content_type is None:
            content_type = (await self.directory.get_source(key, create.fork)).state.content_type
        first = await decode_content_body(request, data, content_type)
        return None if first == StreamAppend() else first

    # POST

    async def append(self, request: Request) -> Response:
        key = self._writable_key(request)
        check_no_form(request)
        headers = parse_append(index_headers(request))
        data = await read_bytes(request, MAX_APPEND_BYTES)
        body = await make_append_body(request, headers, data)

        # A stream in memory may have been deleted elsewhere: then it is looked for once more.
        stream = self.directory.get_open(key) or await self.directory.get(key)
        decision = await run_append(stream, body)
        if decision.outcome is Outcome.GONE:
            stream = await self.directory.get(key)
            decision = await run_append(stream, body)
        request.scope[SESSION_KEY] = stream.session_id
        if decision.outcome is Outcome.GONE:
            raise not_found(key)

        answer = answer_append(decision, headers.producer, stream.offset_at(decision.tail))
        if answer.message is not None:
            return json_error(answer.message, answer.status, answer.headers)
        return Response(status_code=answer.status, headers=answer.headers)

    # DELETE

    async def delete(self, request: Request) -> Response:
        await self.directory.delete(self._writable_key(request))
        return Response(status_code=204)

    # HEAD and GET

    async def describe(self, request: Request) -> Response:
        opened = await self._open(request)
        readable = opened.readable
        offset = readable.offset_at(readable.tail)
        headers = {
            "content-type": readable.content_type,
            NEXT_OFFSET: offset,
            "cache-control": "no-store",
            "etag": make_etag(etag_name(readable), "-1", offset, readable.is_closed),
        }
        if readable.is_closed:
            headers[CLOSED] = "true"
        if opened.stream is not None:
            headers |= describe_expiry(opened.stream.state)
        return Response(headers=headers)

    async def read(self, request: Request) -> Response | EventStreamResponse:
        query = request.query_params
        read = parse_read(
            query.getlist("offset"),
            query.get("live", ""),
            query.get("cursor"),
            request.headers.get("last-event-id"),
        )
        meter = self._access.start_read_meter(request)
        opened = await self._open(request)
        position = opened.readable.resolve(read.offset)
        await self._prime_view(opened.readable, position)
        if opened.stream is not None:
            await opened.stream.touch()
        if read.live is LiveMode.SSE:
            return self._follow(request, opened, position, read, meter)
        if read.live is LiveMode.LONG_POLL:
            return await self._poll(request, opened, position, read, meter)
        if read.offset == NOW:
            return make_page_response(
                opened.readable, ContentPage([], position), {"cache-control": "no-store"}
            )

        page = await self._read_page(opened.readable, position, meter)
        return self._make_read_response(request, opened.readable, page, {})

    async def _prime_view(self, readable: Readable, position: int) -> None:
        if readable.view is not None:
            await readable.view.prime(self._access.sessions.log, readable.session_id, position - 1)

    async def _read_page(self, readable: Readable, position: int, meter: ReadMeter) -> ContentPage:
        log = self._access.sessions.log
        page = await read_contents(log, readable, position, MAX_RESPONSE_BYTES)
        meter.charge(sum(map(len, page.contents)))
        return page

    async def _poll(
        self, request: Request, opened: OpenedStream, position: int, read: ReadRequest, meter: ReadMeter
    ) -> Response:
        readable = opened.readable
        if position >= readable.tail and not readable.is_closed:
            with self._streams.count_stream(get_identity(request.scope)):
                await wait_for_content(self._access.sessions.log, readable, self._long_poll_s)
            opened = await self._open(request)
            readable = opened.readable
            await self._prime_view(readable, position)
            if opened.stream is not None:
                await opened.stream.touch()

        page = await self._read_page(readable, position, meter)
        headers: dict[str, str] = {}
        if not (readable.is_closed and page.position >= readable.tail and not page.contents):
            headers["stream-cursor"] = str(make_cursor(read.cursor))
        if page.contents:
            return self._make_read_response(request, readable, page, headers)
        headers |= describe_position(readable, page.position)
        return Response(status_code=204, headers=headers)

    def _make_read_response(
        self, request: Request, readable: Readable, page: ContentPage, headers: Mapping[str, str]
    ) -> Response:
        is_up_to_date = page.position >= readable.tail
        is_closed = is_up_to_date and readable.is_closed
        start = request.query_params.get("offset", "-1")
        etag = make_etag(etag_name(readable), start, readable.offset_at(page.position), is_closed)
        all_headers = {
            **headers,
            "etag": etag,
            "vary": VARY,
            "cache-control": TAIL_CACHE if is_up_to_date else HISTORY_CACHE,
        }
        if matches_etag(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=all_headers)
        return make_page_response(readable, page, all_headers)

    def _follow(
        self, request: Request, opened: OpenedStream, position: int, read: ReadRequest, meter: ReadMeter
    ) -> EventStreamResponse:
        readable = opened.readable
        membership = opened.membership
        channels = membership.visible_channels if membership else None
        encoder = self._encoders.get(readable, channels, read.cursor)
        heartbeat_s = self._heartbeat_s
        if opened.stream is not None and opened.stream.state.ttl_s:
            heartbeat_s = min(heartbeat_s, opened.stream.state.ttl_s / 2)
        log = self._access.sessions.log
        source = LiveSource(log, readable, encoder, position, meter, heartbeat_s, opened.stream)
        headers = []
        if readable.format is StreamFormat.BINARY:
            headers.append((b"stream-sse-data-encoding", b"base64"))
        return self._streams.make_response(
            source,
            get_identity(request.scope),
            [membership] if membership else [],
            STREAM_FRAMING,
            headers,
        )

    # paths

    async def _open(self, request: Request) -> OpenedStream:
        """Return what a path names, as it is now. Raise `NotFound` if the caller may not read it."""
        path = get_path(request)
        if is_session_id(path):
            membership = await self._access.find_membership(request, path)
            return OpenedStream(make_readable_session(membership), membership=membership)
        stream = await self.directory.get(StreamKey(get_identity(request.scope).principal, path))
        request.scope[SESSION_KEY] = stream.session_id
        return OpenedStream(make_readable_stream(stream), stream=stream)

    def _writable_key(self, request: Request) -> StreamKey:
        path = get_path(request)
        if path.startswith("sess_") and is_session_id(path):
            raise BadInput("a session is only read here: choose a path that is not a session id", "path")
        return StreamKey(get_identity(request.scope).principal, path)


def check_no_form(request: Request) -> None:
    """Raise `UnsupportedBody` for a body that the form of another site can send with a cookie.

    Streams have any content type, so the type does not tell. A browser names the origin of its requests.
    """
    if get_identity(request.scope).cookie is None or "origin" in request.headers:
        return
    if media_type_of(request.headers.get("content-type", "")) in FORM_TYPES:
        raise UnsupportedBody("expected the header Origin with this content type and a cookie")


def index_headers(request: Request) -> dict[str, str]:
    """Return the headers by name. `request.headers` searches all of them for each name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}


def get_path(request: Request) -> str:
    path: str = request.path_params["path"]
    if not 0 < len(path) <= MAX_PATH_CHARS:
        raise NotFound(f"expected a path of 1 to {MAX_PATH_CHARS} characters")
    return path


def with_source_path(create: CreateRequest, request: Request) -> CreateRequest:
    """Return the request with the path of its fork's source in place of the URL that the header has."""
    if create.fork is None:
        return create
    url_path = unquote(create.fork.source)
    _, prefix, path = url_path.partition(PREFIX)
    if not prefix or is_session_id(path):
        raise BadInput(f"expected the path of a stream, {PREFIX}...", "Stream-Forked-From")
    return create._replace(fork=create.fork._replace(source=path))


async def decode_content_body(request: Request, data: bytearray, content_type: str) -> StreamAppend:
    """Return a body as an append. An array of JSON is a batch of messages."""
    if format_of(content_type) is not StreamFormat.JSON:
        return StreamAppend(data=bytes(data))
    value = await decode_json_body(request, data, object)
    return StreamAppend(messages=tuple(value) if isinstance(value, list) else (value,))


async def make_append_body(request: Request, headers: AppendHeaders, data: bytearray) -> AppendRequestBody:
    """Return what a POST appends. Raise `BadInput` if it is nothing, or has no content type."""
    content_type = headers.content_type or ""
    if not data:
        if not headers.closes:
            raise BadInput("expected something to append, got an empty body")
        return AppendRequestBody(None, content_type, headers.producer, closes=True)
    if not content_type:
        raise BadInput("expected the content type of the stream", "Content-Type")

    content = await decode_content_body(request, data, content_type)
    if not content.messages and not content.data:
        raise BadInput("expected at least one message, got an empty array")
    content = StreamAppend(
        messages=content.messages,
        data=content.data,
        producer=headers.producer,
        writer_seq=headers.writer_seq,
        closes=headers.closes,
    )
    return AppendRequestBody(content, content_type, headers.producer, headers.closes, len(data))


async def run_append(stream: OpenStream, body: AppendRequestBody) -> StreamDecision:
    event_id = make_producer_event_id(body.producer) if body.producer else None
    return await stream.run_request(partial(plan_stream_append, body), event_id, body.size_bytes)


def make_producer_event_id(producer: Producer) -> str:
    """Return the id of the event that a producer's request leads to: the log stores it once."""
    text = f"{len(producer.id)}:{producer.id}:{producer.epoch}:{producer.seq}"
    return "evt_" + sha256(text.encode()).hexdigest()[:40]


def describe_position(readable: Readable, position: int) -> dict[str, str]:
    headers = {NEXT_OFFSET: readable.offset_at(position)}
    if position >= readable.tail:
        headers[UP_TO_DATE] = "true"
        if readable.is_closed:
            headers[CLOSED] = "true"
    return headers


def make_page_response(readable: Readable, page: ContentPage, headers: Mapping[str, str]) -> Response:
    all_headers = {**headers, **describe_position(readable, page.position)}
    all_headers["content-type"] = readable.content_type
    return Response(join_contents(page.contents, readable.format), headers=all_headers)


def etag_name(readable: Readable) -> str:
    return f"{readable.session_id.removeprefix('sess_')}:{readable.epoch}"
