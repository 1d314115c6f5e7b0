"""Agents that run in other processes: real servers, real workers, and both are killed while turns run."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest

import turnlog
from tests.e2e.forks import Fork
from tests.e2e.harness import ROOT, Server, running
from tests.e2e.served_worker import CommandRunner
from tests.e2e.test_record import check_balance, connected, read_turn, token_options
from tests.support.limits import HANG_S
from turnlog.adapters import ForeignAgent, ToolPolicy
from turnlog.adapters.remote.remote_part import FILE_PIECE_BYTES
from turnlog.connection import ServerConnection, ServerRefused
from turnlog.errors import CallerError
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalRequest,
    AssistantMessage,
    Entry,
    Payload,
    SessionError,
    ToolCall,
    ToolResult,
)

SUPPORT = "tests.e2e.serve_apps:support"
IMPATIENT = "tests.e2e.serve_apps:impatient"
BOT = "bot" * 12
P = TypeVar("P", bound=Payload)


class Effects:
    """What the agents of all workers did, from the file that they append to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "effects.txt"

    def lines(self) -> list[list[str]]:
        """Return the process and the effect of each line."""
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split(" ", 1) for line in text.split("\n") if line]

    def all(self) -> list[str]:
        return [effect for _, effect in self.lines()]


@dataclass
class Worker:
    """A worker process."""

    process: Fork

    async def wait_for(self, effect: str) -> None:
        """Read what the worker prints until it has done something."""
        async with asyncio.timeout(HANG_S):
            while line := await asyncio.to_thread(self.process.stdout.readline):
                if line.strip() == effect:
                    return
        raise AssertionError(f"the worker has ended before {effect}")


@contextmanager
def working(server: Server, folder: Path, *options: str) -> Iterator[Worker]:
    """A worker process; killed at the end if it still runs."""
    effects = Effects(folder).path
    arguments = [server.url, BOT, str(effects), *options]
    process = Fork(arguments, ROOT, os.environ, module="tests.e2e.served_worker")
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def talking(server: Server) -> AsyncIterator[tuple[ServerConnection, str]]:
    """Ada, and a session of hers."""
    async with connected(server, "ada") as ada:
        yield ada, await ada.create("support")


def run_with_server(app: str, folder: Path, talk: Callable[[Server], Awaitable[None]]) -> None:
    async def bounded(server: Server) -> None:
        async with asyncio.timeout(HANG_S):
            await talk(server)

    with running(app, folder, options=token_options(folder)) as server:
        asyncio.run(bounded(server))


async def say(ada: ServerConnection, session: str, text: str) -> list[Entry]:
    """Send a message; return its turn, when it has ended or waits."""
    sent = await ada.send(session, text)
    return await read_turn(ada, session, sent.turn)


async def wait_for(
    ada: ServerConnection, session: str, kind: type[P], is_it: Callable[[P], bool] = lambda _: True
) -> Entry:
    async for item in ada.follow(session):
        if isinstance(item, Entry) and isinstance(item.payload, kind) and is_it(item.payload):
            return item
    raise AssertionError("the session has ended")


async def read_until_ended(ada: ServerConnection, session: str, turn: str) -> list[Entry]:
    """Return a turn when all its agents have ended: a stream of it ends when they wait, too."""
    while True:
        entries = await read_turn(ada, session, turn)
        if entries and isinstance(entries[-1].payload, AgentEnd):
            return entries


def payloads(entries: Sequence[Entry], kind: type[P]) -> list[P]:
    return [item.payload for item in entries if isinstance(item.payload, kind)]


def texts(entries: Sequence[Entry]) -> list[str]:
    return [message.text for message in payloads(entries, AssistantMessage)]


