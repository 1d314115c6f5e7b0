"""The dialect `ag-ui`: events of AG-UI 1.0, for clients of that protocol (protocol section 10).

- A text, a thinking and a tool call become START, CONTENT and END, or the three at once where the deltas are
  gone. Called agents are sub-agents, agents that answer are steps, other events are CUSTOM.
- In a stream of a whole session, a run lasts from the start of an agent until all agents have ended or wait.
  What is open then is closed first: waiting sub-agents are suspended. An event between is a run by itself.
- A message of a person comes with the start of the agent that gets it: one that waits has no run yet.
- In a response, `AgUiRun` names the run. The response converts everything before it, calls `begin`, and gets
  RUN_STARTED, snapshots, and an opening event for everything that is open; `close` ends the run.
- A retraction removes messages: AG-UI has no event for it, so a response gets all its messages again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    AssistantView,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionError,
    SessionTitle,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiAction,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.envelope import parse_timestamp_ms
from turnlog.wire import sse
from turnlog.wire.dialects._common import call_args, is_foreign_event, to_json_text
from turnlog.wire.dialects.ag_ui.blocks import (
    AgUiAgent,
    AgUiBlock,
    content_event,
    end_events,
    start_events,
)
from turnlog.wire.dialects.ag_ui.content import build_result_parts
from turnlog.wire.dialects.ag_ui.events import (
    METADATA_KEY,
    ActivitySnapshot,
    AgUiEvent,
    CustomEvent,
    MessagesSnapshot,
    RawEvent,
    ReasoningEncryptedValue,
    RunFailed,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCallResult,
    encode_event,
)
from turnlog.wire.dialects.ag_ui.messages import ThreadMessages
from turnlog.wire.dialects.ag_ui.outcome import build_run_end, find_interrupts, find_waiting_calls
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.run_outcome import FAILED_STOPS, LIVE_PAYLOADS, RunOutcome, RunProgress
from turnlog.wire.json_patch import diff_json


class StateFold(Protocol):
    """The application's state as the reader sees it, as JSON."""

    @property
    def value(self) -> Any: ...

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
        """Apply one event. Return whether it may have changed the value."""
        ...


