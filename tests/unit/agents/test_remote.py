"""The remote executor against a server that plays its part line by line."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tests.support.limits import HANG_S
from turnlog.agents.remote.executor import CURSOR_PAST_END, RECONNECT, RemoteExecutor
from turnlog.agents.runtime.user_input import remote_answer_id
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import ImageContent, Tool, tool
from turnlog.errors import CallerError, PeerError
from turnlog.events import (
    CATALOG,
    ApprovalDecision,
    ErrorInfo,
    Payload,
    Scope,
    SessionMember,
    ToolCall,
    ToolResult,
    UiMessage,
    encode_envelope,
)
from turnlog.events.tool import hash_args
from turnlog.wire import sse

HEARTBEAT = sse.encode(b'{"type":"heartbeat"}', event="heartbeat")
OPENED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Stream = int | list[bytes]


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)


def delays(*failures: int) -> list[float]:
    """The delays after so many failures in a row."""
    return [RECONNECT.delay_s(count) for count in failures]


def frame(seq: int, payload: Payload, trace: str | None = None, actor: str | None = None) -> bytes:
    scope = Scope(agent_id="agt_1", agent_name="Ada", depth=0, trace_id=trace, actor=actor)
    event = CATALOG.build_event(payload, id=f"evt_{seq}", origin="ui" if actor else "system", scope=scope)
    return sse.encode(encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=0), id=f"{seq}:e")


def reset(last: int) -> bytes:
    told = {"type": "reset", "reason": "ahead", "epoch": "e", "first": 0, "last": last}
    return sse.encode(msgspec.json.encode(told), event="reset")


def call(call_id: str, name: str = "look", executor: Any = "remote", **fields: Any) -> ToolCall:
    return ToolCall(call_id=call_id, tool=name, args=fields.pop("args", {}), executor=executor, **fields)


def result(call_id: str, value: Any = "given") -> ToolResult:
    return ToolResult(call_id=call_id, tool="look", ok=True, result=value)


@dataclass
class Server:
    """Plays a list of streams, and takes posts with a list of statuses, then with 202."""

    streams: list[Stream]
    statuses: list[int] = field(default_factory=list)
    cursors: list[str] = field(default_factory=list)
    posts: list[Any] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writer: asyncio.StreamWriter | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            pairs = [line.split(": ", 1) for line in head.strip().split("\r\n")[1:]]
            headers = {name.lower(): value for name, value in pairs}
            if head.startswith("GET /api/events?session=sess_1&dialect=turnlog&types=tool.call,"):
                await self.stream(headers["last-event-id"], reader, writer)
            elif head.startswith("POST /api/events "):
                body = await reader.readexactly(int(headers["content-length"]))
                self.take(msgspec.json.decode(body), writer)
        writer.close()
        self._open.discard(task)

    async def stream(self, cursor: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The next stream of the list; the last one stays open."""
        self.cursors.append(cursor)
        what = self.streams.pop(0)
        if isinstance(what, int):
            writer.write(
                b'HTTP/1.1 %d X\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{"error":"so!"}' % what
            )
        else:
            writer.write(OPENED + b"".join(what))
            self.writer = writer
            self.changed.set()
            if not self.streams:
                await reader.read()

    def take(self, body: Any, writer: asyncio.StreamWriter) -> None:
        status = self.statuses.pop(0) if self.statuses else 202
        if status:
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}" % status)
        self.posts.append(body)
        self.changed.set()

    def say(self, *frames: bytes) -> None:
        assert self.writer is not None
        self.writer.write(b"".join(frames))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    @property
    def answers(self) -> list[Any]:
        """The payloads that were posted."""
        assert {body["session"] for body in self.posts} <= {"sess_1"}
        return [event["payload"] for body in self.posts for event in body["events"]]

    @contextlib.asynccontextmanager
    async def serving(self, tools: Iterable[Tool], slept: list[float]) -> AsyncIterator[asyncio.Task[None]]:
        async def sleep(pause_s: float) -> None:
            slept.append(pause_s)
            await asyncio.sleep(0)

        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            remote = asyncio.create_task(RemoteExecutor(url, "sess_1", tools, sleep=sleep).run())
            try:
                yield remote
            finally:
                remote.cancel()
                await asyncio.gather(remote, return_exceptions=True)
                for task in tuple(self._open):
                    task.cancel()
                await asyncio.gather(*self._open, return_exceptions=True)
                await asyncio.sleep(0)


