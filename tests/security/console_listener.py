"""The evil host: a real listener on loopback that takes whatever comes and remembers who wanted it.

It answers a navigation with nothing, so that a page that was led away stays, and a script with one that says
that it ran. The name of the host says which payload wanted it, the path by which way it had come.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from urllib.parse import urlsplit

from tests.security.console_payloads import DOMAIN, Hit


class Listener(ThreadingHTTPServer):
    """Counts connections, and keeps the hits."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self._came = threading.Condition()
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.connections = 0
        self.hits: set[Hit] = set()

    def get_request(self) -> tuple[socket, tuple[str, int]]:
        accepted: tuple[socket, tuple[str, int]] = super().get_request()
        self.connections += 1
        return accepted

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves is none."""

    def note(self, hit: Hit) -> None:
        with self._came:
            self.hits.add(hit)
            self._came.notify_all()

    def wait_for(self, hit: Hit, limit_s: float) -> None:
        """Until this has come; it has to."""
        with self._came:
            assert self._came.wait_for(lambda: hit in self.hits, limit_s), f"{hit} did not come"


class Answer(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Listener

    def do_GET(self) -> None:
        payload = self.headers.get("host", "").removesuffix(f".{DOMAIN}")
        way, _, kind = urlsplit(self.path).path.strip("/").partition(".")
        self.server.note((payload, way))
        body = f"pwned('{payload}/{way}')".encode() if kind == "js" else b""
        self.send_response(200 if body else 204)
        self.send_header("access-control-allow-origin", "*")
        self.send_header("cache-control", "no-store")
        self.send_header("connection", "close")  # so that every request is a connection
        if body:
            self.send_header("content-type", "text/javascript")
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_HEAD = do_OPTIONS = do_GET  # noqa: N815  as the base class wants them called

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener while it listens."""
    with Listener() as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()
