"""kill -9 in mid-turn and while a question waits; SIGTERM with open streams (protocol section 4)."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT, TURNLOG, Reader, Server, kind, running
from tests.e2e.streams import until
from tests.support.leases import rest_session
from tests.support.limits import HANG_S
from turnlog.log import open_log


def open_things(events: list[Any]) -> dict[str, set[str]]:
    """Return the ids of what was started and not ended, by the events alone.

    The calls of a retracted block get no result.
    """
    agents, blocks = set[str](), set[str]()
    blocks_by_call = dict[str, str | None]()
    for event in events:
        payload = event["payload"]
        match event["type"]:
            case "agent.start":
                agents.add(event["agent_id"])
            case "agent.end":
                assert event["agent_id"] in agents, "an end without a start, or a second end"
                agents.remove(event["agent_id"])
            case "block.start":
                blocks.add(payload["block_id"])
            case "block.end":
                blocks.remove(payload["block_id"])
            case "block.retract":
                retracted = payload["block_ids"]
                blocks_by_call = {
                    call_id: block_id
                    for call_id, block_id in blocks_by_call.items()
                    if block_id not in retracted
                }
            case "tool.call":
                blocks_by_call[payload["call_id"]] = payload.get("block_id")
            case "tool.result":
                del blocks_by_call[payload["call_id"]]
    return {"agents": agents, "blocks": blocks, "calls": set(blocks_by_call)}


NOTHING: dict[str, set[str]] = {"agents": set(), "blocks": set(), "calls": set()}


def answer(
    server: Server, session: str, call: Any, result: object, event_id: str | None = None
) -> tuple[int, Any]:
    payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "result": result, "error": None}
    event = {"type": "tool.result", "payload": payload} | ({"id": event_id} if event_id else {})
    return server.post("/api/events", {"session": session, "events": [event]})


def logged(server: Server, session: str) -> list[Any]:
    """Return the events that are in the log now."""
    request = urllib.request.Request(f"{server.url}/api/log?session={session}", headers=server.headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        return [json.loads(line) for line in response.read().split(b"\n")[1:] if line]


def payloads(events: list[Any], type: str, agent: str | None = None) -> list[Any]:
    """Return the payloads of the events of a type, of one agent or of all."""
    return [
        event["payload"]
        for event in events
        if event["type"] == type and agent in (None, event.get("agent_name"))
    ]


@pytest.mark.parametrize(
    ("moment", "ending", "reason"),
    [
        ("agent.start", Server.kill, "process_crash"),
        ("block.delta", Server.kill, "process_crash"),
        ("tool.call", Server.kill, "process_crash"),
        ("block.delta", Server.stop, "server_shutdown"),
    ],
)
def test_turn_whose_process_ends_in_the_middle_goes_on_in_the_next_one_and_ends_once(
    tmp_path: Path, moment: str, ending: Callable[[Server], object], reason: str
) -> None:
    with running("slow", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "Lima")
        assert asyncio.run(reader.read(kind(moment)))
        port = server.port
        ending(server)
    with running("slow", tmp_path, port) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("tool.await"))), "the reader goes on with its old cursor"
        [call] = reader.events[-1]["payload"]["calls"]
        assert answer(server, session, call, True)[0] == 202
        assert asyncio.run(reader.read(kind("agent.end", "Guide")))

        seqs = [event["seq"] for event in reader.events]
        assert seqs == sorted(set(seqs)), "a reader that was there saw everything once"
        events = [event for event in logged(server, session) if event["seq"] <= seqs[-1]]
        unseen = [event["type"] for event in events if event["seq"] not in seqs]
        assert set(unseen) <= {"block.delta"}, "and of a block that began unseen and is closed, only its end"

        assert open_things(events) == NOTHING
        assert len(payloads(events, "agent.start", "Guide")) == 1
        [end] = payloads(events, "agent.end", "Guide")
        assert end["stop_reason"] == "end_turn"
        assert [body["reason"] for body in payloads(events, "process.end")] == [reason]
        assert len(payloads(events, "process.start")) == 2
        state = server.get(f"/api/state?session={session}")[1]["state"]
        assert [trip["city"] for trip in state["trips"]] == ["Lima"]
        server.send(session, "Bonn")
        assert asyncio.run(reader.read(kind("tool.await"))), "the next turn works"


@pytest.mark.parametrize("ending", [Server.kill, Server.stop])
def test_turn_whose_process_ends_is_closed_if_the_application_says_so(
    tmp_path: Path, ending: Callable[[Server], object]
) -> None:
    with running("closing", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "talk")
        assert asyncio.run(reader.read(kind("block.delta")))
        ending(server)
    with running("closing", tmp_path) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("agent.end")))
        assert open_things(reader.events) == NOTHING
        [end] = payloads(reader.events, "agent.end")
        assert (end["stop_reason"], end["reason"]) == ("error", "interrupted")
        assert payloads(reader.events, "block.end")[-1]["reason"] == "interrupted"
        assert not payloads(reader.events, "block.retract"), "what was said stays"
        sent = server.send(session, "talk")
        assert asyncio.run(reader.read(kind("block.delta"))), "the next turn works"
        assert reader.events[-1]["trace_id"] == sent["turn"]


def test_block_that_is_cut_off_by_a_kill_keeps_its_text_and_is_retracted(tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "talk")
        for _ in range(5):
            assert asyncio.run(reader.read(kind("block.delta")))
        server.kill()
    with running("endless", tmp_path) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("block.retract")))
        said = "".join(delta["text"] for delta in payloads(reader.events, "block.delta"))
        [end], [retraction] = payloads(reader.events, "block.end"), payloads(reader.events, "block.retract")
        assert (end["status"], end["reason"], end["text"]) == ("aborted", "interrupted", said)
        assert retraction == {"block_ids": [end["block_id"]], "reason": "interrupted"}


def test_tools_that_a_kill_interrupts_run_again_if_they_read_and_are_cancelled_if_they_write(
    tmp_path: Path,
) -> None:
    files = {"read": tmp_path / "read", "write": tmp_path / "write"}
    with running("counting", tmp_path) as server:
        session = server.session()
        server.send(session, str(tmp_path))
        # a file exists before its first run is written to it
        asyncio.run(until(lambda: all(file.exists() and file.read_text() for file in files.values())))
        server.kill()
    with running("counting", tmp_path) as server:
        reader = Reader(server, session)
        assert asyncio.run(reader.read(kind("agent.end")))
        assert open_things(reader.events) == NOTHING
        results = {body["tool"]: body for body in payloads(reader.events, "tool.result")}
        assert results["count_reads"]["result"] == 2
        assert results["count_writes"]["error"]["code"] == "CANCELLED"
        assert {name: file.read_text() for name, file in files.items()} == {"read": "xx", "write": "x"}
        assert reader.events[-1]["payload"]["stop_reason"] == "end_turn"


def test_question_that_waits_outlives_the_process_and_is_answered_once(tmp_path: Path) -> None:
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


def test_turn_whose_process_was_killed_twice_is_closed_once(tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "talk")
        assert asyncio.run(reader.read(kind("block.delta")))
        server.kill()
    with running("endless", tmp_path) as server:
        reader.server = server
        assert asyncio.run(reader.read(kind("process.start")))
        assert asyncio.run(reader.read(kind("block.delta"))), "the turn goes on"
        server.kill()
    for _ in range(2):
        with running("endless", tmp_path) as server:
            reader.server = server
            assert asyncio.run(reader.read(kind("process.start")))
            server.kill()
    assert open_things(reader.events) == NOTHING
    [error], [end] = payloads(reader.events, "session.error"), payloads(reader.events, "agent.end")
    assert (error["code"], end["stop_reason"], end["reason"]) == ("worker_lost", "error", "interrupted")


def test_sigterm_in_mid_turn_ends_open_streams_and_leaves_the_turn_to_the_next_process(
    tmp_path: Path,
) -> None:
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
        [agent] = open_things(reader.events)["agents"]
        assert open_things(reader.events) == NOTHING | {"agents": {agent}}
        [end], [retraction] = payloads(reader.events, "block.end"), payloads(reader.events, "block.retract")
        assert (end["reason"], retraction["reason"]) == ("interrupted", "interrupted")

        assert asyncio.run(reader.read(kind("process.start")))
        assert asyncio.run(reader.read(kind("block.delta"))), "the turn goes on without a request"
        assert reader.events[-1]["agent_id"] == agent
        assert server.post("/api/stop", {"session": session})[0] == 202
        assert asyncio.run(reader.read(kind("agent.end")))
        assert reader.events[-1]["payload"]["stop_reason"] == "cancelled"


def test_session_that_was_released_is_not_written_after_a_restart_until_a_message_comes(
    tmp_path: Path,
) -> None:
    async def rest() -> None:
        log = await open_log(f"sqlite:///{tmp_path}/log.db")
        await rest_session(log, session)
        await log.close()

    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "Hello")
        assert asyncio.run(Reader(server, session).read(kind("agent.end")))
        assert server.stop() == 0
    asyncio.run(rest())
    with running("fast", tmp_path) as server:
        before = logged(server, session)
        assert before[-1]["payload"]["reason"] == "server_shutdown"
        assert server.get(f"/api/state?session={session}")[0] == 200
        other = server.session()  # its runner is opened after those that a start opens
        server.send(other, "Hello")
        assert asyncio.run(Reader(server, other).read(kind("agent.end")))
        assert logged(server, session) == before
        server.send(session, "Hello")
        reader = Reader(server, session, f"&after={before[-1]['seq']}")
        assert asyncio.run(reader.read(kind("agent.end")))
        [start] = payloads(reader.events, "process.start")
        assert start["node"] != payloads(before, "process.start")[-1]["node"]


def test_session_that_was_in_use_at_a_sigterm_gets_the_start_of_the_next_process_by_itself(
    tmp_path: Path,
) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        assert server.stop() == 0
    with running("fast", tmp_path) as server:
        reader = Reader(server, session)
        for kind_of_event in ("process.start", "process.end", "process.start"):
            assert asyncio.run(reader.read(kind(kind_of_event)))
        assert not payloads(reader.events, "agent.start")


def test_second_server_on_the_same_log_ends_with_an_error(tmp_path: Path) -> None:
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