class Looks:
    """A tool that keeps whom it was called for, and may be made to wait."""

    def __init__(self, **options: Any) -> None:
        self.ran: list[str] = []
        self.stopped: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()

        async def look(context: ToolContext) -> str:
            self.ran.append(context.call_id)
            self.begun.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.append(context.call_id)
                raise
            return f"{context.agent_name} sees {context.session_id}"

        self.tool = tool(executor="remote", **options)(look)


SEEN = "Ada sees sess_1"


def test_a_call_is_run_and_its_result_posted() -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
        assert server.cursors == [CURSOR_PAST_END]
        payload = {"call_id": "c1", "tool": "look", "ok": True, "result": SEEN, "error": None}
        event = {"type": "tool.result", "id": remote_answer_id("sess_1", "agt_1", "c1"), "payload": payload}
        assert server.posts == [{"session": "sess_1", "events": [event]}]

    asyncio.run(work())


def test_what_is_for_others_is_left_to_them() -> None:
    async def work() -> None:
        others = [call("c0", executor="backend"), call("c1", executor="frontend"), call("c2", "other")]
        frames = [frame(seq, payload) for seq, payload in enumerate([*others, call("mine")])]
        looks, server = Looks(), Server([[reset(-1), *frames]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
        assert looks.ran == ["mine"]

    asyncio.run(work())


def test_what_was_answered_before_is_not_run_again() -> None:
    async def work() -> None:
        rest = [frame(1, call("open")), frame(2, result("old")), frame(3, call("other", "other"))]
        looks, server = Looks(), Server([[reset(3), frame(0, call("old"))], rest])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
        assert server.cursors == [CURSOR_PAST_END, "0:e"], "it had seen the call before the answer came"
        assert looks.ran == ["open"]

    asyncio.run(work())


def test_a_stream_that_falls_silent_has_told_everything() -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(9), frame(0, call("open")), HEARTBEAT]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
        assert looks.ran == ["open"]

    asyncio.run(work())


def test_a_call_that_gets_another_answer_is_stopped() -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]])
        looks.gate.clear()
        async with server.serving([looks.tool], []):
            await looks.begun.wait()
            looks.gate.clear()
            server.say(frame(1, result("c1")), frame(2, call("c2")))
            looks.begun.clear()
            await looks.begun.wait()
            looks.gate.set()
            await server.until(lambda: bool(server.posts))
        assert (looks.ran, looks.stopped) == (["c1", "c2"], ["c1"])
        assert [answer["call_id"] for answer in server.answers] == ["c2"]

    asyncio.run(work())


def test_it_comes_back_with_its_cursor_and_what_runs_goes_on() -> None:
    async def work() -> None:
        slept: list[float] = []
        streams: list[Stream] = [[reset(-1), frame(0, call("c1"))], 503, [], [frame(1, call("c2"))]]
        looks, server = Looks(), Server(streams)
        async with server.serving([looks.tool], slept):
            await server.until(lambda: len(server.posts) == 2)
        assert server.cursors == [CURSOR_PAST_END, "0:e", "0:e", "0:e"]
        assert slept == delays(1, 2, 3)
        assert sorted(looks.ran) == ["c1", "c2"]

    asyncio.run(work())


def test_pauses_grow_and_begin_again_after_a_success() -> None:
    async def work() -> None:
        slept: list[float] = []
        streams: list[Stream] = [*[500] * 9, [reset(-1), frame(0, result("x"))], 429, []]
        server = Server(streams)
        async with server.serving([Looks().tool], slept):
            await server.until(lambda: server.writer is not None and not server.streams)
        assert slept == delays(1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2)

    asyncio.run(work())


def test_a_result_is_posted_until_it_is_taken_with_one_id() -> None:
    async def work() -> None:
        slept: list[float] = []
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]], [503, 0, 429, 202])
        async with server.serving([looks.tool], slept):
            await server.until(lambda: len(server.posts) == 4)
        assert looks.ran == ["c1"], "it ran once"
        assert len({body["events"][0]["id"] for body in server.posts}) == 1
        assert slept[:3] == delays(1, 2, 3)

    asyncio.run(work())


