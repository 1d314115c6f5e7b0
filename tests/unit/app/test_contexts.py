"""What runs for a session runs in a context of its own, not in that of the request that came first."""

from contextvars import ContextVar
from typing import Any

import pytest

from tests.support.claude_sessions import make_app as make_office
from tests.unit.app.desk import ADA, desk, play
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.session_runtime import NoObserver
from turnlog.app import Sessions
from turnlog.app.messages import Chat
from turnlog.events import Envelope, Payload, UiMessage, UnknownPayload
from turnlog.log import Log, MemoryStore

REQUEST: ContextVar[str] = ContextVar("request", default="none")


@tool
async def on_the_loop() -> str:
    """Say whose request this is."""
    return REQUEST.get()


@tool
def in_a_thread() -> str:
    """Say whose request this is."""
    return REQUEST.get()


def app_with(name: str) -> App:
    def script(messages: list[Any]) -> Any:
        results = [part for part in messages[-1].content if part["type"] == "tool_result"]
        yield str(results[-1]["content"]) if results else ToolUse(name, {})

    return App("who", Agent("Who", "", Scripted(script), tools=(on_the_loop, in_a_thread)))


@pytest.mark.parametrize("name", ["on_the_loop", "in_a_thread"])
def test_tool_session_opened_by_a_request_runs_outside_its_context(name: str) -> None:
    async def run() -> None:
        async with desk(app_with(name)) as place:
            REQUEST.set("alice's")
            seat = await place.sessions.create(ADA)
            await place.say(seat, "Whose?")
            end = await place.until(seat, "agent.end")
            assert end["result"] == "none"

    play(run)


@pytest.mark.parametrize("kind", ["agent", "process"])
def test_runner_session_opened_by_a_request_follows_outside_its_context(kind: str, tmp_path: Any) -> None:
    seen: set[str] = set()

    class Observer(NoObserver):
        def observe(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
            seen.add(REQUEST.get())

    async def run() -> None:
        app = app_with("on_the_loop") if kind == "agent" else make_office(tmp_path)
        log = Log(MemoryStore())
        sessions = Sessions(log, [app], 1, Observer())
        REQUEST.set("alice's")
        seat = await sessions.create(ADA)
        await sessions.chat(seat, Chat(None, message=UiMessage(text="Whose?")))
        await sessions.close()
        await log.close()

    play(run)
    assert seen == {"none"}
