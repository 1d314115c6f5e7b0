"""A tool that runs in another process: the executor is a client of the real server, also after kill -9."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.e2e.apps import count_words
from tests.e2e.harness import Reader, Server, kind, running
from tests.support.limits import HANG_S
from turnlog.agents.remote.executor import RemoteExecutor
from turnlog.agents.tools import Tool, tool


async def beside(server: Server, session: str, tools: list[Tool], work: Any) -> Any:
    """Do something while a remote executor runs."""
    executor = asyncio.create_task(RemoteExecutor(server.url, session, tools, server.token).run())
    try:
        return await work
    finally:
        executor.cancel()
        await asyncio.gather(executor, return_exceptions=True)


def results(reader: Reader) -> list[Any]:
    return [event for event in reader.events if event["type"] == "tool.result"]


def said(reader: Reader) -> str:
    messages = [event for event in reader.events if event["type"] == "assistant.message"]
    return str(messages[-1]["payload"]["text"])


def test_another_process_answers_a_call(tmp_path: Path) -> None:
    with running("remote", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)

        async def turn() -> bool:
            await asyncio.to_thread(server.send, session, "one two three")
            return await reader.read(kind("agent.end"))

        assert asyncio.run(beside(server, session, [count_words], turn()))
        assert said(reader) == "There are 3 words."
        assert len(results(reader)) == 1


def test_an_executor_works_in_an_application_with_another_default_dialect(tmp_path: Path) -> None:
    with running("remote", tmp_path, options=["--dialect", "office"]) as server:
        session = server.session()
        reader = Reader(server, session, "&dialect=turnlog")

        async def turn() -> bool:
            await asyncio.to_thread(server.send, session, "one two three")
            return await reader.read(kind("agent.end"))

        assert asyncio.run(beside(server, session, [count_words], turn()))
        assert said(reader) == "There are 3 words."


def test_a_call_waits_for_its_executor_through_a_crash_and_runs_once(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(executor="remote")
    def count_words(text: str) -> int:
        ran.append(text)
        return len(text.split())

    with running("remote", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "one two")
        assert asyncio.run(reader.read(kind("tool.call")))
        server.kill()
        port = server.port
    with running("remote", tmp_path, port) as server:
        reader.server = server
        assert asyncio.run(beside(server, session, [count_words], reader.read(kind("agent.end"))))
        assert (said(reader), ran) == ("There are 2 words.", ["one two"])

        async def again() -> bool:
            await asyncio.to_thread(server.send, session, "four")
            return await reader.read(kind("agent.end"))

        assert asyncio.run(beside(server, session, [count_words], again()))
        assert ran == ["one two", "four"], "a new executor does not run what was answered"
        assert [event["payload"]["result"] for event in results(reader)] == [2, 1]


def test_the_executor_lives_through_a_restart_of_the_server(tmp_path: Path) -> None:
    async def work(folder: Path) -> Reader:
        with running("remote", folder) as server:
            session, port = server.session(), server.port
            reader = Reader(server, session)
            executor = asyncio.create_task(
                RemoteExecutor(server.url, session, [count_words], server.token).run()
            )
            await asyncio.to_thread(server.send, session, "one")
            assert await reader.read(kind("agent.end"))
            server.kill()
        with running("remote", folder, port) as server:
            reader.server = server
            await asyncio.to_thread(server.send, session, "one two")
            assert await reader.read(kind("agent.end"))
            executor.cancel()
            await asyncio.gather(executor, return_exceptions=True)
        return reader

    reader = asyncio.run(work(tmp_path))
    assert [event["payload"]["result"] for event in results(reader)] == [1, 2]


def test_a_stopped_turn_stops_the_tool(tmp_path: Path) -> None:
    async def work(folder: Path) -> Reader:
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def count_words(text: str) -> int:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return 0

        async def stop() -> None:
            await asyncio.to_thread(server.send, session, "one")
            await begun.wait()
            await asyncio.to_thread(server.post, "/api/stop", {"session": session})
            await asyncio.wait_for(stopped.wait(), HANG_S)

        with running("remote", folder) as server:
            session = server.session()
            await beside(server, session, [tool(executor="remote")(count_words)], stop())
            reader = Reader(server, session)
            assert await reader.read(kind("agent.end"))
            return reader

    [result] = results(asyncio.run(work(tmp_path)))
    assert json.dumps(result["payload"]["error"]).startswith('{"code": "CANCELLED"')
