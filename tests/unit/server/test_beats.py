"""The heartbeats of a dialect that has its own say where the reader is; the others have the common one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import turnlog
from tests.support.limits import HANG_S
from tests.unit.app.desk import ADA, desk, play
from tests.unit.log.delegates import until
from turnlog.events import CATALOG, UiMessage
from turnlog.log import Log, open_log
from turnlog.server.streaming.event_stream import make_reset
from turnlog.server.streaming.projection import DialectProjection
from turnlog.server.streaming.turn_response import TurnResponse, with_heartbeats
from turnlog.team.office import Office
from turnlog.vocabularies import DIALECTS
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, Dialect
from turnlog.wire.dialects.framing import NATIVE_FRAMING
from turnlog.wire.sse import Decoder, ServerSentEvent

OFFICE = DIALECTS.request("office", DEFAULT_OPTIONS)


async def make(_: int) -> Dialect:
    return Office()


def test_a_heartbeat_of_the_office_has_the_last_seq_and_moves_no_cursor() -> None:
    async def run() -> tuple[str, list[ServerSentEvent]]:
        log = await open_log("memory:")
        session = await log.create("t")
        head = await log.info(session)
        projection = DialectProjection(log, head, CATALOG, make)
        frames = with_heartbeats(projection.frames(Cursor(), 0.01), OFFICE, session, Cursor())
        data = await anext(frames)
        await log.append(session, [turnlog.event(UiMessage(text=text), origin="ui") for text in "ab"])
        while data.count(b"user_message") < 2:
            data += await anext(frames)
        data += await anext(frames)
        await frames.aclose()
        assert (await log.info(session)).last == 1, "the log does not hold them"
        await log.close()
        return session, Decoder().feed(data)

    session, messages = asyncio.run(asyncio.wait_for(run(), HANG_S))
    bodies: list[dict[str, Any]] = [json.loads(message.data) for message in messages]
    first, last = bodies[0], bodies[-1]
    assert (first["id"], first["type"], first["sessionId"]) == (-1, "heartbeat", session)
    assert [body["id"] for body in bodies if body["type"] == "user_message"] == [0, 1]
    assert (last["id"], last["type"]) == (1, "heartbeat")
    assert set(last) == {"id", "ts", "sessionId", "type"}
    assert last["ts"] >= bodies[-2]["ts"]
    assert {message.event for message in messages} == {"message"}, "a page reads it like every event"
    assert [message.id for message in messages[-2:]] == [messages[-2].id] * 2, "it has no id of its own"


def test_a_reader_that_comes_back_is_where_it_was() -> None:
    async def run() -> bytes:
        log = await open_log("memory:")
        session = await log.create("t")
        await log.append(session, [turnlog.event(UiMessage(text=text), origin="ui") for text in "ab"])
        at = Cursor(1)
        frames = DialectProjection(log, await log.info(session), CATALOG, make).frames(at, 0.01)
        told = with_heartbeats(frames, OFFICE, session, at)
        page = await anext(told)
        await told.aclose()
        await log.close()
        return page

    [message] = Decoder().feed(asyncio.run(asyncio.wait_for(run(), HANG_S)))
    assert json.loads(message.data)["id"] == 1


def test_the_frames_of_other_dialects_are_as_they_are() -> None:
    async def nothing() -> Any:
        yield b""

    frames = nothing()
    assert with_heartbeats(frames, DIALECTS.request("agentic", DEFAULT_OPTIONS), "sess_1", Cursor()) is frames


@asynccontextmanager
async def busy(log: Log, session: str) -> AsyncIterator[None]:
    """A session in which something happens all the time, and nothing that the reader is told."""

    async def speak() -> None:
        while True:
            await log.append(session, [turnlog.event("session.title", {"title": "x"}, origin="app")])

    task = asyncio.create_task(speak())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_what_has_no_frame_is_silence_and_moves_the_cursor() -> None:
    async def run() -> None:
        log = await open_log("memory:")
        session = await log.create("t")
        head = await log.info(session)
        projection = DialectProjection(log, head, CATALOG, make)
        frames = projection.frames(Cursor(), 0.05)
        async with busy(log, session):
            pages = [await anext(frames) for _ in range(4)]
        await frames.aclose()
        await log.close()
        lines = [page.decode().strip() for page in pages if page]
        assert [bool(page) for page in pages] == [True, False, True, False]
        seqs = [int(line.removeprefix("id: ").removesuffix(f":{head.epoch}")) for line in lines]
        assert 0 < seqs[0] < seqs[1]

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_what_comes_together_with_a_silence_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> bytes:
        log = await open_log("memory:")
        session = await log.create("t")
        projection = DialectProjection(log, await log.info(session), CATALOG, make)
        frames = projection.frames(Cursor(), 0.01)
        assert await anext(frames) == b""

        async def silent(_: float) -> bool:
            await log.append(session, [turnlog.event(UiMessage(text="a"), origin="ui")])
            await until(lambda: bool(projection._window))
            return False

        monkeypatch.setattr(projection._wakeup, "wait", silent)
        page = await anext(frames) + await anext(frames)
        await frames.aclose()
        await log.close()
        return page

    assert b'"user_message"' in asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_other_turns_are_silence_to_who_waits_for_one() -> None:
    async def run() -> None:
        async with desk() as at:
            seat, log = await at.sessions.create(ADA), at.sessions.log
            head = await log.info(seat.session_id)
            turn = TurnResponse(at.sessions, seat, head, "tr_later", head.last + 1, 0.05)
            wanted = DIALECTS.request("turnlog", DEFAULT_OPTIONS)
            frames = await turn.stream_frames(wanted, Cursor(head.last), head.last + 1_000_000)
            async with busy(log, seat.session_id):
                assert [await anext(frames) for _ in range(2)] == [b"", b""]
            await frames.aclose()

    play(run)


def test_a_sign_of_life_and_a_reset_have_the_fields_that_every_line_of_blocks_has() -> None:
    async def run() -> bytes:
        log = await open_log("memory:")
        head = await log.info(await log.create("t"))
        await log.close()
        return NATIVE_FRAMING.heartbeat + NATIVE_FRAMING.encode_reset(make_reset("epoch", head))

    messages = Decoder().feed(asyncio.run(asyncio.wait_for(run(), HANG_S)))
    assert [message.event for message in messages] == ["heartbeat", "reset"]
    for message in messages:
        fields = json.loads(message.data)
        assert list(fields)[:4] == ["type", "agent", "final", "delta"]
        assert (fields["type"], fields["agent"], fields["final"], fields["delta"]) == (
            message.event,
            "",
            True,
            "",
        )
