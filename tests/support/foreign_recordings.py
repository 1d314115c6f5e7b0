"""Recorded reports of other frameworks (tests/vectors/foreign), and what a translator makes of them.

A recording has the reports of one or several runs. A run that left questions goes on in the next one.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.claude_vectors import assert_lawful, counting
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AssistantMessage,
    BlockRetract,
    EventDraft,
    ToolCall,
    ToolResult,
)
from turnlog.parse import AgentEventBuilder, AgentInfo
from turnlog.parse.foreign.langgraph import LangGraphTranslator
from turnlog.parse.foreign.pydantic_ai import PydanticAiTranslator

FOLDER = Path(__file__).parents[1] / "vectors" / "foreign"
ROOT_RUN = "run_1"

Report = dict[str, Any]


def load_recordings(framework: str) -> dict[str, list[Report]]:
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((FOLDER / framework).glob("*.jsonl"))
    }


class PydanticAiPlayer:
    """Plays recorded events of Pydantic AI to its translator."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.turns = 0
        self._begin()

    def _begin(self) -> None:
        self.turns += 1
        root = self.builder.start(AgentInfo("Root"), f"tr_{self.turns}")
        self.translator = PydanticAiTranslator(self.builder, root)

    def play(self, report: Report) -> None:
        kind: str = report["kind"]
        data: Any = report.get("data")
        if kind == "run_end":
            end_agents(self.builder)
            self._begin()
        elif kind == "wrap_run":
            caller_run, call_id = data.get("spawned_by") or (None, None)
            self.translator.start_run(data["run"], AgentInfo(data["agent"]), caller_run, call_id)
        elif kind == "wrap_run.start":
            info = AgentInfo(data["agent"])
            self.translator.start_run(data["run_id"], info, data.get("outer_run"), data.get("outer_call"))
        elif kind == "wrap_run.end":
            self.translator.end_run(data["run_id"], "end_turn", str(data["output"]))
        elif kind == "after_model_request":
            self.translator.complete_response(data["run"], data)
        elif kind == "wrap_run.error":
            self.builder.flush("error")
            self._begin()
        else:
            self.translator.feed(report.get("run_id", self._root_run()), data)

    def _root_run(self) -> str:
        return self.translator.root_run_id or ROOT_RUN


class LangGraphPlayer:
    """Plays recorded parts of LangGraph to its translator. A run with interrupts goes on in the next."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.turns = 0
        self._interrupts: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self.turns += 1
        root = self.builder.start(AgentInfo("Root"), f"tr_{self.turns}")
        self.translator = LangGraphTranslator(self.builder, root)

    def play(self, report: Report) -> None:
        if report.get("kind") == "run":
            self._begin_run()
            return
        self._note_interrupts(report)
        self.translator.feed(report)

    def _begin_run(self) -> None:
        if not self._interrupts:
            self.translator.finish()
            end_agents(self.builder)
            self._begin()
            return
        self.translator.list_questions(sorted(self._interrupts))
        self._interrupts.clear()
        root = next(agent for agent in self.builder.open_agents if agent.caller is None)
        self.translator = LangGraphTranslator(
            self.builder, root, self.translator.open_paths, self.translator.message_ids
        )

    def _note_interrupts(self, report: Report) -> None:
        if report["type"] == "updates" and not report["ns"]:
            interrupts = report["data"].get("__interrupt__") or ()
            self._interrupts.update(interrupt["id"] for interrupt in interrupts)


def end_agents(builder: AgentEventBuilder) -> None:
    for agent in reversed(builder.open_agents):
        builder.end(agent)


Player = PydanticAiPlayer | LangGraphPlayer


def play_all(make_player: Callable[[], Player], reports: Sequence[Report]) -> list[EventDraft]:
    """Return the events of a recording. What is open at its end is closed with an error."""
    player = make_player()
    for report in reports:
        player.play(report)
    player.builder.flush("error")
    return player.builder.take_output()


def check_laws(drafts: list[EventDraft]) -> None:
    """Check that everything is balanced and nothing is doubled."""
    assert_lawful(drafts)
    retracted = {
        block_id
        for draft in drafts
        if isinstance(draft.payload, BlockRetract)
        for block_id in draft.payload.block_ids
    }
    starts: Counter[Any] = Counter()
    open_calls: Counter[Any] = Counter()
    for draft in drafts:
        payload = draft.payload
        if isinstance(payload, AgentStart) and payload.call_id is not None:
            starts[payload.parent_id, payload.call_id] += 1
        elif isinstance(payload, ToolCall) and payload.block_id not in retracted:
            open_calls[draft.scope.agent_id, payload.call_id] += 1
        elif isinstance(payload, ToolResult):
            open_calls[draft.scope.agent_id, payload.call_id] -= 1
    assert set(starts.values()) <= {1}
    assert set(open_calls.values()) <= {0}


def visible_texts(drafts: Sequence[EventDraft]) -> list[tuple[str | None, str]]:
    """Return the texts that were not retracted, with the name of their agent, sorted."""
    retracted = {
        block_id
        for draft in drafts
        if isinstance(draft.payload, BlockRetract)
        for block_id in draft.payload.block_ids
    }
    return sorted(
        (draft.scope.agent_name, draft.payload.text)
        for draft in drafts
        if isinstance(draft.payload, AssistantMessage) and draft.payload.block_id not in retracted
    )


def count_ends(drafts: Sequence[EventDraft]) -> int:
    return sum(isinstance(draft.payload, AgentEnd) for draft in drafts)
