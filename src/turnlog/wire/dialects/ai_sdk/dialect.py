"""The dialect `ai-sdk`: the UI message stream of the Vercel AI SDK, for clients 5, 6 and 7 (protocol 11).

- One response is one message of the assistant: `start`, parts, `finish` and `[DONE]`. A completion of the
  agent that answers is a step. A message of a person within a turn begins another message.
- Every tool is `dynamic`. Sub-agents have no place in the format: each is a part `data-agent`, which is sent
  again as it grows, and its text comes live in transient parts. Their questions are top-level calls.
- A part that a client does not know is fatal to it. `options.ai_sdk` is the client's version, 5 without it:
  approvals are `data-approval` for 5, and a retraction is `data-retract` for 5 and 6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalRequest,
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    AssistantView,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiMessage,
    UnknownPayload,
)
from turnlog.state.view_actions import OpenViews
from turnlog.wire import sse
from turnlog.wire.dialects._common import call_args, is_foreign_event
from turnlog.wire.dialects.ai_sdk.parts import (
    citation_part,
    finish_reason,
    message_id_of,
    part,
    result_parts,
    total_usage,
)
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.framing import DONE_FRAME
from turnlog.wire.dialects.run_outcome import FAILED_STOPS, LIVE_PAYLOADS, RunOutcome, RunProgress
from turnlog.wire.dialects.surfaces import surface_operations

Part = dict[str, Any]
APPROVALS_SINCE = 6
RESET_STEP_SINCE = 7
PREFIXES = {"text": "text", "thinking": "reasoning"}


@dataclass(slots=True)
class AiSdkRun:
    """One response. Its parts begin with the message `own_message`; None begins where the response does.

    With `replays` the response has the whole message that is being written.
    """

    own_message: str | None = None
    replays: bool = False


@dataclass(slots=True)
class AiSdkBlock:
    """A text, thinking or call between its start and its end. `part_id` is what its parts are called."""

    kind: str
    part_id: str
    tool: str = ""
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class AiSdkAgent:
    """An agent from its start to its end. `card` is the data of a sub-agent's part."""

    name: str = ""
    card: dict[str, Any] | None = None
    blocks: dict[str, AiSdkBlock] = field(default_factory=dict)
    call_ids: dict[str, str] = field(default_factory=dict)  # by block, for retractions


