"""Turns over HTTP: queue, wait, stop, failure, refusals (protocol sections 4 and 8)."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.test_crash import NOTHING, answer, open_things


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("fast", tmp_path_factory.mktemp("turns")) as server:
        yield server


def test_a_turn_goes_through_tool_sub_agent_question_and_state(server: Server) -> None:
    session = server.session()
    sent = server.send(session, "Rome")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    assert answer(server, session, reader.events[-1]["payload"]["calls"][0], True)[0] == 202
    assert asyncio.run(reader.read(kind("agent.end", "Guide")))
    events = reader.events
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))  # who comes back misses the pieces of blocks that ended meanwhile
    assert {event["trace_id"] for event in events if "trace_id" in event} == {sent["turn"]}
    message = events[sent["eventId"]]
    assert (message["type"], message["id"], message["origin"]) == ("ui.message", sent["id"], "ui")
    scout = [event for event in events if event.get("agent_name") == "Scout"]
    assert {event["depth"] for event in scout} == {1}
    guide_start = next(event for event in events if event["type"] == "agent.start" and event["depth"] == 0)
    assert scout[0]["payload"]["parent_id"] == guide_start["agent_id"]
    calls = {event["payload"]["call_id"]: event for event in events if event["type"] == "tool.call"}
    assert scout[0]["payload"]["call_id"] in calls
    note = next(event for event in events if event["type"] == "tour.note_trip")
    assert note["origin"] == "model"
    ended = next(event for event in events if event["type"] == "block.end" and event["seq"] < note["seq"])
    assert (
        note["seq"] - max(e["seq"] for e in events if e["type"] == "block.end" and e["seq"] < note["seq"])
        == 2
    )
    assert ended
    said = [event["payload"]["text"] for event in events if event["type"] == "assistant.message"]
    assert "agent-event" not in "".join(said)
    assert said[-1] == "Noted: Rome, clear and 21 °C. Have a good time!"
    assert open_things(events) == NOTHING
    assert server.get(f"/api/state?session={session}")[1] == {
        "seq": events[-1]["seq"],
        "state": {"trips": [{"city": "Rome", "weather": "clear and 21 °C"}]},
    }


def test_no_means_nothing_is_noted(server: Server) -> None:
    session = server.session()
    server.send(session, "Rome")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    assert answer(server, session, reader.events[-1]["payload"]["calls"][0], False)[0] == 202
    assert asyncio.run(reader.read(kind("agent.end", "Guide")))
    assert server.get(f"/api/state?session={session}")[1]["state"] == {"trips": []}


def test_a_message_during_a_wait_cancels_the_question_and_the_same_agent_goes_on(server: Server) -> None:
    session = server.session()
    first = server.send(session, "Rome")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    asked = reader.events[-1]
    second = server.send(session, "Lisbon")
    assert second["turn"] == first["turn"]
    assert asyncio.run(reader.read(kind("tool.await")))
    cancelled = next(
        event
        for event in reader.events
        if event["type"] == "tool.result"
        and event["payload"]["call_id"] == asked["payload"]["calls"][0]["call_id"]
    )
    assert cancelled["payload"]["error"]["code"] == "CANCELLED"
    assert reader.events[-1]["agent_id"] == asked["agent_id"]
    assert reader.events[-1]["payload"]["calls"][0]["args"] == {"question": "Note a trip to Lisbon?"}
    assert answer(server, session, asked["payload"]["calls"][0], True)[0] == 409


def test_messages_during_a_turn_wait_in_log_order(tmp_path: Path) -> None:
    with running("slow", tmp_path) as server:
        session = server.session()
        turns = [server.send(session, city)["turn"] for city in ("Rome", "Oslo", "Lima")]
        reader = Reader(server, session)
        for city in ("Rome", "Oslo", "Lima"):
            assert asyncio.run(reader.read(kind("tool.await")))
            call = reader.events[-1]["payload"]["calls"][0]
            assert call["args"]["question"] == f"Note a trip to {city}?"
            assert answer(server, session, call, True)[0] == 202
        assert asyncio.run(reader.read(kind("agent.end", "Guide")))
        starts = [e["trace_id"] for e in reader.events if e["type"] == "agent.start" and e["depth"] == 0]
        assert starts == turns
        trips = server.get(f"/api/state?session={session}")[1]["state"]["trips"]
        assert [trip["city"] for trip in trips] == ["Rome", "Oslo", "Lima"]


def test_stop_reaches_a_running_model_and_the_queue_goes_on(tmp_path: Path) -> None:
    with running("endless", tmp_path) as server:
        session = server.session()
        server.send(session, "first")
        server.send(session, "second")
        reader = Reader(server, session)
        assert asyncio.run(reader.read(kind("block.delta")))
        assert server.post("/api/stop", {"session": session})[0] == 202
        assert asyncio.run(reader.read(kind("agent.end")))
        assert reader.events[-1]["payload"]["stop_reason"] == "cancelled"
        aborted = next(event for event in reader.events if event["type"] == "block.end")
        said = "".join(event["payload"]["text"] for event in reader.events if event["type"] == "block.delta")
        assert aborted["payload"] == {
            "block_id": aborted["payload"]["block_id"],
            "status": "aborted",
            "text": said,
            "reason": "stopped",
        }
        assert open_things(reader.events) == NOTHING
        assert asyncio.run(reader.read(kind("agent.start"))), "the next message has its turn"
        assert reader.events[-1]["payload"]["prompt"] == "second"


def test_stop_while_waiting_ends_the_turn(server: Server) -> None:
    session = server.session()
    server.send(session, "Rome")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    assert server.post("/api/stop", {"session": session})[0] == 202
    assert asyncio.run(reader.read(kind("agent.end", "Guide")))
    assert open_things(reader.events) == NOTHING


def test_a_model_that_breaks_ends_the_agent_with_what_was_said(tmp_path: Path) -> None:
    with running("broken", tmp_path) as server:
        session = server.session()
        server.send(session, "hello")
        reader = Reader(server, session)
        assert asyncio.run(reader.read(kind("agent.end")))
        types = [event["type"] for event in reader.events]
        assert types[-3:] == ["block.end", "session.error", "agent.end"]
        assert reader.events[-3]["payload"]["text"] == "I was about to "
        assert "the line is dead" not in json.dumps(reader.events), "foreign error texts stay inside"


def test_leaving_the_stream_stops_nothing(server: Server) -> None:
    session = server.session()
    server.send(session, "Rome")
    assert not asyncio.run(Reader(server, session).read(lambda _: False, cut=400))
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/send", {"session": "sess_none", "message": "hi"}, 404, "no session"),
        ("/api/send", {"session": "{session}", "message": "  "}, 400, "$.message"),
        ("/api/send", {"session": "{session}", "message": "x" * 100_001}, 400, "100000 characters"),
        ("/api/send", {"session": "{session}"}, 400, "expected a message with some text (at $.message)"),
        ("/api/send", {"session": "{session}", "type": "user_dance"}, 400, "$.type"),
        ("/api/send", b'{"session":"a","session":"b","message":"hi"}', 400, "each key once"),
        ("/api/send", b'{"message":"' + b"x" * (1 << 20) + b'"}', 413, "1048576"),
        ("/api/events", {"session": "{session}", "events": [{"type": "agent.end"}]}, 400, "stop_reason"),
        (
            "/api/events",
            {
                "session": "{session}",
                "events": [{"type": "agent.end", "payload": {"stop_reason": "end_turn"}}],
            },
            400,
            "may not come from ui",
        ),
        (
            "/api/events",
            {
                "session": "{session}",
                "events": [{"type": "tour.note_trip", "payload": {"city": "a", "weather": "b"}}],
            },
            400,
            "may not come from ui",
        ),
        ("/api/events", {"session": "{session}", "events": [{"type": "no.such"}]}, 400, "declared type"),
        (
            "/api/events",
            {"session": "{session}", "events": [{"type": "ui.message", "payload": {"text": " "}}]},
            400,
            "expected a message with some text (at $.events[0].payload.text)",
        ),
        (
            "/api/events",
            {
                "session": "{session}",
                "events": [
                    {"type": "tool.result", "payload": {"call_id": "call_x", "tool": "confirm", "ok": True}}
                ],
            },
            404,
            "no call",
        ),
        ("/api/stop", {"session": "sess_none"}, 404, "no session"),
    ],
)
def test_what_is_wrong_gets_a_clear_error(
    server: Server, path: str, body: Any, status: int, words: str
) -> None:
    session = server.session()
    if not isinstance(body, bytes):
        body = json.loads(json.dumps(body).replace("{session}", session))
    got, answer_ = server.post(path, body)
    assert (got, words in answer_["error"]) == (status, True), answer_


def test_reads_of_unknown_things_are_refused(server: Server) -> None:
    assert server.get("/api/events?session=sess_none")[0] == 404
    assert server.get("/api/state?session=sess_none")[0] == 404
    session = server.session()
    assert server.get(f"/api/events?session={session}&dialect=klingon")[0] == 400
    assert server.get(f"/api/events?session={session}&depth=x")[0] == 400
    assert server.get("/healthz")[1]["status"] == "ok"


def test_a_body_that_is_not_declared_as_json_is_refused(server: Server) -> None:
    assert server.post("/api/sessions", {}, {"content-type": "text/plain"})[0] == 415


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/api/state?session=x", "/api/events?session=x", "/console.js"]
)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused_on_every_route(
    server: Server, path: str, headers: dict[str, str], status: int
) -> None:
    assert server.get(path, headers)[0] == status
    same = {"Host": f"localhost:{server.port}", "Origin": f"http://localhost:{server.port}"}
    assert server.get(path, same)[0] != status, "the same request from the server's own page is not refused"


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_different_answers_at_once_one_is_taken(server: Server, attempt: int) -> None:
    session = server.session()
    server.send(session, f"Rome {attempt}")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    call = reader.events[-1]["payload"]["calls"][0]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda result: answer(server, session, call, result)[0], [True, False]))
    assert sorted(answers) == [202, 409]
    assert asyncio.run(reader.read(kind("agent.end", "Guide")))
    assert open_things(reader.events) == NOTHING


def test_an_answer_cannot_pose_as_one_of_the_provider(server: Server) -> None:
    session = server.session()
    server.send(session, "Rome")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    call = reader.events[-1]["payload"]["calls"][0]
    payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "kind": "web_search_tool_result"}
    events = [{"type": "tool.result", "payload": payload}]
    status, refusal = server.post("/api/events", {"session": session, "events": events})
    assert (status, "kind" in refusal["error"]) == (400, True)


def test_a_message_with_a_key_is_sent_once(server: Server) -> None:
    session, key = server.session(), {"idempotency-key": "one"}
    rome = {"session": session, "message": "Rome"}
    first = server.post("/api/send", rome, key)
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("tool.await")))
    assert server.post("/api/send", rome, key) == first
    assert server.post("/api/send", rome | {"message": "Oslo"}, key)[0] == 409
    assert server.post("/api/send", rome, {"idempotency-key": ""})[0] == 400
    again = Reader(server, session)
    assert asyncio.run(again.read(kind("tool.await")))
    assert [event["type"] for event in again.events].count("ui.message") == 1  # and the question still waits
    assert answer(server, session, reader.events[-1]["payload"]["calls"][0], True)[0] == 202


def test_what_happens_is_counted(server: Server) -> None:
    session = server.session()
    server.send(session, "Rome")
    assert asyncio.run(Reader(server, session).read(kind("tool.await")))
    status, page = server.get("/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in page.decode().splitlines() if not line.startswith("#"))
    assert int(lines["turnlog_tool_seconds_count"]) >= 2
    assert int(lines["turnlog_deliveries_total"]) >= 1
    assert int(lines['turnlog_events_total{family="ui"}']) >= 1
