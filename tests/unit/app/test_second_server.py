"""Two servers on one store: one owns the session, the other reads it, and posts what members answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.app.desk import ADA, Desk, bodies, play
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.app import Membership, Sessions
from turnlog.errors import Conflict
from turnlog.log import Log, MemoryStore
from turnlog.state.history import Message


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    results = [part["content"] for message in messages for part in message.content if "tool_use_id" in part]
    match len(results):
        case 0:
            yield "I look."
            yield ToolUse("look", {})
        case 1:
            yield ToolUse("pay", {})
        case _:
            yield f"It said {results[-1]}."


class Servers:
    """Two servers on one store, and the gate at which the tool of the first one waits."""

    def __init__(self, owner: Desk, reader: Desk, gate: asyncio.Event) -> None:
        self.owner = owner
        self.reader = reader
        self.gate = gate

    async def start_turn(self) -> tuple[Membership, Membership]:
        """Start a turn whose tool runs; return the memberships of Ada at both servers."""
        seat = await self.owner.sessions.create(ADA)
        await self.owner.say(seat, "Go")
        await self.owner.until(seat, "agent.usage")
        return seat, await self.reader.sessions.get_membership(ADA, seat.session_id)

    async def read_everything(self, seat: Membership) -> dict[str, Any]:
        """Read a session at the second server in every way that a member has."""
        sessions = self.reader.sessions
        tree = await sessions.tree(seat)
        [summary], _ = await sessions.list_summaries(ADA)
        await sessions.load_read_models(seat)
        return {
            "calls": [call.call.tool for agent in tree.open.values() for call in agent.calls.values()],
            "waits": bool(tree.open) and tree.is_all_waiting,
            "last": (await sessions.state(seat))[0],
            "documents": await sessions.documents(seat, None, None),
            "listed": summary.membership.session_id,
        }


@asynccontextmanager
async def two_servers() -> AsyncIterator[Servers]:
    gate = asyncio.Event()

    @tool
    async def look() -> str:
        """Look when the gate is open."""
        await gate.wait()
        return "green"

    @tool(kind="write", approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    store = MemoryStore()
    desks: list[Desk] = []
    for pid in (1, 2):
        app = App("plain", Agent("Clerk", "", Scripted(script), tools=(look, pay)))
        desks.append(Desk(Sessions(Log(store), [app], pid)))
    # the second one begins to claim with its first post: until then the first has claimed the new session
    await desks[0].sessions.start()
    try:
        yield Servers(desks[0], desks[1], gate)
    finally:
        for desk in reversed(desks):
            await desk.sessions.close()
            await desk.log.close()


def test_reading_at_a_second_server_while_the_first_runs_a_turn_writes_nothing() -> None:
    async def read() -> None:
        async with two_servers() as servers:
            seat, other_seat = await servers.start_turn()
            last = await servers.owner.log.last_seq(seat.session_id)
            for _ in range(3):
                seen = await servers.read_everything(other_seat)
                assert (seen["calls"], seen["waits"], seen["last"]) == (["look"], False, last)
                assert seen["listed"] == seat.session_id
            assert await servers.owner.log.last_seq(seat.session_id) == last
            assert len(servers.reader.sessions.runners) == 0

            servers.gate.set()
            await servers.owner.until(seat, "approval.request")
            seen = await servers.read_everything(other_seat)
            assert (seen["calls"], seen["waits"]) == (["pay"], True)
            [start] = bodies(await servers.owner.told(seat, "process.start"))
            assert start["pid"] == 1
            assert await servers.owner.told(seat, "process.end", "session.error") == []
            assert len(servers.reader.sessions.runners) == 0

    play(read)


def test_second_server_cannot_claim_a_session_that_the_first_runs() -> None:
    async def claim() -> None:
        async with two_servers() as servers:
            seat, other_seat = await servers.start_turn()
            before = await servers.owner.told(seat)
            with pytest.raises(Conflict, match="another process owns"):
                await servers.reader.sessions.runners.open(other_seat.session_id)
            runners = servers.reader.sessions.runners
            assert isinstance(runners, RunnerPool)
            assert await servers.reader.log.leases.claim_wanted(runners.owner, limit=10) == []
            assert await servers.owner.told(seat) == before

    play(claim)


def test_answer_at_the_second_server_is_acted_on_once_by_the_first() -> None:
    async def answer() -> None:
        async with two_servers() as servers:
            seat, other_seat = await servers.start_turn()
            servers.gate.set()
            request = await servers.owner.until(seat, "approval.request")
            decision = {"call_id": request["call_id"], "args_hash": request["args_hash"]}
            await servers.reader.post(other_seat, "approval.decision", decision | {"decision": "approve"})
            end = await servers.owner.until(seat, "agent.end")
            assert end["result"].endswith("It said paid.")
            results = bodies(await servers.owner.told(seat, "tool.result"))
            assert [(result["tool"], result["ok"]) for result in results] == [("look", True), ("pay", True)]
            assert len(servers.reader.sessions.runners) == 0
            assert (await servers.read_everything(other_seat))["calls"] == []

    play(answer)


def test_message_at_the_second_server_opens_a_turn_of_the_first() -> None:
    async def send() -> None:
        async with two_servers() as servers:
            servers.gate.set()
            seat = await servers.owner.sessions.create(ADA)
            other_seat = await servers.reader.sessions.get_membership(ADA, seat.session_id)
            await servers.reader.say(other_seat, "Go")
            await servers.reader.until(other_seat, "approval.request")
            [start] = bodies(await servers.reader.told(other_seat, "process.start"))
            assert start["pid"] == 1
            assert len(servers.reader.sessions.runners) == 0

    play(send)