class AiSdk:
    """One projection of a session's log."""

    def __init__(
        self,
        options: DialectOptions = DEFAULT_OPTIONS,
        history: HistoryLookup = no_history,
        run: AiSdkRun | None = None,
    ) -> None:
        self._version = int(options.ai_sdk)
        self._run = run
        self._has_begun = False
        self._is_silent = run is not None and run.own_message is not None
        self._message_id = ""
        self._progress = RunProgress()
        self._agents: dict[str, AiSdkAgent] = {}
        self._tools: dict[str, str] = {}  # the calls that the message has, by id
        self._in_step = False
        self._step_parts: set[str] = set()
        self._views = OpenViews()
        self._outcome = RunOutcome()
        self._ended: list[Part] = []  # the end of a message, before another one begins
        self._replayed: list[bytes] = []
        self._out: list[Part] = []

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        agent = self._agents.get(envelope.agent_id or "") or AiSdkAgent(envelope.agent_name or "")
        self._progress.apply(envelope, payload)
        convert = CONVERTERS.get(type(payload))
        if convert is not None:
            convert(self, agent, envelope, payload)
        elif is_foreign_event(envelope, payload):
            self._data("event", {"type": envelope.type, "payload": envelope.payload}, id=envelope.id)
        if self._run is None:
            return self._take_session_output(payload)
        return self._take_run_output(self._run)

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return nothing: the format has no state of the application."""
        return []

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs: a response ends here."""
        return self._progress.is_finished

    @property
    def idle(self) -> bool:
        return not self._agents and not self._progress.hands_over

    def begin(self) -> list[bytes]:
        """Return the parts that begin a response at this position."""
        self._has_begun = True
        # The client's own message, which is still to come, begins another message.
        if self._is_silent:
            return []
        replayed = self._replayed
        self._replayed = []
        return [*self._encode([part("start", messageId=self._message_id)]), *replayed]

    def close(self) -> list[bytes]:
        if self._has_begun:
            self._finish()
        return [*self._encode(self._take_output()), DONE]

    # responses

    def _take_output(self) -> list[Part]:
        parts = self._out
        self._out = []
        return parts

    def _take_session_output(self, payload: Payload | UnknownPayload) -> list[bytes]:
        if self._out and not self._has_begun:
            self._has_begun = True
            self._out.insert(0, part("start", messageId=self._message_id or None))
        if self._has_begun and type(payload) not in LIVE_PAYLOADS and not self._progress.is_running:
            self._finish()
        parts = [*self._ended, *self._take_output()]
        self._ended = []
        return self._encode(parts)

    def _take_run_output(self, run: AiSdkRun) -> list[bytes]:
        parts = self._take_output()
        if self._is_silent:
            return []
        if self._has_begun:
            return self._encode(parts)
        if run.replays:
            self._replayed += self._encode(parts)
        return []

    def _encode(self, parts: list[Part]) -> list[bytes]:
        return [msgspec.json.encode(item) for item in parts]

    def _finish(self) -> None:
        """Write the end of the message."""
        self._has_begun = False
        for agent in self._agents.values():
            for block in agent.blocks.values():
                self._end_block(agent, block)
            if agent.card is not None:
                self._write_card(agent, "waiting")
        self._finish_step()

        failure = self._outcome.failure
        if failure is not None:
            self._write("error", errorText=failure.message)
        elif self._outcome.is_cancelled:
            self._write("abort")
        else:
            reason = finish_reason(self._outcome.end, is_waiting=bool(self._progress.tree.open))
            usage = total_usage(self._outcome.usage.values())
            metadata = {"usage": usage} if usage else None
            self._write("finish", finishReason=reason, messageMetadata=metadata)
        self._outcome = RunOutcome()

    # writing

    def _write(self, type: str, **fields: Any) -> None:
        self._out.append(part(type, **fields))

    def _data(self, name: str, data: Any, **fields: Any) -> None:
        self._write(f"data-{name}", data=data, **fields)

    def _start_step(self) -> None:
        if not self._in_step:
            self._in_step = True
            self._step_parts.clear()
            self._write("start-step")

    def _finish_step(self) -> None:
        if self._in_step:
            self._in_step = False
            self._write("finish-step")

    def _write_card(self, agent: AiSdkAgent, status: str = "running") -> None:
        """Write the part of a sub-agent again: it replaces the earlier one."""
        assert agent.card is not None
        self._data("agent", {**agent.card, "status": status}, id=agent.card["agentId"])

    def _begin_message(self, message_id: str) -> None:
        """Begin another message: what came before belongs to the one before."""
        self._message_id = message_id
        self._tools.clear()
        self._in_step = False
        self._replayed.clear()

    # people

    def _user_message(self, _: AiSdkAgent, envelope: Envelope, payload: UiMessage) -> None:
        is_own = self._run is not None and envelope.id == self._run.own_message
        # A response shows one message: what others write meanwhile does not end it.
        if self._run is not None and self._has_begun and not is_own:
            return
        if envelope.agent_id is not None:
            if self._has_begun and not is_own:
                self._finish()
                self._ended = self._take_output()
            self._begin_message(message_id_of(envelope.id))
        elif is_own:
            self._begin_message(message_id_of(envelope.trace_id or envelope.id))
        if is_own:
            self._is_silent = False
            self._out = [part("start", messageId=self._message_id)]

    # agents

    def _agent_start(self, _: AiSdkAgent, envelope: Envelope, payload: AgentStart) -> None:
        agent_id = envelope.agent_id or ""
        agent = AiSdkAgent(payload.name)
        self._agents[agent_id] = agent
        if payload.parent_id is None:
            self._outcome.end = None
            self._outcome.error = None
            if payload.via == "prompt":
                self._begin_message(message_id_of(envelope.trace_id or envelope.id))
            self._start_step()
            return

        agent.card = part(
            "agent",
            agentId=agent_id,
            parentId=payload.parent_id,
            toolCallId=payload.call_id,
            name=payload.name,
            prompt=payload.prompt,
        )
        del agent.card["type"]
        agent.card["parts"] = []
        self._write_card(agent)

    def _agent_end(self, agent: AiSdkAgent, envelope: Envelope, payload: AgentEnd) -> None:
        if self._agents.pop(envelope.agent_id or "", None) is None:
            return
        for block in agent.blocks.values():
            self._end_block(agent, block)
        if agent.card is not None:
            has_failed = payload.stop_reason in FAILED_STOPS
            self._write_card(agent, payload.stop_reason if has_failed else "done")
            return
        self._finish_step()
        if payload.stop_reason != "handoff":
            self._outcome.end = payload

    def _handoff(self, agent: AiSdkAgent, envelope: Envelope, payload: AgentHandoff) -> None:
        self._data("handoff", {"from": agent.name, "to": payload.to}, id=envelope.id)

    def _usage(self, agent: AiSdkAgent, _: Envelope, payload: AgentUsage) -> None:
        self._outcome.add_usage(payload)
        if agent.card is None:
            self._finish_step()

    def _error(self, _: AiSdkAgent, __: Envelope, payload: SessionError) -> None:
        self._outcome.error = payload

    # blocks

    def _block_start(self, agent: AiSdkAgent, _: Envelope, payload: BlockStart) -> None:
        if payload.kind == "tool_call":
            if payload.call_id is None or payload.tool is None:
                return
            block = AiSdkBlock("tool_call", payload.call_id, payload.tool)
            agent.call_ids[payload.block_id] = payload.call_id
        elif payload.kind == "other":
            return
        else:
            block = AiSdkBlock(payload.kind, payload.block_id)
        agent.blocks[payload.block_id] = block
        self._start_block(agent, block)

    def _start_block(self, agent: AiSdkAgent, block: AiSdkBlock, **fields: Any) -> None:
        if agent.card is not None:
            return
        self._start_step()
        self._step_parts.add(block.part_id)
        if block.kind == "tool_call":
            self._tools[block.part_id] = block.tool
            self._write(
                "tool-input-start", toolCallId=block.part_id, toolName=block.tool, dynamic=True, **fields
            )
        else:
            self._write(f"{PREFIXES[block.kind]}-start", id=block.part_id)

    def _block_delta(self, agent: AiSdkAgent, _: Envelope, payload: BlockDelta) -> None:
        block = agent.blocks.get(payload.block_id)
        if block is not None and payload.text:
            self._add_text(agent, block, payload.text)

    def _add_text(self, agent: AiSdkAgent, block: AiSdkBlock, text: str) -> None:
        block.pieces.append(text)
        if agent.card is not None:
            delta = {"agentId": agent.card["agentId"], "type": block.kind, "id": block.part_id, "delta": text}
            self._data("agent-delta", delta, transient=True)
        elif block.kind == "tool_call":
            self._write("tool-input-delta", toolCallId=block.part_id, inputTextDelta=text)
        else:
            self._write(f"{PREFIXES[block.kind]}-delta", id=block.part_id, delta=text)

    def _end_block(self, agent: AiSdkAgent, block: AiSdkBlock) -> None:
        """End a text or thinking, or a call that never became complete."""
        if agent.card is not None:
            if block.kind != "tool_call" and block.pieces:
                text = "".join(block.pieces)
                agent.card["parts"].append({"type": block.kind, "id": block.part_id, "text": text})
                self._write_card(agent)
        elif block.kind != "tool_call":
            self._write(f"{PREFIXES[block.kind]}-end", id=block.part_id)
        else:
            text = "".join(block.pieces)
            self._write_input_error(block.part_id, block.tool, text, "The call was not completed.")

    def _write_input_error(self, call_id: str, tool: str, text: str, problem: str) -> None:
        self._write(
            "tool-input-error", toolCallId=call_id, toolName=tool, input=text, dynamic=True, errorText=problem
        )

    def _block_end(self, agent: AiSdkAgent, _: Envelope, payload: BlockEnd) -> None:
        # The final event ends a complete block.
        block = agent.blocks.get(payload.block_id)
        if block is None or payload.status == "complete":
            return
        del agent.blocks[payload.block_id]
        if payload.text and not block.pieces:
            self._add_text(agent, block, payload.text)
        self._end_block(agent, block)

    def _retract(self, agent: AiSdkAgent, envelope: Envelope, payload: BlockRetract) -> None:
        part_ids = [agent.call_ids.get(block_id, block_id) for block_id in payload.block_ids]
        # A reset removes all parts of the step, and none of earlier steps.
        is_whole_step = self._in_step and self._step_parts == set(part_ids)
        can_reset = is_whole_step and self._version >= RESET_STEP_SINCE
        for block_id in payload.block_ids:
            block = agent.blocks.pop(block_id, None)
            if block is not None and not can_reset:
                self._end_block(agent, block)
        if agent.card is not None:
            kept = [item for item in agent.card["parts"] if item["id"] not in part_ids]
            agent.card["parts"] = kept
            self._write_card(agent)
        elif can_reset:
            self._write("reset-step")
            self._step_parts.clear()
        else:
            self._data("retract", {"ids": part_ids}, id=envelope.id)
        for part_id in part_ids:
            self._tools.pop(part_id, None)

    # output

    def _finish_block(self, agent: AiSdkAgent, block_id: str | None, whole: AiSdkBlock, text: str) -> None:
        """Write the end of a text or thinking by its final event, or all of it."""
        block = agent.blocks.pop(block_id or "", None)
        if block is None:
            block = whole
            self._start_block(agent, block)
        if text and not block.pieces:
            self._add_text(agent, block, text)
        self._end_block(agent, block)

    def _assistant_message(self, agent: AiSdkAgent, envelope: Envelope, payload: AssistantMessage) -> None:
        if payload.block_id not in agent.blocks and not payload.text:
            return
        whole = AiSdkBlock("text", payload.block_id or envelope.id)
        self._finish_block(agent, payload.block_id, whole, payload.text)
        if agent.card is None:
            for number, citation in enumerate(payload.citations):
                self._out.append(citation_part(citation, f"{envelope.id}-{number}"))

    def _assistant_thinking(self, agent: AiSdkAgent, envelope: Envelope, payload: AssistantThinking) -> None:
        if payload.block_id not in agent.blocks and not payload.text:
            return
        whole = AiSdkBlock("thinking", payload.block_id or envelope.id)
        self._finish_block(agent, payload.block_id, whole, payload.text)

    def _assistant_block(self, _: AiSdkAgent, envelope: Envelope, payload: AssistantBlock) -> None:
        self._data("block", {"kind": payload.kind, "data": payload.data}, id=envelope.id)

    def _view(self, _: AiSdkAgent, envelope: Envelope, payload: AssistantView) -> None:
        view = payload.view
        data = msgspec.to_builtins(view)
        self._views.apply(envelope, payload)
        operations = surface_operations(self._views, envelope.channel, view)
        # A part replaces the one with its id, so it has the whole surface.
        if operations is not None:
            data["tree"] = {"messages": operations}
        self._data("view", data, id=view.view_id)

    def _files(self, _: AiSdkAgent, envelope: Envelope, payload: AssistantFiles) -> None:
        self._data("files", {"files": msgspec.to_builtins(payload.files)}, id=envelope.id)

    # calls

    def _tool_call(self, agent: AiSdkAgent, _: Envelope, payload: ToolCall) -> None:
        block = agent.blocks.pop(payload.block_id or "", None)
        if payload.block_id is not None:
            agent.call_ids[payload.block_id] = payload.call_id
        if agent.card is not None:
            call = {"type": "tool", "id": payload.call_id, "toolName": payload.tool}
            agent.card["parts"].append({**call, "state": "running"})
            self._write_card(agent)
            return
        if block is None:
            provider = payload.executor == "provider" or None
            whole = AiSdkBlock("tool_call", payload.call_id, payload.tool)
            self._start_block(agent, whole, providerExecuted=provider)
        self._write_call(payload)

    def _write_call(self, payload: ToolCall) -> None:
        self._tools[payload.call_id] = payload.tool
        if payload.incomplete is not None:
            problem = "The arguments are not JSON."
            self._write_input_error(payload.call_id, payload.tool, payload.incomplete, problem)
            return
        self._write(
            "tool-input-available",
            toolCallId=payload.call_id,
            toolName=payload.tool,
            input=call_args(payload),
            dynamic=True,
            providerExecuted=payload.executor == "provider" or None,
        )

    def _show_call(self, agent_id: str | None, call_id: str) -> None:
        """Write a call of a sub-agent, which a person has to answer, as a call of the message."""
        call = self._progress.tree.find_call(agent_id, call_id)
        if call is not None and call_id not in self._tools:
            self._start_step()
            self._write_call(call.call)

    def _tool_progress(self, _: AiSdkAgent, __: Envelope, payload: ToolProgress) -> None:
        self._data("progress", {"toolCallId": payload.call_id, "text": payload.text}, id=payload.call_id)

    def _tool_result(self, agent: AiSdkAgent, _: Envelope, payload: ToolResult) -> None:
        if agent.card is not None:
            for item in agent.card["parts"]:
                if item["id"] == payload.call_id:
                    item["state"] = "done" if payload.ok else "failed"
            self._write_card(agent)
        # A client refuses the result of a call that its message does not have.
        if self._tools.pop(payload.call_id, None) is not None:
            self._out += result_parts(payload, has_denial=self._version >= APPROVALS_SINCE)

    def _tool_await(self, _: AiSdkAgent, envelope: Envelope, payload: ToolAwait) -> None:
        for awaited in payload.calls:
            self._show_call(envelope.agent_id, awaited.call_id)
            call = self._progress.tree.find_call(envelope.agent_id, awaited.call_id)
            if call is not None and call.call.executor != "frontend":
                question = {"toolCallId": awaited.call_id, "tool": awaited.tool, "questions": awaited.args}
                self._data("question", question, id=awaited.call_id)

    def _approval_request(self, _: AiSdkAgent, envelope: Envelope, payload: ApprovalRequest) -> None:
        self._show_call(envelope.agent_id, payload.call_id)
        if payload.call_id not in self._tools:
            return
        if self._version >= APPROVALS_SINCE:
            self._write("tool-approval-request", approvalId=payload.call_id, toolCallId=payload.call_id)
            return
        request = {"toolCallId": payload.call_id, "tool": payload.tool, "reason": payload.reason}
        self._data("approval", request, id=payload.call_id)


