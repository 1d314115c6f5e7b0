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

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.events import (
    AgentStart,
    BlockDelta,
    Envelope,
    Payload,
    UnknownPayload,
)
from turnlog.wire import sse
from turnlog.wire.dialects._common import is_foreign_event
from turnlog.wire.dialects.ag_ui.blocks import AgUiAgent
from turnlog.wire.dialects.ag_ui.converters import CONVERTERS
from turnlog.wire.dialects.ag_ui.events import (
    AgUiEvent,
    MessagesSnapshot,
    RunFailed,
    RunStarted,
    StateDelta,
    StateSnapshot,
    StepFinished,
    StepStarted,
    SubagentFinished,
    encode_event,
)
from turnlog.wire.dialects.ag_ui.outcome import build_run_end, find_interrupts, find_waiting_calls
from turnlog.wire.dialects.ag_ui.writer import AgUiRun, AgUiWriter
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DialectOptions, HistoryLookup, no_history
from turnlog.wire.dialects.run_outcome import (
    LIVE_PAYLOADS,
    ReaderRoles,
    RunOutcome,
    RunProgress,
    answering_roles,
    is_asked,
)
from turnlog.wire.dialects.streamed_blocks import StreamedBlock, convert_block_delta
from turnlog.wire.json_patch import diff_json


