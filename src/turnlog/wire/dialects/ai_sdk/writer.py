"""Writes the parts of a message: steps, texts, calls and the cards of sub-agents."""

from dataclasses import dataclass, field
from typing import Any

from turnlog.events import (
    ToolCall,
)
from turnlog.state.view_actions import OpenViews
from turnlog.wire.dialects._common import call_args
from turnlog.wire.dialects.ai_sdk.parts import (
    finish_reason,
    part,
    total_usage,
)
from turnlog.wire.dialects.run_outcome import ReaderRoles, RunOutcome, RunProgress
from turnlog.wire.dialects.streamed_blocks import StreamedBlock

Part = dict[str, Any]
PREFIXES = {"text": "text", "thinking": "reasoning"}


@dataclass(slots=True)
class AiSdkRun:
    """One response. Its parts begin with the message `own_message`; None begins where the response does.

    With `replays` the response has the whole message that is being written.
    """

    own_message: str | None = None
    replays: bool = False


@dataclass(slots=True)
class AiSdkBlock(StreamedBlock):
    """A block with its text, which the card of a sub-agent and an incomplete call need at the end."""

    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class AiSdkAgent:
    """An agent from its start to its end. `card` is the data of a sub-agent's part."""

    name: str = ""
    card: dict[str, Any] | None = None
    blocks: dict[str, AiSdkBlock] = field(default_factory=dict)
    call_ids: dict[str, str] = field(default_factory=dict)  # by block, for retractions


class AiSdkWriter:
    """What converters know and write: the message that is being written, and its agents and calls."""

    def __init__(self, version: int, run: AiSdkRun | None, roles: ReaderRoles) -> None:
        self.version = version
        self.run = run
        self.roles = roles
        self.has_begun = False
        self.is_silent = run is not None and run.own_message is not None
        self.message_id = ""
        self.progress = RunProgress()
        self.agents: dict[str, AiSdkAgent] = {}
        self.tools: dict[str, str] = {}  # the calls that the message has, by id
        self.approvals: set[str] = set()  # the calls whose approval the message requests
        self.in_step = False
        self.step_parts: set[str] = set()
        self.views = OpenViews()
        self.outcome = RunOutcome()
        self.ended: list[Part] = []  # the end of a message, before another one begins
        self.replayed: list[bytes] = []
        self.out: list[Part] = []

    def take_output(self) -> list[Part]:
        parts = self.out
        self.out = []
        return parts

    def finish(self) -> None:
        """Write the end of the message."""
        self.has_begun = False
        for agent in self.agents.values():
            for block in agent.blocks.values():
                self.end_block(agent, block)
            if agent.card is not None:
                self.write_card(agent, "waiting")
        self.finish_step()

        failure = self.outcome.failure
        if failure is not None:
            self.write("error", errorText=failure.message)
        elif self.outcome.is_cancelled:
            self.write("abort")
        else:
            reason = finish_reason(self.outcome.end, is_waiting=bool(self.progress.tree.open))
            usage = total_usage(self.outcome.usage.values())
            metadata = {"usage": usage} if usage else None
            self.write("finish", finishReason=reason, messageMetadata=metadata)
        self.outcome = RunOutcome()

    def write(self, type: str, **fields: Any) -> None:
        self.out.append(part(type, **fields))

    def write_data(self, name: str, data: Any, **fields: Any) -> None:
        self.write(f"data-{name}", data=data, **fields)

    def start_step(self) -> None:
        if not self.in_step:
            self.in_step = True
            self.step_parts.clear()
            self.write("start-step")

    def finish_step(self) -> None:
        if self.in_step:
            self.in_step = False
            self.write("finish-step")

    def write_card(self, agent: AiSdkAgent, status: str = "running") -> None:
        """Write the part of a sub-agent again: it replaces the earlier one."""
        assert agent.card is not None
        self.write_data("agent", {**agent.card, "status": status}, id=agent.card["agentId"])

    def begin_message(self, message_id: str) -> None:
        """Begin another message: what came before belongs to the one before."""
        self.message_id = message_id
        self.tools.clear()
        self.approvals.clear()
        self.in_step = False
        self.replayed.clear()

    def make_block(self, kind: str, part_id: str, tool: str = "") -> AiSdkBlock:
        return AiSdkBlock(kind, part_id, tool)

    def start_block(self, agent: AiSdkAgent, block: AiSdkBlock, **fields: Any) -> None:
        if agent.card is not None:
            return
        self.start_step()
        self.step_parts.add(block.part_id)
        if block.kind == "tool_call":
            self.tools[block.part_id] = block.tool
            self.write(
                "tool-input-start", toolCallId=block.part_id, toolName=block.tool, dynamic=True, **fields
            )
        else:
            self.write(f"{PREFIXES[block.kind]}-start", id=block.part_id)

    def write_content(self, agent: AiSdkAgent, block: AiSdkBlock, text: str) -> None:
        block.has_content = True
        block.pieces.append(text)
        if agent.card is not None:
            delta = {"agentId": agent.card["agentId"], "type": block.kind, "id": block.part_id, "delta": text}
            self.write_data("agent-delta", delta, transient=True)
        elif block.kind == "tool_call":
            self.write("tool-input-delta", toolCallId=block.part_id, inputTextDelta=text)
        else:
            self.write(f"{PREFIXES[block.kind]}-delta", id=block.part_id, delta=text)

    def end_block(self, agent: AiSdkAgent, block: AiSdkBlock) -> None:
        """End a text or thinking, or a call that never became complete."""
        if agent.card is not None:
            if block.kind != "tool_call" and block.pieces:
                text = "".join(block.pieces)
                agent.card["parts"].append({"type": block.kind, "id": block.part_id, "text": text})
                self.write_card(agent)
        elif block.kind != "tool_call":
            self.write(f"{PREFIXES[block.kind]}-end", id=block.part_id)
        else:
            text = "".join(block.pieces)
            self.write_input_error(block.part_id, block.tool, text, "The call was not completed.")

    def write_input_error(self, call_id: str, tool: str, text: str, problem: str) -> None:
        self.write(
            "tool-input-error", toolCallId=call_id, toolName=tool, input=text, dynamic=True, errorText=problem
        )

    def write_call(self, payload: ToolCall) -> None:
        self.tools[payload.call_id] = payload.tool
        if payload.incomplete is not None:
            problem = "The arguments are not JSON."
            self.write_input_error(payload.call_id, payload.tool, payload.incomplete, problem)
            return
        self.write(
            "tool-input-available",
            toolCallId=payload.call_id,
            toolName=payload.tool,
            input=call_args(payload),
            dynamic=True,
            providerExecuted=payload.executor == "provider" or None,
        )

    def show_call(self, agent_id: str | None, call_id: str) -> None:
        """Write a call of a sub-agent, which a person has to answer, as a call of the message."""
        call = self.progress.tree.find_call(agent_id, call_id)
        if call is not None and call_id not in self.tools:
            self.start_step()
            self.write_call(call.call)
