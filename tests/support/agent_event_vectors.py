"""What a runtime reports, from vectors: the builder that hears it, its events, and the laws they keep."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.claude_vectors import assert_lawful, counting
from turnlog.events import (
    AgentEnd,
    AgentStart,
    BlockRetract,
    Citation,
    Cost,
    EventDraft,
    Image,
    Scope,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.events.agent import CompletionTotals
from turnlog.parse import AgentEventBuilder, AgentInfo, RuntimeAgent

FOLDER = Path(__file__).parents[1] / "vectors" / "agent_events"
VECTORS: list[dict[str, Any]] = [
    vector for path in sorted(FOLDER.glob("*.json")) for vector in json.loads(path.read_text())["vectors"]
]
TRACE = "tr_1"

Data = dict[str, Any]


class Runtime:
    """A runtime that reports the steps of a vector. Agents are known by the label of the vector."""

    def __init__(self, executors: dict[str, Any]) -> None:
        self.builder = AgentEventBuilder(counting(), executor_for=lambda tool: executors.get(tool, "runtime"))
        self.agents: dict[str, RuntimeAgent] = {}
        self.background: set[str] = set()
        self.restored: list[EventDraft] = []  # what the log holds of the restored agents

    def report(self, step: list[Any]) -> None:
        name, label, *rest = step
        fields = rest.pop() if rest and isinstance(rest[-1], dict) and name not in WHOLE_VALUES else {}
        STEPS[name](self, label, *rest, **fields)

    def start(self, label: str, channel: str | None = None, speaker: str | None = None, **info: Any) -> None:
        self.agents[label] = self.builder.start(AgentInfo(**info), TRACE, channel, speaker)

    def child(self, label: str, parent: str, call_id: Any, background: bool = False, **info: Any) -> None:
        agent = self.builder.start_child(
            self.agents[parent], call_id, AgentInfo(**info), is_background=background
        )
        self.agents[label] = agent
        if background:
            self.background.add(agent.agent_id)

    def hand_off(
        self, label: str, successor: str, call_id: Any = None, value: Any = None, **info: Any
    ) -> None:
        agent = self.agents[label]
        self.agents[successor] = self.builder.hand_off(agent, AgentInfo(**info), call_id, value)

    def restore(self, label: str, start: Data, scope: Data, calls: list[Data], answered: list[str]) -> None:
        begun, place = AgentStart(**start), Scope(**scope)
        open_calls = [ToolCall(**call) for call in calls]
        self.restored.append(EventDraft(begun, place, "system"))
        self.restored += [EventDraft(call, place, "model") for call in open_calls]
        totals = CompletionTotals(steps=2)
        self.agents[label] = self.builder.restore(begun, place, open_calls, answered, totals)

    def usage(self, label: str, tokens: Any, **fields: Any) -> None:
        if "cost" in fields:
            fields["cost"] = Cost(total_cost=fields["cost"])
        usage = None if tokens is None else Usage(input_tokens=tokens[0], output_tokens=tokens[1])
        self.builder.complete_message(self.agents[label], usage, **fields)

    def images(self, label: str, call_id: Any, *images: Any) -> None:
        parts = [Image(src=src, media_type="image/png") for src in images]
        self.builder.result(self.agents[label], call_id, "ok", parts)

    def cite(self, label: str, url: str) -> None:
        self.builder.cite(self.agents[label], Citation(type="web", cited_text="green", url=url))

    def flush(self, reason: Any) -> None:
        self.builder.flush(reason)


def method(name: str) -> Callable[..., None]:
    def report(runtime: Runtime, label: str, *args: Any, **fields: Any) -> None:
        getattr(runtime.builder, name)(runtime.agents[label], *args, **fields)

    return report


STEPS: dict[str, Callable[..., None]] = {
    "start": Runtime.start,
    "child": Runtime.child,
    "hand_off": Runtime.hand_off,
    "restore": Runtime.restore,
    "usage": Runtime.usage,
    "images": Runtime.images,
    "cite": Runtime.cite,
    "flush": Runtime.flush,
    **{
        name: method(name)
        for name in (
            "end", "begin_message", "text", "think", "sign", "other", "retract_message", "start_call",
            "arguments", "call", "progress", "result", "fail", "await_page", "request_approval", "checkpoint",
            "error",
        )
    },
}  # fmt: skip
WHOLE_VALUES = {"other", "result", "restore", "arguments"}  # the last argument may be an object


def make_runtime(vector: Data) -> Runtime:
    return Runtime(vector.get("executors", {}))


def run_steps(vector: Data, steps: Iterable[list[Any]]) -> tuple[Runtime, list[EventDraft]]:
    runtime = make_runtime(vector)
    for step in steps:
        runtime.report(step)
    return runtime, runtime.builder.take_output()


def assert_balanced(runtime: Runtime, output: list[EventDraft]) -> None:
    """The laws of `assert_lawful`, and: children end first, and every result answers an open call."""
    drafts = runtime.restored + output
    assert_lawful(drafts)
    parents: dict[str, str | None] = {}  # of the open agents
    calls: dict[str, dict[str, str | None]] = {}  # open calls by agent, with their blocks
    for draft in drafts:
        payload = draft.payload
        agent_id = draft.scope.agent_id or ""
        if isinstance(payload, AgentStart):
            parents[agent_id] = payload.parent_id
            calls[agent_id] = {}
        elif isinstance(payload, ToolCall):
            assert payload.call_id not in calls[agent_id], draft
            calls[agent_id][payload.call_id] = payload.block_id
        elif isinstance(payload, BlockRetract):
            open_calls = calls[agent_id].items()
            calls[agent_id] = {key: block for key, block in open_calls if block not in payload.block_ids}
        elif isinstance(payload, ToolResult):
            assert payload.call_id in calls[agent_id], draft
            del calls[agent_id][payload.call_id]
        elif isinstance(payload, AgentEnd):
            del parents[agent_id]
            waiting = [child for child, parent in parents.items() if parent == agent_id]
            assert set(waiting) <= runtime.background, draft
