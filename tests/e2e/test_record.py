"""Recordings on a real server: a whole turn, approvals, roles, retries, and recorders that die anywhere."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.e2e.harness import ROOT, Server, running
from turnlog.connection import ServerConnection, ServerRefused
from turnlog.errors import Conflict
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalRequest,
    AssistantMessage,
    Entry,
    ToolCall,
    ToolResult,
)
from turnlog.recording import RecordingStopped
from turnlog.server.auth.credentials import hash_token
from turnlog.server.auth.keys import TokenEntry, encode_tokens

ASKING = "tests.e2e.connect_apps:asking"
SHORT_LEASE = "tests.e2e.record_apps:recorded"
TOKENS = {"bot": ("source",), "tools": ("executor",), "boss": ("operator",), "ada": ()}


def token_options(folder: Path) -> list[str]:
    """Return options for a server with a token for each name in `TOKENS`: the name twelve times."""
    entries = {name: TokenEntry(hash_token(name * 12), roles) for name, roles in TOKENS.items()}
    file = folder / "tokens.json"
    file.write_text(encode_tokens(entries))
    file.chmod(0o600)
    return ["--tokens", str(file)]


def connected(server: Server, name: str) -> ServerConnection:
    return turnlog.connect(server.url, name * 12)


async def read_turn(connection: ServerConnection, session: str, turn: str) -> list[Entry]:
    return [item async for item in connection.follow(session, turn=turn) if isinstance(item, Entry)]


def list_calls(entries: Sequence[Entry], kind: type[ToolCall | ToolResult]) -> list[tuple[str, str]]:
    return [(item.agent_id or "", item.payload.call_id) for item in entries if isinstance(item.payload, kind)]


def check_balance(entries: Sequence[Entry]) -> None:
    """Every agent and call that began has ended once, in the events of whole turns."""
    starts = [item.agent_id or "" for item in entries if isinstance(item.payload, AgentStart)]
    ends = [item.agent_id or "" for item in entries if isinstance(item.payload, AgentEnd)]
    calls = list_calls(entries, ToolCall)
    results = list_calls(entries, ToolResult)
    assert sorted(starts) == sorted(ends)
    assert sorted(calls) == sorted(results)
    blocks = [item.payload.block_id for item in entries if item.type == "block.start"]  # type: ignore[union-attr]
    closed = [item.payload.block_id for item in entries if item.type == "block.end"]  # type: ignore[union-attr]
    assert sorted(blocks) == sorted(closed)


def test_a_turn_of_another_process_is_recorded_and_the_servers_agent_answers_the_next(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "ada") as ada, connected(server, "bot") as bot:
            session = await ada.create("asking")
            async with bot.record(session, prompt="Hi", name="Support", model="m") as turn:
                call = await turn.call("search", {"q": "grass"})
                async with turn.child("Searcher", call_id=call, prompt="grass") as searcher:
                    await turn.think("Hm.", agent=searcher)
                    await turn.text("Green.", agent=searcher)
                await turn.result(call, "green")
                sent = await ada.send(session, "next")  # for the server's agent, when the session is free
                await turn.text("It is green.")
            entries = await read_turn(ada, session, turn.turn)
            check_balance(entries)
            texts = [
                (item.agent_name, item.payload.text)
                for item in entries
                if isinstance(item.payload, AssistantMessage)
            ]
            assert texts == [("Searcher", "Green."), ("Support", "It is green.")]
            assert {item.depth for item in entries if item.agent_name == "Searcher"} == {1}
            assert entries[0].payload.text == "Hi"  # type: ignore[union-attr]
            assert (entries[0].actor, entries[0].origin) == ("bot", "ui")
            answered = await read_turn(ada, session, sent.turn)
            assert answered[-1].agent_name == "Asker"
            assert entries[-1].seq < next(
                item.seq for item in answered if isinstance(item.payload, AgentStart)
            )

    with running(ASKING, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


def test_approvals_of_a_recorded_agent_are_answered_by_members(tmp_path: Path) -> None:
    async def decide(ada: ServerConnection, session: str, turn: str, *, approves: bool) -> None:
        async for item in ada.follow(session):
            if (
                isinstance(item, Entry)
                and isinstance(item.payload, ApprovalRequest)
                and item.trace_id == turn
            ):
                act = ada.approve if approves else ada.deny
                await act(session, item.payload.call_id)
                return

    async def talk(server: Server) -> None:
        async with connected(server, "ada") as ada, connected(server, "bot") as bot:
            session = await ada.create("asking")
            for approves in (True, False):
                async with bot.record(session, prompt="Delete it") as turn:
                    call = await turn.call("delete", {"path": "/a"})
                    deciding = asyncio.create_task(decide(ada, session, turn.turn, approves=approves))
                    assert await turn.ask_approval(call) is approves
                    if approves:
                        await turn.result(call, "done")
                    await deciding
                entries = await read_turn(ada, session, turn.turn)
                check_balance(entries)
                [result] = [item.payload for item in entries if isinstance(item.payload, ToolResult)]
                assert result.ok is approves

    with running(ASKING, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


def test_a_stop_of_a_member_cancels_the_block_of_the_recorder(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "ada") as ada, connected(server, "bot") as bot:
            session = await ada.create("asking")
            turn = bot.record(session, prompt="Work")

            async def work() -> None:
                async with turn:
                    await turn.text("I begin")
                    await ada.stop(session)
                    await asyncio.Event().wait()

            with pytest.raises(RecordingStopped):
                await work()
            entries = await read_turn(ada, session, turn.turn)
            check_balance(entries)
            assert entries[-1].payload.stop_reason == "cancelled"  # type: ignore[union-attr]

    with running(ASKING, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


def test_only_a_source_may_record(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "ada") as ada:
            session = await ada.create("asking")
        for name in ("ada", "tools", "boss"):
            async with connected(server, name) as other:
                with pytest.raises(ServerRefused, match="role source") as refused:
                    async with other.record(session, prompt="Hi"):
                        pass
                assert refused.value.status == 403
        async with connected(server, "bot") as bot, bot.record(session, prompt="Hi") as turn:  # the control
            await turn.text("Hello.")

    with running(ASKING, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


def test_two_recorders_never_have_one_session(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "bot") as bot, connected(server, "ada") as ada:
            session = await ada.create("asking")
            async with bot.record(session, prompt="Hi"):
                with pytest.raises(Conflict, match="another recorder"):
                    async with bot.record(session, prompt="Hi"):
                        pass
            async with bot.record(session, prompt="Hi"):
                pass

    with running(ASKING, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


async def post(bot: ServerConnection, session: str, **fields: Any) -> dict[str, Any]:
    body = {"session": session, "recorder": "recorder-1", **fields}
    return await bot.requests.post("/api/record", body, dict[str, Any])


def event(type: str, number: int, **payload: Any) -> dict[str, Any]:
    fields = {"type": type, "id": f"evt_own_{number}", "agent_id": "agt_1", "payload": payload}
    return fields | ({"trace_id": "tr_1"} if type == "agent.start" else {})


START = event("agent.start", 1, name="Support", via="prompt")


def test_a_silent_recorder_is_closed_and_its_late_result_is_refused(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "bot") as bot, connected(server, "ada") as ada:
            session = await ada.create("asking")
            begun = await post(bot, session)
            fence = begun["fence"]
            call = event("tool.call", 2, call_id="c1", tool="search", args={}, executor="runtime")
            first = await post(bot, session, fence=fence, events=[START, call])
            again = await post(bot, session, fence=fence, events=[START, call])
            assert again["seqs"] == first["seqs"]

            entries = await read_turn(ada, session, "tr_1")  # ends when the server has closed the turn
            check_balance(entries)
            assert entries[-1].payload.reason == "interrupted"  # type: ignore[union-attr]
            late = event("tool.result", 3, call_id="c1", tool="search", ok=True, result=1, error=None)
            with pytest.raises(ServerRefused, match="recording has ended") as refused:
                await post(bot, session, fence=fence, events=[late])
            assert refused.value.status == 410
            begun = await post(bot, session)
            assert begun["fence"] > fence
            with pytest.raises(ServerRefused, match="recording has ended"):
                await post(bot, session, fence=fence, events=[late])
            check_balance(await read_turn(ada, session, "tr_1"))

    with running(SHORT_LEASE, tmp_path, options=token_options(tmp_path)) as server:
        asyncio.run(talk(server))


STEPS = ["begun", "text", "call", "child", "result", "asked"]


@pytest.mark.parametrize("step", STEPS)
def test_a_recorder_that_is_killed_leaves_nothing_open(tmp_path: Path, step: str) -> None:
    async def find_turn(ada: ServerConnection, session: str) -> str:
        async for item in ada.follow(session):
            if isinstance(item, Entry) and isinstance(item.payload, AgentStart):
                return item.trace_id or ""
        raise AssertionError("the session has ended")

    async def check(server: Server, session: str) -> None:
        async with connected(server, "ada") as ada:
            turn = await find_turn(ada, session)
            while True:
                entries = await read_turn(ada, session, turn)  # ends when all wait, too
                if isinstance(entries[-1].payload, AgentEnd):
                    break
            check_balance(entries)
            assert entries[-1].payload.stop_reason == "error"
            sent = await ada.send(session, "next")
            assert (await read_turn(ada, session, sent.turn))[-1].agent_name == "Asker"

    async def make_session(server: Server) -> str:
        async with connected(server, "ada") as ada:
            return await ada.create("asking")

    with running(SHORT_LEASE, tmp_path, options=token_options(tmp_path)) as server:
        session = asyncio.run(make_session(server))
        command = [sys.executable, "-m", "tests.e2e.recorder", server.url, "bot" * 12, session]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as recorder:
            assert recorder.stdout is not None
            for line in recorder.stdout:
                if line.strip() == step:
                    recorder.kill()
        asyncio.run(check(server, session))


def test_a_restart_of_the_server_closes_the_recording(tmp_path: Path) -> None:
    async def talk() -> None:
        options = token_options(tmp_path)
        with running(ASKING, tmp_path, options=options) as server:
            port = server.port
            ada, bot = connected(server, "ada"), connected(server, "bot")
            session = await ada.create("asking")
            fence = (await post(bot, session))["fence"]
            await post(bot, session, fence=fence, events=[START])
            await asyncio.to_thread(server.kill)
        with running(ASKING, tmp_path, port, options=options):
            check_balance(await read_turn(ada, session, "tr_1"))
            end = event("agent.end", 2, stop_reason="end_turn")
            with pytest.raises(ServerRefused, match="410"):
                await post(bot, session, fence=fence, events=[end])
            await ada.aclose()
            await bot.aclose()

    asyncio.run(talk())
