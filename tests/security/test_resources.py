"""Rows 14 and 15: nobody takes all there is, and what somebody took is given back however they go."""

import http.client
import re
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.harness import TURNLOG, Server, running
from tests.security.apps import plain
from tests.security.desk import Desk, desk, run
from tests.support.limits import HANG_S
from turnlog.server.limits import Limits
from turnlog.server.limits.rate_limiter import RateLimiter

FEW = Limits(streams=3, burst=10_000)
ROUNDS = 500


async def gone_at_once(at: Desk, session: str) -> int:
    """Open a stream and be gone before its first byte; its status."""
    return (await at.follow("ada", f"session={session}").leave()).status


def test_a_stream_whose_reader_left_before_it_began_is_given_back() -> None:
    async def scenario() -> None:
        async with desk(plain, limits=FEW) as at:
            session = await at.session("ada")
            assert {await gone_at_once(at, session) for _ in range(ROUNDS)} == {200}
            metrics = (await at.get("root", "/metrics")).body.decode()
            assert re.search(r"^turnlog_subscribers 0$", metrics, re.MULTILINE)

    run(scenario())


def test_control_streams_that_are_not_given_back_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(RateLimiter, "release_stream", lambda *_: None)
        async with desk(plain, limits=FEW) as at:
            session = await at.session("ada")
            statuses = [await gone_at_once(at, session) for _ in range(5)]
            assert statuses == [200, 200, 200, 429, 429]

    run(scenario())


def test_one_principal_cannot_take_the_streams_or_requests_of_another() -> None:
    async def scenario() -> None:
        async with desk(plain, limits=Limits(requests_per_s=0.01, burst=20, streams=3)) as at:
            his, hers = await at.session("bob"), await at.session("ada")
            calls = [at.follow("bob", f"session={his}") for _ in range(5)]
            for call in calls:
                await call.until(lambda answer: answer.status > 0)
            assert sorted(call.answer.status for call in calls) == [200, 200, 200, 429, 429]
            refused = [await at.get("bob", "/api/me") for _ in range(20)]
            assert {answer.status for answer in refused} == {200, 429}
            assert int(refused[-1].header("retry-after")) > 0
            assert (await at.get("ada", f"/api/events?session={hers}")).status == 200
            for call in calls:
                await call.leave()

    run(scenario())


def test_control_without_narrow_limits_all_of_it_is_granted() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            his = await at.session("bob")
            calls = [at.follow("bob", f"session={his}") for _ in range(5)]
            for call in calls:
                await call.until(lambda answer: answer.status > 0)
                assert (await call.leave()).status == 200
            assert {(await at.get("bob", "/api/me")).status for _ in range(20)} == {200}

    run(scenario())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.security.apps:plain", tmp_path_factory.mktemp("resources")) as started:
        yield started


def measured(server: Server, name: str) -> int:
    """A number that the server counts."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request("GET", "/metrics", headers=server.headers)
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    assert found
    return int(found[1])


def peer(server: Server, session: str) -> socket.socket:
    """A connection that asks for a stream."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)
    head = [f"GET /api/events?session={session} HTTP/1.1", "Host: 127.0.0.1"]
    head += [f"Authorization: Bearer {server.token}", "", ""]
    connection.sendall("\r\n".join(head).encode())
    return connection


def reset(connection: socket.socket) -> None:
    """Hang up without a word: RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def settled(server: Server) -> int:
    """The subscribers, once all who hung up have been noticed; each look gives the server its time."""
    count = 1
    for _ in range(1000):
        count = measured(server, "turnlog_subscribers")
        if not count:
            break
    return count


def test_five_hundred_that_connect_and_reset_leave_nothing_behind(server: Server) -> None:
    session = server.session()
    for number in range(ROUNDS):
        connection = peer(server, session)
        if number % 2:
            connection.recv(1)
        reset(connection)
    assert settled(server) == 0


def test_control_one_that_stays_is_counted(server: Server) -> None:
    connection = peer(server, server.session())
    connection.recv(1)
    assert measured(server, "turnlog_subscribers") == 1
    reset(connection)
    assert settled(server) == 0


# readers that take nothing

READERS = 16
NOTES = 60
WIDE = """
from turnlog.server.uvicorn_server import PacedHttpProtocol
made = PacedHttpProtocol.connection_made
def wide(connection, transport):
    made(connection, transport)
    transport.set_write_buffer_limits(high=1 << 30)
