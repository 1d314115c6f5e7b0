"""Row 28: one person takes neither all connections, nor the bytes or the sessions of others."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.harness import Server, running
from tests.security.apps import plain
from tests.security.desk import desk, run, token
from tests.support.limits import HANG_S
from turnlog.server.auth.credentials import hash_token
from turnlog.server.limits import Limits

FILES = 64
FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
from unittest.mock import patch
from turnlog.server.limits import connections
{change}
from turnlog.cli import main
main()
"""
UNBOUNDED = """
bounds = connections.ConnectionBounds(10_000, 10_000)
patch("turnlog.server.uvicorn_server.compute_bounds", lambda files: bounds).start()
"""


@contextmanager
def few_files(folder: Path, change: str = "") -> Iterator[Server]:
    """A server that may open few files, and knows ada."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps({"ada": {"sha256": hash_token(token("ada"))}}))
    program = sys.executable, "-c", FEW_FILES.format(files=FILES, change=change)
    options = ["--tokens", str(tokens)]
    with running("tests.security.apps:plain", folder, program=program, options=options) as server:
        yield server


def ask(server: Server, path: str, bearer: str) -> tuple[socket.socket, bytes]:
    """A new connection, and the first bytes of its answer; none if it was reset."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {bearer}\r\n\r\n"
    received = b""
    with suppress(ConnectionError):
        connection.sendall(head.encode())
        received = connection.recv(4096)
    return connection, received


def status(server: Server, path: str, bearer: str) -> bytes:
    connection, received = ask(server, path, bearer)
    connection.close()
    return received[9:12]


@contextmanager
def crowd(server: Server) -> Iterator[list[bytes]]:
    """As many streams of ada as she gets; what the last one was answered."""
    session = ada_session(server)
    with ExitStack() as stack:
        answers = []
        for _ in range(FILES):
            connection, received = ask(server, f"/api/events?session={session}", token("ada"))
            stack.enter_context(connection)
            answers.append(received[9:12])
            if received[9:12] != b"200":
                break
        yield answers


def ada_session(server: Server) -> str:
    bearer = {"authorization": f"Bearer {token('ada')}"}
    answer = server.post("/api/sessions", {}, bearer)
    assert answer[0] == 201, answer
    return str(answer[1]["session_id"])


def test_server_that_is_full_refuses_with_503_and_still_serves_operators(tmp_path: Path) -> None:
    with few_files(tmp_path) as server, crowd(server) as answers:
        assert answers[-1] == b"503"
        assert len(answers) > FILES // 4
        assert status(server, "/healthz", "") == b"200"
        assert status(server, "/api/me", server.token) == b"200"
        assert status(server, "/api/me", token("ada")) == b"503"


def test_server_beyond_its_reserve_refuses_new_connections_with_503(tmp_path: Path) -> None:
    """Silent connections, each of which may be an operator's, fill the reserve; the log stays usable."""
    with few_files(tmp_path) as server, crowd(server), ExitStack() as stack:
        for _ in range(FILES):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S))
        last = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S))
        assert last.recv(4096)[9:12] == b"503"
        assert not last.recv(1)


def test_control_without_a_total_limit_nobody_gets_in(tmp_path: Path) -> None:
    with few_files(tmp_path, UNBOUNDED) as server, crowd(server) as answers:
        assert answers[-1] == b"", "reset by the system"
        assert status(server, "/healthz", "") == b""


NO_LIMIT_OF_SILENCE = "patch.object(connections.ConnectionLimit, 'add_idle', lambda *_: None).start()"


@contextmanager
def silent(server: Server) -> Iterator[None]:
    """Connections of a peer that says nothing, as many as the server may open files."""
    with ExitStack() as stack:
        for _ in range(FILES):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S))
        yield


def test_silent_connections_do_not_keep_members_out(tmp_path: Path) -> None:
    with few_files(tmp_path) as server, silent(server):
        assert status(server, "/api/me", token("ada")) == b"200"


def test_control_without_a_limit_silent_connections_keep_members_out(tmp_path: Path) -> None:
    with few_files(tmp_path, NO_LIMIT_OF_SILENCE) as server, silent(server):
        assert status(server, "/api/me", token("ada")) == b"503"


def body(size: int) -> dict[str, object]:
    return {"events": [{"type": "case.note", "payload": {"text": "x" * size}}]}


def test_bodies_over_the_bytes_of_a_principal_are_429_and_others_are_served() -> None:
    async def scenario() -> None:
        async with desk(plain, limits=Limits(body_bytes_per_s=1, burst_bytes=10_000)) as at:
            hers, his = await at.session("ada"), await at.session("bob")
            answers = [await at.post("ada", "/api/events", {"session": hers} | body(4000)) for _ in range(3)]
            assert [answer.status for answer in answers] == [202, 202, 429]
            assert int(answers[-1].header("retry-after")) > 1
            assert (await at.get("ada", "/api/me")).status == 200
            assert (await at.post("bob", "/api/events", {"session": his} | body(4000))).status == 202

    run(scenario())


def test_body_that_does_not_say_its_length_counts_as_the_longest() -> None:
    async def scenario() -> None:
        async with desk(plain, limits=Limits(body_bytes_per_s=1, burst_bytes=1024 * 1024)) as at:
            chunked = {"transfer-encoding": "chunked"}
            answers = [await at.ask("ada", "POST", "/api/sessions", {}, chunked) for _ in range(2)]
            assert [answer.status for answer in answers] == [201, 429]

    run(scenario())


def test_control_with_room_for_their_bytes_all_bodies_are_taken() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            hers = await at.session("ada")
            answers = [await at.post("ada", "/api/events", {"session": hers} | body(4000)) for _ in range(3)]
            assert {answer.status for answer in answers} == {202}

    run(scenario())


@pytest.mark.parametrize("path", ["/api/sessions", "/agent/run"])
def test_sessions_over_those_of_an_hour_are_429_but_for_operators(path: str) -> None:
    async def scenario() -> None:
        async with desk(plain, limits=Limits(sessions_per_hour=2)) as at:
            for _ in range(2):
                await at.session("ada")
            asked = {"user_prompt": "hello"} if path == "/agent/run" else {}
            refused = await at.post("ada", path, asked)
            assert (refused.status, int(refused.header("retry-after")) > 60) == (429, True)
            for name in ("bob", "root", "root", "root"):
                await at.session(name)

    run(scenario())


def test_control_with_more_sessions_in_an_hour_they_are_made() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for _ in range(5):
                await at.session("ada")

    run(scenario())
