"""The head of a request is bounded before anything is stored, and trailers are never headers."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Server, running
from turnlog.server import request_head

GUARD_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("endless", tmp_path_factory.mktemp("head")) as server:
        yield server


def exchange(server: Server, *pieces: bytes) -> tuple[int, bytes]:
    """Send a request in pieces and return the status and everything that came back."""
    with socket.create_connection(("127.0.0.1", server.port), GUARD_S) as peer:
        for piece in pieces:
            try:
                peer.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
        answer = b""
        while piece := peer.recv(65536):
            answer += piece
            if answer.endswith(b"\r\n0\r\n\r\n") or b"connection: close" in answer:
                break
    return int(answer.split(b" ", 2)[1]), answer


def head(server: Server, *fields: str, line: str = "GET /healthz HTTP/1.1") -> bytes:
    lines = [line, f"Host: 127.0.0.1:{server.port}", "Connection: close", *fields, "", ""]
    return "\r\n".join(lines).encode()


def chunked_session(server: Server, *fields: str, trailers: tuple[str, ...] = ()) -> bytes:
    """A request for a new session whose body is chunked and has a trailer section."""
    fields = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close", *fields)
    start = "\r\n".join(["POST /api/sessions HTTP/1.1", *fields, "", ""])
    return "\r\n".join([start + "2", "{}", "0", *trailers, "", ""]).encode()


def test_request_head_within_bounds_is_answered(server: Server) -> None:
    fields = [f"X-{number}: {'v' * 300}" for number in range(request_head.MAX_HEADER_FIELDS - 2)]

    assert exchange(server, head(server, *fields))[0] == 200


def test_request_head_too_many_fields_is_431(server: Server) -> None:
    fields = [f"X-{number}: v" for number in range(request_head.MAX_HEADER_FIELDS + 1)]

    status, answer = exchange(server, head(server, *fields))

    assert status == 431
    assert b"more than 128 header fields" in answer


@pytest.mark.parametrize("piece", [b"a:b\r\n", b"X-Long: " + b"v" * 4096 + b"\r\n", b"v" * 4096])
def test_request_head_without_end_is_431(server: Server, piece: bytes) -> None:
    count = 2 * request_head.MAX_HEAD_BYTES // len(piece)
    start = b"GET / HTTP/1.1\r\nX-Begin: "

    assert exchange(server, start, *[piece] * count)[0] == 431


def test_request_url_too_long_is_414(server: Server) -> None:
    line = f"GET /?{'q' * request_head.MAX_URL_BYTES} HTTP/1.1"

    assert exchange(server, head(server, line=line))[0] == 414


def test_request_url_without_end_is_refused(server: Server) -> None:
    assert exchange(server, b"GET /", *[b"q" * 4096] * 100)[0] in (414, 431)


def test_trailer_section_without_end_ends_the_connection(server: Server) -> None:
    request = chunked_session(
        server, f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {server.token}"
    )
    endless = request.removesuffix(b"\r\n")

    status, _ = exchange(server, endless, *[b"X-T: v\r\n"] * 20_000)

    assert status in (201, 431)  # the application may have answered before the trailers came


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type", "Content-Length"])
def test_request_with_a_deciding_header_twice_is_400(server: Server, name: str) -> None:
    own = {"Host": f"127.0.0.1:{server.port}", "Origin": server.url, "Content-Length": "0"}
    value = own.get(name, "x")
    fields = [f"{name}: {value}"] * (1 if name == "Host" else 2)

    assert exchange(server, head(server, *fields))[0] == 400


def test_authorization_in_a_trailer_does_not_sign_in(server: Server) -> None:
    token = f"Authorization: Bearer {server.token}"
    host = f"Host: 127.0.0.1:{server.port}"

    assert exchange(server, chunked_session(server, host, token))[0] == 201
    assert exchange(server, chunked_session(server, host, trailers=(token,)))[0] == 401


def test_host_in_a_trailer_does_not_replace_the_header(server: Server) -> None:
    token, host = f"Authorization: Bearer {server.token}", f"Host: 127.0.0.1:{server.port}"

    request = chunked_session(server, "Host: evil.example", token, trailers=(host,))

    assert exchange(server, request)[0] == 421


def test_origin_in_a_trailer_does_not_replace_the_header(server: Server) -> None:
    token, host = f"Authorization: Bearer {server.token}", f"Host: 127.0.0.1:{server.port}"

    request = chunked_session(
        server, host, token, "Origin: http://evil.example", trailers=(f"Origin: {server.url}",)
    )

    assert exchange(server, request)[0] in (403, 421)


def test_line_breaks_before_a_request_are_bounded(server: Server) -> None:
    assert exchange(server, *[b"\r\n" * 2048] * 40)[0] in (400, 431)


@pytest.fixture
def unbounded_server(tmp_path: Path) -> Iterator[Server]:
    """The same server with uvicorn's own connection: the control of every test above."""
    with running("endless", tmp_path, program=(sys.executable, "-m", "tests.e2e.unbounded_server")) as server:
        yield server


def test_control_without_bounds_trailers_sign_in_and_heads_grow(unbounded_server: Server) -> None:
    server = unbounded_server
    token, host = f"Authorization: Bearer {server.token}", f"Host: 127.0.0.1:{server.port}"
    fields = [f"X-{number}: {'v' * 300}" for number in range(1_000)]

    assert exchange(server, chunked_session(server, host, trailers=(token,)))[0] == 201
    assert exchange(server, head(server, *fields))[0] == 200
    assert exchange(server, head(server, f"Host: 127.0.0.1:{server.port}"))[0] == 200