PacedHttpProtocol.connection_made = wide
from turnlog.cli import main
main()
"""


def peak_kb(server: Server) -> int:
    """The most memory that a server has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def cost_kb(server: Server) -> int:
    """What the server needs for readers of 3 MB that never read."""
    session = server.session()
    note = {"type": "case.note", "payload": {"text": "x" * 50_000}}
    for _ in range(NOTES):
        assert server.post("/api/events", {"session": session, "events": [note]})[0] == 202
    with peer(server, session) as first:  # it reads, so that what is shared is there
        left = NOTES * 50_000
        while left > 0:
            left -= len(first.recv(1 << 20))
    before = peak_kb(server)
    peers = [peer(server, session) for _ in range(READERS)]
    seen = [0]
    while len(seen) < 30 or len(set(seen[-25:])) > 1:  # until nothing more is sent, however often one asks
        seen.append(
            measured(server, "turnlog_delivered_bytes_total") + measured(server, "turnlog_subscribers")
        )
    for connection in peers:
        reset(connection)
    return peak_kb(server) - before


def costs_kb(folder: Path, program: Sequence[str]) -> Iterator[int]:
    """What up to three servers need; what else the machine does can change a peak."""
    for number in range(3):
        place = folder / str(number)
        place.mkdir()
        with running("tests.security.apps:plain", place, program=program) as server:
            yield cost_kb(server)


def test_readers_that_take_nothing_cost_little(tmp_path: Path) -> None:
    assert any(cost < READERS * 128 for cost in costs_kb(tmp_path, [TURNLOG]))


def test_control_a_server_that_does_not_wait_for_them_holds_everything(tmp_path: Path) -> None:
    assert any(cost > READERS * 1000 for cost in costs_kb(tmp_path, [sys.executable, "-c", WIDE]))


# peers that do not say what they want

PATIENT = """
from unittest.mock import patch
from turnlog.cli import main
patch("turnlog.server.uvicorn_server.REQUEST_TIMEOUT_S", {seconds}).start()
main()
"""


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def halves(server: Server) -> list[tuple[bytes, bytes]]:
    """Requests in two parts: cut before their head, in it, in their body, in a second request."""
    body = f"POST /api/send HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    body += "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{"
    return [(b"", WHOLE), (WHOLE[:-9], WHOLE[-9:]), (body.encode(), b"}"), (WHOLE + WHOLE[:8], WHOLE[8:])]


@contextmanager
def half_asked(server: Server) -> Iterator[list[socket.socket]]:
    """Connections that have sent the first halves."""
    with ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        peers = [
            stack.enter_context(socket.create_connection(address, timeout=HANG_S)) for _ in halves(server)
        ]
        for connection, (first, _) in zip(peers, halves(server), strict=True):
            connection.sendall(first)
        yield peers


def read_to_the_end(connection: socket.socket) -> None:
    """Read until the server has closed a connection."""
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass


def patient(seconds: float) -> tuple[str, str, str]:
    return sys.executable, "-c", PATIENT.format(seconds=seconds)


def test_a_peer_that_does_not_finish_its_request_is_cut_and_a_reader_is_not(tmp_path: Path) -> None:
    with running("tests.security.apps:plain", tmp_path, program=patient(0.5)) as server:
        session = server.session()
        with peer(server, session) as reader, half_asked(server) as peers:
            for connection in peers:
                read_to_the_end(connection)
            note = {"type": "case.note", "payload": {"text": "milk"}}
            server.post("/api/events", {"session": session, "events": [note]})
            received = b""
            while b"case.note" not in received:
                received += (piece := reader.recv(4096))
                assert piece, "the reader was cut"


def test_control_a_server_with_all_the_time_still_answers_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The time in which one server cuts its peers passes for the other too, which then answers its own."""
    app, folder = "tests.security.apps:plain", tmp_path_factory.mktemp
    with (
        running(app, folder("hasty"), program=patient(0.5)) as hasty,
        running(app, folder("slow"), program=patient(3600)) as slow,
        half_asked(slow) as kept,
        half_asked(hasty) as cut,
    ):
        for connection in cut:
            read_to_the_end(connection)
        for connection, (first, second) in zip(kept, halves(slow), strict=True):
            connection.sendall(second)
            answers, expected = b"", 2 if first.startswith(WHOLE) else 1
            while answers.count(b"HTTP/1.1 ") < expected:
                answers += (piece := connection.recv(4096))
                assert piece, "the connection was cut"
