"""Host and Origin: who is let in, who is not, and that nothing else would stop them (protocol section 8)."""

import asyncio
import json
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.tables import for_each_row
from turnlog.server.auth.host_check import LOOPBACK, HostOriginCheck, is_same_host, strip_port
from turnlog.server.middleware import RequestChecksMiddleware

Headers = list[tuple[str, str]]


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """The application behind the guard: it greets everybody."""
    await PlainTextResponse("hello")(scope, receive, send)


async def exchange(app: ASGIApp, scope: dict[str, Any]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def ask(app: ASGIApp, headers: Headers, method: str = "GET") -> tuple[int, bytes]:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": method, "path": "/", "headers": raw}
    start, body = asyncio.run(exchange(app, scope))
    return start["status"], body["body"]


def host(name: str, origin: str | None = None) -> Headers:
    return [("host", name), *([("origin", origin)] if origin is not None else [])]


GUARDED = RequestChecksMiddleware(hello, [HostOriginCheck(LOOPBACK)])

WELCOME = [
    host("127.0.0.1"),
    host("127.0.0.1:8765"),
    host("localhost"),
    host("localhost:8765"),
    host("[::1]"),
    host("[::1]:8765"),
    host("localhost:8765", "http://localhost:8765"),
    host("127.0.0.1:8765", "http://127.0.0.1:8765"),
    host("[::1]:8765", "http://[::1]:8765"),
    host("localhost", "http://localhost"),
    host("localhost", "https://localhost"),
    host("localhost:8765", ""),
]
FOREIGN_HOST = [
    [],
    host(""),
    host("evil.example"),
    host("evil.example:8765"),
    host("evil.example", "http://evil.example"),
    host("evil.example:8765", "http://localhost:8765"),
    host("localhost.evil.example"),
    host("evil.localhost"),
    host("127.0.0.1.evil.example:80"),
    host("127.0.0.2"),
    host("0.0.0.0:8765"),
    host("::1"),
    host("[::2]:8765"),
    host("localhost:port"),
    host("localhost:"),
    host("localhost:80:80"),
    host("user@localhost"),
    host("localhost,evil.example"),
]
FOREIGN_ORIGIN = [
    host("localhost:8765", "null"),
    host("localhost:8765", "http://evil.example"),
    host("localhost:8765", "http://evil.example:8765"),
    host("localhost:8765", "http://localhost"),
    host("localhost:8765", "http://localhost:3000"),
    host("localhost:8765", "http://127.0.0.1:8765"),
    host("127.0.0.1:8765", "http://localhost:8765"),
    host("localhost:8765", "http://localhost:8765.evil.example"),
    host("localhost:8765", "http://localhost:8765/"),
    host("localhost:8765", "http://evil@localhost:8765"),
    host("localhost:8765", "localhost:8765"),
    host("localhost:8765", "//localhost:8765"),
    host("localhost:8765", "file://localhost:8765"),
    host("localhost:8765", "chrome-extension://localhost:8765"),
    host("localhost:8765", "http://"),
]


@for_each_row("method", ["GET", "POST"])
@for_each_row("headers", WELCOME, ids=str)
def test_the_servers_own_names_and_pages_are_let_in(headers: Headers, method: str) -> None:
    assert ask(GUARDED, headers, method) == (200, b"hello")


@for_each_row("method", ["GET", "POST"])
@for_each_row("headers", FOREIGN_HOST, ids=str)
def test_foreign_hosts_are_refused(headers: Headers, method: str) -> None:
    status, body = ask(GUARDED, headers, method)
    error = json.loads(body)["error"]
    assert status == 421
    assert "does not answer for Host" in error
    assert error.endswith("it answers for 127.0.0.1, [::1], localhost")


@for_each_row("method", ["GET", "POST"])
@for_each_row("headers", FOREIGN_ORIGIN, ids=str)
def test_pages_of_other_origins_are_refused(headers: Headers, method: str) -> None:
    status, body = ask(GUARDED, headers, method)
    assert status == 403
    assert f"does not answer pages of Origin {headers[1][1]!r}" in json.loads(body)["error"]


@for_each_row("headers", FOREIGN_HOST + FOREIGN_ORIGIN, ids=str)
def test_without_the_guard_they_would_all_get_in(headers: Headers) -> None:
    assert ask(hello, headers) == (200, b"hello")


def test_a_refusal_quotes_little_of_a_long_header() -> None:
    _, body = ask(GUARDED, host("e" * 10_000))
    assert len(body) < 300
    _, body = ask(GUARDED, host("localhost", "http://" + "e" * 10_000))
    assert len(body) < 300


def test_bytes_that_are_no_name_are_refused_in_plain_words() -> None:
    status, body = ask(GUARDED, host("\xff\x00\n"))
    assert status == 421
    assert "\\x00" in json.loads(body)["error"]


def test_other_names_are_let_in_where_the_server_answers_for_them() -> None:
    guarded = RequestChecksMiddleware(hello, [HostOriginCheck(["log.example"])])
    assert ask(guarded, host("log.example:443", "https://log.example:443"))[0] == 200
    assert ask(guarded, host("localhost"))[0] == 421


@for_each_row("kind", ["lifespan", "websocket"])
def test_what_is_not_http_passes(kind: str) -> None:
    seen: list[Scope] = []

    async def listener(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    scope: dict[str, Any] = {"type": kind, "headers": [(b"host", b"evil.example")]}
    assert asyncio.run(exchange(RequestChecksMiddleware(listener, [HostOriginCheck(LOOPBACK)]), scope)) == []
    assert seen == [scope]


@for_each_row(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("localhost:1", "localhost"),
        ("[::1]:1", "[::1]"),
        ("[::1]", "[::1]"),
        ("localhost:", "localhost:"),
        ("", ""),
    ],
)
def test_the_port_is_no_part_of_the_name(header: str, name: str) -> None:
    assert strip_port(header) == name


def test_an_origin_is_the_server_when_name_and_port_are_the_same() -> None:
    assert is_same_host("http://localhost:1", "localhost:1")
    assert not is_same_host("http://localhost:1", "localhost:2")
    assert not is_same_host("localhost:1", "localhost:1")


def test_a_port_is_made_of_ordinary_digits() -> None:
    assert ask(GUARDED, host("localhost:²"))[0] == 421
