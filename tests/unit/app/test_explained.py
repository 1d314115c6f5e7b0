"""What members read of a tool that failed: that it failed, or under `--debug` what it raised."""

import pytest

from tests.unit.app.desk import ADA, bodies, play
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.runtime.executor import DescribeError, explain_tool_error, mask_tool_error
from turnlog.app import Sessions
from turnlog.app.messages import Chat
from turnlog.events import UiMessage
from turnlog.log import Log, MemoryStore


@tool
def register() -> str:
    """Fail."""
    raise KeyError("oslo")


@pytest.mark.parametrize(
    ("describe", "message"),
    [(mask_tool_error, "register failed"), (explain_tool_error, "register failed: KeyError: 'oslo'")],
)
def test_sessions_tool_that_failed_is_described_as_the_server_says(
    describe: DescribeError, message: str
) -> None:
    async def run() -> None:
        log = Log(MemoryStore())
        calls: list[str | ToolUse] = [ToolUse("register", {}), "Sorry."]
        agent = Agent("Clerk", "", Scripted(lambda messages: [calls.pop(0)]), tools=(register,))
        sessions = Sessions(log, [App("office", agent)], 1, describe=describe)
        seat = await sessions.create(ADA)
        await sessions.chat(seat, Chat(None, message=UiMessage(text="Oslo?")))
        page = await log.read(seat.session_id)
        [result] = bodies([one for one in page.envelopes() if one.type == "tool.result"])
        assert result["error"] == {"code": "EXECUTION_ERROR", "message": message}
        await sessions.close()
        await log.close()

    play(run)
