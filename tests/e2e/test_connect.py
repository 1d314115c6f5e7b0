"""The Python client against a real server: messages, answers, a stream over restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.e2e.harness import Server, running
from turnlog.connection import HistoryReset, ServerConnection, ServerRefused
from turnlog.errors import CallerError, NotFound
from turnlog.events import AgentEnd, AssistantMessage, Entry, UiMessage

ASKING = "tests.e2e.connect_apps:asking"


def connected(server: Server) -> ServerConnection:
    return turnlog.connect(server.url, server.token)


async def read_turn(connection: ServerConnection, session: str, turn: str) -> list[Entry]:
    return [entry async for entry in connection.follow(session, turn=turn) if isinstance(entry, Entry)]


def said(entries: list[Entry]) -> str:
    return "".join(item.payload.text for item in entries if isinstance(item.payload, AssistantMessage))


def test_a_message_is_answered_and_its_turn_is_followed_to_its_end(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create("asking", "A title")
            sent = await connection.send(session, "Hi")
            entries = await read_turn(connection, session, sent.turn)
            assert said(entries) == "You said Hi."
            assert isinstance(entries[-1].payload, AgentEnd)
            [listed] = [item async for item in connection.sessions(page_size=1) if item.session_id == session]
            assert (listed.title, listed.app) == ("A title", "asking")

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_a_key_sends_a_message_and_makes_a_session_once(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create("asking", key="one")
            assert await connection.create("asking", key="one") == session
            assert await connection.create("asking") != session
            first = await connection.send(session, "Hi", key="k")
            assert await connection.send(session, "Hi", key="k") == first
            assert await connection.send(session, "Hi") != first

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_questions_are_answered_and_calls_are_approved_and_denied(tmp_path: Path) -> None:
    async def ask(connection: ServerConnection, text: str, answer: Any) -> str:
        session = await connection.create("asking")
        sent = await connection.send(session, text)
        await read_turn(connection, session, sent.turn)
        [call] = await connection.pending_calls(session)
        await answer(session, call.call_id)
        return said(await read_turn(connection, session, sent.turn))

    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            picked = await ask(
                connection, "pick", lambda session, call: connection.answer(session, call, "red")
            )
            assert picked == "The tool said red."
            assert "deleted /a" in await ask(connection, "delete", connection.approve)
            denied = await ask(
                connection, "delete", lambda session, call: connection.deny(session, call, "no")
            )
            assert "no" in denied

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_errors_say_what_the_server_refused(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            with pytest.raises(ServerRefused, match="404: no session sess_none") as refused:
                await connection.send("sess_none", "Hi")
            assert refused.value.status == 404
            with pytest.raises(ServerRefused, match="no session sess_none"):
                async for _ in connection.follow("sess_none"):
                    pass
            session = await connection.create("asking")
            with pytest.raises(NotFound, match="no call 'call_x' waits"):
                await connection.answer(session, "call_x", 1)
            sent = await connection.send(session, "pick")
            await read_turn(connection, session, sent.turn)
            [call] = await connection.pending_calls(session)
            with pytest.raises(CallerError, match="does not wait for an approval"):
                await connection.approve(session, call.call_id)
        async with turnlog.connect(server.url, "wrong") as stranger:
            with pytest.raises(ServerRefused, match="401"):
                await stranger.create("asking")

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_a_stop_ends_the_turn(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create()
            sent = await connection.send(session, "Hi")
            await connection.stop(session)
            entries = await read_turn(connection, session, sent.turn)
            assert isinstance(entries[-1].payload, AgentEnd)
            assert entries[-1].payload.stop_reason == "cancelled"

    with running("endless", tmp_path) as server:
        asyncio.run(talk(server))


async def follow_until(connection: ServerConnection, session: str, after: Any, text: str) -> list[Any]:
    """Read events until a message with this text was answered."""
    items: list[Any] = []
    turn = None
    async for item in connection.follow(session, after):
        items.append(item)
        if isinstance(item, Entry) and isinstance(item.payload, UiMessage) and item.payload.text == text:
            turn = item.trace_id
        if isinstance(item, Entry) and isinstance(item.payload, AgentEnd) and item.trace_id == turn:
            return items
    raise AssertionError("the session has ended")


def test_a_follower_loses_and_doubles_nothing_when_the_server_is_killed(tmp_path: Path) -> None:
    async def talk() -> None:
        with running(ASKING, tmp_path) as server:
            port = server.port
            connection = connected(server)
            session = await connection.create("asking")
            following = asyncio.create_task(follow_until(connection, session, None, "second"))
            await connection.send(session, "first")
            await asyncio.to_thread(server.kill)
        sending = asyncio.create_task(connection.send(session, "second"))  # while no server runs
        with running(ASKING, tmp_path, port):
            await sending
            items = await following
            durable = [item.seq for item in items]
            assert durable == sorted(set(durable))
            stored = [
                entry.seq
                for entry in await follow_until(connection, session, None, "second")
                if isinstance(entry, Entry)
            ]
            assert set(stored) <= set(durable)
            await connection.aclose()

    asyncio.run(talk())


def test_a_cursor_of_another_history_is_surfaced_as_a_reset(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create("asking")
            await connection.send(session, "first")
            items = await follow_until(connection, session, "5:gother00", "first")
            assert isinstance(items[0], HistoryReset)
            assert items[0].reason == "epoch"
            assert items[1].seq == 0

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_a_stored_cursor_continues_after_its_event(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create("asking")
            sent = await connection.send(session, "first")
            await read_turn(connection, session, sent.turn)
            follower = connection.follow(session)
            seen = []
            async for item in follower:
                assert isinstance(item, Entry)
                seen.append(item.seq)
                if len(seen) == 1:
                    break
            rest = await follow_until(connection, session, follower.cursor, "first")
            assert rest[0].seq > seen[-1]
            new = asyncio.create_task(follow_until(connection, session, "end", "second"))
            while not new.done():
                await connection.send(session, "second")  # until the follower has connected
                await asyncio.wait([new], timeout=0.05)
            assert all(item.seq > rest[-1].seq for item in await new)

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))


def test_the_sync_form_does_the_same(tmp_path: Path) -> None:
    with running(ASKING, tmp_path) as server, turnlog.connect_sync(server.url, server.token) as connection:
        session = connection.create("asking")
        assert session in [item.session_id for item in connection.sessions()]
        sent = connection.send(session, "delete")
        list(connection.follow(session, turn=sent.turn))
        [call] = connection.pending_calls(session)
        connection.approve(session, call.call_id)
        entries = [item for item in connection.follow(session, turn=sent.turn) if isinstance(item, Entry)]
        assert "deleted /a" in said(entries)
        assert connection.session(session).state in ("idle", "running")
        for _ in connection.follow(session):
            break  # an iteration that is left closes its stream
    connection.close()
    with pytest.raises(CallerError, match="closed"):
        connection.create("asking")


def test_the_trace_context_of_a_message_is_stored_with_it(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        async with connected(server) as connection:
            session = await connection.create("asking")
            traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            sent = await connection.send(session, "Hi", key="k", traceparent=traceparent)
            # the same request again has another span, and an invalid context counts as none
            again = await connection.send(session, "Hi", key="k", traceparent=traceparent.replace("b7", "c8"))
            assert again == sent
            other = await connection.send(session, "Ho", traceparent="00-0-0-00")
            [message, *_] = await read_turn(connection, session, sent.turn)
            [plain, *_] = await read_turn(connection, session, other.turn)
            assert isinstance(message.payload, UiMessage)
            assert message.payload.traceparent == traceparent
            assert isinstance(plain.payload, UiMessage)
            assert plain.payload.traceparent is None

    with running(ASKING, tmp_path) as server:
        asyncio.run(talk(server))