def test_a_worker_answers_with_texts_tools_and_sub_agents_and_remembers(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session):
            first = await say(ada, session, "hi")
            second = await say(ada, session, "search grass")
            for entries in (first, second):
                check_balance(entries)
            assert texts(first) == ["You said: hi"]
            assert texts(second) == ["Green.", "You said: hi | search grass"]
            [call] = payloads(second, ToolCall)
            [result] = payloads(second, ToolResult)
            assert (call.tool, call.args, result.ok, result.result) == (
                "search",
                {"q": "grass"},
                True,
                "green",
            )
            starts = payloads(second, AgentStart)
            assert [(start.name, start.via, start.model) for start in starts] == [
                ("Support", "prompt", "commands-1"),
                ("Searcher", "call", None),
            ]
            # the server decides where events come from: a worker says only what its agents do
            origins = {item.type: item.origin for item in second}
            assert (origins["agent.start"], origins["tool.call"]) == ("system", "model")
            assert {item.depth for item in second if item.agent_name == "Searcher"} == {1}

    with running(SUPPORT, tmp_path, options=token_options(tmp_path)) as server, working(server, tmp_path):
        asyncio.run(talk(server))


def test_a_worker_gets_a_file_that_is_larger_than_one_answer(tmp_path: Path) -> None:
    data = b"%PDF-1.7 " + bytes(FILE_PIECE_BYTES)

    with (
        running(SUPPORT, tmp_path, options=token_options(tmp_path)) as server,
        working(server, tmp_path) as worker,
    ):
        who = {"authorization": f"Bearer {'ada' * 12}"}
        session = server.post("/api/sessions", {"app": "support"}, who)[1]["session_id"]
        path = f"/api/blobs?session={session}&media_type=application/pdf"
        status, stored = server.ask("POST", path, data, who | {"content-type": "application/octet-stream"})
        assert status == 201, stored
        attachments = [{"blob": stored["blob"], "name": "bill.pdf"}]
        body = {"session": session, "message": "read", "attachments": attachments}
        assert server.post("/api/send", body, who)[0] == 202
        asyncio.run(worker.wait_for(f"file bill.pdf application/pdf {sha256(data).hexdigest()}"))


