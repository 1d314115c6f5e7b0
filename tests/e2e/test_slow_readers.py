"""Readers that never read: they cost little, hold up nothing, are cut, and go on where they were.

`tests/soak/test_slow_readers.py` has two hundred of them, and measures memory of the kernel and delays.
"""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness import RETRY, Reader, Server, kind, running
from tests.e2e.streams import (
    Wish,
    add_notes,
    add_turns,
    body_of,
    buffer_bytes,
    connected,
    events_path,
    finish,
    log_lines,
    metric,
    request,
    resident_bytes,
    unread_bytes,
    until,
    wait_for_subscribers,
)

STALLED = 50
COST_BYTES = 128 * 1024
STALL_S = 2.0
SMALL_WINDOW = 4096
IMPATIENT = (sys.executable, "-m", "tests.e2e.stream_server", str(STALL_S))
TALKER = "tests.e2e.stream_apps:talker"
TURNS = {"turnlog": 20, "blocks": 100}  # a filter passes over the first, a projection sends the second


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

    await until(quiet)


def filled_session(server: Server, wish: Wish, turns: int, notes: int) -> str:
    """A session that one reader has read to its end, so that the caches of the server are filled."""
    session = server.session()
    add_turns(server, session, turns)
    if wish.dialect == "turnlog":
        add_notes(server, session, notes, 4000)
    last = wish.expected(log_lines(server, session))[-1][0]
    asyncio.run(finish(Reader(server, session, wish.query), last))
    return session


@pytest.mark.parametrize(
    ("wish", "window_bytes"),
    [
        (Wish(), SMALL_WINDOW),
        (Wish(types="duo,block"), None),
        (Wish("blocks"), SMALL_WINDOW),
    ],
    ids=str,
)
def test_a_reader_that_never_reads_costs_the_server_at_most_128_kib(
    tmp_path: Path, wish: Wish, window_bytes: int | None
) -> None:
    with running(TALKER, tmp_path) as server:
        session = filled_session(server, wish, TURNS[wish.dialect], 1000)
        before = resident_bytes(server)
        with stalled(server, events_path(session, wish), STALLED, window_bytes) as peers:
            asyncio.run(settled(server, peers))
            add_notes(server, session, 20, 1000)  # live events, which they do not take either
            assert resident_bytes(server) - before <= STALLED * COST_BYTES


def test_readers_that_never_read_hold_no_event_back_from_the_others(tmp_path: Path) -> None:
    with running(TALKER, tmp_path) as server:
        session = server.session()
        seq = add_notes(server, session, 500, 4000)
        with stalled(server, events_path(session), STALLED, SMALL_WINDOW) as peers:
            asyncio.run(settled(server, peers))
            last = add_notes(server, session, 20, 100)
            reader = Reader(server, session, f"&after={seq}")
            asyncio.run(finish(reader, str(last)))
            assert [event["seq"] for event in reader.events] == list(range(seq + 1, last + 1))


def test_a_reader_that_never_reads_is_cut_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with running(TALKER, tmp_path, program=IMPATIENT) as server:
        session = server.session()
        last = add_notes(server, session, 200, 4000)
        end = f"id: {last}:".encode()
        asked = events_path(session)
        with connected(server, request(server, asked)) as steady:
            whole = RETRY.sub(b"", body_of(steady, end))
            with stalled(server, asked, STALLED, SMALL_WINDOW) as peers:
                asyncio.run(until(lambda: all(unread_bytes(peer) for peer in peers)))  # each has its stream
                wait_for_subscribers(server, 1)
                for peer in peers:
                    seen = body_of(peer, None)
                    before = RETRY.sub(b"", seen[: seen.rfind(b"\n\n") + 2])
                    assert 0 < len(before) < len(whole)
                    cursor = before[before.rfind(b"id: ") :].partition(b"\n")[0][4:].decode()
                    with connected(server, request(server, asked, cursor)) as again:
                        after = RETRY.sub(b"", body_of(again, end))
                    assert before + after == whole


async def stop_beside(server: Server, readers: list[Reader]) -> int:
    """Send SIGTERM while readers read a live turn, and return the exit code."""
    tasks = [asyncio.create_task(reader.read(lambda message: False)) for reader in readers]
    session = readers[0].session
    seq = (await asyncio.to_thread(server.send, session, "Go and look"))["eventId"]
    assert await Reader(server, session, f"&after={seq}").read(kind("block.delta"))
    code = await asyncio.to_thread(server.stop)
    await asyncio.gather(*tasks)
    return code


def test_a_server_with_readers_that_never_read_stops(tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:slow_duo", tmp_path) as server:
        session = server.session()
        add_notes(server, session, 1000, 4000)
        with (
            stalled(server, events_path(session), STALLED // 2),
            stalled(server, events_path(session, Wish("blocks")), STALLED // 2),
        ):
            wait_for_subscribers(server, STALLED)
            readers = [Reader(server, session, wish.query) for wish in (Wish(), Wish("blocks"))]
            assert asyncio.run(stop_beside(server, readers)) == 0
