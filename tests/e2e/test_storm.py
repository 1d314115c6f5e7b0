"""Many readers at once: readers that come back, readers that vanish, requests beside replays.

`tests/soak/test_storm.py` has the same with a thousand readers, and measures how long they take.
"""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.harness import Server, running
from tests.e2e.storm import bodies_in, come_back, replays, reset_connections, seqs_in
from tests.e2e.streams import Wish, add_notes, events_path, metric, request, until, wait_for_subscribers

READERS = 50
BACKLOG = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.stream_apps:talker", tmp_path_factory.mktemp("storm")) as server:
        yield server


def test_readers_that_come_back_at_once_get_the_same_bytes_and_miss_nothing(server: Server) -> None:
    session = server.session()
    seq = add_notes(server, session, 10, 200)
    last = add_notes(server, session, BACKLOG, 200)
    asked, end = request(server, events_path(session), str(seq)), f"id: {last}:".encode()
    here = partial(wait_for_subscribers, server)
    answers = asyncio.run(come_back(server.port, READERS, asked, end, here))
    assert len(bodies_in(answers)) == 1
    assert seqs_in(answers.pop()) == list(range(seq + 1, last + 1))


def test_connections_that_are_reset_leave_no_file_open(server: Server) -> None:
    reset_connections(server, 100)


@pytest.mark.parametrize("wish", [Wish(), Wish("blocks"), Wish(types="duo")], ids=str)
def test_new_requests_are_answered_while_readers_replay(server: Server, wish: Wish) -> None:
    before = metric(server, "turnlog_delivered_bytes_total")
    with replays(server, wish, 30, notes=200, turns=40) as taken:
        for path in ("/healthz", "/") * 5:
            assert server.get(path)[0] == 200
        asyncio.run(until(lambda: metric(server, "turnlog_delivered_bytes_total") > before + 1_000_000))
        asyncio.run(until(lambda: metric(server, "turnlog_subscribers") > 0))  # the replays go on
        assert taken() > 50_000, "more than the heads of the responses"
    wait_for_subscribers(server, 0)
