"""HTTP requests from another process to one Turnlog server, through httpx.

The token is sent to this server only: redirects are not followed, no cookie is stored, and the environment's
proxies are used only with `trust_env`. Connections are reused. A connection that fails, ends early, does not
speak HTTP or is silent for too long raises `ServerUnavailable`: the same request may be sent again. Bodies
come as raw bytes, because the decoder of the stream must see them unchanged.

Limits: the times below bound every wait, the HTTP library bounds the head of a response (100 KiB), and each
caller bounds the body that it reads.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from turnlog.errors import CallerError, PeerError, quote

if TYPE_CHECKING:
    import httpx2

RESPONSE_TIMEOUT_S = 30.0  # to connect, to send, and until the head of a response is complete
SILENCE_TIMEOUT_S = 45.0  # between two reads of a body: three heartbeats of a stream
KEEPALIVE_S = 2.0  # shorter than a server keeps an idle connection (uvicorn: 5 s), longer than a poll
MAX_ERROR_BYTES = 1000  # of a refusal; a message shows 80 characters of it
MAX_RESPONSE_BYTES = 64 * 1024  # of the response to a POST
TOO_MANY_REQUESTS = 429
MISSING_PACKAGE = "clients of a server need the package httpx2: pip install 'turnlog[remote]'"

_VISIBLE_ASCII = re.compile(r"[!-~]+")


class ServerUnavailable(ConnectionError):
    """The server cannot be reached or cannot answer now; the request may be sent again."""


class ServerClient:
    """A pool of connections to one server. It opens with its first request and can be used after `aclose`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        trust_env: bool = False,
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
    ) -> None:
        check_server_url(url)
        if token is not None:
            check_token(token)
        if find_spec("httpx2") is None:
            raise CallerError(MISSING_PACKAGE)
        self.base_url = url.rstrip("/")
        self._headers = {"accept-encoding": "identity"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._trust_env = trust_env
        self._silence_timeout_s = silence_timeout_s
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator["httpx2.Response"]:
        async with self._send("GET", path, headers, b"") as response:
            yield response

    @asynccontextmanager
    async def stream_post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator["httpx2.Response"]:
        async with self._send("POST", path, headers, body) as response:
            yield response

    async def get(self, path: str, limit_bytes: int) -> tuple[int, bytes]:
        async with self._send("GET", path, {}, b"") as response:
            return response.status_code, await read_response_body(response, limit_bytes)

    async def post(
        self,
        path: str,
        body: bytes,
        limit_bytes: int = MAX_RESPONSE_BYTES,
        headers: Mapping[str, str] = {},
    ) -> tuple[int, bytes]:
        sent_headers = {"content-type": "application/json", **headers}
        async with self._send("POST", path, sent_headers, body) as response:
            return response.status_code, await read_response_body(response, limit_bytes)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator["httpx2.Response"]:
        if self._client is None:
            self._client = self._open_client()
        request = self._client.build_request(method, self.base_url + path, headers=headers, content=body)
        with translate_transport_errors():
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                response = await self._client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()

    def _open_client(self) -> "httpx2.AsyncClient":
        import httpx2

        return httpx2.AsyncClient(
            headers=self._headers,
            # the trust store of this machine, as every other Python program here uses it
            verify=ssl.create_default_context() if self.base_url.startswith("https:") else False,
            timeout=httpx2.Timeout(RESPONSE_TIMEOUT_S, read=self._silence_timeout_s, pool=None),
            # one stream for each session stays open, so the number of connections has no limit of its own
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            trust_env=self._trust_env,
        )


def check_server_url(url: str) -> None:
    """Raise `CallerError` unless this is an http(s) URL of visible ASCII without user and query."""
    with suppress(ValueError):  # a port that is no number, half an IPv6 address
        parts = urlsplit(url)
        has_valid_port = parts.port is None or parts.port > 0
        is_http = parts.scheme in ("http", "https") and parts.hostname
        is_plain = _VISIBLE_ASCII.fullmatch(url) and "@" not in parts.netloc and not parts.query
        if is_http and is_plain and has_valid_port:
            return
    raise CallerError(f"expected a URL like https://host:port, got {quote(url)}")


def check_token(token: str) -> None:
    """Raise `CallerError` unless a header can carry the token."""
    if not _VISIBLE_ASCII.fullmatch(token):
        raise CallerError("expected a token of visible ASCII characters")


@contextmanager
def translate_transport_errors() -> Iterator[None]:
    """Raise `ServerUnavailable` for everything that the network or a broken peer can cause."""
    import httpx2

    try:
        yield
    except (httpx2.TransportError, TimeoutError) as error:
        raise ServerUnavailable(f"{type(error).__name__}: {error}") from error


async def read_response_body(response: "httpx2.Response", limit_bytes: int) -> bytes:
    """Return the body up to a limit. The rest is not read, and the connection is closed."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= limit_bytes:
            break
    return bytes(body[:limit_bytes])


def check_status(status: int, body: bytes) -> None:
    """Raise `ServerUnavailable` for a status that may pass, `PeerError` for any other but 200."""
    if status >= 500 or status == TOO_MANY_REQUESTS:
        raise ServerUnavailable(f"the server answered {status}")
    if status != 200:
        raise PeerError(f"expected status 200, got {status}: {error_text(body)}")


def error_text(body: bytes) -> str:
    return quote(body.decode(errors="replace"))
