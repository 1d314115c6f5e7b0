"""A person must agree first, whoever runs the tool: here, the page or another process."""

import asyncio
from typing import Any

from turnlog import Agent, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.log import Log, MemoryStore


@tool(approval=True)
def erase(name: str) -> str:
    """Erase something."""
    return f"{name} is gone"


@tool(executor="frontend", approval=True)
def pay(name: str) -> bool:
    """Pay."""
    raise NotImplementedError


@tool(executor="remote", approval=True)
def move(name: str) -> bool:
    """Move."""
    raise NotImplementedError


@tool(roles=("owner", "clerk"))
def open_safe(name: str) -> str:
    """Open the safe."""
    return "open"


@tool(executor="frontend")
def look(name: str) -> str:
    """Look."""
    raise NotImplementedError


def script(name: str) -> Any:
    def words(messages: list[Any]) -> list[Any]:
        results = [part for part in messages[-1].content if part["type"] == "tool_result"]
        if not results:
            return [ToolUse(name, {"name": "it"}), ToolUse("look", {"name": "it"})]
        return [f"{part['content']}. " for part in results]

    return words


class Talk:
    """One session with an agent that calls a guarded tool and looks at something."""

    def __init__(self, name: str) -> None:
        self.agent = Agent("Clerk", "", Scripted(script(name)), tools=(erase, pay, move, open_safe, look))
        self.log = Log(MemoryStore())
        self.session = ""
        self.calls: dict[str, str] = {}

    async def move(self, prompt: str | None = None, **answers: Any) -> list[str]:
        self.session = self.session or await self.log.create("t")
        given = {self.calls[name]: value for name, value in answers.items()} if answers else None
        seen = []
        run = self.agent.run(prompt, answers=given, log=self.log, session_id=self.session)
        async for entry in run:
            seen.append(entry)
            if entry.type == "tool.call":
                self.calls[entry.payload.tool] = entry.payload.call_id  # type: ignore[union-attr]
        return [
            f"{entry.type} {getattr(entry.payload, 'tool', '')}".strip()
            for entry in seen
            if entry.type.startswith(("approval", "tool.result", "tool.await", "agent.end"))
        ]


def play(name: str, *moves: dict[str, Any]) -> list[list[str]]:
    async def run() -> list[list[str]]:
        talk = Talk(name)
        told = [await talk.move("go")]
        told += [await talk.move(**move) for move in moves]
        await talk.log.close()
        return told

    return asyncio.run(run())


ASKED = {"approval.request erase", "tool.await"}


def test_a_tool_of_this_process_runs_when_a_person_agreed() -> None:
    first, second, third = play("erase", {"erase": True}, {"look": "seen"})
    assert set(first) == ASKED
    assert second == ["approval.decision", "tool.result erase"]
    assert third == ["tool.result look", "agent.end"]


def test_the_page_is_asked_to_run_its_tool_when_a_person_agreed() -> None:
    first, second, third, last = play("pay", {"look": "seen"}, {"pay": True}, {"pay": True})
    assert set(first) == {"approval.request pay", "tool.await"}
    assert second == ["tool.result look"]
    assert third == ["approval.decision", "tool.await"]
    assert last == ["tool.result pay", "agent.end"]


def test_another_process_is_waited_for_when_a_person_agreed() -> None:
    first, second, third, last = play("move", {"look": "seen"}, {"move": True}, {"move": True})
    assert set(first) == {"approval.request move", "tool.await"}
    assert (second, third) == (["tool.result look"], ["approval.decision"])
    assert last == ["tool.result move", "agent.end"]


def test_what_a_person_refuses_is_not_run_by_anybody() -> None:
    for name in ("erase", "pay", "move"):
        _, _, refused = play(name, {"look": "seen"}, {name: False})
        assert refused == ["approval.decision", f"tool.result {name}", "agent.end"]


def test_a_tool_for_certain_roles_is_denied_to_others() -> None:
    async def run(roles: tuple[str, ...]) -> dict[str, Any]:
        agent = Agent("Clerk", "", Scripted(script("open_safe")), tools=(open_safe, look))
        events = [entry async for entry in agent.run("go", roles=roles)]
        [result] = [entry.payload for entry in events if entry.type == "tool.result"]
        return {"ok": result.ok, "error": result.error and result.error.code}  # type: ignore[union-attr]

    assert asyncio.run(run(("clerk",))) == {"ok": True, "error": None}
    for roles in ((), ("visitor",)):
        assert asyncio.run(run(roles)) == {"ok": False, "error": "DENIED"}
