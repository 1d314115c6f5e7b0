"""A TCP proxy on loopback in front of a server: open, frozen (bytes wait) or refusing (connections end).

Answers alone can be frozen, too: the server does what it was told, and its client does not hear of it.

A frozen connection is what a partition looks like to both ends: nothing arrives, and nothing says so.
"""

import selectors
import socket
import threading
from contextlib import suppress
from typing import NamedTuple

CHUNK_BYTES = 65_536


class Pair(NamedTuple):
    """The two sockets of one connection, and the port that the server sees as that of its client."""

    client: socket.socket
    server: socket.socket
    client_port: int


class FaultyProxy:
    """Forwards connections to a port of this machine until it is closed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[Pair] = []
        self._thawed = threading.Condition(self._lock)
        self._is_frozen = False
        self._frozen_ports: set[int] = set()
        self._has_frozen_answers = False
        self._is_refusing = False
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def url(self, user: str = "turnlog", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def freeze(self, client_port: int | None = None) -> None:
        """Hold all bytes, or those of one connection, until `open`. New connections are held, too."""
        with self._lock:
            if client_port is None:
                self._is_frozen = True
            else:
                self._frozen_ports.add(client_port)

    def freeze_answers(self) -> None:
        """Hold the bytes from the server until `open`, or until `refuse` drops them."""
        with self._lock:
            self._has_frozen_answers = True

    def refuse(self) -> None:
        """End all connections, and new ones at once, until `open`."""
        with self._thawed:
            self._is_refusing = True
            self._has_frozen_answers = False
            self._end_pairs()
            self._thawed.notify_all()

    def open(self) -> None:
        with self._thawed:
            self._is_frozen = False
            self._frozen_ports.clear()
            self._has_frozen_answers = False
            self._is_refusing = False
            self._thawed.notify_all()

    def close(self) -> None:
        with self._thawed:
            self._is_closed = True
            self._is_frozen = False
            self._frozen_ports.clear()
            self._has_frozen_answers = False
            self._end_pairs()
            self._thawed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _end_pairs(self) -> None:
        for pair in self._pairs:
            for end in (pair.client, pair.server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = None if self._is_refusing or self._is_closed else self._connect()
            if server is None:
                client.close()
                continue
            pair = Pair(client, server, server.getsockname()[1])
            with self._lock:
                self._pairs.append(pair)
            self._start(self._forward, pair)

    def _connect(self) -> socket.socket | None:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", self._target))
        return None

    def _forward(self, pair: Pair) -> None:
        selector = selectors.DefaultSelector()
        selector.register(pair.client, selectors.EVENT_READ, pair.server)
        selector.register(pair.server, selectors.EVENT_READ, pair.client)
        with suppress(OSError), selector, pair.client, pair.server:
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(CHUNK_BYTES)
                    self._wait_until_open(pair, is_answer=source is pair.server)
                    if not data:
                        return
                    key.data.sendall(data)

    def _wait_until_open(self, pair: Pair, is_answer: bool) -> None:
        with self._thawed:
            while self._is_held(pair, is_answer):
                self._thawed.wait()

    def _is_held(self, pair: Pair, is_answer: bool) -> bool:
        if self._is_frozen or (is_answer and self._has_frozen_answers):
            return True
        return pair.client_port in self._frozen_ports
