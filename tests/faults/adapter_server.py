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
from tests.support.loopback import LoopbackServers
from tests.support.runtimes import langgraph as langgraph_scripts
from tests.support.runtimes.ag_ui import PydanticAiOverAgUi
from tests.support.runtimes.claude_sdk import ClaudeSdk, DeferringClaudeSdk
from tests.support.runtimes.fake import FakeFramework
from tests.support.runtimes.langgraph import LangGraph
from tests.support.runtimes.openai_agents import OpenAiAgents
from tests.support.runtimes.pydantic_ai import PydanticAi
from tests.support.scripted_claude import FileTranscripts
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

Framework = Literal[
    "fake",
    "pydantic_ai",
    "langgraph",
    "langgraph_sqlite",
    "openai_agents",
    "ag_ui",
    "claude_sdk",
    "claude_sdk_deferred",
]
SINGLE_CALLS: tuple[Framework, ...] = ("claude_sdk_deferred",)  # it asks for one call after the other


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
    "openai_agents": lambda _: OpenAiAgents(),
    # the server of the agent is killed with the one that asks it, and keeps nothing
    "ag_ui": lambda _: PydanticAiOverAgUi(LoopbackServers()),
    "claude_sdk": lambda order: ClaudeSdk(FileTranscripts(Path(order.folder))),
    "claude_sdk_deferred": lambda order: DeferringClaudeSdk(FileTranscripts(Path(order.folder))),
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
        done = len(given.new_results)
        calls = (
            CallTool("look", "look", "call_l"),
            CallTool("delete", "delete a", "call_a"),
            CallTool("delete", "delete b", "call_b"),
        )
        if done == len(calls) or (done and order.framework not in SINGLE_CALLS):
            return ScriptReply(("All is ", "done."))
        chosen = calls[done : done + 1] if order.framework in SINGLE_CALLS else calls
        return ScriptReply(("I look ", "into it. "), calls=chosen)

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
