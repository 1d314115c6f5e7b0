"""Readers that never read: what each costs, what the others notice, when they are cut, and how they go on."""

import asyncio
import http.client
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.streams import (
    Record,
    Wish,
    add_notes,
    add_turns,
    body_of,
    buffer_bytes,
    connected,
    events_path,
    finish,
    headers_of,
    held_bytes,
    log_lines,
    metric,
    request,
    resident_bytes,
    tcp_bytes,
    unread_bytes,
    until,
)

pytestmark = pytest.mark.alone

STALLED = 200
COST_BYTES = 128 * 1024
STALL_S = 2.0
SMALL_WINDOW = 4096
IMPATIENT = (sys.executable, "-m", "tests.e2e.stream_server", str(STALL_S))
TALKER = "tests.e2e.stream_apps:talker"
TURNS = {"turnlog": 40, "blocks": 200}  # a filter passes over the first, a projection tells the second
FOLLOWERS = 10
NOISE_S = 0.003  # what other work on the machine changes from round to round
RETRY = b"retry: 1000\n\n"


@contextmanager
def stalled(
    server: Server, path: str, count: int, window_bytes: int | None = None
) -> Iterator[list[socket.socket]]:
    """Connections that ask for a stream and read nothing of it."""
    with ExitStack() as stack:
        asked = request(server, path)
        yield [stack.enter_context(connected(server, asked, window_bytes)) for _ in range(count)]


async def settled(server: Server, peers: list[socket.socket]) -> None:
    """Wait until every peer has as much as it can hold, and nothing more is sent, however often one asks."""
    last, same = 0, 0

    def quiet() -> bool:
        nonlocal last, same
        full = all(unread_bytes(peer) > buffer_bytes(peer) / 4 for peer in peers)
        before, last = last, metric(server, "turnlog_deliveries_total")
        same = same + 1 if full and last == before >= 0 else 0
        return same == 50

    await until(quiet, 20)


@pytest.mark.parametrize(
    ("wish", "window_bytes"),
    [
        (Wish(), SMALL_WINDOW),
        (Wish(), None),
        (Wish(types="duo,block"), None),
        (Wish("blocks"), None),
    ],
    ids=str,
)
def test_a_reader_that_never_reads_costs_at_most_128_kib(
    tmp_path: Path, wish: Wish, window_bytes: int | None, record_property: Record
) -> None:
    """Counted is what the process grows by, and what the kernel holds but for our own ends.

    One reader goes first and reads everything, so that the caches of the process are filled.
    """
    with running(TALKER, tmp_path) as server:
        session = server.session()
        add_turns(server, session, TURNS[wish.dialect])
        if wish.dialect == "turnlog":
            add_notes(server, session, 1000, 4000)
        asyncio.run(
            finish(Reader(server, session, wish.query), wish.expected(log_lines(server, session))[-1][0])
        )
        process, kernel = resident_bytes(server), tcp_bytes()
        with stalled(server, events_path(session, wish), STALLED, window_bytes) as peers:
            asyncio.run(settled(server, peers))
            add_notes(server, session, 20, 1000)  # live events, which they do not take either
            process_each = (resident_bytes(server) - process) / STALLED
            kernel_each = (tcp_bytes() - kernel - held_bytes(peers)) / STALLED
        record_property("each_kib", [process_each / 1024, kernel_each / 1024])
        assert process_each + kernel_each <= COST_BYTES


class Follower(asyncio.Protocol):
    """A healthy reader, that notes when each event came."""

    def __init__(self, asked: bytes) -> None:
        self.asked = asked
        self.came: dict[bytes, asyncio.Future[float]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.asked)

    def data_received(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line.startswith(b"id: "):
                self.when(line.rpartition(b":")[2]).set_result(time.monotonic())

    def when(self, seq: bytes) -> asyncio.Future[float]:
        """The moment in which an event came, or will come."""
        return self.came.setdefault(seq, asyncio.get_running_loop().create_future())


async def latencies(server: Server, session: str, count: int) -> list[float]:
    """How long events take from the request that writes them to each of some healthy readers."""
    loop, found = asyncio.get_running_loop(), list[float]()
    seq = metric_seq(server, session)
    asked = request(server, events_path(session), str(seq))
    followers = [
        await loop.create_connection(lambda: Follower(asked), "127.0.0.1", server.port)
        for _ in range(FOLLOWERS)
    ]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"content-type": "application/json", **headers_of(server)}
    body = json.dumps({"session": session, "events": [{"type": "duo.note", "payload": {"text": "now"}}]})

    def post() -> None:
        connection.request("POST", "/api/events", body, headers)
        connection.getresponse().read()

    for number in range(1, count + 1):
        begun = time.monotonic()
        posting = asyncio.to_thread(post)
        came = [follower.when(b"%d" % (seq + number)) for _, follower in followers]
        await asyncio.gather(posting, *came)
        found += [moment.result() - begun for moment in came]
    connection.close()
    for transport, _ in followers:
        transport.abort()
    return sorted(found)


