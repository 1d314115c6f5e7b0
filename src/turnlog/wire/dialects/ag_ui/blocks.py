"""Blocks of an agent as events of AG-UI: a text, a thinking or a call, from its START to its END."""

from dataclasses import dataclass, field
from typing import Any

from turnlog.wire.dialects.ag_ui.events import (
    AgUiEvent,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
)
from turnlog.wire.dialects.streamed_blocks import StreamedBlock


@dataclass(slots=True)
class AgUiAgent:
    """An agent from its start to its end. A sub-agent has a `subagent_run_id`, another one a step."""

    name: str = ""
    subagent_run_id: str | None = None
    started: SubagentStarted | None = None
    step_name: str = ""
    blocks: dict[str, StreamedBlock] = field(default_factory=dict)
    call_ids: dict[str, str] = field(default_factory=dict)  # by block, for retractions


def start_events(agent: AgUiAgent, block: StreamedBlock, timestamp: int, **more: Any) -> list[AgUiEvent]:
    fields = {"subagent_run_id": agent.subagent_run_id, "timestamp": timestamp, **more}
    message_id = block.part_id
    if block.kind == "text":
        return [TextMessageStart(message_id=message_id, role="assistant", name=agent.name or None, **fields)]
    if block.kind == "thinking":
        return [
            ReasoningStart(message_id=message_id, **fields),
            ReasoningMessageStart(message_id=message_id, **fields),
        ]
    return [ToolCallStart(tool_call_id=message_id, tool_call_name=block.tool, **fields)]


def content_event(agent: AgUiAgent, block: StreamedBlock, text: str) -> AgUiEvent:
    owner = agent.subagent_run_id
    if block.kind == "text":
        return TextMessageContent(message_id=block.part_id, delta=text, subagent_run_id=owner)
    if block.kind == "thinking":
        return ReasoningMessageContent(message_id=block.part_id, delta=text, subagent_run_id=owner)
    return ToolCallArgs(tool_call_id=block.part_id, delta=text, subagent_run_id=owner)


def end_events(agent: AgUiAgent, block: StreamedBlock) -> list[AgUiEvent]:
    owner = agent.subagent_run_id
    if block.kind == "text":
        return [TextMessageEnd(message_id=block.part_id, subagent_run_id=owner)]
    if block.kind == "thinking":
        return [
            ReasoningMessageEnd(message_id=block.part_id, subagent_run_id=owner),
            ReasoningEnd(message_id=block.part_id, subagent_run_id=owner),
        ]
    return [ToolCallEnd(tool_call_id=block.part_id, subagent_run_id=owner)]