def test_tags_in_the_text_of_a_worker_are_parsed_at_the_server(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        with working(server, tmp_path):
            async with talking(server) as (ada, session):
                entries = await say(ada, session, "note milk")
                assert texts(entries) == ["Done."]
                [note] = [item for item in entries if item.type == "shop.note"]
                assert (note.origin, note.agent_name) == ("model", "Support")

    run_with_server(SUPPORT, tmp_path, talk)


def test_a_worker_that_slept_through_its_lease_is_refused_and_answers_the_next_turn(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session):
            with working(server, tmp_path) as worker:
                sent = await ada.send(session, "hang")
                await worker.wait_for("hangs")
                worker.process.send_signal(signal.SIGSTOP)
                entries = await read_until_ended(ada, session, sent.turn)
                assert payloads(entries, SessionError)[0].code == "worker_lost"
                worker.process.send_signal(signal.SIGCONT)
                await worker.wait_for("cancelled hang")
                assert texts(await say(ada, session, "hi")) == ["You said: hi"]
                check_balance(await read_turn(ada, session, sent.turn))

    run_with_server(IMPATIENT, tmp_path, talk)


def test_an_exception_of_the_agent_is_masked_and_ends_the_turn(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        with working(server, tmp_path):
            async with talking(server) as (ada, session):
                failed = await say(ada, session, "fail")
                check_balance(failed)
                [error] = payloads(failed, SessionError)
                assert error.code == "agent_failed"
                assert "no such order" not in error.message
                assert texts(await say(ada, session, "hi")) == ["You said: hi"]

    run_with_server(SUPPORT, tmp_path, talk)


@pytest.mark.parametrize("approves", [True, False])
def test_an_approval_outlives_its_worker_and_is_answered_in_another_tab(
    tmp_path: Path, approves: bool
) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session), connected(server, "boss") as boss:
            with working(server, tmp_path) as worker:
                waiting = await say(ada, session, "delete /a")
                [request] = payloads(waiting, ApprovalRequest)
                assert request.risk == "danger", "the policy of the server counts"
                worker.process.kill()
            turn = waiting[0].trace_id or ""
            await (boss.approve if approves else boss.deny)(session, "call_1")
            with working(server, tmp_path):
                entries = await read_until_ended(ada, session, turn)
                check_balance(entries)
                [result] = payloads(entries, ToolResult)
                assert result.ok is approves
                assert texts(entries) == ["You said: delete /a"]
            assert Effects(tmp_path).all().count("delete /a") == int(approves)

    run_with_server(SUPPORT, tmp_path, talk)


def test_a_worker_that_is_killed_loses_its_turn_and_another_answers_the_next(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session):
            with working(server, tmp_path) as worker:
                sent = await ada.send(session, "hang")
                await worker.wait_for("hangs")
                worker.process.kill()
            later = await ada.send(session, "hi")
            entries = await read_until_ended(ada, session, sent.turn)
            check_balance(entries)
            [error] = payloads(entries, SessionError)
            assert (error.code, error.message) == (
                "worker_lost",
                "The worker that ran this turn was silent for 2 s.",
            )
            assert payloads(entries, AgentEnd)[-1].stop_reason == "error"
            with working(server, tmp_path):
                assert texts(await read_until_ended(ada, session, later.turn)) == ["You said: hi"]

    run_with_server(IMPATIENT, tmp_path, talk)


@pytest.mark.parametrize(("options", "number"), [((), signal.SIGTERM), (("sync",), signal.SIGINT)])
def test_a_worker_that_stops_in_order_gives_its_turn_up_at_once(
    tmp_path: Path, options: tuple[str, ...], number: signal.Signals
) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session):
            with working(server, tmp_path, *options) as worker:
                sent = await ada.send(session, "hang")
                await worker.wait_for("hangs")
                worker.process.send_signal(number)
                entries = await read_until_ended(ada, session, sent.turn)
                assert await asyncio.to_thread(worker.process.wait) == 0
            check_balance(entries)
            [error] = payloads(entries, SessionError)
            assert (error.code, error.message) == (
                "worker_lost",
                "The worker that ran this turn was stopped.",
            )
            with working(server, tmp_path, *options):
                # the state that the cancelled agent left is the next one's
                assert texts(await say(ada, session, "hi")) == ["You said: hang | hi"]

    run_with_server(SUPPORT, tmp_path, talk)


