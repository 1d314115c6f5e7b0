"""The executor: every call has an answer, whatever its tool does."""

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from tests.support.limits import HANG_S
from turnlog.agents.runtime import executor as module
from turnlog.agents.runtime.executor import MAX_ERROR_CHARS, Executor, explain_tool_error
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import ImageContent, Tool, tool
from turnlog.errors import StoreError
from turnlog.events import CATALOG, ErrorInfo, Image, ToolCall, ToolProgress, ToolResult
from turnlog.events import strict_json as gate

SECRET = "postgres://user:hunter2@db"
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who")


class Blobs(dict[str, tuple[bytes, str]]):
    """A blob store."""

    async def put(self, data: bytes, media_type: str) -> str:
        digest = sha256(data).hexdigest()
        self[digest] = (data, media_type)
        return digest


def call_of(what: Tool, call_id: str = "call_1", key: str | None = None, **args: Any) -> ToolCall:
    return ToolCall(call_id=call_id, tool=what.name, args=args, idempotency_key=key)


async def answer(executor: Executor, what: Tool, call: ToolCall, **about: Any) -> ToolResult:
    result = await executor.run(what, call, ToolContext(call, **about))
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.tool) == (call.call_id, what.name)
    CATALOG.build_event(result, id="evt_1", origin="tool")
    return result


def ran(what: Tool, **args: Any) -> ToolResult:
    return asyncio.run(answer(Executor(Blobs().put), what, call_of(what, **args)))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def turn() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool
async def fetch(url: str) -> str:
    return f"the page at {url}"


@tool
async def forever() -> None:
    await asyncio.Event().wait()


def test_sync_and_async_functions_run() -> None:
    assert ran(add, a=2).result == 3
    assert ran(fetch, url="/a").result == "the page at /a"


def test_a_sync_function_has_a_thread_with_the_callers_variables() -> None:
    @tool
    def where() -> list[Any]:
        return [threading.get_ident(), WHO.get(), threading.current_thread().daemon]

    @tool
    async def here() -> int:
        return threading.get_ident()

    WHO.set("Ada")
    ident, who, daemon = ran(where).result
    assert ident != threading.get_ident()
    assert (who, daemon) == ("Ada", True)
    assert ran(here).result == threading.get_ident()


def test_wrong_arguments_never_reach_the_function() -> None:
    assert ran(add, a="2").error == ErrorInfo(
        code="VALIDATION_ERROR", message="expected int, got str", details={"path": ["a"]}
    )
    cut = ToolCall(call_id="call_1", tool="add", args={}, incomplete='{"a": ')
    result = asyncio.run(answer(Executor(Blobs().put), add, cut))
    assert result.error == ErrorInfo(code="VALIDATION_ERROR", message="the arguments are not a JSON object")


def test_a_context_is_handed_to_who_asks_for_one() -> None:
    @tool
    def look(ctx: ToolContext, depth: int) -> list[Any]:
        return [depth, ctx.call_id, ctx.tool, ctx.session_id, ctx.agent_name, ctx.idempotency_key, ctx.values]

    async def work() -> None:
        about = {"session_id": "sess_1", "agent_name": "Ada", "values": {"day": "Monday"}}
        result = await answer(Executor(Blobs().put), look, call_of(look, depth=2), **about)
        assert result.result == [2, "call_1", "look", "sess_1", "Ada", "call_1", {"day": "Monday"}]

    run(work())


@pytest.mark.parametrize("sync", [True, False])
def test_progress_is_heard_while_the_tool_runs_and_before_the_answer(sync: bool) -> None:
    heard = threading.Event()

    def dig(context: ToolContext) -> str:
        context.progress("half")
        assert heard.wait(HANG_S), "the caller sees it before the tool goes on"
        context.progress("whole")
        return "done"

    async def dig_async(context: ToolContext) -> str:
        context.progress("half")
        assert await asyncio.to_thread(heard.wait, 10)
        context.progress("whole")
        return "done"

    texts: list[str] = []

    async def say(batch: list[ToolProgress]) -> None:
        texts.extend(item.text for item in batch)
        heard.set()

    async def work() -> None:
        what = tool(dig if sync else dig_async)
        assert (await answer(Executor(Blobs().put), what, call_of(what), emit=say)).result == "done"
        assert texts == ["half", "whole"]

    run(work())


