"""Sessions that a process answers, in a folder of their own: a stand-in, or a few lines of Python."""

import os
import select
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.claude_standin import COMMAND
from tests.support.limits import HANG_S
from tests.unit.app.desk import ADA, Desk, desk
from turnlog import App
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.app import Membership
from turnlog.events import Envelope
from turnlog.log import Log
from turnlog.state.tree import Tree
from turnlog.team.roster import Roster

LIMIT_S = 600.0


def played(code: str) -> list[str]:
    """A process that is a few lines of Python; `line` reads one, `say` writes some."""
    return [sys.executable, "-I", "-S", "-c", PRELUDE + code]


PRELUDE = """
import json, os, signal, sys, time
def line():
    return json.loads(sys.stdin.readline() or "null")
def say(type, **fields):
    print(json.dumps({"type": type, "session_id": "s1", **fields}), flush=True)
def init():
    say("system", subtype="init", model="m1", tools=[])
"""


def make_app(folder: Path, command: Sequence[str] = COMMAND, **options: Any) -> App:
    limit_s = options.pop("turn_limit_s", LIMIT_S)
    julian = ClaudeCode(
        command,
        name="Julian",
        cwd=folder,
        artifact_dir=str(folder / "memory"),
        screen_url="localhost:3848/cmd",
        **options,
    )
    return App("office", julian, turn_limit_s=limit_s)


class Room:
    """One session and what happens in it."""

    def __init__(self, desk: Desk, seat: Membership) -> None:
        self.desk, self.seat = desk, seat

    async def runner(self) -> SessionRunner:
        return await self.desk.sessions.runners.open(self.seat.session_id)

    async def say(self, text: str, **more: Any) -> str:
        return await self.desk.say(self.seat, text, **more)

    async def ask(self, text: str, **more: Any) -> str:
        """Say something and wait until its turn is over or waits; its trace."""
        trace = await self.say(text, **more)
        await self.rests(trace)
        return trace

    async def rests(self, trace: str) -> None:
        await self.desk.sessions.watches.wait_until_settled(self.seat.record, trace, 1.0, lambda: None)

    async def command(self, kind: str, **fields: Any) -> None:
        await self.desk.post(self.seat, "ui.command", {"command": {"kind": kind, **fields}})

    async def decide(self, decision: str) -> None:
        """Decide the one call that waits."""
        runner = await self.runner()
        await runner.wait_for_head()
        [asked] = [
            call.approval_request
            for agent in runner.tree.open.values()
            for call in agent.calls.values()
            if call.approval_request
        ]
        answer = {"call_id": asked.call_id, "args_hash": asked.args_hash, "decision": decision}
        await self.desk.post(self.seat, "approval.decision", answer)

    async def until(self, type: str, **wanted: Any) -> Any:
        return await self.desk.until(self.seat, type, **wanted)

    async def events(self, *types: str) -> list[Envelope]:
        return await events_of(self.desk.log, self.seat.session_id, *types)

    async def bodies(self, *types: str) -> list[Any]:
        return [body(event) for event in await self.events(*types)]

    async def ends(self) -> list[str]:
        return [end["stop_reason"] for end in await self.bodies("agent.end")]

    async def pids(self) -> list[int]:
        """The processes that were started, in their order."""
        return [start["pid"] for start in await self.bodies("process.start") if start["process"] == "model"]

    async def lives(self) -> list[tuple[str, int | None]]:
        """How each of them ended."""
        ends = [end for end in await self.bodies("process.end") if end["process"] == "model"]
        return [(end["reason"], end.get("exit_code")) for end in ends]

    async def codes(self) -> list[str]:
        return [error["code"] for error in await self.bodies("session.error")]


def body(event: Envelope) -> Any:
    return msgspec.json.decode(event.payload)


async def events_of(log: Log, session_id: str, *types: str) -> list[Envelope]:
    found: list[Envelope] = []
    last = -1
    while page := await log.read(session_id, last, replay_from=-1):
        found += [event for event in page.envelopes() if not types or event.type in types]
        last = page.last
    return found


@asynccontextmanager
async def room(app: App, log: Log | None = None) -> AsyncIterator[Room]:
    async with desk(app, log=log) as found:
        yield Room(found, await found.sessions.create(ADA))


def lawful(app: App, events: Sequence[Envelope]) -> Roster:
    """Everything that was begun has ended, once, and nobody speaks after its end; who is on the grid."""
    tree, roster, begun, ended = Tree(), Roster(), Counter[str](), Counter[str]()
    running: set[int] = set()
    for event in events:
        agent_id, payload = event.agent_id or "", app.catalog.decode_payload(event)
        begun[agent_id] += event.type == "agent.start"
        assert not agent_id or begun[agent_id] == 1 + ended[agent_id], event
        if event.type == "agent.end":
            invocation = tree.open[agent_id]
            assert (invocation.blocks, invocation.calls) == ({}, {}), event
            ended[agent_id] += 1
        if event.type == "tool.result":
            assert tree.find_call(agent_id, body(event)["call_id"]), event
        if event.type.startswith("process.") and body(event).get("process") == "model":
            ({"process.start": running.add, "process.end": running.remove}[event.type])(body(event)["pid"])
            assert len(running) < 2, "two at a time"
        tree.apply(event, payload)
        roster.apply(event, payload)
    assert begun == ended
    assert (tree.open, tree.queued_turns, running) == ({}, {}, set())
    return roster


def is_there(pid: int) -> bool:
    """Whether a process is there, also as a zombie."""
    return os.path.exists(f"/proc/{pid}")


def goes(pid: int) -> None:
    """A process that is nobody's child here is gone, or will be in a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], HANG_S)[0], "it is still there"
    finally:
        os.close(handle)
