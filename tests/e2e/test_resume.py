"""A reader that is cut anywhere resumes by `Last-Event-ID` and misses nothing (protocol sections 6 and 7)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Dechunker, Reader, Server, kind, running
from turnlog.wire.sse import Decoder, ServerSentEvent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("slow", tmp_path_factory.mktemp("resume")) as server:
        yield server


def answer(server: Server, session: str, call: dict[str, Any], result: object) -> tuple[int, Any]:
    payload = {"call_id": call["call_id"], "tool": call["tool"], "ok": True, "result": result, "error": None}
    return server.post(
        "/api/events", {"session": session, "events": [{"type": "tool.result", "payload": payload}]}
    )


async def full_turn(server: Server, city: str) -> tuple[str, list[Any]]:
    """One whole turn of the tour, through its question; the session and every event."""
    session = server.session()
    server.send(session, city)
    reader = Reader(server, session)
    assert await reader.read(kind("tool.await"))
    call = reader.events[-1]["payload"]["calls"][0]
    assert answer(server, session, call, True)[0] == 202
    assert await reader.read(kind("agent.end", "Guide"))
    return session, reader.events


@pytest.fixture(scope="module")
def turn(server: Server) -> tuple[str, list[Any]]:
    return asyncio.run(full_turn(server, "Oslo"))


def is_last(last_id: str) -> Any:
    return lambda message: message.id == last_id


async def raw_stream(server: Server, session: str, query: str, last_id: str) -> bytes:
    """The raw bytes of the whole stream, transfer coding included."""
    reader, decoder, dechunker, raw = Reader(server, session, query), Decoder(), Dechunker(), b""
    async for piece in reader.pieces():
        raw += piece
        if any(message.id == last_id for message in decoder.feed(dechunker.feed(piece))):
            return raw
    raise AssertionError("the stream ended early")


async def everything(server: Server, session: str, query: str, done: Any) -> list[ServerSentEvent]:
    reader = Reader(server, session, query)
    assert await reader.read(done)
    return reader.messages


def join(prefix: list[ServerSentEvent], rest: list[ServerSentEvent]) -> list[tuple[str, str]]:
    return [(message.id, message.data) for message in [*prefix, *rest] if message.event == "message"]


async def cut_everywhere(
    server: Server, session: str, query: str, done: Any
) -> list[tuple[str, list[ServerSentEvent], list[ServerSentEvent]]]:
    """For every byte of the stream: the id to resume from, what came before the cut, what came after."""
    whole = await everything(server, session, query, done)
    raw = await raw_stream(server, session, query, whole[-1].id)
    decoder, dechunker, seen = Decoder(), Dechunker(), list[ServerSentEvent]()
    resumed: dict[str, list[ServerSentEvent]] = {}
    results = []
    for position in range(len(raw)):
        seen += decoder.feed(dechunker.feed(raw[position : position + 1]))
        last_id = seen[-1].id if seen else ""
        if last_id not in resumed and last_id != whole[-1].id:
            reader = Reader(server, session, query, last_id=last_id)
            assert await reader.read(is_last(whole[-1].id))
            resumed[last_id] = reader.messages
        results.append((last_id, list(seen), resumed.get(last_id, [])))
    return results


def test_a_turnlog_reader_cut_at_every_byte_gets_every_durable_event_once(
    server: Server, turn: tuple[str, list[Any]]
) -> None:
    session, live = turn
    durable = [event["seq"] for event in live if event["type"] != "block.delta"]
    results = asyncio.run(cut_everywhere(server, session, "", kind("agent.end", "Guide")))
    assert len(results) > 1000
    for last_id, before, after in results:
        seqs = [int(id_.split(":")[0]) for id_, _ in join(before, after)]
        assert seqs == sorted(set(seqs)), f"doubled or out of order after {last_id}"
        kept = [seq for seq in seqs if live[seq]["type"] != "block.delta"]
        assert kept == durable, f"not every durable event after {last_id}"


def texts(messages: list[tuple[str, str]]) -> dict[str, str]:
    """The text of each agent in the dialect `blocks`."""
    found: dict[str, str] = {}
    for _, data in messages:
        message = json.loads(data)
        if message["type"] == "text":
            found[message["agent"]] = found.get(message["agent"], "") + message["delta"]
    return found


def test_a_blocks_reader_cut_at_every_byte_gets_every_message_once_and_the_same_text(
    server: Server, turn: tuple[str, list[Any]]
) -> None:
    session, live = turn
    said_so_far: list[str] = []

    def finished(message: ServerSentEvent) -> bool:
        data = json.loads(message.data)
        said_so_far.append(data["delta"])
        return bool(data["type"] == "text" and data["final"] and "Have a good time!" in "".join(said_so_far))

    whole = asyncio.run(everything(server, session, "&dialect=blocks", finished))
    final_id = whole[-1].id
    results = asyncio.run(cut_everywhere(server, session, "&dialect=blocks", is_last(final_id)))
    expected = join(whole, [])
    said: dict[str, str] = {}
    for event in live:
        if event["type"] == "assistant.message":
            agent = event["agent_id"].removeprefix("agt_")
            said[agent] = said.get(agent, "") + event["payload"]["text"]
    assert texts(expected) == said
    for last_id, before, after in results:
        assert join(before, after) == expected, f"not the same messages after {last_id}"


@pytest.mark.parametrize("dialect", ["blocks-xml", "blocks-raw"])
def test_the_other_block_dialects_resume_at_every_frame(
    server: Server, turn: tuple[str, list[Any]], dialect: str
) -> None:
    session, live = turn
    query = f"&dialect={dialect}&stream_meta_history_and_tool_results=true"
    last = str(live[-1]["seq"])
    whole = asyncio.run(everything(server, session, query, lambda message: message.id.startswith(f"{last}:")))
    for position, message in enumerate(whole[:-1]):
        rest = Reader(server, session, query, last_id=message.id)
        assert asyncio.run(rest.read(is_last(whole[-1].id)))
        assert join(rest.messages, []) == join(whole[position + 1 :], [])


def test_every_blocks_message_is_small_and_complete(server: Server, turn: tuple[str, list[Any]]) -> None:
    session, _ = turn
    city = "Å" * 3000 + '"' * 3000
    answer_ = server.send(session, city)
    reader = Reader(server, session, f"&dialect=blocks&after={answer_['eventId']}")
    assert asyncio.run(reader.read(kind("awaiting_frontend_tools")))
    for message in reader.messages:
        assert len(message.data.encode()) <= 2048
        assert {"type", "agent", "final", "delta"} <= set(json.loads(message.data))
    asyncio.run(Reader(server, session, f"&after={answer_['eventId']}").read(kind("tool.await")))
    assert server.post("/api/stop", {"session": session})[0] == 202


@pytest.mark.parametrize("step", [701, 1511, 4001])
@pytest.mark.parametrize("query", ["", "&dialect=blocks"])
def test_a_reader_cut_again_and_again_during_a_live_turn_loses_nothing(
    tmp_path: Path, step: int, query: str
) -> None:
    async def live() -> tuple[Reader, Reader]:
        with running("slow", tmp_path) as server:
            session = server.session()
            server.send(session, "Rome")
            steady, cut = Reader(server, session, query), Reader(server, session, query)
            wanted = kind("awaiting_frontend_tools" if query else "tool.await")
            following = asyncio.create_task(steady.read(wanted))
            while not await cut.read(wanted, cut=step + len(cut.messages) % 7):
                step_on = len(cut.messages)
                assert step_on < 10_000
            assert await following
            return steady, cut

    steady, cut = asyncio.run(live())
    assert join(cut.messages, []) == join(steady.messages, [])


def test_reset_is_said_when_a_cursor_cannot_be_continued(server: Server, turn: tuple[str, list[Any]]) -> None:
    session, _ = turn
    for cursor, reason in [("3:ffffffff", "epoch"), ("999999", "ahead")]:
        reader = Reader(server, session, last_id=cursor)
        assert asyncio.run(reader.read(kind("process.start")))
        reset = next(message for message in reader.messages if message.event == "reset")
        assert json.loads(reset.data)["reason"] == reason
        assert json.loads(reset.data)["first"] == 0
        assert reader.events[0]["seq"] == 0


def test_the_header_wins_over_the_query(server: Server, turn: tuple[str, list[Any]]) -> None:
    session, _ = turn
    reader = Reader(server, session, "&after=0", last_id="5")
    assert asyncio.run(reader.read(kind("block.end")))
    assert reader.events[0]["seq"] == 6


def test_a_replay_leaves_out_the_deltas_of_ended_blocks_after_the_cursor(
    server: Server, turn: tuple[str, list[Any]]
) -> None:
    session, live = turn
    first_delta = next(event["seq"] for event in live if event["type"] == "block.delta")
    reader = Reader(server, session)
    assert asyncio.run(reader.read(kind("agent.end", "Guide")))
    assert not [event for event in reader.events if event["type"] == "block.delta"]
    inside = Reader(server, session, last_id=str(first_delta))
    assert asyncio.run(inside.read(kind("block.end")))
    ended = next(event["seq"] for event in live if event["type"] == "block.end")
    assert [event["seq"] for event in inside.events] == list(range(first_delta + 1, ended + 1))