def test_at_most_so_many_run_at_once() -> None:
    running, most = 0, 0
    gate = asyncio.Event()

    @tool
    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async def work() -> None:
        executor = Executor(Blobs().put)
        calls = [call_of(count, f"call_{number}") for number in range(12)]
        tasks = [asyncio.create_task(answer(executor, count, call)) for call in calls]
        await turn()
        assert running == 5
        gate.set()
        assert all(result.ok for result in await asyncio.gather(*tasks))
        assert most == 5

    run(work())


def leak_now() -> None:
    raise ValueError(SECRET)


async def leak_later() -> None:
    raise ValueError(SECRET)


def leave() -> None:
    sys.exit(SECRET)


async def leave_later() -> None:
    sys.exit(SECRET)


def iterate() -> None:
    next(iter([]))


async def cancel_itself() -> None:
    raise asyncio.CancelledError(SECRET)


def unwritable() -> object:
    return {"secret": object()}


def not_a_number() -> float:
    return float("nan")


def wrong_picture() -> ImageContent:
    return ImageContent(b"<svg/>", "image/svg+xml")


@pytest.mark.parametrize(
    "function",
    [
        leak_now,
        leak_later,
        leave,
        leave_later,
        iterate,
        cancel_itself,
        unwritable,
        not_a_number,
        wrong_picture,
    ],
)
def test_what_goes_wrong_is_logged_here_and_masked_there(
    function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    result = ran(tool(function))
    assert result.error == ErrorInfo(code="EXECUTION_ERROR", message=f"{function.__name__} failed")
    assert SECRET.encode() not in msgspec.json.encode(result)
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.ERROR,
        f"tool {function.__name__} failed in call_1",
    )
    assert record.exc_info


def test_a_result_that_no_reader_could_take_is_refused() -> None:
    @tool
    def shout() -> str:
        return "x" * gate.MAX_JSON_BYTES

    result = ran(shout)
    assert result.error == ErrorInfo(
        code="EXECUTION_ERROR", message=f"the result is larger than {gate.MAX_JSON_BYTES} bytes"
    )


def test_pictures_go_to_the_blob_store() -> None:
    @tool
    def map_of(city: str) -> list[Any]:
        return [f"a map of {city}", ImageContent(b"one", "image/png"), ImageContent(b"two", "image/jpeg")]

    async def work() -> None:
        blobs = Blobs()
        result = await answer(Executor(blobs.put), map_of, call_of(map_of, city="Oslo"))
        one, two = (sha256(data).hexdigest() for data in (b"one", b"two"))
        assert result.result == "a map of Oslo"
        assert result.images == (
            Image(src=f"api/blobs/{one}", media_type="image/png", size_bytes=3),
            Image(src=f"api/blobs/{two}", media_type="image/jpeg", size_bytes=3),
        )
        assert blobs == {one: (b"one", "image/png"), two: (b"two", "image/jpeg")}

    run(work())


def test_a_store_that_fails_is_masked_too() -> None:
    async def full(data: bytes, media_type: str) -> str:
        raise StoreError(SECRET)

    @tool
    def draw() -> ImageContent:
        return ImageContent(b"png", "image/png")

    result = asyncio.run(answer(Executor(full), draw, call_of(draw)))
    assert result.error == ErrorInfo(code="EXECUTION_ERROR", message="draw failed")


