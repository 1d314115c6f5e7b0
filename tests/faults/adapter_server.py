"""A server with an agent of another framework that kills itself after a given write: orders on stdin.

The agent looks at something, asks for two approvals, and then says that it is done. With `is_nested` a
sub-agent of it does so. The tools write what they do to a file, which has the effects of all servers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.faults.turn_server import Order, serve_orders
from tests.support.runtimes import langgraph as langgraph_scripts
from tests.support.runtimes.fake import FakeFramework
from tests.support.runtimes.langgraph import LangGraph
from tests.support.runtimes.pydantic_ai import PydanticAi
from turnlog import App, adapters
from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    ScriptInput,
    ScriptRecord,
    ScriptReply,
    ScriptTool,
)

Framework = Literal["fake", "pydantic_ai", "langgraph", "langgraph_sqlite"]


class AdapterOrder(Order, kw_only=True):
    """What a server has to do, with which framework."""

    framework: Framework
    is_nested: bool = False

    @property
    def threads_path(self) -> Path:
        return Path(self.folder) / "threads.db"


class LangGraphWithSqlite:
    """LangGraph with a checkpointer of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        saver = AsyncSqliteSaver(aiosqlite.connect(self._path))
        graph = langgraph_scripts.make_agent(script, record)
        return adapters.langgraph(graph.copy({"checkpointer": saver}))


FRAMEWORKS: dict[Framework, Callable[[AdapterOrder], Any]] = {
    "fake": lambda _: FakeFramework(),
    "pydantic_ai": lambda _: PydanticAi(),
    "langgraph": lambda _: LangGraph(),
    "langgraph_sqlite": lambda order: LangGraphWithSqlite(order.threads_path),
}


def make_script(order: AdapterOrder) -> AgentScript:
    """Make the script of the agent; after any other message than "Go" it only talks."""

    def act(effect: str) -> str:
        with order.effects_path.open("a") as file:
            file.write(f"{effect}\n")
        return f"did {effect}"

    def reply(given: ScriptInput) -> ScriptReply:
        if given.last_user_text != "Go":
            return ScriptReply((f"You said {given.last_user_text}.",))
        if given.new_results:
            return ScriptReply(("All is ", "done."))
        calls = (
            CallTool("look", "look", "call_l"),
            CallTool("delete", "delete a", "call_a"),
            CallTool("delete", "delete b", "call_b"),
        )
        return ScriptReply(("I look ", "into it. "), calls=calls)

    tools = [ScriptTool("look", act), ScriptTool("delete", act, needs_approval=True)]
    guide = AgentScript("Guide", reply, tools)
    if not order.is_nested:
        return guide

    def reply_lead(given: ScriptInput) -> ScriptReply:
        if given.last_user_text != "Go" or given.new_results:
            return ScriptReply((f"You said {given.last_user_text}.",))
        return ScriptReply(calls=(CallAgent("Guide", "Go", "call_g"),))

    return AgentScript("Lead", reply_lead, agents=[guide])


def make_app(order: AdapterOrder) -> App:
    agent = FRAMEWORKS[order.framework](order).make_agent(make_script(order), ScriptRecord())
    return App("outlive", agent)


if __name__ == "__main__":
    serve_orders(AdapterOrder, make_app)
