"""kill -9 in mid-turn and while a question waits; SIGTERM with open streams (protocol section 4)."""

import asyncio
import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT, TURNLOG, Reader, Server, kind, running
from tests.support.limits import HANG_S


def open_things(events: list[Any]) -> dict[str, set[str]]:
    """What was started and not ended, by the events alone."""
    found: dict[str, set[str]] = {"agents": set(), "blocks": set(), "calls": set()}
    for event in events:
        payload = event["payload"]
        match event["type"]:
            case "agent.start":
                found["agents"].add(event["agent_id"])
            case "agent.end":
                assert event["agent_id"] in found["agents"], "an end without a start, or a second end"
                found["agents"].remove(event["agent_id"])
            case "block.start":
                found["blocks"].add(payload["block_id"])
            case "block.end":
                found["blocks"].remove(payload["block_id"])
            case "tool.call":
                found["calls"].add(payload["call_id"])
            case "tool.result":
                found["calls"].remove(payload["call_id"])
    return found


NOTHING: dict[str, set[str]] = {"agents": set(), "blocks": set(), "calls": set()}


def answer(
    server: Server, session: str, call: Any, result: object, event_id: str | None = None
) -> tuple[int, Any]:
    payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "result": result, "error": None}
    event = {"type": "tool.result", "payload": payload} | ({"id": event_id} if event_id else {})
    return server.post("/api/events", {"session": session, "events": [event]})


def logged(server: Server, session: str) -> list[Any]:
    """What is in the log up to the start of this process."""
    request = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        events = [json.loads(line) for line in response.read().split(b"\n")[1:] if line]
    starts = [event["seq"] for event in events if event["type"] == "process.start"]
    return [event for event in events if event["seq"] <= starts[-1]]


@pytest.mark.parametrize("moment", ["agent.start", "block.delta", "tool.call"])
def test_a_turn_killed_in_the_middle_is_closed_by_events_and_the_next_one_works(
    tmp_path: Path, moment: str
) -> None:
    with running("slow", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "Lima")
        assert asyncio.run(reader.read(kind(moment)))
        port = server.port
        server.kill()
    with running("slow", tmp_path, port) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("process.start"))), "the reader goes on with its old cursor"
        seqs = [event["seq"] for event in reader.events]
        assert seqs == sorted(set(seqs)), "a reader that was there saw everything once"
        unseen = [event["type"] for event in logged(server, session) if event["seq"] not in seqs]
        assert set(unseen) <= {"block.delta"}, "and of a block that began unseen and is closed, only its end"
        assert open_things(reader.events) == NOTHING
        ends = [event for event in reader.events if event["type"] == "agent.end"]
        assert {end["payload"]["stop_reason"] for end in ends} == {"error"}
        types = [event["type"] for event in reader.events]
        assert types.index("process.end") < len(types) - 1
        server.send(session, "Bonn")
        assert asyncio.run(reader.read(kind("tool.await"))), "the next turn works"


def test_an_aborted_block_keeps_what_was_said(tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "talk")
        for _ in range(5):
            assert asyncio.run(reader.read(kind("block.delta")))
        port = server.port
        server.kill()
    with running("endless", tmp_path, port) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("block.end")))
        said = "".join(event["payload"]["text"] for event in reader.events if event["type"] == "block.delta")
        assert reader.events[-1]["payload"]["status"] == "aborted"
        assert reader.events[-1]["payload"]["text"] == said


def test_a_question_outlives_the_process_and_is_answered_once(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "Oslo")
        assert asyncio.run(reader.read(kind("tool.await")))
        call = reader.events[-1]["payload"]["calls"][0]
        port = server.port
        server.kill()
    with running("fast", tmp_path, port) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("process.start")))
        assert not [event for event in reader.events if event["type"] == "agent.end" and event["depth"] == 0]
        status, first = answer(server, session, call, True)
        assert status == 202
        assert asyncio.run(reader.read(kind("agent.end", "Guide")))
        assert open_things(reader.events) == NOTHING
        assert answer(server, session, call, True) == (202, first), (
            "the same answer twice returns the old seq"
        )
        assert answer(server, session, call, False)[0] == 409, "another answer is a conflict"
        assert server.get(f"/api/state?session={session}")[1]["state"] == {
            "trips": [{"city": "Oslo", "weather": "clear and 21 °C"}]
        }


def test_recovery_twice_writes_the_closing_events_once(tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "talk")
        assert asyncio.run(reader.read(kind("block.delta")))
        server.kill()
    for _ in range(2):
        with running("endless", tmp_path) as server:
            assert asyncio.run(Reader(server, session).read(kind("agent.end")))
            server.kill()
    with running("endless", tmp_path) as server:
        reader = Reader(server, session)
        starts = 0

        def fourth_start(message: Any) -> bool:
            nonlocal starts
            starts += message.event == "message" and json.loads(message.data)["type"] == "process.start"
            return bool(starts == 4)

        assert asyncio.run(reader.read(fourth_start))
        assert [event["type"] for event in reader.events].count("agent.end") == 1


def test_sigterm_ends_open_streams_and_closes_what_runs(tmp_path: Path) -> None:
    async def read_while_stopping(server: Server, readers: list[Reader]) -> int:
        tasks = [asyncio.create_task(reader.read(kind("process.end"))) for reader in readers]
        assert await Reader(server, readers[0].session).read(kind("block.delta"))
        code = await asyncio.to_thread(server.stop)
        await asyncio.gather(*tasks)
        return code

    with running("endless", tmp_path) as server:
        session = server.session()
        server.send(session, "talk")
        readers = [Reader(server, session) for _ in range(5)]
        assert asyncio.run(read_while_stopping(server, readers)) == 0
    with running("endless", tmp_path) as server:
        reader = Reader(server, session)
        assert asyncio.run(reader.read(kind("process.end")))
        assert reader.events[-1]["payload"]["reason"] == "server_shutdown"
        assert open_things(reader.events) == NOTHING


def test_a_second_server_on_the_same_log_gets_a_clear_error(tmp_path: Path) -> None:
    with running("fast", tmp_path) as first:
        assert first.get("/healthz")[0] == 200
        command = [
            TURNLOG,
            "serve",
            "tests.e2e.apps:fast",
            "--log",
            f"sqlite:///{tmp_path}/log.db",
            "--port",
            "0",
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=ROOT)
        assert second.returncode == 1
        assert second.stderr == "Error: log.db is being written by another process; stop that one first\n"
