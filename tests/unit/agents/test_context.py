"""What a tool says while it runs: in order, in one write what came during another, bounded."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from turnlog.agents import tool_context as module
from turnlog.agents.tool_context import ToolContext
from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import AssistantView, Payload, ToolCall, ToolProgress, View
from turnlog.events.view_nodes import Button, Form, NumberField, Section, Text

CALL = ToolCall(call_id="call_1", tool="dig", args={})


class Log:
    """A log that writes when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def say(self, batch: list[Payload]) -> None:
        texts = [item for item in batch if isinstance(item, ToolProgress)]
        assert {item.call_id for item in texts} <= {"call_1"}
        views = [item.view.view_id for item in batch if isinstance(item, AssistantView)]
        self.batches.append([item.text for item in texts] + views)
        await self.free.wait()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def turn() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_it_knows_the_call() -> None:
    context = ToolContext(CALL, session_id="sess_1", agent_name="Digger")
    assert (context.call_id, context.tool) == ("call_1", "dig")
    assert (context.session_id, context.agent_name) == ("sess_1", "Digger")
    assert context.idempotency_key == "call_1", "a key there always is"
    keyed = ToolCall(call_id="call_1", tool="dig", args={"idempotency_key": "k"})
    assert ToolContext(keyed).idempotency_key == "k"


def test_texts_are_heard_at_once_and_in_order() -> None:
    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.open()
        log.free.clear()
        context.progress("one")
        await turn()
        assert log.batches == [["one"]]
        context.progress("two")
        context.progress("three")
        await turn()
        assert log.batches == [["one"]], "one write at a time"
        log.free.set()
        await context.close()
        assert log.batches == [["one"], ["two", "three"]]
        context.open()
        context.progress("four")
        await turn()
        assert log.batches[2:] == [["four"]]

    run(work())


def test_a_thread_may_speak() -> None:
    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.open()

        def dig() -> None:
            for number in range(100):
                context.progress(str(number))

        await asyncio.to_thread(dig)
        await context.close()
        assert [text for batch in log.batches for text in batch] == [str(number) for number in range(100)]

    run(work())


def test_before_and_after_nobody_listens() -> None:
    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.progress("early")
        context.open()
        await context.close()
        context.progress("late")
        await turn()
        assert log.batches == []

    run(work())


def test_who_is_stopped_is_told_and_not_heard() -> None:
    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.open()
        log.free.clear()
        context.progress("one")
        await turn()
        told = [context.cancelled]
        context.progress("two")
        context.cancel()
        told.append(context.cancelled)
        context.progress("three")
        await turn()
        assert told == [False, True]
        assert log.batches == [["one"]]
        context.discard_pending()
        await turn()
        assert log.batches == [["one"]]
        silent = ToolContext(CALL)
        silent.discard_pending()
        assert silent.cancelled

    run(work())


def test_the_oldest_are_lost_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING_TEXTS", 3)
    monkeypatch.setattr(module, "MAX_TEXT_CHARS", 4)

    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.open()
        for number in range(10_000, 10_005):
            context.progress(f"{number}")
        context.progress("\ud800")
        await context.close()
        assert log.batches == [["1000", "1000", "?"]]

    run(work())


def test_a_view_is_written_and_never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING_TEXTS", 1)
    monkeypatch.setattr(module, "MAX_VIEWS", 3)

    async def work() -> None:
        log = Log()
        context = ToolContext(CALL, emit=log.say)
        context.show_view(View.of("early", Text("")))
        context.open()
        log.free.clear()
        context.show_view(View.of("one", Text("")))
        await turn()
        for text in ("a", "b", "c"):
            context.progress(text)
        await asyncio.to_thread(context.show_view, View.of("two", Text("")))
        context.show_view(View.of("two", Form("f", [NumberField("n", "N")])))
        with pytest.raises(CallerError, match="at most 3 views"):
            context.show_view(View.of("three", Text("")))
        log.free.set()
        await context.close()
        context.show_view(View.of("late", Text("")))
        await turn()
        assert log.batches == [["one"], ["c", "two", "two"]]

    run(work())


@pytest.mark.parametrize(
    ("view", "path"),
    [
        (View.of("v", Section([Button("a", "A"), Button("a", "A")])), "$.payload.view.tree.children[1]"),
        (View.of("v v", Text("")), "$.payload.view.view_id"),
        (View.of("v", Text("\ud800")), "$.payload"),
        (View(kind="a2ui.v1", view_id="v", tree={"type": "html"}), "$.payload.view.tree.type"),
    ],
)
def test_a_wrong_view_is_refused_where_it_is_shown(view: View, path: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        ToolContext(CALL).show_view(view)
    assert refused.value.path == path


def test_a_log_that_fails_is_not_silent() -> None:
    async def broken(batch: list[Payload]) -> None:
        raise OSError("the disk is full")

    async def work() -> None:
        context = ToolContext(CALL, emit=broken)
        context.open()
        context.progress("one")
        await turn()
        context.progress("two")
        await turn()
        with pytest.raises(OSError, match="disk is full"):
            await context.close()

    run(work())


def test_a_thread_that_outlives_the_loop_does_no_harm() -> None:
    context = ToolContext(CALL)

    async def work() -> None:
        context.open()

    run(work())
    thread = threading.Thread(target=context.progress, args=("hello?",))
    thread.start()
    thread.join()
    assert not thread.is_alive()
