"""A pooler in front of a PostgreSQL, as PgBouncer is one: in session mode, or in transaction mode.

In session mode a client has a connection of its own to the engine. In transaction mode it has one from its
first statement to the end of the transaction; then the next client gets it, with the settings of the one
before. Clients get a made-up process id in both modes. One client at a time sends: the test waits for each.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

PoolMode = Literal["session", "transaction"]

ENCRYPTION_REQUESTS = (80877103, 80877104)  # TLS and GSSAPI
POOLER_PID = 999_999_999


class WireEnd:
    """One end of a connection that carries messages: a type byte, a length, the rest."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._reader = end.makefile("rb")

    def read(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise ConnectionError("the connection has ended")
        return data

    def read_message(self) -> tuple[bytes, bytes]:
        kind = self.read(1)
        length = self.read(4)
        return kind, kind + length + self.read(struct.unpack("!i", length)[0] - 4)

    def read_startup(self) -> bytes:
        """Return the first message of a client; refuse encryption."""
        while True:
            length = self.read(4)
            body = self.read(struct.unpack("!i", length)[0] - 4)
            if struct.unpack("!i", body[:4])[0] not in ENCRYPTION_REQUESTS:
                return length + body
            self.socket.sendall(b"N")

    def read_until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        kind = b""
        while kind != b"Z":
            kind, message = self.read_message()
            yield kind, message


class ConnectionPooler:
    """Serves clients on a port of its own until it is closed."""

    def __init__(self, port: int, mode: PoolMode) -> None:
        self._target = port
        self._mode = mode
        self._free: list[WireEnd] = []  # the one that became free last is taken first
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def url(self) -> str:
        return f"postgresql://turnlog@127.0.0.1:{self.port}/postgres"

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._ends.append(client)
                self._start(self._serve, WireEnd(client))

    def _serve(self, client: WireEnd) -> None:
        with suppress(OSError):
            startup = client.read_startup()
            server = WireEnd(socket.create_connection(("127.0.0.1", self._target)))
            self._ends.append(server.socket)
            server.socket.sendall(startup)
            for kind, message in server.read_until_ready():
                is_key = kind == b"K"
                client.socket.sendall(
                    message[:5] + struct.pack("!i", POOLER_PID) + message[9:] if is_key else message
                )
            if self._mode == "session":
                self._start(self._relay, server, client)
                self._relay(client, server)
                return
            self._free.append(server)
            while True:
                self._run_transaction(client)

    def _relay(self, source: WireEnd, target: WireEnd) -> None:
        with suppress(OSError):
            while True:
                kind, message = source.read_message()
                target.socket.sendall(message)
                if kind == b"X":
                    return

    def _run_transaction(self, client: WireEnd) -> None:
        """Forward the messages of one transaction to a free connection."""
        server: WireEnd | None = None
        while True:
            kind, message = client.read_message()
            if kind == b"X":
                raise ConnectionError("the client has ended")
            if server is None:
                with self._lock:
                    server = self._free.pop()
            server.socket.sendall(message)
            if kind not in (b"Q", b"S"):
                continue
            for _, answer in server.read_until_ready():
                client.socket.sendall(answer)
            if answer[-1:] == b"I":
                with self._lock:
                    self._free.append(server)
                return

    def close(self) -> None:
        for end in [self._listener, *self._ends]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


@contextmanager
def running_pooler(port: int, mode: PoolMode) -> Iterator[ConnectionPooler]:
    pooler = ConnectionPooler(port, mode)
    try:
        yield pooler
    finally:
        pooler.close()
