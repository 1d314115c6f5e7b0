"""Peers that vanish without a word are noticed: pulled cables, with and without news, and full windows.

A pulled cable is a socket filter that drops everything before it is acknowledged. It needs no privilege; a
peer that is gone with its whole machine looks the same from here.
"""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.harness import running
from tests.e2e.streams import (
    Wish,
    add_notes,
    connected,
    events_path,
    head_of,
    open_files,
    request,
    until,
    vanish,
    wait_for_subscribers,
)

STALL_S = 2.0
IMPATIENT = (sys.executable, "-m", "tests.e2e.stream_server", str(STALL_S))


def test_peers_that_vanish_are_noticed_and_the_others_stay(tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:duo", tmp_path, program=IMPATIENT) as server, ExitStack() as stack:
        quiet, busy = server.session(), server.session()
        before = open_files(server)["socket"]
        peers = [
            stack.enter_context(connected(server, request(server, events_path(session, wish))))
            for session in (quiet, busy)
            for wish in (Wish(), Wish("blocks"), Wish(types="duo"))
            for _ in range(4)
        ]
        for peer in peers:
            head_of(peer)
        steady = [peers[0], peers[-1]]
        wait_for_subscribers(server, len(peers))
        for peer in peers:
            if peer not in steady:
                vanish(peer)
        add_notes(server, busy, 3, 100)  # some have something to acknowledge, others only our asking
        wait_for_subscribers(server, len(steady))
        asyncio.run(until(lambda: open_files(server)["socket"] <= before + len(steady)))
        add_notes(server, busy, 1, 100)
        wait_for_subscribers(server, len(steady))


def test_peers_whose_window_is_full_are_noticed(tmp_path: Path) -> None:
    with running("tests.e2e.stream_apps:duo", tmp_path, program=IMPATIENT) as server, ExitStack() as stack:
        session = server.session()
        add_notes(server, session, 200, 4000)
        asked = request(server, events_path(session))
        peers = [stack.enter_context(connected(server, asked, window)) for window in (4096, None) * 5]
        for peer in peers:
            assert b" 200 " in head_of(peer)
        wait_for_subscribers(server, 0)
