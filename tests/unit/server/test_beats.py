"""The heartbeats of a dialect that has its own say where the reader is; the others have the common one."""

import asyncio
import json
from typing import Any

import turnlog
from turnlog.events import CATALOG, UiMessage
from turnlog.log import open_log
from turnlog.server.projection import Projection
from turnlog.server.response import beating
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialect import DEFAULT, Dialect
from turnlog.wire.office import Office
from turnlog.wire.sse import Decoder, Message
from turnlog.wire.telling import Wanted

OFFICE = Wanted("office", DEFAULT)


async def make(_: int) -> Dialect:
    return Office()


def test_a_heartbeat_of_the_office_has_the_last_seq_and_moves_no_cursor() -> None:
    async def run() -> tuple[str, list[Message]]:
        log = await open_log("memory:")
        session = await log.create("t")
        head = await log.info(session)
        projection = Projection(log, head, CATALOG, make)
        frames = beating(projection.frames(Cursor(), 0.01), OFFICE, session, Cursor())
        data = await anext(frames)
        await log.append(session, [turnlog.event(UiMessage(text=text), origin="ui") for text in "ab"])
        while data.count(b"user_message") < 2:
            data += await anext(frames)
        data += await anext(frames)
        await frames.aclose()  # type: ignore[attr-defined]
        assert (await log.info(session)).last == 1, "the log does not hold them"
        await log.close()
        return session, Decoder().feed(data)

    session, messages = asyncio.run(asyncio.wait_for(run(), 10))
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
        frames = Projection(log, await log.info(session), CATALOG, make).frames(at, 0.01)
        told = beating(frames, OFFICE, session, at)
        page = await anext(told)
        await told.aclose()  # type: ignore[attr-defined]
        await log.close()
        return page

    [message] = Decoder().feed(asyncio.run(asyncio.wait_for(run(), 10)))
    assert json.loads(message.data)["id"] == 1


def test_the_frames_of_other_dialects_are_as_they_are() -> None:
    async def nothing() -> Any:
        yield b""

    frames = nothing()
    assert beating(frames, Wanted("agentic", DEFAULT), "sess_1", Cursor()) is frames
