"""A tool that says what is wrong with a call is not masked; one that cannot be written is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from turnlog.agents import ToolContext, ToolError, tool
from turnlog.agents.remote.executor import reject_images
from turnlog.agents.runtime.executor import Executor
from turnlog.agents.tools import Tool
from turnlog.events import ErrorInfo, ToolCall, ToolResult

PATH = {"path": ["rows", 0, "weight_lbs"]}
WRONG = ErrorInfo(code="VALIDATION_ERROR", message="weight_lbs must be > 0", details=PATH)


@tool
def save(fault: str) -> None:
    """Save nothing."""
    raise ToolError("VALIDATION_ERROR", fault, PATH)


@tool
async def save_later(fault: str) -> None:
    """Save nothing, on the loop."""
    raise ToolError("VALIDATION_ERROR", fault, PATH)


@tool
def no_details(fault: str) -> None:
    """Save nothing, and say little."""
    raise ToolError("VALIDATION_ERROR", fault)


@tool
def no_json(fault: str) -> None:
    """Say what JSON cannot say."""
    raise ToolError("VALIDATION_ERROR", fault, {"path": object()})


def ran(what: Tool, key: str | None = None, times: int = 1) -> list[ToolResult]:
    async def work() -> list[Any]:
        executor = Executor(reject_images)
        call = ToolCall(call_id="c", tool=what.name, args={"fault": WRONG.message}, idempotency_key=key)
        return [await executor.run(what, call, ToolContext(call)) for _ in range(times)]

    return asyncio.run(work())


@pytest.mark.parametrize("what", [save, save_later], ids=lambda item: item.name)
def test_what_a_tool_says_against_a_call_is_the_answer(what: Tool) -> None:
    [result] = ran(what)
    assert (result.ok, result.result, result.error) == (False, None, WRONG)


def test_there_may_be_no_details() -> None:
    [result] = ran(no_details)
    assert result.error == ErrorInfo(code="VALIDATION_ERROR", message=WRONG.message)


def test_what_cannot_be_written_is_masked() -> None:
    [result] = ran(no_json)
    assert result.error == ErrorInfo(code="EXECUTION_ERROR", message="no_json failed")


def test_a_call_that_was_refused_may_be_tried_again_with_its_key() -> None:
    tried: list[str] = []

    def count(fault: str) -> str:
        tried.append(fault)
        if len(tried) == 1:
            raise ToolError("VALIDATION_ERROR", fault)
        return "saved"

    made: Callable[..., Tool] = tool
    first, second, third = ran(made(count), key="k", times=3)
    assert (first.ok, second.result, third.result, len(tried)) == (False, "saved", "saved", 2)
