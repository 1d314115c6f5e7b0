"""The client library over fetch, through a proxy that cuts: no event is lost and none comes twice."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.harness import ROOT, Reader, Server, kind, running
from tests.e2e.streams import Told, Wish, add_notes, log_lines, place
from tests.support.limits import HANG_S

CUTS = 60
WISHES = (Wish(), Wish("blocks"), Wish(types="tool,block,assistant,duo"), Wish(depth=0))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("tests.e2e.stream_apps:duo", tmp_path_factory.mktemp("web")) as server:
        yield server


def turn(server: Server, session: str) -> None:
    """A whole turn."""
    sent = server.send(session, "Go and look")["eventId"]
    assert asyncio.run(Reader(server, session, f"&after={sent}").read(kind("agent.end", "Lead")))


def alike(told: list[Told]) -> list[Told]:
    """Data as every language writes it."""
    return [(at, json.dumps(json.loads(data), sort_keys=True)) for at, data in told]


def read(
    node: str, server: Server, session: str, wish: Wish, last: str, seed: int, cuts: int = CUTS
) -> dict[str, Any]:
    """What the client got, cut again and again."""
    types = wish.types.split(",") if wish.types else None
    asked = {"session": session, "dialect": wish.dialect, "types": types, "depth": wish.depth}
    options = {"token": server.token, **{name: value for name, value in asked.items() if value is not None}}
    task = {"url": server.url, "cuts": cuts, "piece": 2000, "seed": seed, "last": last, "wish": options}
    command = [node, "web/tests/cuts.mjs", json.dumps(task)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: wish.query[1:])
def test_many_cuts_lose_and_double_nothing(node: str, server: Server, wish: Wish) -> None:
    session = server.session()
    for _ in range(8):
        turn(server, session)
    add_notes(server, session, 300, 500)
    expected = alike(wish.expected(log_lines(server, session)))
    seed = WISHES.index(wish)
    answer = read(node, server, session, wish, expected[-1][0], seed)
    assert answer["cuts"] > CUTS / 2  # a busy server merges deltas: a shorter stream has room for fewer cuts
    assert answer["resets"] == []
    wish.check(alike([(place(cursor), data) for cursor, data in answer["told"]]), expected)


def test_cuts_while_agents_talk(node: str, server: Server) -> None:
    session, wish = server.session(), Wish()
    with ThreadPoolExecutor(1) as pool:
        server.send(session, "Go and look")
        assert asyncio.run(Reader(server, session).read(kind("block.start", "Lead")))
        reading = pool.submit(read, node, server, session, wish, "end", 7)
        assert asyncio.run(Reader(server, session).read(kind("agent.end", "Lead")))
        add_notes(server, session, 200, 500)
        end = {"type": "duo.note", "payload": {"text": "end"}}
        server.post("/api/events", {"session": session, "events": [end]})
        answer = reading.result(HANG_S)
    expected = alike(wish.expected(log_lines(server, session)))
    wish.check(alike([(place(cursor), data) for cursor, data in answer["told"]]), expected)