@dataclass(slots=True)
class AgUiRun:
    """The run of one response. `own_message` is the id of the message that the client itself has sent.

    The client has the prompt of that turn, too. With `sends_messages` the response begins with all messages
    of the thread. `state` is that before the first event of the response.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    own_message: str | None = None
    messages: ThreadMessages = field(default_factory=ThreadMessages)
    sends_messages: bool = False
    state: StateFold | None = None


class AgUi:
    """One projection of a session's log."""

    def __init__(
        self,
        options: DialectOptions = DEFAULT_OPTIONS,
        history: HistoryLookup = no_history,
        run: AgUiRun | None = None,
    ) -> None:
        self._version = options.ag_ui
        self._run = run
        self._has_begun = False  # the response of `run` has begun, or a run of the session is open
        self._run_id = ""
        self._thread_id = ""
        self._progress = RunProgress()
        self._agents: dict[str, AgUiAgent] = {}
        self._questions: dict[str, AwaitedCall] = {}
        self._outcome = RunOutcome()
        self._ts = ""  # of the event that is being converted
        self._state_value: Any = None
        self._out: list[AgUiEvent] = []

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        agent = self._agents.get(envelope.agent_id or "")
        # Most events are deltas, which change nothing but their block.
        if agent is not None and isinstance(payload, BlockDelta) and self._has_begun:
            self._block_delta(agent, envelope, payload)
            return self._encode_output() if self._run is None else self._take_run_output()

        if agent is None:
            agent = AgUiAgent(envelope.agent_name or "")
        self._ts = envelope.ts
        self._progress.apply(envelope, payload)
        reopened = self._take_reopened() if self._run is None and not self._has_begun else []
        convert = CONVERTERS.get(type(payload))
        if convert is not None:
            convert(self, agent, envelope, payload)
        elif is_foreign_event(envelope, payload):
            self._custom(agent, envelope.type, envelope.payload)
        self._update_state(envelope, payload)
        if self._run is None:
            self._bracket_session_run(envelope, payload, reopened)
            return self._encode_output()
        return self._take_run_output()

    @property
    def _timestamp(self) -> int:
        return parse_timestamp_ms(self._ts)

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of an event that the reader does not get: it may change the state."""
        self._ts = envelope.ts
        self._update_state(envelope, payload)
        return self._encode_output()

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs: a response ends here."""
        return self._progress.is_finished

    @property
    def idle(self) -> bool:
        return not self._agents and not self._progress.hands_over

    def begin(self) -> list[bytes]:
        """Return the messages that begin the response of a run at this position."""
        run = self._run
        assert run is not None, "only a response begins"
        self._has_begun = True
        self._outcome = RunOutcome(end=self._outcome.end, error=self._outcome.error)
        self._thread_id = run.thread_id
        self._run_id = run.run_id
        self._write(RunStarted(thread_id=run.thread_id, run_id=run.run_id, parent_run_id=run.parent_run_id))
        repeated = self._repeated_blocks() if run.sends_messages and self._version == "0" else {}
        if run.sends_messages:
            without = {block.message_id for blocks in repeated.values() for block in blocks}
            messages = run.messages.to_json(with_activities=True, without=without)
            self._write(MessagesSnapshot(messages=messages))
        if run.state is not None:
            self._state_value = run.state.value
            self._write(StateSnapshot(snapshot=self._state_value))
        self._reopen_agents(repeated)
        return self._encode_output()

    def close(self) -> list[bytes]:
        if self._has_begun:
            self._finish_run()
        return self._encode_output()

    # runs

    def _take_reopened(self) -> list[AgUiEvent]:
        """Return the events that open again what an earlier run of the session has suspended."""
        self._reopen_agents({})
        reopened = self._out.copy()
        self._out.clear()
        return reopened

    def _bracket_session_run(
        self, envelope: Envelope, payload: Payload | UnknownPayload, reopened: list[AgUiEvent]
    ) -> None:
        if self._out and not self._has_begun:
            self._has_begun = True
            self._outcome = RunOutcome()
            self._thread_id = envelope.session_id
            # A turn that goes on after a question is another run.
            is_start = isinstance(payload, AgentStart)
            self._run_id = envelope.trace_id if is_start and envelope.trace_id else envelope.id
            started = RunStarted(thread_id=self._thread_id, run_id=self._run_id)
            self._out = [started, *reopened, *self._out]
        elif type(payload) in LIVE_PAYLOADS:
            return
        if self._has_begun and not self._progress.is_running:
            self._finish_run()

    def _take_run_output(self) -> list[bytes]:
        """Return what the client of a run gets: nothing before the run begins."""
        assert self._run is not None
        if self._has_begun or self._run.sends_messages:
            for event in self._out:
                self._run.messages.apply(event)
        if self._has_begun:
            return self._encode_output()
        self._out.clear()
        return []

    def _encode_output(self) -> list[bytes]:
        messages = [encode_event(event) for event in self._out]
        self._out.clear()
        return messages

    def _repeated_blocks(self) -> dict[str, list[AgUiBlock]]:
        """Return the blocks, by agent, that clients before 1.0 get from their start and not in a snapshot.

        Those clients begin a message that is opened again from nothing, and bind a question only to a call of
        the same run.
        """
        blocks = {agent_id: list(agent.blocks.values()) for agent_id, agent in self._agents.items()}
        for agent_id, call in find_waiting_calls(self._progress.tree):
            blocks.setdefault(agent_id, []).append(AgUiBlock("tool_call", call.call_id, call.tool))
        return blocks

    def _reopen_agents(self, repeated: Mapping[str, Sequence[AgUiBlock]]) -> None:
        """Write the start of every open agent and block; those `repeated` with all that they have."""
        for agent_id, agent in self._agents.items():
            if agent.started is not None:
                self._write(agent.started)
            else:
                self._write(StepStarted(step_name=agent.step_name))
            for block in repeated.get(agent_id, agent.blocks.values()):
                self._write_block_start(agent, block)
                if agent_id in repeated:
                    self._repeat_block(agent, block)

    def _repeat_block(self, agent: AgUiAgent, block: AgUiBlock) -> None:
        assert self._run is not None
        text = self._run.messages.text_of(block.message_id)
        if text:
            self._write_block_content(agent, block, text)
        if block not in agent.blocks.values():
            self._write_block_end(agent, block)

    def _finish_run(self) -> None:
        interrupts = find_interrupts(self._progress.tree, self._questions)
        for agent_id, agent in reversed(self._agents.items()):
            for block in list(agent.blocks.values()):
                self._write_block_end(agent, block)
            if agent.subagent_run_id is None:
                self._write(StepFinished(step_name=agent.step_name))
                continue
            outcome: dict[str, Any] = {"type": "suspended"}
            own_ids = [item["id"] for item in interrupts if item.get("subagentRunId") == agent_id]
            if own_ids:
                outcome["interruptIds"] = own_ids
            self._write(SubagentFinished(subagent_run_id=agent_id, outcome=outcome))
        tree = self._progress.tree
        end = build_run_end(self._outcome, self._thread_id, self._run_id, tree, interrupts, self._version)
        self._write(end)
        self._has_begun = False

    def _update_state(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        state = self._run.state if self._run is not None and self._has_begun else None
        if state is None or not state.apply(envelope, payload):
            return
        value = state.value
        operations = diff_json(self._state_value, value)
        if operations:
            self._state_value = value
            self._write(StateDelta(delta=operations, timestamp=self._timestamp))

    # writing

    def _write(self, event: AgUiEvent) -> None:
        self._out.append(event)

    def _custom(self, agent: AgUiAgent, name: str, value: Any) -> None:
        event = CustomEvent(
            name=name, value=value, subagent_run_id=agent.subagent_run_id, timestamp=self._timestamp
        )
        self._write(event)

    def _write_block_start(self, agent: AgUiAgent, block: AgUiBlock, **more: Any) -> None:
        self._out += start_events(agent, block, self._timestamp, **more)

    def _write_block_content(self, agent: AgUiAgent, block: AgUiBlock, text: str) -> None:
        block.has_content = True
        self._out.append(content_event(agent, block, text))

    def _write_block_end(self, agent: AgUiAgent, block: AgUiBlock) -> None:
        self._out += end_events(agent, block)

    def _finish_block(
        self, agent: AgUiAgent, block_id: str | None, whole: AgUiBlock, text: str, **more: Any
    ) -> str:
        """Write the end of a block by its final event, or all of it if its start is not known."""
        block = agent.blocks.pop(block_id or "", None)
        if block is None:
            block = whole
            self._write_block_start(agent, block, **more)
        if text and not block.has_content:
            self._write_block_content(agent, block, text)
        self._write_block_end(agent, block)
        return block.message_id

    # people

    def _user_message(self, agent: AgUiAgent, envelope: Envelope, payload: UiMessage) -> None:
        # A message that opens a turn is the prompt of the agent that starts for it.
        is_own = self._run is not None and envelope.id == self._run.own_message
        if envelope.agent_id and not is_own:
            self._write_user_text(envelope.id, payload.text)

    def _write_user_text(self, message_id: str, text: str) -> None:
        self._write(TextMessageStart(message_id=message_id, role="user", timestamp=self._timestamp))
        self._write(TextMessageContent(message_id=message_id, delta=text))
        self._write(TextMessageEnd(message_id=message_id))

    def _person_event(self, agent: AgUiAgent, envelope: Envelope, payload: Payload) -> None:
        self._custom(agent, envelope.type, envelope.payload)

    # agents

    def _agent_start(self, _: AgUiAgent, envelope: Envelope, payload: AgentStart) -> None:
        agent_id = envelope.agent_id or ""
        agent = AgUiAgent(payload.name)
        self._agents[agent_id] = agent
        if payload.parent_id is None:
            self._outcome.end = None
            self._outcome.error = None
            has_own_prompt = self._run is not None and self._run.own_message is not None
            if payload.via == "prompt" and payload.prompt and not has_own_prompt:
                self._write_user_text(envelope.id, payload.prompt)
            agent.step_name = self._free_step_name(payload.name)
            self._write(StepStarted(step_name=agent.step_name, timestamp=self._timestamp))
            return

        parent = self._agents.get(payload.parent_id)
        agent.subagent_run_id = agent_id
        agent.started = SubagentStarted(
            subagent_run_id=agent_id,
            name=payload.name,
            description=payload.prompt or None,
            parent_subagent_run_id=parent.subagent_run_id if parent else None,
            parent_tool_call_id=payload.call_id,
            timestamp=self._timestamp,
            metadata={METADATA_KEY: {"depth": envelope.depth or 0}},
        )
        self._write(agent.started)

    def _free_step_name(self, name: str) -> str:
        """Return the name of an agent's step: agents of one name may answer in several channels at once."""
        names = {agent.step_name for agent in self._agents.values()}
        step_name = name
        number = 1
        while step_name in names:
            number += 1
            step_name = f"{name} {number}"
        return step_name

    def _agent_end(self, agent: AgUiAgent, envelope: Envelope, payload: AgentEnd) -> None:
        agent_id = envelope.agent_id or ""
        if self._agents.pop(agent_id, None) is None:
            return
        for block in agent.blocks.values():
            self._write_block_end(agent, block)
        if agent.subagent_run_id is None:
            self._write(StepFinished(step_name=agent.step_name, timestamp=self._timestamp))
            if payload.stop_reason != "handoff":
                self._outcome.end = payload
        elif payload.stop_reason in FAILED_STOPS:
            message = f"The agent {agent.name} ended: {payload.stop_reason}."
            self._write(SubagentFailed(subagent_run_id=agent_id, message=message, code=payload.stop_reason))
        else:
            self._write(
                SubagentFinished(
                    subagent_run_id=agent_id,
                    result=payload.result,
                    outcome={"type": "success"},
                    timestamp=self._timestamp,
                )
            )

    def _handoff(self, agent: AgUiAgent, _: Envelope, payload: AgentHandoff) -> None:
        self._custom(agent, "handoff", {"from": agent.name, "to": payload.to})

    def _usage(self, _: AgUiAgent, __: Envelope, payload: AgentUsage) -> None:
        self._outcome.add_usage(payload)

    def _error(self, agent: AgUiAgent, envelope: Envelope, payload: SessionError) -> None:
        self._outcome.error = payload
        self._custom(agent, envelope.type, {"code": payload.code, "message": payload.message})

    # blocks

    def _block_start(self, agent: AgUiAgent, _: Envelope, payload: BlockStart) -> None:
        block = AgUiBlock(payload.kind, payload.block_id)
        if payload.kind == "tool_call":
            if payload.call_id is None or payload.tool is None:
                return
            block = AgUiBlock("tool_call", payload.call_id, payload.tool)
            agent.call_ids[payload.block_id] = payload.call_id
        elif payload.kind == "other":
            return
        agent.blocks[payload.block_id] = block
        self._write_block_start(agent, block)

    def _block_delta(self, agent: AgUiAgent, _: Envelope, payload: BlockDelta) -> None:
        block = agent.blocks.get(payload.block_id)
        if block is not None and payload.text:
            self._write_block_content(agent, block, payload.text)

    def _block_end(self, agent: AgUiAgent, _: Envelope, payload: BlockEnd) -> None:
        # The final event ends a complete block.
        block = agent.blocks.get(payload.block_id)
        if block is None or payload.status == "complete":
            return
        del agent.blocks[payload.block_id]
        if payload.text and not block.has_content:
            self._write_block_content(agent, block, payload.text)
        self._write_block_end(agent, block)

    def _retract(self, agent: AgUiAgent, envelope: Envelope, payload: BlockRetract) -> None:
        for block_id in payload.block_ids:
            block = agent.blocks.pop(block_id, None)
            if block is not None:
                self._write_block_end(agent, block)
        message_ids = [agent.call_ids.get(block_id, block_id) for block_id in payload.block_ids]
        if self._run is None:
            self._custom(agent, envelope.type, {"messageIds": message_ids, "reason": payload.reason})
            return
        self._run.messages.remove(message_ids)
        if self._has_begun:
            with_activities = self._run.sends_messages
            self._write(
                MessagesSnapshot(messages=self._run.messages.to_json(with_activities=with_activities))
            )

    # output

    def _assistant_message(self, agent: AgUiAgent, envelope: Envelope, payload: AssistantMessage) -> None:
        if payload.block_id not in agent.blocks and not payload.text:
            return
        whole = AgUiBlock("text", payload.block_id or envelope.id)
        message_id = self._finish_block(agent, payload.block_id, whole, payload.text)
        for citation in payload.citations:
            self._custom(agent, "citation", {"messageId": message_id, **msgspec.to_builtins(citation)})

    def _assistant_thinking(self, agent: AgUiAgent, envelope: Envelope, payload: AssistantThinking) -> None:
        if payload.block_id not in agent.blocks and not payload.text:
            return
        whole = AgUiBlock("thinking", payload.block_id or envelope.id)
        message_id = self._finish_block(agent, payload.block_id, whole, payload.text)
        if payload.signature:
            self._write(
                ReasoningEncryptedValue(
                    entity_id=message_id,
                    encrypted_value=payload.signature,
                    subagent_run_id=agent.subagent_run_id,
                )
            )

    def _assistant_block(self, agent: AgUiAgent, _: Envelope, payload: AssistantBlock) -> None:
        self._write(RawEvent(event=payload.data, source=payload.kind, subagent_run_id=agent.subagent_run_id))

    def _view(self, agent: AgUiAgent, _: Envelope, payload: AssistantView) -> None:
        view = payload.view
        self._activity(agent, f"view-{view.view_id}", "view", msgspec.to_builtins(view))

    def _files(self, agent: AgUiAgent, envelope: Envelope, payload: AssistantFiles) -> None:
        self._activity(agent, envelope.id, "files", {"files": msgspec.to_builtins(payload.files)})

    def _activity(self, agent: AgUiAgent, message_id: str, type: str, content: dict[str, Any]) -> None:
        # A sub-agent's tag would stay with an activity that another agent replaces.
        self._write(
            ActivitySnapshot(
                message_id=message_id, activity_type=type, content=content, timestamp=self._timestamp
            )
        )

    # calls

    def _tool_call(self, agent: AgUiAgent, _: Envelope, payload: ToolCall) -> None:
        args = call_args(payload)
        text = args if isinstance(args, str) else to_json_text(args)
        whole = AgUiBlock("tool_call", payload.call_id, payload.tool)
        more: dict[str, Any] = {}
        if payload.executor == "provider":
            more["metadata"] = {METADATA_KEY: {"executor": "provider"}}
        self._finish_block(agent, payload.block_id, whole, text, **more)
        if payload.block_id is not None:
            agent.call_ids[payload.block_id] = payload.call_id

    def _tool_progress(self, agent: AgUiAgent, _: Envelope, payload: ToolProgress) -> None:
        content = {"toolCallId": payload.call_id, "text": payload.text}
        self._activity(agent, f"progress-{payload.call_id}", "tool-progress", content)

    def _tool_result(self, agent: AgUiAgent, envelope: Envelope, payload: ToolResult) -> None:
        self._questions.pop(payload.call_id, None)
        metadata = None
        if payload.error is not None:
            metadata = {METADATA_KEY: {"error": payload.error.code}}
        self._write(
            ToolCallResult(
                message_id=envelope.id,
                tool_call_id=payload.call_id,
                content=build_result_parts(payload, self._version),
                subagent_run_id=agent.subagent_run_id,
                timestamp=self._timestamp,
                metadata=metadata,
            )
        )

    def _tool_await(self, _: AgUiAgent, __: Envelope, payload: ToolAwait) -> None:
        for call in payload.calls:
            self._questions[call.call_id] = call


CONVERTERS: dict[type, Callable[[AgUi, AgUiAgent, Envelope, Any], None]] = {
    UiMessage: AgUi._user_message,
    UiAction: AgUi._person_event,
    ApprovalDecision: AgUi._person_event,
    SessionTitle: AgUi._person_event,
    AgentStart: AgUi._agent_start,
    AgentEnd: AgUi._agent_end,
    AgentHandoff: AgUi._handoff,
    AgentUsage: AgUi._usage,
    SessionError: AgUi._error,
    BlockStart: AgUi._block_start,
    BlockDelta: AgUi._block_delta,
    BlockEnd: AgUi._block_end,
    BlockRetract: AgUi._retract,
    AssistantMessage: AgUi._assistant_message,
    AssistantThinking: AgUi._assistant_thinking,
    AssistantBlock: AgUi._assistant_block,
    AssistantView: AgUi._view,
    AssistantFiles: AgUi._files,
    ToolCall: AgUi._tool_call,
    ToolProgress: AgUi._tool_progress,
    ToolResult: AgUi._tool_result,
    ToolAwait: AgUi._tool_await,
}


def encode_cut() -> bytes:
    """Return the frame that ends a stream early: a client takes one that only stops for a success."""
    message = "The server ended this stream; attach to the thread again."
    return sse.encode(encode_event(RunFailed(message=message, code="stream_ended")))
