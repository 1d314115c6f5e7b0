"""A scripted provider on loopback: an answer for each request, and what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 529: "Overloaded"}
STREAM = "content-type: text/event-stream\r\n"


@dataclass
class Asked:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any
    connection: int


@dataclass
class Connection:
    """The provider's side of a connection, while it answers."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """A part of a body whose length is not known."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection."""
        while await self.reader.read(1024):
            pass


Answer = Callable[[Connection], Awaitable[None]]


@dataclass
class Provider:
    """Where it is, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Provider]:
    """A provider with these answers, in order."""
    provider, left = Provider(), iter(answers)
    serving_now: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving_now[task] = writer
        provider.connections += 1
        number = provider.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                size = int(headers.get("content-length", "0"))
                body = json.loads(await reader.readexactly(size)) if size else None
                provider.asked.append(Asked(first.split()[1], headers, body, number))
                await next(left)(Connection(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            del serving_now[task]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield provider
        for writer in serving_now.values():
            writer.close()
        await asyncio.gather(*serving_now)


def sse(events: Iterable[dict[str, Any]]) -> bytes:
    """Raw events as a body."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


def whole(events: Iterable[dict[str, Any]]) -> Answer:
    """A stream that ends as HTTP says; the connection stays."""
    body = sse(events)
    head = f"HTTP/1.1 200 OK\r\n{STREAM}content-length: {len(body)}\r\n\r\n".encode()
    return lambda connection: connection.send(head + body)


def opened() -> bytes:
    """The head of a stream that comes in chunks."""
    return f"HTTP/1.1 200 OK\r\n{STREAM}transfer-encoding: chunked\r\n\r\n".encode()


def cut(events: Iterable[dict[str, Any]]) -> Answer:
    """A stream whose connection breaks off."""

    async def answer(connection: Connection) -> None:
        await connection.send(opened())
        await connection.chunk(sse(events))
        connection.writer.close()

    return answer


def refusing(status: int, body: bytes = b"", headers: str = "") -> Answer:
    """An answer that is no stream."""
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'No')}\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return lambda connection: connection.send(head.encode() + body)


def problem(kind: str, message: str = "No.") -> dict[str, Any]:
    """An error as the API words it, in a body or in a stream."""
    return {"type": "error", "error": {"type": kind, "message": message}}
