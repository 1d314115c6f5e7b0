"""A thousand readers that come back, five hundred that vanish, requests beside two hundred replays."""

import asyncio
import http.client
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, TURNLOG, Server, running
from tests.e2e.storm import bodies_in, come_back, replays, reset_connections, seqs_in
from tests.e2e.streams import (
    Wish,
    add_notes,
    events_path,
    headers_of,
    metric,
    request,
    until,
    wait_for_subscribers,
)
from tests.soak.figures import Measure
from tests.support.limits import HANG_S

READERS = 1000
BACKLOG = 100
CAUGHT_UP_S = 2.0
BARE_TIMES = 6
ROUNDS = 5
ANSWER_S = 0.3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the server inherits it
    try:
        with running("tests.e2e.stream_apps:talker", tmp_path, program=[TURNLOG]) as server:
            yield server
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Bare(asyncio.Protocol):
    """The least that a server can do: take a request, and write bytes that it has."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.answer)


async def bare() -> None:
    """Another process: answer every request with the bytes from standard input."""
    loop = asyncio.get_running_loop()
    Bare.answer = await asyncio.to_thread(sys.stdin.buffer.read)
    server = await loop.create_server(Bare, "127.0.0.1", 0, backlog=2 * READERS)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def bare_server(answer: bytes) -> Iterator[int]:
    """The port of a server that does nothing but write this."""
    command = [
        sys.executable,
        "-c",
        "import asyncio, tests.soak.test_storm as storm; asyncio.run(storm.bare())",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(answer)
            process.stdin.close()
            yield int(process.stdout.readline())
        finally:
            process.kill()


def timed(port: int, asked: bytes, end: bytes, settle: Callable[[int], None]) -> tuple[float, set[bytes]]:
    """How long until the last of the readers has the last event, and what they got."""
    begun, done = time.monotonic(), list[float]()

    def here(count: int) -> None:
        done.append(time.monotonic())
        settle(count)

    answers = asyncio.run(come_back(port, READERS, asked, end, here))
    return done[0] - begun, answers


def caught_up(took_s: float, bare_s: float) -> bool:
    return took_s <= max(CAUGHT_UP_S, BARE_TIMES * bare_s)


def test_a_thousand_readers_that_come_back_are_caught_up_within_two_seconds(
    server: Server, measure: Measure
) -> None:
    """Every round is without an error; the best is within two seconds, or within a few times a bare server.

    The clock counts what the thousand clients of this process cost, and whatever else the machine does: the
    bare server, asked by the same clients in the same round, says how much that is.
    """
    session = server.session()
    seq = add_notes(server, session, 10, 200)
    last = add_notes(server, session, BACKLOG, 200)
    asked, end = request(server, events_path(session), str(seq)), f"id: {last}:".encode()
    rounds = list[tuple[float, float]]()
    while len(rounds) < ROUNDS and not any(caught_up(*one) for one in rounds):
        took_s, answers = timed(server.port, asked, end, partial(wait_for_subscribers, server))
        assert len(bodies_in(answers)) == 1, "every reader got the same bytes"
        answer = answers.pop()
        assert seqs_in(answer) == list(range(seq + 1, last + 1))
        with bare_server(answer) as port:
            bare_s, _ = timed(port, asked, end, lambda _: None)
        rounds.append((took_s, bare_s))
    best_s, bare_s = min(rounds)
    measure(f"{READERS} readers, {BACKLOG} events", caught_up_s=best_s, bare_server_s=bare_s)
    assert any(caught_up(*one) for one in rounds), rounds


def test_five_hundred_connections_that_are_reset_leave_nothing_behind(
    server: Server, measure: Measure
) -> None:
    measure("500 connections")
    reset_connections(server, 500)


def answer_times(server: Server, paths: tuple[str, ...], count: int, for_s: float) -> list[float]:
    """How long new requests take, each on a new connection: so many at least, and for so long."""
    times, end = list[float](), time.monotonic() + for_s
    while len(times) < count or time.monotonic() < end:
        number, begun = len(times), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
        connection.request("GET", paths[number % len(paths)], headers=headers_of(server))
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        connection.close()
        times.append(time.monotonic() - begun)
    return times


def at_best(measure: Callable[[], list[float]]) -> list[float]:
    """The best of three, or the first that is good: what else runs can only make it worse."""
    rounds = list[list[float]]()
    while len(rounds) < 3 and not (rounds and p95(rounds[-1]) < ANSWER_S):
        rounds.append(measure())
    return min(rounds, key=p95)


def p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


@pytest.mark.parametrize("wish", [Wish(), Wish("blocks"), Wish(types="duo")], ids=str)
def test_a_new_request_is_answered_at_once_during_two_hundred_replays(
    server: Server, wish: Wish, measure: Measure
) -> None:
    with replays(server, wish, 200, notes=1500, turns=400) as taken:
        asyncio.run(until(lambda: metric(server, "turnlog_delivered_bytes_total") > 1_000_000))
        times = at_best(lambda: answer_times(server, ("/healthz", "/"), 60, 1.5))
        assert taken() > 50_000, "more than the heads of two hundred responses"
    measure("200 replays", requests=len(times), p50_s=sorted(times)[len(times) // 2], p95_s=p95(times))
    assert p95(times) < ANSWER_S, sorted(times)[-10:]