def test_a_call_that_is_over_is_over() -> None:
    async def work() -> None:
        frames = [frame(0, call("c1")), frame(1, call("c2"))]
        looks, server = Looks(), Server([[reset(-1), *frames]], [404])
        async with server.serving([looks.tool], []):
            await server.until(lambda: len(server.posts) == 2)
        assert sorted(answer["call_id"] for answer in server.answers) == ["c1", "c2"]

    asyncio.run(work())


@pytest.mark.parametrize("statuses", [[409, 202], [409, 409]])
def test_result_whose_id_is_taken_is_posted_once_more_under_a_fresh_id(statuses: list[int]) -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]], statuses)
        async with server.serving([looks.tool], []):
            await server.until(lambda: len(server.posts) == 2)
            server.say(frame(1, call("c2")))
            await server.until(lambda: len(server.posts) == 3)
        ids = [body["events"][0]["id"] for body in server.posts]
        assert ids[0] == remote_answer_id("sess_1", "agt_1", "c1")
        assert ids[1].startswith("evt_")
        assert not ids[1].startswith("evt_remote_")
        assert [answer["call_id"] for answer in server.answers] == ["c1", "c1", "c2"]

    asyncio.run(work())


@pytest.mark.parametrize("status", [400, 413])
def test_a_result_that_is_refused_is_followed_by_one_that_says_so(status: int) -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]], [status])
        async with server.serving([looks.tool], []):
            await server.until(lambda: len(server.posts) == 2)
        assert server.answers[1]["error"] == {
            "code": "EXECUTION_ERROR",
            "message": "the result of look could not be sent",
        }

    asyncio.run(work())


def test_a_new_beginning_runs_nothing_twice() -> None:
    async def work() -> None:
        frames = [frame(0, call("c1")), frame(1, call("c2"))]
        looks, server = Looks(), Server([[reset(-1), *frames], [reset(1), *frames]])
        looks.gate.clear()
        async with server.serving([looks.tool], []):
            await server.until(lambda: not server.streams)
            await looks.begun.wait()
            server.say(frame(2, call("c3")))
            looks.gate.set()
            await server.until(lambda: len(server.posts) == 3)
        assert sorted(looks.ran) == ["c1", "c2", "c3"]

    asyncio.run(work())


