"""One run of an agent of AG-UI over HTTP: RunAgentInput is posted, the events of the response are yielded.

The URL is the application's, what answers there is not trusted. The token is sent to the origin of the URL
only: redirects are followed within the origin (307 and 308, which keep the request), and refused elsewhere.
No cookie is stored, no compression is accepted. A response that breaks a limit raises `PeerError`.
Leaving the iterator closes the connection, which is how a run of AG-UI is stopped.
"""

import inspect
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import msgspec

from turnlog.adapters.runner import Part
from turnlog.agents.remote.server_client import (
    MAX_ERROR_BYTES,
    ServerClient,
    check_token,
    error_text,
    read_response_body,
)
from turnlog.errors import BadInput, CallerError, PeerError, quote
from turnlog.parse.foreign.ag_ui_events import DROPPED_TYPES
from turnlog.parse.json_values import JsonObject, decode_json, encode_json
from turnlog.wire.sse import Decoder

if TYPE_CHECKING:
    import httpx2

MAX_EVENT_BYTES = 10 << 20  # the limit of the protocol's own client
MAX_RUN_EVENTS = 200_000  # about an hour of tokens; a server without a limit of its own is broken
MAX_RUN_BYTES = 256 << 20  # RAW events repeat the whole state of a graph
MAX_REDIRECTS = 3  # within the origin: a slash that is missing, a path that has moved
KEPT_REQUEST = frozenset({307, 308})  # redirects that repeat the request as it is
SSE_MEDIA_TYPE = "text/event-stream"
OWN_HEADERS = frozenset({"accept", "accept-encoding", "content-type", "content-length", "host"})

Token = str | Callable[[Part], str | Awaitable[str]]


class EventHead(msgspec.Struct):
    type: str


SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # JSON that has one is rare, and slower to decode
decode_type = msgspec.json.Decoder(EventHead).decode


class AgUiEndpoint:
    """The URL of an agent. `token` is a value, or a function of the `Part` that may be async."""

    def __init__(
        self, url: str, token: Token | None, headers: Mapping[str, str], silence_timeout_s: float
    ) -> None:
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._silence_timeout_s = silence_timeout_s
        self._make_client()  # checks the URL, and that the HTTP library is installed
        if isinstance(token, str):
            check_token(token)
        if owned := OWN_HEADERS & {name.lower() for name in headers}:
            raise CallerError(f"expected no header {min(owned)}: the adapter sends it")
        if not silence_timeout_s > 0:
            raise CallerError(f"expected a silence_timeout_s above 0, got {silence_timeout_s}")
        self._token = token
        self._headers = dict(headers)

    def _make_client(self) -> ServerClient:
        return ServerClient(self._origin, silence_timeout_s=self._silence_timeout_s)

    async def run(self, part: Part, body: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Post a body, and yield the events of its run. The stream may end without the end of the run."""
        headers = await self._build_headers(part)
        content = msgspec.json.encode(body)
        # a client of its own for each run: connections belong to an event loop, and a runner to none
        client = self._make_client()
        try:
            path: str | None = self._path
            for _ in range(MAX_REDIRECTS + 1):
                assert path is not None
                async with client.stream_post(path, content, headers) as response:
                    path = self._find_redirect(response)
                    if path is not None:
                        continue
                    await check_response(response)
                    async for event in read_events(response.aiter_raw()):
                        yield event
                    return
            raise PeerError(f"expected at most {MAX_REDIRECTS} redirects")
        finally:
            await client.aclose()

    async def _build_headers(self, part: Part) -> dict[str, str]:
        headers = {**self._headers, "content-type": "application/json", "accept": SSE_MEDIA_TYPE}
        token = self._token(part) if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        if token is not None:
            check_token(token)
            headers["authorization"] = f"Bearer {token}"
        return headers

    def _find_redirect(self, response: "httpx2.Response") -> str | None:
        """Return where the request is sent again; None if this is no redirect. Raise `PeerError`."""
        if response.status_code not in KEPT_REQUEST:
            return None
        target = urljoin(str(response.url), response.headers.get("location", ""))
        parts = urlsplit(target)
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            raise PeerError(f"expected no redirect to another origin, got {quote(target)}")
        return parts.path + (f"?{parts.query}" if parts.query else "")


async def check_response(response: "httpx2.Response") -> None:
    """Raise `PeerError` unless this is a stream of events."""
    if response.status_code != 200:
        body = await read_response_body(response, MAX_ERROR_BYTES)
        raise PeerError(f"expected status 200, got {response.status_code}: {error_text(body)}")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != SSE_MEDIA_TYPE:
        raise PeerError(f"expected {SSE_MEDIA_TYPE}, got {quote(media_type)}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise PeerError("expected a response without compression")


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[JsonObject]:
    """Yield the events of a stream that a translator reads. Raise `PeerError` for what breaks a limit."""
    decoder = Decoder(MAX_EVENT_BYTES)
    size_bytes = 0
    count = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > MAX_RUN_BYTES:
            raise PeerError(f"expected a run of at most {MAX_RUN_BYTES} bytes, got more")
        try:
            messages = decoder.feed(chunk)
        except BadInput as error:
            raise PeerError(str(error)) from None
        for message in messages:
            count += 1
            if count > MAX_RUN_EVENTS:
                raise PeerError(f"expected a run of at most {MAX_RUN_EVENTS} events, got more")
            event = decode_ag_ui_event(message.data)
            if event is not None:
                yield event


def decode_ag_ui_event(data: str) -> JsonObject | None:
    """Return an event; None for one that nothing reads, which may have any size and depth."""
    try:
        if SURROGATE_ESCAPE.search(data):
            return decode_cut_text(data)
        body = data.encode()
        if decode_type(body).type in DROPPED_TYPES:
            return None
        event = decode_json(body)
    except (msgspec.DecodeError, ValueError, RecursionError, BadInput) as error:
        raise PeerError(f"expected an event of AG-UI: {str(error)[:80]}, got {quote(data)}") from None
    assert isinstance(event, dict)
    return event


def decode_cut_text(data: str) -> JsonObject | None:
    """Return an event whose `delta` may have one half of a surrogate pair, with the other in the next event.

    Servers in JavaScript cut texts between the halves. Elsewhere in the event a lone half is replaced.
    """
    event = json.loads(data)
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise BadInput("expected an object with a type")
    if event["type"] in DROPPED_TYPES:
        return None
    delta = event.get("delta")
    plain: JsonObject = decode_json(encode_json(event, None))
    if isinstance(delta, str):
        plain["delta"] = delta
    return plain