def test_a_stop_reaches_the_worker_and_the_next_turn_remembers(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        effects = Effects(tmp_path)
        async with talking(server) as (ada, session):
            with working(server, tmp_path) as worker:
                sent = await ada.send(session, "hang")
                await worker.wait_for("hangs")
                await ada.stop(session)
                entries = await read_until_ended(ada, session, sent.turn)
                check_balance(entries)
                assert payloads(entries, AgentEnd)[-1].stop_reason == "cancelled"
                assert "cancelled hang" in effects.all()
                assert texts(await say(ada, session, "hi")) == ["You said: hang | hi"]

    run_with_server(SUPPORT, tmp_path, talk)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_server_that_ends_closes_the_turn_and_its_worker_goes_on(tmp_path: Path, how: str) -> None:
    async def talk() -> None:
        effects = Effects(tmp_path)
        options = token_options(tmp_path)
        with running(SUPPORT, tmp_path, options=options) as server:
            port = server.port
            ada = connected(server, "ada")
            session = await ada.create("support")
            with working(server, tmp_path) as worker:
                assert texts(await say(ada, session, "hi")) == ["You said: hi"]
                sent = await ada.send(session, "hang")
                await worker.wait_for("hangs")
                await asyncio.to_thread(server.kill if how == "kill" else server.stop)
                with running(SUPPORT, tmp_path, port, options=options):
                    entries = await read_until_ended(ada, session, sent.turn)
                    check_balance(entries)
                    assert payloads(entries, AgentEnd)[-1].stop_reason == "error"
                    await worker.wait_for("cancelled hang")
                    # the turn that was closed has no checkpoint: the conversation before it counts
                    assert texts(await say(ada, session, "again")) == ["You said: hi | again"]
                    assert worker.process.poll() is None
        assert len({process for process, _ in effects.lines()}) == 1
        await ada.aclose()

    asyncio.run(talk())


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_answers_that_no_worker_has_taken_outlive_the_server(tmp_path: Path, how: str) -> None:
    async def talk() -> None:
        options = token_options(tmp_path)
        with running(IMPATIENT, tmp_path, options=options) as server:
            port = server.port
            ada = connected(server, "ada")
            session = await ada.create("support")
            with working(server, tmp_path) as worker:
                waiting = await say(ada, session, "delete /a")
                worker.process.kill()
            await ada.approve(session, "call_1")
            await wait_for(ada, session, SessionError, lambda error: error.code == "waiting_for_worker")
            await asyncio.to_thread(server.kill if how == "kill" else server.stop)
        with running(IMPATIENT, tmp_path, port, options=options) as server, working(server, tmp_path):
            entries = await read_until_ended(ada, session, waiting[0].trace_id or "")
            check_balance(entries)
            assert texts(entries) == ["You said: delete /a"]
        assert Effects(tmp_path).all().count("delete /a") == 1
        await ada.aclose()

    asyncio.run(talk())


def test_a_message_that_nobody_takes_waits_and_says_so(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with talking(server) as (ada, session):
            sent = await ada.send(session, "hi")
            notice = await wait_for(ada, session, SessionError)
            assert notice.payload.code == "waiting_for_worker"  # type: ignore[union-attr]
            assert notice.trace_id is None, "no turn has begun that it could be the error of"
            assert (await ada.session(session)).state == "running"
            with working(server, tmp_path):
                entries = await read_until_ended(ada, session, sent.turn)
            assert texts(entries) == ["You said: hi"]

    run_with_server(IMPATIENT, tmp_path, talk)


def test_two_workers_share_the_sessions_and_run_no_turn_twice(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, "ada") as ada:
            with working(server, tmp_path), working(server, tmp_path):
                sessions = [await ada.create("support") for _ in range(12)]
                words = [f"n{number}" for number in range(len(sessions))]
                turns = await asyncio.gather(
                    *(say(ada, session, word) for session, word in zip(sessions, words, strict=True))
                )
                for entries, word in zip(turns, words, strict=True):
                    check_balance(entries)
                    assert texts(entries) == [f"You said: {word}"]
        assert sorted(Effects(tmp_path).all()) == sorted(f"answered {word}" for word in words)

    run_with_server(SUPPORT, tmp_path, talk)


@pytest.mark.parametrize(
    ("name", "app", "status"), [("tools", "support", 403), ("ada", "support", 403), ("bot", "other", 404)]
)
def test_a_worker_that_the_server_does_not_accept_is_told_so(
    tmp_path: Path, name: str, app: str, status: int
) -> None:
    async def talk(server: Server) -> None:
        async with connected(server, name) as connection:
            with pytest.raises(ServerRefused) as refused:
                await connection.serve(app, ForeignAgent(CommandRunner(tmp_path / "effects.txt")))
            assert refused.value.status == status

    run_with_server(SUPPORT, tmp_path, talk)


@pytest.mark.parametrize(("policies", "options"), [({"delete": ToolPolicy()}, {}), ({}, {"max_parts": 0})])
def test_serve_refuses_what_would_have_no_effect(policies: Any, options: Any, tmp_path: Path) -> None:
    async def serve() -> None:
        agent = ForeignAgent(CommandRunner(tmp_path / "effects.txt"), policies)
        async with turnlog.connect("http://127.0.0.1:9", BOT) as connection:
            with pytest.raises(CallerError):
                await connection.serve("support", agent, **options)

    asyncio.run(serve())
