"""A server's routes as a client in another process uses them: HTTP/1.1 over asyncio's streams.

One connection per request, with or without TLS; bodies by chunks, by length or to the end. It follows no
redirect and keeps no cookie: the token goes to this one server and into no URL. A connection that fails, ends
early or falls silent raises one of `GONE`, and the request may be made again; an answer that is not HTTP
raises `PeerError`. Heads are bounded by the stream's limit, waiting by the times below.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from turnlog.errors import CallerError, PeerError, quote

ANSWER_S = 30.0  # to connect, and to the head of an answer
SILENT_S = 45.0  # three heartbeats of a stream
PIECE_BYTES = 64 * 1024
GONE = (OSError, EOFError)  # timeouts and TLS errors are among the first, bodies cut short the second

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |$)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;.*)?\r\n")
_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer, and its body as it comes."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body, piece by piece."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := chunk_size(await soon(self.reader.readline())):
                async for piece in self._next(size):
                    yield piece
                await soon(self.reader.readexactly(2))
        elif (length := self.headers.get("content-length", "")).isdecimal():
            async for piece in self._next(int(length)):
                yield piece
        else:
            while piece := await soon(self.reader.read(PIECE_BYTES)):
                yield piece

    async def _next(self, left: int) -> AsyncIterator[bytes]:
        while left:
            piece = await soon(self.reader.read(min(left, PIECE_BYTES)))
            if not piece:
                raise EOFError("the connection ended inside an answer")
            left -= len(piece)
            yield piece

    async def body(self, limit_bytes: int) -> bytes:
        """The whole body, as far as the limit."""
        data = bytearray()
        async for piece in self.pieces():
            data += piece
            if len(data) >= limit_bytes:
                break
        return bytes(data[:limit_bytes])


class Door:
    """One server, by its address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts, port = address(url)
        if token is not None and not _VISIBLE.fullmatch(token):
            raise CallerError("expected a token of visible ASCII characters")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"host": parts.netloc} | ({"authorization": f"Bearer {token}"} if token else {})

    @asynccontextmanager
    async def get(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        """Ask; the connection is open as long as the answer is used."""
        async with self._ask("GET", path, headers, b"") as answer:
            yield answer

    async def post(self, path: str, body: bytes, limit_bytes: int = PIECE_BYTES) -> tuple[int, bytes]:
        """Send JSON; the status and the beginning of the answer."""
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        async with self._ask("POST", path, headers, body) as answer:
            return answer.status, await answer.body(limit_bytes)

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[Answer]:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **headers}.items()]
        head = "\r\n".join([*lines, "\r\n"]).encode("ascii")
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            async with asyncio.timeout(ANSWER_S):
                writer.write(head + body)
                await writer.drain()
                answer = await read_head(reader)
            yield answer
        finally:
            writer.transport.abort()


def address(url: str) -> tuple[SplitResult, int | None]:
    """The parts of a server's address, and its port; all of it can stand in the head of a request."""
    with suppress(ValueError):  # a port that is no number, half an IPv6 address
        parts = urlsplit(url)
        plain = _VISIBLE.fullmatch(url) and "@" not in parts.netloc and not parts.query
        if plain and parts.scheme in ("http", "https") and parts.hostname:
            return parts, parts.port
    raise CallerError(f"expected a URL like https://host:port, got {quote(url)}")


async def soon(work: Awaitable[bytes]) -> bytes:
    """What comes next, unless it is silent for too long."""
    async with asyncio.timeout(SILENT_S):
        return await work


async def read_head(reader: asyncio.StreamReader) -> Answer:
    """The head of an answer."""
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    except asyncio.LimitOverrunError:
        raise PeerError("expected the head of an HTTP answer, got one without an end") from None
    status = _STATUS.match(first)
    if status is None:
        raise PeerError(f"expected an HTTP answer, got {quote(first)}")
    pairs = [line.decode("latin-1").partition(":") for line in lines]
    return Answer(int(status[1]), {name.lower(): value.strip() for name, _, value in pairs}, reader)


def chunk_size(line: bytes) -> int:
    """The size that begins a chunk; 0 is the end."""
    if not line.endswith(b"\n"):
        raise EOFError("the connection ended inside an answer")
    size = _SIZE.fullmatch(line)
    if size is None:
        raise PeerError(f"expected the size of a chunk, got {quote(line)}")
    return int(size[1], 16)