CONVERTERS: dict[type, Callable[[AiSdk, AiSdkAgent, Envelope, Any], None]] = {
    UiMessage: AiSdk._user_message,
    AgentStart: AiSdk._agent_start,
    AgentEnd: AiSdk._agent_end,
    AgentHandoff: AiSdk._handoff,
    AgentUsage: AiSdk._usage,
    SessionError: AiSdk._error,
    BlockStart: AiSdk._block_start,
    BlockDelta: AiSdk._block_delta,
    BlockEnd: AiSdk._block_end,
    BlockRetract: AiSdk._retract,
    AssistantMessage: AiSdk._assistant_message,
    AssistantThinking: AiSdk._assistant_thinking,
    AssistantBlock: AiSdk._assistant_block,
    AssistantView: AiSdk._view,
    AssistantFiles: AiSdk._files,
    ToolCall: AiSdk._tool_call,
    ToolProgress: AiSdk._tool_progress,
    ToolResult: AiSdk._tool_result,
    ToolAwait: AiSdk._tool_await,
    ApprovalRequest: AiSdk._approval_request,
}


def encode_early_end() -> bytes:
    """Return the frames that end a stream before its end: a client then resumes it."""
    problem = part("error", errorText="The server ended this stream; resume it.")
    return sse.encode(msgspec.json.encode(problem)) + DONE_FRAME