def test_a_repeat_with_a_key_is_answered_from_the_log() -> None:
    async def work() -> None:
        first, again = call("c1", idempotency_key="k"), call("c2", idempotency_key="k")
        frames = [frame(0, first), frame(1, result("c1", "from the log")), frame(2, again)]
        looks, server = Looks(), Server([[reset(-1), *frames]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
        assert looks.ran == []
        assert server.answers[0]["result"] == "from the log"

    asyncio.run(work())


def test_what_needs_approval_waits_for_it() -> None:
    def decided(call_id: str, decision: Any = "approve", args: Any = None) -> ApprovalDecision:
        return ApprovalDecision(call_id=call_id, args_hash=hash_args(args or {}), decision=decision)

    async def work() -> None:
        calls = [call("wrong"), call("denied"), call("open"), call("given")]
        frames = [frame(seq, payload) for seq, payload in enumerate(calls)]
        looks, server = Looks(approval=True), Server([[reset(-1), *frames]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: server.writer is not None)
            server.say(frame(4, decided("unknown")), frame(5, decided("wrong", args={"a": 1})))
            server.say(frame(6, decided("denied", "deny")), frame(7, decided("given")))
            await server.until(lambda: bool(server.posts))
        assert looks.ran == ["given"]

    asyncio.run(work())


def ask() -> None:
    raise WaitForInput({"day": "Which?"})


def draw() -> ImageContent:
    return ImageContent(b"png", "image/png")


def fail() -> None:
    raise ValueError("hunter2")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (ask, "ask cannot ask for input from another process"),
        (draw, "draw failed"),
        (fail, "fail failed"),
    ],
)
def test_what_cannot_be_done_from_here_is_an_answer_too(function: Any, message: str) -> None:
    async def work() -> None:
        server = Server([[reset(-1), frame(0, call("c1", function.__name__))]])
        async with server.serving([tool(executor="remote")(function)], []):
            await server.until(lambda: bool(server.posts))
        assert server.answers[0]["error"] == {"code": "EXECUTION_ERROR", "message": message}

    asyncio.run(work())


def test_arguments_that_are_no_json_are_answered() -> None:
    async def work() -> None:
        server = Server([[reset(-1), frame(0, call("c1", incomplete='{"a'))]])
        async with server.serving([Looks().tool], []):
            await server.until(lambda: bool(server.posts))
        found = msgspec.convert(server.answers[0]["error"], ErrorInfo)
        assert found.code == "VALIDATION_ERROR"

    asyncio.run(work())


def test_a_closed_session_is_the_end() -> None:
    async def work() -> None:
        slept: list[float] = []
        server = Server([[reset(-1), frame(0, result("x"))], 204, []])
        async with server.serving([Looks().tool], slept) as remote:
            await asyncio.wait_for(asyncio.shield(remote), HANG_S)
        assert slept == delays(1)

    asyncio.run(work())


def test_a_session_that_is_not_there_is_an_error() -> None:
    async def work() -> None:
        server = Server([404, []])
        async with server.serving([Looks().tool], []) as remote:
            with pytest.raises(PeerError, match=r"expected status 200, got 404: .*so!"):
                await asyncio.wait_for(asyncio.shield(remote), HANG_S)

    asyncio.run(work())


def test_stopping_it_stops_what_runs() -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]])
        looks.gate.clear()
        async with server.serving([looks.tool], []):
            await looks.begun.wait()
        assert looks.stopped == ["c1"]
        assert server.posts == []

    asyncio.run(work())


def test_a_server_that_does_not_speak_http_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        looks, server = Looks(), Server([[reset(-1), frame(0, call("c1"))]], [9])
        async with server.serving([looks.tool], []):
            await server.until(lambda: bool(server.posts))
            server.say(frame(1, call("c2")))
            await server.until(lambda: len(server.posts) == 3)
        assert [answer["call_id"] for answer in server.answers].count("c1") == 2, "it is posted again"
        assert "the result of c1 is not sent yet" in caplog.text

    asyncio.run(work())


def test_a_tool_for_certain_roles_runs_for_those_who_have_them() -> None:
    async def work() -> None:
        frames = [
            frame(0, SessionMember(principal="ada", roles=("coach",))),
            frame(1, SessionMember(principal="bob", roles=("guest",))),
            frame(2, UiMessage(text="Look."), "tr_1", "bob"),
            frame(3, call("denied"), "tr_1"),
            frame(4, UiMessage(text="Look."), "tr_2", "ada"),
            frame(5, call("mine"), "tr_2"),
            frame(6, call("nobodys"), "tr_3"),
        ]
        looks, server = Looks(roles=("coach",)), Server([[reset(-1), *frames]])
        async with server.serving([looks.tool], []):
            await server.until(lambda: len(server.posts) == 2)
        assert looks.ran == ["mine", "nobodys"]

    asyncio.run(work())


def test_each_tool_is_taken_once() -> None:
    @tool(executor="remote")
    def look() -> None:
        pass

    RemoteExecutor("http://127.0.0.1:1", "sess_1", [look, look])
    with pytest.raises(CallerError, match="expected each tool once, got look twice"):
        RemoteExecutor("http://127.0.0.1:1", "sess_1", [look, tool(executor="remote")(look.function)])


def test_only_tools_for_another_process_are_taken() -> None:
    @tool
    def here() -> None:
        pass

    with pytest.raises(CallerError, match='expected tools with executor="remote", got here'):
        RemoteExecutor("http://host", "sess_1", [here])


def test_the_id_of_an_answer_is_an_event_id() -> None:
    ids = {remote_answer_id("sess_1", agent, made) for agent in ("agt_1", None) for made in ("c1", "c2")}
    assert len(ids) == 4
    for event_id in ids:
        CATALOG.build_event(result("c1"), id=event_id, origin="ui")
