"""A process with a team that asks at depth 2: `python -m tests.e2e.deep <log> <tool> [answer]`.

Without an answer it sends a message and holds still when somebody is asked, so that it can be killed. With
one it answers what waits and follows the turn to its end. Every event is one line of JSON on standard output.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.support.agent_vectors import BOX
from turnlog import open_log
from turnlog.agents import Agent, Scripted, ToolUse
from turnlog.errors import NotFound
from turnlog.events import Entry
from turnlog.state.history import Message

SESSION = "sess_deep"
ARGS = {"confirm": {"question": "Go?"}, "inquire": {"question": "Which?"}, "remove": {"what": "weed"}}


def team(asks: str) -> Agent:
    """A calls B, B calls C, C uses a tool that somebody has to answer."""

    def script(use: ToolUse) -> Scripted:
        def parts(messages: list[Message]) -> Iterator[Any]:
            last = messages[-1].content[0]
            return iter([f"I heard: {last['content']}"] if last["type"] == "tool_result" else [use])

        return Scripted(parts)

    c = Agent("C", "", script(ToolUse(asks, ARGS[asks], "call_deep")), tools=[BOX[asks]])
    b = Agent("B", "", script(ToolUse("c", {"prompt": "Ask"})), agents=[c])
    return Agent("A", "", script(ToolUse("b", {"prompt": "Find out"})), agents=[b])


def told(event: Entry) -> None:
    sys.stdout.write(
        json.dumps([event.type, event.agent_name, event.depth, msgspec.to_builtins(event.payload)])
    )
    sys.stdout.write("\n")
    sys.stdout.flush()


async def main(url: str, asks: str, answer: str | None) -> None:
    log = await open_log(url)
    if answer is None:
        await log.create("deep", SESSION)
        async for event in team(asks).run("Go", log=log, session_id=SESSION):
            told(event)
            if event.type in ("tool.await", "approval.request"):
                signal.pause()  # the process holds still, with everything open
    else:
        try:
            answers = {"call_deep": json.loads(answer)}
            async for event in team(asks).run(answers=answers, log=log, session_id=SESSION):
                told(event)
        except NotFound as error:
            sys.stdout.write(json.dumps(["refused", str(error)]) + "\n")
    await log.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