def test_a_tool_may_ask_first() -> None:
    @tool
    def book(context: ToolContext) -> Any:
        if context.values is None:
            raise WaitForInput({"day": "Which day?"})
        return context.values

    @tool
    def mumble() -> Any:
        raise WaitForInput({"day": object()})

    @tool
    def list_up() -> Any:
        questions: Any = ["Which day?"]
        raise WaitForInput(questions)

    async def work() -> None:
        executor = Executor(Blobs().put)
        call = call_of(book, key="k")
        asked = await executor.run(book, call, ToolContext(call))
        assert isinstance(asked, WaitForInput)
        assert asked.questions == {"day": "Which day?"}
        again = await executor.run(book, call, ToolContext(call, values={"day": "Monday"}))
        assert isinstance(again, ToolResult)
        assert again.result == {"day": "Monday"}
        for wrong in (mumble, list_up):
            refused = await answer(executor, wrong, call_of(wrong))
            assert refused.error == ErrorInfo(code="EXECUTION_ERROR", message=f"{wrong.name} failed")

    run(work())


def test_a_coroutine_that_takes_too_long_is_stopped() -> None:
    stopped: list[bool] = []

    @tool(timeout_s=0.001)
    async def slow(context: ToolContext) -> None:
        context.progress("still here")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(context.cancelled)

    assert ran(slow).error == ErrorInfo(code="TIMEOUT", message="slow took longer than 0.001 s")
    assert stopped == [True]


def test_a_thread_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()

    @tool(timeout_s=0.001)
    def slow(context: ToolContext) -> None:
        while not context.cancelled:
            pass
        seen.set()
        raise ValueError("nobody hears this")

    assert ran(slow).error == ErrorInfo(code="TIMEOUT", message="slow took longer than 0.001 s")
    assert seen.is_set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_GRACE_S", 0.001)
    monkeypatch.setattr(module, "MAX_ABANDONED_TOOLS", 2)


@pytest.mark.usefixtures("impatient")
def test_what_does_not_stop_is_left_behind_up_to_a_limit() -> None:
    release = threading.Event()

    @tool(timeout_s=0.001)
    def hang() -> None:
        release.wait(HANG_S)

    @tool(timeout_s=0.001)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    async def work() -> None:
        executor = Executor(Blobs().put)
        for what in (hang, stubborn):
            result = await answer(executor, what, call_of(what))
            assert result.error is not None
            assert result.error.code == "TIMEOUT"
        refused = await answer(executor, add, call_of(add, a=1))
        assert refused.error == ErrorInfo(code="EXECUTION_ERROR", message="add cannot run now")
        release.set()
        await asyncio.wait(executor._abandoned)
        await turn()
        assert (await answer(executor, add, call_of(add, a=1))).result == 2

    run(work())


@pytest.mark.parametrize("sync", [True, False])
def test_cancelling_stops_the_tool_and_goes_on_to_the_caller(sync: bool) -> None:
    started, told = threading.Event(), threading.Event()

    def wait(context: ToolContext) -> None:
        context.progress("started")
        started.set()
        while not context.cancelled:
            pass
        told.set()

    async def wait_async(context: ToolContext) -> None:
        context.progress("started")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    async def work() -> None:
        what = tool(wait if sync else wait_async)
        task = asyncio.create_task(answer(Executor(Blobs().put), what, call_of(what)))
        assert await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told.is_set()

    run(work())


def test_a_call_that_waits_for_a_place_can_be_cancelled() -> None:
    async def work() -> None:
        executor = Executor(Blobs().put, max_concurrent=1)
        first = asyncio.create_task(answer(executor, forever, call_of(forever)))
        second = asyncio.create_task(answer(executor, add, call_of(add, a=1)))
        await turn()
        for task in (second, first):
            task.cancel()
        assert {type(error) for error in await asyncio.gather(first, second, return_exceptions=True)} == {
            asyncio.CancelledError
        }
        assert (await answer(executor, add, call_of(add, a=1))).ok, "both places are free again"

    run(work())


def test_executor_that_explains_says_what_a_tool_raised() -> None:
    @tool
    def register(place: str) -> str:
        raise KeyError(place)

    executor = Executor(Blobs().put, describe=explain_tool_error)
    result = asyncio.run(answer(executor, register, call_of(register, place="Oslo" * 1000)))
    assert result.error is not None
    assert result.error.message.startswith("register failed: KeyError: 'OsloOslo")
    assert len(result.error.message) < 2 * MAX_ERROR_CHARS
