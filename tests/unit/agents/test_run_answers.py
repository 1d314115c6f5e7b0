"""Answers of a run are held against what was asked; a log that ends before its turn says so."""

from typing import Any

import pytest

from tests.support.agent_vectors import inquire
from tests.support.turn_loop import call, running
from tests.unit.agents.test_run import run_now, saying
from turnlog.agents import ToolUse, tool
from turnlog.agents.run import build_checked_answer
from turnlog.errors import InvalidEvent, StoreError
from turnlog.events import ApprovalRequest, Entry
from turnlog.log import Log

CALL = call("remove", args={"what": "weed"})


@tool(approval=True, roles=("coach",))
def erase(what: str) -> str:
    """Erase something."""
    return f"{what} is gone"


async def played(
    guide: Any, log: Log, session: str, prompt: str | None = None, **options: Any
) -> list[Entry]:
    return [event async for event in guide.run(prompt, log=log, session_id=session, **options)]


def results(events: list[Entry]) -> list[Any]:
    return [event.payload for event in events if event.type == "tool.result"]


def test_who_may_not_decide_is_refused_and_the_call_goes_on_waiting() -> None:
    async def work(log: Log) -> None:
        session, guide = (
            await log.create("test"),
            saying(ToolUse("erase", {"what": "weed"}, "c1"), tools=[erase]),
        )
        await played(guide, log, session, "Go.", roles=["coach"])
        with pytest.raises(InvalidEvent, match="the role coach may decide this"):
            await played(guide, log, session, answers={"c1": True})
        [result] = results(await played(guide, log, session, answers={"c1": True}, roles=["coach"]))
        assert result.result == "weed is gone"

    run_now(work)


@pytest.mark.parametrize(("expires_at", "in_time"), [(None, True), ("2020-01-01T00:00:00.000Z", False)])
def test_what_has_expired_cannot_be_approved(expires_at: str | None, in_time: bool) -> None:
    table = running()
    table.calls(CALL)
    table.feed(
        ApprovalRequest(
            call_id="remove",
            tool="remove",
            args_hash=CALL.args_hash,
            risk="high",
            expires_at=expires_at,
        )
    )
    if in_time:
        assert len(build_checked_answer([], table.loop.tree, "remove", value=True)) == 1
    else:
        with pytest.raises(InvalidEvent, match="the approval has expired"):
            build_checked_answer([], table.loop.tree, "remove", value=True)


def test_an_answer_for_a_tool_that_is_gone_is_answered_and_the_agent_goes_on() -> None:
    async def work(log: Log) -> None:
        session = await log.create("test")
        before = saying(ToolUse("inquire", {"question": "Why?"}, "c1"), tools=[inquire])
        await played(before, log, session, "Go.")
        events = await played(saying(tools=[erase]), log, session, answers={"c1": {"answer": "So."}})
        [result] = results(events)
        assert (result.error.code, result.error.details["available"]) == ("TOOL_NOT_FOUND", ["erase"])
        assert events[-1].type == "agent.end"

    run_now(work)


def test_a_session_that_is_closed_in_the_middle_of_a_turn_is_told() -> None:
    async def work(log: Log) -> None:
        session = await log.create("test")

        @tool
        async def shut() -> None:
            """Close the session."""
            await log.close_session(session)

        with pytest.raises(StoreError, match="the log ended before the turn"):
            await played(saying(ToolUse("shut"), tools=[shut]), log, session, "Go.")

    run_now(work)
