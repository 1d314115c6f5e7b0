"""A turn loop and the log it is fed with, by hand: a guide with tools, a scout and a writer."""

from itertools import count
from typing import Any

from tests.support.agent_vectors import confirm, inquire, look, remove, weigh
from tests.support.written_logs import place, scope
from turnlog.agents import Agent, Scripted
from turnlog.agents.runtime.turn_loop import CallModel, Effect, TurnLoop
from turnlog.agents.team import AgentTeam
from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentStart,
    AgentUsage,
    Origin,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    UiMessage,
    Usage,
)
from turnlog.state.tree import Invocation, Tree
from turnlog.state.view_actions import OpenViews

MODEL = Scripted(lambda messages: [])
WRITER = Agent("Writer", "", MODEL)
SCOUT = Agent("Scout", "", MODEL)
TOOLS = (look, confirm, inquire, remove, weigh)
GUIDE = Agent("Guide", "", MODEL, tools=TOOLS, agents=[SCOUT], handoffs=[WRITER], max_steps=2)

ROOT, CHILD = scope("agt_root"), scope("agt_child", 1)
TURN = Scope(trace_id="tr_1")
BEGIN = AgentStart(name="Guide", via="prompt", prompt="Go")
SPENT = Usage(input_tokens=3, output_tokens=2)
USAGE = AgentUsage(model="m", usage=SPENT)
END = AgentEnd(stop_reason="end_turn")


class Table:
    """A loop, and the log it is fed with."""

    def __init__(self, root: Agent = GUIDE) -> None:
        numbers = count(1)
        self.views = OpenViews()
        self.loop = TurnLoop(AgentTeam(root), Tree(), self.views, lambda prefix: f"{prefix}{next(numbers)}")
        self.seq = 0

    def feed(self, payload: Payload, at: Scope = ROOT, origin: Origin = "system") -> list[Effect]:
        event = CATALOG.build_event(payload, id=f"evt_{self.seq}", origin=origin, scope=at)
        envelope, decoded = place(event, self.seq)
        self.seq += 1
        context = self.loop.inspect(envelope, decoded)
        self.loop.tree.apply(envelope, decoded)
        self.views.apply(envelope, decoded)
        self.loop.apply(envelope, decoded, context)
        return self.loop.react(envelope, decoded, context)

    def message(self, text: str = "Go", at: Scope = TURN, **fields: Any) -> list[Effect]:
        return self.feed(UiMessage(text=text, **fields), at, "ui")

    def calls(self, *calls: ToolCall, at: Scope = ROOT) -> list[Effect]:
        """A completion with calls: they start when it is reported."""
        for call in calls:
            assert self.feed(call, at, "model") == []
        return self.feed(USAGE, at)

    def result(self, call_id: str, at: Scope = ROOT, origin: Origin = "tool", **fields: Any) -> list[Effect]:
        fields = {"ok": True} | fields
        return self.feed(ToolResult(call_id=call_id, tool="any", **fields), at, origin)

    @property
    def invocation(self) -> Invocation:
        return self.loop.tree.open["agt_root"]


def running(root: Agent = GUIDE) -> Table:
    """A table at which the guide has started."""
    table = Table(root)
    table.message()
    assert table.feed(BEGIN) == [CallModel("agt_root")]
    return table


def call(tool: str, call_id: str = "", **fields: Any) -> ToolCall:
    return ToolCall(call_id=call_id or tool, tool=tool, args=fields.pop("args", {}), **fields)
