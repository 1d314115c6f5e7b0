"""Executors for all sessions of an application, against a server that plays its part."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tests.support.limits import HANG_S
from turnlog.agents import Tool, ToolContext, tool
from turnlog.agents.remote import pool
from turnlog.agents.remote.executor import RECONNECT, RemoteExecutor
from turnlog.agents.remote.pool import POLL_INTERVAL_S, RemoteExecutorPool
from turnlog.errors import CallerError, PeerError
from turnlog.events import CATALOG, Payload, Scope, ToolCall, UiAction, UiMessage, encode_envelope
from turnlog.events.ui import ButtonClick
from turnlog.wire import sse


def listed(*sessions: tuple[str, ...], roles: tuple[str, ...] = ()) -> bytes:
    names = ("session_id", "app", "state", "last_activity")
    found = [dict(zip(names, item, strict=False)) | {"roles": roles} for item in sessions]
    return msgspec.json.encode({"sessions": found})


def frame(seq: int, payload: Payload, session: str, **scope: Any) -> bytes:
    about = Scope(agent_id=scope.pop("agent_id", None), trace_id="tr_1", **scope)
    origin: Any = "ui" if isinstance(payload, UiMessage | UiAction) else "system"
    event = CATALOG.build_event(payload, id=f"evt_{seq}", origin=origin, scope=about)
    return sse.encode(encode_envelope(event, session_id=session, seq=seq, ts_ms=0), id=f"{seq}:e")


def reset() -> bytes:
    return sse.encode(b'{"type":"reset","reason":"ahead","epoch":"e","first":0,"last":-1}', event="reset")


@dataclass
class Server:
    """Answers with lists of sessions, the last one again and again; streams are those of their sessions."""

    lists: list[bytes | int]
    streams: dict[str, list[bytes] | int]
    apps: tuple[str, ...] = ("weights", "other")
    roles: tuple[str, ...] = ("executor",)
    asked: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    posts: list[Any] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    slept: list[float] = field(default_factory=list)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.answer(reader, writer)
        self.changed.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split()[1]
        if target == "/api/me":
            writer.write(answer(msgspec.json.encode({"roles": self.roles, "apps": self.apps})))
        elif target.startswith("/api/sessions?limit=500"):
            assert "authorization: Bearer key" in head
            self.pages.append(target.partition("&after=")[2])
            what = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            writer.write(answer(what))
        elif head.startswith("POST"):
            size = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
            self.posts.append(msgspec.json.decode(await reader.readexactly(size)))
            writer.write(b"HTTP/1.1 202 X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        else:
            await self.stream(target.split("session=")[1].split("&")[0], reader, writer)

    async def stream(self, session: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(session)
        what = self.streams[session]
        writer.write(answer(what) if isinstance(what, int) else b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(what))
        self.changed.set()
        if not isinstance(what, int):
            await reader.read()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        self.changed.set()
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def serving(self, tools: list[Tool]) -> AsyncIterator[asyncio.Task[None]]:
        async with await asyncio.start_server(self.take, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            executors = RemoteExecutorPool(url, "weights", tools, "key", sleep=self.sleep)
            task = asyncio.create_task(executors.run())
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await asyncio.gather(*self._open, return_exceptions=True)
                await asyncio.sleep(0)


def answer(what: bytes | int) -> bytes:
    status, body = (200, what) if isinstance(what, bytes) else (what, b'{"error":"so!"}')
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)


@tool(executor="remote")
def look(context: ToolContext) -> str:
    """Say for whom it looks."""
    return f"{context.session_id} for {context.actor}"


def called(session: str, *before: bytes) -> list[bytes]:
    call = ToolCall(call_id="c1", tool="look", args={}, executor="remote")
    return [reset(), *before, frame(9, call, session, agent_id="agt_1")]


def results(server: Server) -> set[str]:
    return {event["payload"]["result"] for body in server.posts for event in body["events"]}


def test_every_open_session_of_the_application_is_served_also_one_that_comes_later() -> None:
    async def work() -> None:
        first = ("sess_1", "weights", "running")
        others = (("sess_2", "weights", "closed"), ("sess_3", "other", "idle"))
        later = ("sess_4", "weights", "waiting")
        streams = {name: called(name) for name in ("sess_1", "sess_4")}
        server = Server([listed(first, *others), listed(first, *others, later)], dict(streams))
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 2)
            await server.until(lambda: len(server.slept) > 3)
        assert results(server) == {"sess_1 for None", "sess_4 for None"}
        assert sorted(server.asked) == ["sess_1", "sess_4"], "each is followed once"
        assert set(server.slept) == {POLL_INTERVAL_S}

    asyncio.run(work())


def test_sessions_of_later_pages_are_served_and_read_once_in_a_while() -> None:
    async def work() -> None:
        pages = [{"sessions": [], "next": "7-sess_2"}, {"sessions": [], "next": "6-sess_1"}]
        first, second = [msgspec.json.encode(page) for page in pages]
        server = Server(
            [first, second, listed(("sess_1", "weights", "running")), first], {"sess_1": called("sess_1")}
        )
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1 and len(server.pages) > 5)
        assert server.pages[:6] == ["", "7-sess_2", "6-sess_1", "", "", ""]

    asyncio.run(work())


def test_a_tool_is_told_who_spoke_last_in_its_turn() -> None:
    async def work() -> None:
        spoke = frame(1, UiMessage(text="Weigh-in"), "sess_1", actor="ada")
        nobody = frame(2, UiMessage(text="Weigh-in"), "sess_1")
        action = UiAction(view_id="v", action=ButtonClick(button_id="b"))
        acted = frame(3, action, "sess_1", actor="bob")
        server = Server(
            [listed(("sess_1", "weights", "running"))], {"sess_1": called("sess_1", spoke, nobody, acted)}
        )
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1)
        assert results(server) == {"sess_1 for bob"}

    asyncio.run(work())


def test_people_of_old_turns_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.agents.remote.executor.MAX_TURNS", 0)

    async def work() -> None:
        spoke = frame(1, UiMessage(text="Weigh-in"), "sess_1", actor="ada")
        server = Server([listed(("sess_1", "weights", "running"))], {"sess_1": called("sess_1", spoke)})
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1)
        assert results(server) == {"sess_1 for None"}

    asyncio.run(work())


def test_one_that_fails_is_begun_anew_while_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        both = listed(("sess_1", "weights", "running"), ("sess_2", "weights", "running"))
        server = Server([both], {"sess_1": 404, "sess_2": called("sess_2")})
        async with server.serving([look]):
            await server.until(lambda: server.asked.count("sess_1") == 2 and bool(server.posts))
            server.streams["sess_1"] = called("sess_1")
            await server.until(lambda: len(server.posts) == 2)
        assert server.asked.count("sess_2") == 1

    with caplog.at_level(logging.WARNING, "turnlog.agents"):
        asyncio.run(work())
    assert "the executor of sess_1 has ended" in caplog.text


def test_a_server_that_is_away_is_asked_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)

    async def work() -> None:
        there = listed(("sess_1", "weights", "running"))
        server = Server([503, 429, there], {"sess_1": called("sess_1")})
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1)
        assert server.slept[:3] == [RECONNECT.delay_s(1), RECONNECT.delay_s(2), POLL_INTERVAL_S]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("what", "message"), [(401, "got 401"), (b'{"sessions":1}', "an answer to /api/sessions")]
)
def test_a_server_that_will_not_have_it_is_an_error(what: bytes | int, message: str) -> None:
    async def work() -> None:
        async with Server([what], {}).serving([look]) as task:
            with pytest.raises(PeerError, match=message):
                await asyncio.wait_for(asyncio.shield(task), HANG_S)

    asyncio.run(work())


def test_tools_of_another_place_are_refused_at_once() -> None:
    @tool
    def here() -> None:
        """Run here."""

    for kind in (RemoteExecutor, RemoteExecutorPool):
        with pytest.raises(CallerError, match='executor="remote"'):
            kind("http://127.0.0.1:1", "weights", [here])


def test_executors_application_that_is_not_served_end_with_its_name() -> None:
    async def work() -> None:
        server = Server([listed()], {}, apps=("wights", "other"))
        async with server.serving([look]) as task:
            with pytest.raises(PeerError, match=r"no application 'weights'; it serves wights, other"):
                await task

    asyncio.run(work())


def test_executors_session_without_the_role_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def work() -> None:
        session = ("sess_1", "weights", "running")
        lists: list[bytes | int] = [
            *[listed(session, roles=("guest",))] * 3,
            listed(session, roles=("owner",)),
        ]
        server = Server(lists, {"sess_1": called("sess_1")}, roles=())
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1)

    asyncio.run(work())
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["sess_1: expected the role executor for this token, got guest"]


def test_executor_tool_that_it_does_not_have_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    unknown = [
        frame(
            seq,
            ToolCall(call_id=f"c{seq}", tool="weigh", args={}, executor="remote"),
            "sess_1",
            agent_id="agt_1",
        )
        for seq in (7, 8)
    ]

    async def work() -> None:
        server = Server([listed(("sess_1", "weights", "running"))], {"sess_1": called("sess_1", *unknown)})
        async with server.serving([look]):
            await server.until(lambda: len(server.posts) == 1)

    asyncio.run(work())
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["sess_1 calls weigh, which this executor does not have: look"]


def test_idle_session_is_followed_when_something_happens_and_let_go_when_it_has_been_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        streams = {"sess_1": [reset()], "sess_2": [reset()]}
        at_rest = (("sess_1", "weights", "idle", "10:00"), ("sess_2", "weights", "idle", "10:00"))
        moved = (("sess_1", "weights", "idle", "10:01"), at_rest[1])
        server = Server([listed(*at_rest), listed(*at_rest), listed(*moved)], dict(streams))
        async with server.serving([look]):
            await server.until(lambda: server.asked == ["sess_1"])
            monkeypatch.setattr(pool, "IDLE_S", -1.0)
            count = len(server.pages)
            await server.until(lambda: len(server.pages) > count + 3)
            assert server.asked == ["sess_1"], "nothing has happened since, so it is not followed again"

    asyncio.run(work())


def test_session_with_a_call_that_runs_is_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    @tool(executor="remote")
    async def look() -> str:
        """Look for long."""
        started.set()
        await finish.wait()
        return "seen"

    async def work() -> None:
        running = listed(("sess_1", "weights", "running", "10:00"))
        idle = listed(("sess_1", "weights", "idle", "10:00"))
        server = Server([running, idle], {"sess_1": called("sess_1")})
        async with server.serving([look]):
            await started.wait()
            monkeypatch.setattr(pool, "IDLE_S", -1.0)
            count = len(server.pages)
            await server.until(lambda: len(server.pages) > count + 3)
            finish.set()
            await server.until(lambda: bool(server.posts))
        assert results(server) == {"seen"}

    asyncio.run(work())
