"""kill -9 of the process, of the server, of both, at lines all over a turn; `tests/soak` has every line.

Every start has its end, the team is asleep, the next turn works, and nobody is left.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.faults.cli_server import Order
from tests.support.claude_sessions import Room, body, events_of, goes, is_there, lawful, make_app, room
from tests.unit.app.desk import ADA, desk, play
from turnlog.log import Log, MemoryStore, SqliteStore

TURNS = {
    "thinks and speaks": ["Who is here?"],
    "writes a page": ["Write about ships"],
    "asks for a permission": ["Delete it"],
    "calls somebody": ["I want a team of one", "summon"],
}
EVERY = {"calls somebody": 47, "writes a page": 31}  # of their many lines
USUAL = 11
each = pytest.mark.parametrize("texts", TURNS.values(), ids=TURNS)


def step_of(texts: list[str]) -> int:
    """From one kill of a turn to the next, in lines."""
    [name] = [name for name, others in TURNS.items() if others == texts]
    return EVERY.get(name, USUAL)


# the process


async def told(office: Room, text: str) -> None:
    await (office.command("summon") if text == "summon" else office.say(text))


async def settled(office: Room, turns: int) -> bool:
    """Wait until so many turns are over; False if the last one waits for somebody."""
    runner = await office.runner()
    while len([end for end in await office.events("agent.end") if not end.depth]) < turns:
        await runner.wait_for_head()
        if runner.tree.agents_asking_page():
            return False
        await runner.wait_for_seq(runner.tree.last_seq + 1)
    return True


async def killed_at(lines: int, texts: list[str], folder: Path) -> bool:
    """Kill the process so many lines after the turn before; whether the turn broke off."""
    app, log = make_app(folder), Log(MemoryStore())
    *before, last = texts
    async with room(app, log) as office:
        for text in [*before, f"/die {lines}"]:
            await office.ask(text)
        await told(office, last)
        over = await settled(office, len(before) + 2)
        again = len(await office.pids()) > 1  # it was killed before it took up the turn
        killed = again or (await office.ends())[-1] == "error"
        if over and killed:
            await office.ask("Who is here?")
            assert (await office.ends())[-1] == "end_turn"
            assert await office.lives() == [("process_crash", 137)]
    lawful(app, await office.events())
    assert not any(map(is_there, await office.pids()))
    await log.close()
    return killed


def kill_process(texts: list[str], step: int, folder: Path) -> int:
    """Kill the process of a turn at one line after the other; how often."""
    for kills, lines in enumerate(count(0, step)):
        (own := folder / str(lines)).mkdir()
        if not asyncio.run(killed_at(lines, texts, own)):
            assert lines > 8, "hardly killed"
            return kills
    raise AssertionError


@each
def test_a_process_that_is_killed_at_any_line_leaves_nothing_open(texts: list[str], tmp_path: Path) -> None:
    kill_process(texts, step_of(texts), tmp_path)


# the server


class Nursery:
    """The process whose children are the servers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def life(self, order: Order) -> int:
        """A server from its birth to its end; how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.cli_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        env=environment,
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


async def rests(office: Room, turn: str) -> bool:
    """Wait until a turn is over; False if another one waits for somebody before that."""
    runner = await office.runner()
    await runner.wait_for_head()
    while not runner.tree.is_settled(turn):
        if runner.tree.agents_asking_page():
            return False
        await runner.wait_for_seq(runner.tree.last_seq + 1)
    return True


def recovered(folder: Path) -> None:
    """What the next server makes of what it finds."""
    app = make_app(folder)

    async def run() -> None:
        log = Log(SqliteStore(folder / "log.db"))
        # before there is a server: it may start the next process at once
        starts = [body(event) for event in await events_of(log, "sess_1", "process.start")]
        before = [start["pid"] for start in starts if start["process"] == "model"]
        async with desk(app, log=log) as served:
            await served.sessions.start()
            office = Room(served, await served.sessions.get_membership(ADA, "sess_1"))
            for pid in before:
                goes(pid)
            turn = await office.say("Who is here?")
            while not await rests(office, turn):
                await office.decide("deny")  # the turn that was not taken up before is now
            assert (await office.ends())[-1] == "end_turn"
            assert {reason for reason, _ in await office.lives()} == {"server_shutdown"}
        roster = lawful(app, await office.events())
        states = {member.state for team in roster.teams.values() for member in team.seats.values()}
        assert states <= {"sleeping"}
        assert not any(map(is_there, set(await office.pids()) - set(before)))
        await log.close()

    play(run)


def kill_server(texts: list[str], both: bool, step: int, folder: Path) -> int:
    """Kill the server of a turn, or both, at one line after the other; how often."""
    with nursery() as servers:
        for kills, lines in enumerate(count(0, step)):
            (own := folder / str(lines)).mkdir()
            ended = servers.life(Order(str(own), texts, lines, both))
            recovered(own)
            if ended == 0:
                assert lines > 8, "hardly killed"
                return kills
            assert ended == -signal.SIGKILL
    raise AssertionError


@pytest.mark.parametrize("both", [False, True], ids=["the server", "both"])
@each
def test_who_is_killed_at_any_line_leaves_what_the_next_server_can_close(
    texts: list[str], both: bool, memory_path: Path
) -> None:
    kill_server(texts, both, step_of(texts), memory_path)
