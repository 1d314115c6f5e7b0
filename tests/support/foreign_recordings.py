"""Recorded reports of other frameworks (tests/vectors/foreign), and what a translator makes of them.

A recording has the reports of one or several runs. A run that left questions goes on in the next one.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import claude_agent_sdk

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
from turnlog.parse.claude.sdk_messages import ClaudeSdkTranslator
from turnlog.parse.foreign.ag_ui import AgUiQuestion, AgUiTranslator
from turnlog.parse.foreign.ag_ui_events import EventNormalizer
from turnlog.parse.foreign.langgraph import LangGraphTranslator
from turnlog.parse.foreign.openai_agents import OpenAiAgentsTranslator
from turnlog.parse.foreign.pydantic_ai import PydanticAiTranslator

FOLDER = Path(__file__).parents[1] / "vectors" / "foreign"
ROOT_RUN = "run_1"
TOOL_FAILED = "An error occurred while running the tool. Please try again."

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


class ClaudeSdkPlayer:
    """Plays recorded messages of the Claude Agent SDK to its translator, as objects of its classes."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.translator = ClaudeSdkTranslator(self.builder, self.root)

    def play(self, report: Report) -> None:
        self.translator.feed(make_sdk_message(report["kind"], report["data"]))


def make_sdk_message(kind: str, data: Report) -> Any:
    """Return the object of a recorded message. Recorded blocks have no name: their fields tell the class."""
    fields = dict(data)
    content = fields.get("content")
    if isinstance(content, list):
        fields["content"] = [make_sdk_block(block) for block in content]
    return getattr(claude_agent_sdk, kind)(**fields)


def make_sdk_block(block: Report) -> Any:
    return next(block_class for field, block_class in SDK_BLOCKS.items() if field in block)(**block)


SDK_BLOCKS: dict[str, Any] = {
    "thinking": claude_agent_sdk.ThinkingBlock,
    "text": claude_agent_sdk.TextBlock,
    "tool_use_id": claude_agent_sdk.ToolResultBlock,
    "id": claude_agent_sdk.ToolUseBlock,
}


class OpenAiAgentsPlayer:
    """Plays recorded events of the OpenAI Agents SDK. A run with questions goes on in the next."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        self.turns = 0
        self._begin()

    def _begin(self) -> None:
        self.turns += 1
        root = self.builder.start(AgentInfo("Root"), f"tr_{self.turns}")
        self._translate(root)

    def _translate(self, root: Any) -> None:
        self._calls: dict[str, Any] = {}  # the objects of calls, as the framework passes them on
        self.translator = OpenAiAgentsTranslator(self.builder, root, TOOL_FAILED)

    def play(self, report: Report) -> None:
        kind: str = report["kind"]
        data: Any = report.get("data")
        if kind == "result":
            self._end_run(data)
        elif kind == "raised":
            self.builder.flush("error")
            self._begin()
        elif kind == "hook.tool_end":
            self.translator.add_result(self._find_call(data["call_id"]), data["result"])
        else:
            self._feed(kind, data, report.get("nested"))

    def _feed(self, kind: str, data: Any, nested: Any) -> None:
        if kind == "agent_updated":
            event = {"type": "agent_updated_stream_event", "new_agent": {"name": data["new_agent"]}}
        elif kind.startswith("item."):
            event = {"type": "run_item_stream_event", "name": kind.removeprefix("item."), "item": data}
        else:
            event = {"type": "raw_response_event", "data": data}
            if kind == "raw.response.output_item.done" and "call_id" in data["item"]:
                call = self._calls.setdefault(data["item"]["call_id"], data["item"])
                event = {"type": "raw_response_event", "data": {**data, "item": call}}
        if nested is None:
            self.translator.feed(event)
        else:
            self.translator.feed(event, self._find_call(nested["call_id"]), {"name": nested["agent"]})

    def _find_call(self, call_id: str) -> Any:
        return self._calls.setdefault(call_id, {"type": "function_call", "call_id": call_id})

    def _end_run(self, data: Any) -> None:
        self.translator.finish()
        questions = data["interruptions"]
        for question in questions:
            owner = self.translator.find_owner(question["raw_item"], question["agent"]["name"])
            assert owner is None or owner.owns_open_call(question["raw_item"]["call_id"])
        root = next(agent for agent in self.builder.open_agents if agent.caller is None)
        if questions:
            self._translate(root)
        else:
            end_agents(self.builder)
            self._begin()


class AgUiPlayer:
    """Plays recorded events of AG-UI. Each recording has one run; its questions stay open."""

    def __init__(self) -> None:
        self.builder = AgentEventBuilder(counting())
        root = self.builder.start(AgentInfo("Root"), "tr_1")
        self.translator = AgUiTranslator(self.builder, root)
        self.questions: list[AgUiQuestion] = []
        self._normalizer = EventNormalizer()

    def play(self, report: Report) -> None:
        has_ended = self.translator.end is not None
        for event in self._normalizer.normalize(report):
            self.translator.feed(event)
        if self.translator.end is not None and not has_ended:
            self.questions = self.translator.finish()


def end_agents(builder: AgentEventBuilder) -> None:
    for agent in reversed(builder.open_agents):
        builder.end(agent)


Player = PydanticAiPlayer | LangGraphPlayer | OpenAiAgentsPlayer | ClaudeSdkPlayer | AgUiPlayer


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
