"""Two hundred readers that never read: what each costs, how much they delay the others, when they are cut."""

import asyncio
import http.client
import json
import time
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.harness import Reader, Server, running
from tests.e2e.streams import (
    Wish,
    add_notes,
    events_path,
    headers_of,
    held_bytes,
    request,
    resident_bytes,
    tcp_bytes,
    wait_for_subscribers,
)
from tests.e2e.test_slow_readers import (
    COST_BYTES,
    IMPATIENT,
    SMALL_WINDOW,
    STALL_S,
    TALKER,
    filled_session,
    settled,
    stalled,
    stop_beside,
)
from tests.soak.figures import Measure
from tests.support.limits import HANG_S

STALLED = 200
TURNS = {"turnlog": 40, "blocks": 200}
FOLLOWERS = 10
NOISE_S = 0.003  # what other work on the machine changes from round to round


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
    tmp_path: Path, wish: Wish, window_bytes: int | None, measure: Measure
) -> None:
    """Counted is what the process grows by, and what the kernel holds but for our own ends."""
    with running(TALKER, tmp_path) as server:
        session = filled_session(server, wish, TURNS[wish.dialect], 1000)
        process, kernel = resident_bytes(server), tcp_bytes()
        with stalled(server, events_path(session, wish), STALLED, window_bytes) as peers:
            asyncio.run(settled(server, peers))
            add_notes(server, session, 20, 1000)  # live events, which they do not take either
            process_each = (resident_bytes(server) - process) / STALLED
            kernel_each = (tcp_bytes() - kernel - held_bytes(peers)) / STALLED
        measure(f"{STALLED} readers", process_kib=process_each / 1024, kernel_kib=kernel_each / 1024)
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
                self.when(line[4:].partition(b":")[0]).set_result(time.monotonic())

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
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
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


def test_readers_that_never_read_do_not_delay_the_others(tmp_path: Path, measure: Measure) -> None:
    """The median over rounds of the 99th percentile, beside 200 that never read, and without them."""
    with running(TALKER, tmp_path) as server:
        session = server.session()
        add_notes(server, session, 1000, 4000)
        asyncio.run(latencies(server, session, 50))
        without = [p99(asyncio.run(latencies(server, session, 100))) for _ in range(5)]
        with stalled(server, events_path(session), STALLED) as peers:
            asyncio.run(settled(server, peers))
            beside = [p99(asyncio.run(latencies(server, session, 100))) for _ in range(5)]
        measure(
            f"{STALLED} readers", p99_without_ms=1000 * median(without), p99_beside_ms=1000 * median(beside)
        )
        assert median(beside) <= 1.1 * median(without) + NOISE_S


def test_readers_that_never_read_are_cut_within_three_times_their_time(
    tmp_path: Path, measure: Measure
) -> None:
    with running(TALKER, tmp_path, program=IMPATIENT) as server:
        session = server.session()
        add_notes(server, session, 200, 4000)
        with stalled(server, events_path(session), STALLED, SMALL_WINDOW):
            wait_for_subscribers(server, STALLED)
            begun = time.monotonic()
            wait_for_subscribers(server, 0)
            took_s = time.monotonic() - begun
    measure(f"{STALLED} readers, {STALL_S:g} s each", cut_after_s=took_s)
    assert took_s <= 3 * STALL_S


def test_a_stop_does_not_wait_for_readers_that_never_read(tmp_path: Path, measure: Measure) -> None:
    with running("tests.e2e.stream_apps:slow_duo", tmp_path) as server:
        session = server.session()
        add_notes(server, session, 1000, 4000)
        with (
            stalled(server, events_path(session), 100),
            stalled(server, events_path(session, Wish("blocks")), 100),
        ):
            wait_for_subscribers(server, STALLED)
            readers = [Reader(server, session, wish.query) for wish in (Wish(), Wish("blocks"))]
            begun = time.monotonic()
            assert asyncio.run(stop_beside(server, readers)) == 0
            took_s = time.monotonic() - begun
        measure(f"{STALLED} readers", turn_and_stop_s=took_s)
        assert took_s <= 5
