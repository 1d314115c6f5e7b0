"""Two servers on one store: one owns the session, the other reads it, and posts what members answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.app.desk import ADA, Desk, bodies, play
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.app import Membership, Sessions
from turnlog.app.messages import Chat
from turnlog.app.sessions import decode_state, visible_state
from turnlog.errors import Conflict
from turnlog.events import UiMessage
from turnlog.log import Log, MemoryStore, Row
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


def miss_first_lookup(log: Log) -> None:
    """Let the next lookup of events find nothing: another server appends them a moment later."""
    find_events = log.find_events

    async def find_nothing(session_id: str, ids: Sequence[str]) -> dict[str, Row]:
        log.find_events = find_events  # type: ignore[method-assign]
        return {}

    log.find_events = find_nothing  # type: ignore[method-assign,assignment]


def test_message_that_both_servers_get_at_once_has_one_turn_and_one_answer() -> None:
    async def send() -> None:
        async with two_servers() as servers:
            seat = await servers.owner.sessions.create(ADA)
            other_seat = await servers.reader.sessions.get_membership(ADA, seat.session_id)
            message = UiMessage(text="Go")
            first = await servers.owner.sessions.send(seat, message, "evt_key-1")
            assert await servers.reader.sessions.send(other_seat, message, "evt_key-1") == first
            assert len(await servers.owner.told(seat, "ui.message")) == 1

    play(send)


def test_chat_that_both_servers_get_at_once_has_one_turn() -> None:
    async def chat() -> None:
        async with two_servers() as servers:
            seat = await servers.owner.sessions.create(ADA)
            other_seat = await servers.reader.sessions.get_membership(ADA, seat.session_id)
            servers.gate.set()
            talk = Chat(None, message=UiMessage(text="Go"), key="evt_key-1")
            first = await servers.owner.sessions.chat(seat, talk)
            miss_first_lookup(servers.reader.log)
            assert await servers.reader.sessions.chat(other_seat, talk) == first
            assert len(await servers.owner.told(seat, "ui.message")) == 1

    play(chat)


def test_state_of_a_session_as_its_owner_describes_it_for_other_servers() -> None:
    async def describe() -> None:
        async with two_servers() as servers:
            seat, _ = await servers.start_turn()
            runner = servers.owner.sessions.runners.find(seat.session_id)
            assert runner is not None
            assert runner.state == '{"running":[""]}'
            assert visible_state(decode_state(runner.state), seat) == "running"
            servers.gate.set()
            request = await servers.owner.until(seat, "approval.request")
            await runner.wait_for_head()
            assert runner.state == '{"waiting":[""]}'
            assert visible_state(decode_state(runner.state), seat) == "waiting"
            decision = {"call_id": request["call_id"], "args_hash": request["args_hash"], "decision": "deny"}
            await servers.owner.post(seat, "approval.decision", decision)
            await servers.owner.until(seat, "agent.end")
            await runner.wait_for_head()
            assert runner.state == ""
            assert visible_state(decode_state(runner.state), seat) == "idle"

    play(describe)