class AgUi:
    """One projection of a session's log."""

    def __init__(
        self,
        options: DialectOptions = DEFAULT_OPTIONS,
        history: HistoryLookup = no_history,
        run: AgUiRun | None = None,
        roles: ReaderRoles = None,
    ) -> None:
        self._run = run
        self._roles = roles
        self._writer = AgUiWriter(run, options.ag_ui)
        self._run_id = ""
        self._thread_id = ""
        self._progress = RunProgress()
        self._state_value: Any = None

    def convert(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        agent = self._writer.agents.get(envelope.agent_id or "")
        # Most events are deltas, which change nothing but their block.
        if agent is not None and isinstance(payload, BlockDelta) and self._writer.has_begun:
            convert_block_delta(self._writer, agent, envelope, payload)
            return self._encode_output() if self._run is None else self._take_run_output()

        if agent is None:
            agent = AgUiAgent(envelope.agent_name or "")
        self._writer.ts = envelope.ts
        self._progress.apply(envelope, payload)
        reopened = self._take_reopened() if self._run is None and not self._writer.has_begun else []
        convert = CONVERTERS.get(type(payload))
        if convert is not None:
            convert(self._writer, agent, envelope, payload)
        elif is_foreign_event(envelope, payload):
            self._writer.write_custom(agent, envelope.type, envelope.payload)
        self._update_state(envelope, payload)
        if self._run is None:
            self._bracket_session_run(envelope, payload, reopened)
            return self._encode_output()
        return self._take_run_output()

    def skip(self, envelope: Envelope, payload: Payload | UnknownPayload) -> list[bytes]:
        """Return the messages of an event that the reader does not get: it may change the state."""
        self._writer.ts = envelope.ts
        self._update_state(envelope, payload)
        return self._encode_output()

    @property
    def is_finished(self) -> bool:
        """Return whether nothing runs: a response ends here."""
        return self._progress.is_finished

    @property
    def idle(self) -> bool:
        return not self._writer.agents and not self._progress.hands_over

    def begin(self) -> list[bytes]:
        """Return the messages that begin the response of a run at this position."""
        run = self._run
        assert run is not None, "only a response begins"
        self._writer.has_begun = True
        self._writer.outcome = RunOutcome(end=self._writer.outcome.end, error=self._writer.outcome.error)
        self._thread_id = run.thread_id
        self._run_id = run.run_id
        self._writer.write(
            RunStarted(thread_id=run.thread_id, run_id=run.run_id, parent_run_id=run.parent_run_id)
        )
        repeated = self._repeated_blocks() if run.sends_messages and self._writer.version == "0" else {}
        if run.sends_messages:
            without = {block.part_id for blocks in repeated.values() for block in blocks}
            messages = run.messages.to_json(with_activities=True, without=without)
            self._writer.write(MessagesSnapshot(messages=messages))
        if run.state is not None:
            self._state_value = run.state.value
            self._writer.write(StateSnapshot(snapshot=self._state_value))
        self._reopen_agents(repeated)
        return self._encode_output()

    def close(self) -> list[bytes]:
        if self._writer.has_begun:
            self._finish_run()
        return self._encode_output()

    # runs

    def _take_reopened(self) -> list[AgUiEvent]:
        """Return the events that open again what an earlier run of the session has suspended."""
        self._reopen_agents({})
        reopened = self._writer.out.copy()
        self._writer.out.clear()
        return reopened

    def _bracket_session_run(
        self, envelope: Envelope, payload: Payload | UnknownPayload, reopened: list[AgUiEvent]
    ) -> None:
        if self._writer.out and not self._writer.has_begun:
            self._writer.has_begun = True
            self._writer.outcome = RunOutcome()
            self._thread_id = envelope.session_id
            # A turn that goes on after a question is another run.
            is_start = isinstance(payload, AgentStart)
            self._run_id = envelope.trace_id if is_start and envelope.trace_id else envelope.id
            started = RunStarted(thread_id=self._thread_id, run_id=self._run_id)
            self._writer.out = [started, *reopened, *self._writer.out]
        elif type(payload) in LIVE_PAYLOADS:
            return
        if self._writer.has_begun and not self._progress.is_running:
            self._finish_run()

    def _take_run_output(self) -> list[bytes]:
        """Return what the client of a run gets: nothing before the run begins."""
        assert self._run is not None
        if self._writer.has_begun or self._run.sends_messages:
            for event in self._writer.out:
                self._run.messages.apply(event)
        if self._writer.has_begun:
            return self._encode_output()
        self._writer.out.clear()
        return []

    def _encode_output(self) -> list[bytes]:
        messages = [encode_event(event) for event in self._writer.out]
        self._writer.out.clear()
        return messages

    def _repeated_blocks(self) -> dict[str, list[StreamedBlock]]:
        """Return the blocks, by agent, that clients before 1.0 get from their start and not in a snapshot.

        Those clients begin a message that is opened again from nothing, and bind a question only to a call of
        the same run.
        """
        blocks = {agent_id: list(agent.blocks.values()) for agent_id, agent in self._writer.agents.items()}
        for agent_id, call in find_waiting_calls(self._progress.tree):
            block = StreamedBlock("tool_call", call.call.call_id, call.call.tool)
            blocks.setdefault(agent_id, []).append(block)
        return blocks

    def _reopen_agents(self, repeated: Mapping[str, Sequence[StreamedBlock]]) -> None:
        """Write the start of every open agent and block; those `repeated` with all that they have."""
        for agent_id, agent in self._writer.agents.items():
            if agent.started is not None:
                self._writer.write(agent.started)
            else:
                self._writer.write(StepStarted(step_name=agent.step_name))
            for block in repeated.get(agent_id, agent.blocks.values()):
                self._writer.start_block(agent, block)
                if agent_id in repeated:
                    self._repeat_block(agent, block)

    def _repeat_block(self, agent: AgUiAgent, block: StreamedBlock) -> None:
        assert self._run is not None
        text = self._run.messages.text_of(block.part_id)
        if text:
            self._writer.write_content(agent, block, text)
        if block not in agent.blocks.values():
            self._writer.end_block(agent, block)

    def _finish_run(self) -> None:
        tree = self._progress.tree
        interrupts = find_interrupts(tree, self._writer.questions, self._roles)
        self._write_calls_of_others()
        for agent_id, agent in reversed(self._writer.agents.items()):
            for block in list(agent.blocks.values()):
                self._writer.end_block(agent, block)
            if agent.subagent_run_id is None:
                self._writer.write(StepFinished(step_name=agent.step_name))
                continue
            outcome: dict[str, Any] = {"type": "suspended"}
            own_ids = [item["id"] for item in interrupts if item.get("subagentRunId") == agent_id]
            if own_ids:
                outcome["interruptIds"] = own_ids
            self._writer.write(SubagentFinished(subagent_run_id=agent_id, outcome=outcome))
        end = build_run_end(
            self._writer.outcome,
            self._thread_id,
            self._run_id,
            tree,
            interrupts,
            self._writer.version,
            self._roles,
        )
        self._writer.write(end)
        self._writer.has_begun = False

    def _write_calls_of_others(self) -> None:
        """Write what waits for members with other roles: the run ends without an interrupt for it."""
        for agent_id, call in find_waiting_calls(self._progress.tree):
            answering = answering_roles(call)
            if not is_asked(answering, self._roles):
                fields = {"toolCallId": call.call.call_id, "tool": call.call.tool, "roles": answering}
                self._writer.write_custom(self._writer.agents[agent_id], "waiting", fields)

    def _update_state(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        state = self._run.state if self._run is not None and self._writer.has_begun else None
        if state is None or not state.apply(envelope, payload):
            return
        value = state.value
        operations = diff_json(self._state_value, value)
        if operations:
            self._state_value = value
            self._writer.write(StateDelta(delta=operations, timestamp=self._writer.timestamp))


def encode_cut() -> bytes:
    """Return the frame that ends a stream early: a client takes one that only stops for a success."""
    message = "The server ended this stream; attach to the thread again."
    return sse.encode(encode_event(RunFailed(message=message, code="stream_ended")))
