"""A line between a browser and a server that can go silent: it stays open, and nothing comes through."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Line:
    """Hands bytes on in both directions. `silence` holds for the connections there are, not for new ones.

    `received` is every byte that came from the server.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._silent: set[socket.socket] = set()
        self._open: list[socket.socket] = []
        self._servers: set[socket.socket] = set()
        self.received = bytearray()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def silence(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        self._silent.update(self._open)

    def close(self) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                page, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._open += [page, server]
                self._servers.add(server)
                for source, target in ((page, server), (server, page)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source in self._servers:
                    self.received += data
                if source not in self._silent:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            if source not in self._silent:
                target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def line_to(port: int) -> Iterator[Line]:
    """A line to a server on this machine."""
    line = Line(port)
    try:
        yield line
    finally:
        line.close()