def metric_seq(server: Server, session: str) -> int:
    """The last seq of a session."""
    return int(server.get(f"/api/state?session={session}")[1]["seq"])


def p99(times: list[float]) -> float:
    return times[len(times) * 99 // 100]


def test_readers_that_never_read_do_not_delay_the_others(tmp_path: Path, record_property: Record) -> None:
    """The median over rounds of the 99th percentile, beside 200 that never read, and without them."""
    with running(TALKER, tmp_path) as server:
        session = server.session()
        add_notes(server, session, 1000, 4000)
        asyncio.run(latencies(server, session, 50))
        alone = [p99(asyncio.run(latencies(server, session, 100))) for _ in range(5)]
        with stalled(server, events_path(session), STALLED) as peers:
            asyncio.run(settled(server, peers))
            beside = [p99(asyncio.run(latencies(server, session, 100))) for _ in range(5)]
        record_property("p99_ms", [1000 * median(alone), 1000 * median(beside)])
        assert median(beside) <= 1.1 * median(alone) + NOISE_S


def test_a_reader_that_never_reads_is_cut_and_goes_on_where_it_was(
    tmp_path: Path, record_property: Record
) -> None:
    with running(TALKER, tmp_path, program=IMPATIENT) as server:
        session = server.session()
        last = add_notes(server, session, 200, 4000)
        end = f":{last}\n".encode()
        asked = events_path(session)
        with connected(server, request(server, asked)) as steady:
            whole = body_of(steady, end).removeprefix(RETRY)
            with stalled(server, asked, STALLED, SMALL_WINDOW) as peers:
                asyncio.run(until(lambda: metric(server, "turnlog_subscribers") == STALLED + 1, 10))
                took_s = asyncio.run(until(lambda: metric(server, "turnlog_subscribers") == 1, 20))
                record_property("cut_after_s", took_s)
                assert took_s <= 3 * STALL_S
                for peer in peers:
                    seen = body_of(peer, None)
                    before = seen[: seen.rfind(b"\n\n") + 2].removeprefix(RETRY)
                    assert 0 < len(before) < len(whole)
                    cursor = before[before.rfind(b"id: ") :].partition(b"\n")[0][4:].decode()
                    with connected(server, request(server, asked, cursor)) as again:
                        after = body_of(again, end).removeprefix(RETRY)
                    assert before + after == whole


async def stop_beside(server: Server, readers: list[Reader]) -> tuple[int, float]:
    """SIGTERM while readers read a live turn; the exit code, and how long it took."""
    tasks = [asyncio.create_task(reader.read(lambda message: False)) for reader in readers]
    session = readers[0].session
    seq = (await asyncio.to_thread(server.send, session, "Go and look"))["eventId"]
    assert await Reader(server, session, f"&after={seq}").read(kind("block.delta"))
    begun = time.monotonic()
    code = await asyncio.to_thread(server.stop)
    took_s = time.monotonic() - begun
    await asyncio.gather(*tasks)
    return code, took_s


def test_a_stop_does_not_wait_for_readers_that_never_read(tmp_path: Path, record_property: Record) -> None:
    with running("tests.e2e.stream_apps:slow_duo", tmp_path) as server:
        session = server.session()
        add_notes(server, session, 1000, 4000)
        with (
            stalled(server, events_path(session), 100),
            stalled(server, events_path(session, Wish("blocks")), 100),
        ):
            asyncio.run(until(lambda: metric(server, "turnlog_subscribers") == 200, 10))
            readers = [Reader(server, session, wish.query) for wish in (Wish(), Wish("blocks"))]
            code, took_s = asyncio.run(stop_beside(server, readers))
        record_property("stopped_after_s", took_s)
        assert code == 0
        assert took_s <= 3
