"""A real server in its own process, and readers on real sockets that can be cut at any byte."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.forks import Fork
from tests.support.limits import HANG_S
from turnlog.wire.sse import Decoder, ServerSentEvent

ROOT = Path(__file__).parent.parent.parent
TURNLOG = str(Path(sys.executable).parent / "turnlog")

# Of a stream: what differs from reader to reader, and where it is in the stream.
RETRY = re.compile(rb"^retry: \d+\n\n|event: caught-up\ndata: .*\n\n")

Process = subprocess.Popen[str] | Fork


@dataclass
class Server:
    """A running server process."""

    process: Process
    port: int
    link: str = ""
    token: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """What says who is asking."""
        return {"authorization": f"Bearer {self.token}"}

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s: float = HANG_S) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """POST JSON; status and answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, {"content-type": "application/json", **(headers or {})})

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """GET; status and answer."""
        return self.ask("GET", path, None, headers or {})

    def ask(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, data, self.headers | headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=HANG_S) as response:
                status, body = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
            error.close()
        return status, json.loads(body) if body.startswith((b"{", b"[")) else body

    def session(self) -> str:
        """A new session."""
        status, answer = self.post("/api/sessions", {})
        assert status == 201
        return str(answer["session_id"])

    def send(self, session: str, message: str) -> Any:
        """Send a message; the answer of the route."""
        status, answer = self.post("/api/send", {"session": session, "message": message})
        assert status == 202, answer
        return answer


@contextlib.contextmanager
def running(
    app: str,
    folder: Path,
    port: int = 0,
    program: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """A server process on a log in a folder; killed at the end if it still runs.

    It is a fork, or what a program does with the arguments of `turnlog`.
    """
    arguments = [
        "serve",
        app if ":" in app else f"tests.e2e.apps:{app}",
        "--log",
        f"sqlite:///{folder}/log.db",
        "--port",
        str(port),
        *options,
    ]
    token = hashlib.sha256(str(folder).encode()).hexdigest()  # the same after a restart
    env = os.environ | {"TURNLOG_TOKEN": token}
    process: Process = (
        subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
        if program
        else Fork(arguments, ROOT, env)
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, line
        link = process.stdout.readline().rpartition(" ")[2].strip()
        server = Server(process, int(line.split("127.0.0.1:")[1].split("/")[0]), link, token)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Dechunker:
    """HTTP chunked transfer coding off, as far as the bytes go."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        out = []
        while self._buffer:
            if self._left > 2:
                piece = self._buffer[: self._left - 2]
                out.append(piece)
                self._buffer = self._buffer[len(piece) :]
                self._left -= len(piece)
            elif self._left:
                if len(self._buffer) < self._left:
                    break
                self._buffer = self._buffer[self._left :]
                self._left = 0
            else:
                head, line_end, rest = self._buffer.partition(b"\r\n")
                if not line_end:
                    break
                self._buffer, self._left = rest, int(head, 16) + 2
        return b"".join(out)


@dataclass
class Reader:
    """A reader of one session: what it has, and where it would resume."""

    server: Server
    session: str
    query: str = ""
    last_id: str = ""
    messages: list[ServerSentEvent] = field(default_factory=list)
    status: int = 0
    prefix: str = ""

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The raw bytes of the response body as they come, from where the reader is."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        resume = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        dialect = "" if "dialect=" in self.query else "&dialect=turnlog"  # whatever the application's is
        path = f"{self.prefix}/api/events?session={self.session}{self.query}{dialect}"
        who = "".join(f"{name}: {value}\r\n" for name, value in self.server.headers.items())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{who}{resume}\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.status = int(head.split()[1])
            while data := await reader.read(65536):
                yield data
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    async def read(self, until: Any, cut: int | None = None, limit_s: float = HANG_S) -> bool:
        """Read until a message satisfies, or the connection is cut after so many bytes, or it ends.

        True when the wanted message came.
        """
        decoder, dechunker, taken = Decoder(), Dechunker(), 0
        async with asyncio.timeout(limit_s):
            async with contextlib.aclosing(self.pieces()) as pieces:
                async for piece in pieces:
                    if cut is not None:
                        piece = piece[: cut - taken]
                    taken += len(piece)
                    if self.take(decoder.feed(dechunker.feed(piece)), until):
                        return True
                    if cut is not None and taken >= cut:
                        return False
        return False

    def take(self, messages: list[ServerSentEvent], until: Any) -> bool:
        """Keep what came; whether the wanted message was among it."""
        for message in messages:
            if message.event == "caught-up" and not until(message):
                continue  # where it comes depends on the moment of the connection
            self.messages.append(message)
            self.last_id = message.id or self.last_id
            if until(message):
                return True
        return False

    @property
    def events(self) -> list[Any]:
        """The log events, decoded."""
        return [json.loads(message.data) for message in self.messages if message.event == "message"]


def kind(name: str, agent: str | None = None) -> Any:
    """A condition: an event of this type, of this agent."""

    def matches(message: ServerSentEvent) -> bool:
        if message.event != "message":
            return message.event == name
        event = json.loads(message.data)
        return bool(event["type"] == name and (agent is None or event.get("agent_name") == agent))

    return matches
