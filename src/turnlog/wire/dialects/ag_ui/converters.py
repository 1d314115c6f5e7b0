"""Events of the log as events of AG-UI: one function for each type, in `CONVERTERS`."""

from collections.abc import Callable
from typing import Any

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
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Envelope,
    Payload,
    SessionClose,
    SessionError,
    SessionTitle,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiAction,
    UiMessage,
    View,
)
from turnlog.events.a2ui import A2UI_KIND
from turnlog.wire.dialects._common import call_args, to_json_text
from turnlog.wire.dialects.ag_ui.blocks import AgUiAgent
from turnlog.wire.dialects.ag_ui.content import build_result_parts
from turnlog.wire.dialects.ag_ui.events import (
    METADATA_KEY,
    ActivityDelta,
    MessagesSnapshot,
    RawEvent,
    ReasoningEncryptedValue,
    StepFinished,
    StepStarted,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    ToolCallResult,
)
from turnlog.wire.dialects.ag_ui.writer import AgUiWriter
from turnlog.wire.dialects.run_outcome import FAILED_STOPS
from turnlog.wire.dialects.streamed_blocks import (
    StreamedBlock,
    convert_block_delta,
    convert_block_end,
    convert_block_start,
    finish_block,
    finish_text,
    list_part_ids,
)
from turnlog.wire.dialects.surfaces import surface_operations

# people


def _convert_user_message(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: UiMessage) -> None:
    # A message that opens a turn is the prompt of the agent that starts for it.
    is_own = out.run is not None and envelope.id == out.run.own_message
    if envelope.agent_id and not is_own:
        message_id = out.choose_id(payload.client_message_id, envelope.id)
        out.write_user_message(message_id, payload.text, payload.content)
    elif payload.client_message_id is not None and envelope.trace_id is not None:
        out.prompt_ids[envelope.trace_id] = payload.client_message_id


def _convert_person_event(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: Payload) -> None:
    out.write_custom(agent, envelope.type, envelope.payload)


# agents


def _convert_agent_start(out: AgUiWriter, _: AgUiAgent, envelope: Envelope, payload: AgentStart) -> None:
    agent_id = envelope.agent_id or ""
    agent = AgUiAgent(payload.name)
    out.agents[agent_id] = agent
    if payload.parent_id is None:
        out.outcome.begin_turn()
        has_own_prompt = out.run is not None and out.run.own_message is not None
        prompt_id = out.prompt_ids.pop(envelope.trace_id or "", None)
        if payload.via == "prompt" and payload.prompt and not has_own_prompt:
            message_id = out.choose_id(prompt_id, envelope.id)
            out.write_user_message(message_id, payload.prompt, payload.content)
        agent.step_name = out.find_step_name(payload.name)
        out.write(StepStarted(step_name=agent.step_name, timestamp=out.timestamp))
        return

    parent = out.agents.get(payload.parent_id)
    agent.subagent_run_id = agent_id
    agent.started = SubagentStarted(
        subagent_run_id=agent_id,
        name=payload.name,
        description=payload.prompt or None,
        parent_subagent_run_id=parent.subagent_run_id if parent else None,
        parent_tool_call_id=payload.call_id,
        timestamp=out.timestamp,
        metadata={METADATA_KEY: {"depth": envelope.depth or 0}},
    )
    out.write(agent.started)


def _convert_agent_end(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: AgentEnd) -> None:
    agent_id = envelope.agent_id or ""
    if out.agents.pop(agent_id, None) is None:
        return
    for block in agent.blocks.values():
        out.end_block(agent, block)
    if agent.subagent_run_id is None:
        out.write(StepFinished(step_name=agent.step_name, timestamp=out.timestamp))
        out.outcome.end_turn(payload)
    elif payload.stop_reason in FAILED_STOPS:
        message = f"The agent {agent.name} ended: {payload.stop_reason}."
        out.write(SubagentFailed(subagent_run_id=agent_id, message=message, code=payload.stop_reason))
    else:
        out.write(
            SubagentFinished(
                subagent_run_id=agent_id,
                result=payload.result,
                outcome={"type": "success"},
                timestamp=out.timestamp,
            )
        )


def _convert_handoff(out: AgUiWriter, agent: AgUiAgent, _: Envelope, payload: AgentHandoff) -> None:
    out.write_custom(agent, "handoff", {"from": agent.name, "to": payload.to})


def _convert_usage(out: AgUiWriter, _: AgUiAgent, __: Envelope, payload: AgentUsage) -> None:
    out.outcome.add_usage(payload)


def _convert_error(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: SessionError) -> None:
    out.outcome.error = payload
    out.write_custom(agent, envelope.type, {"code": payload.code, "message": payload.message})


# blocks


def _convert_retract(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: BlockRetract) -> None:
    for block_id in payload.block_ids:
        block = agent.blocks.pop(block_id, None)
        if block is not None:
            out.end_block(agent, block)
    message_ids = list_part_ids(agent, payload.block_ids)
    if out.run is None:
        out.write_custom(agent, envelope.type, {"messageIds": message_ids, "reason": payload.reason})
        return
    out.run.messages.remove(message_ids)
    if out.has_begun:
        with_activities = out.run.sends_messages
        out.write(MessagesSnapshot(messages=out.run.messages.to_json(with_activities=with_activities)))


# output


def _convert_assistant_message(
    out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: AssistantMessage
) -> None:
    message_id = finish_text(out, agent, envelope, "text", payload)
    if message_id is None:
        return
    for citation in payload.citations:
        out.write_custom(agent, "citation", {"messageId": message_id, **msgspec.to_builtins(citation)})


def _convert_assistant_thinking(
    out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: AssistantThinking
) -> None:
    message_id = finish_text(out, agent, envelope, "thinking", payload)
    if message_id is not None and payload.signature:
        out.write(
            ReasoningEncryptedValue(
                entity_id=message_id,
                encrypted_value=payload.signature,
                subagent_run_id=agent.subagent_run_id,
            )
        )


def _convert_assistant_block(out: AgUiWriter, agent: AgUiAgent, _: Envelope, payload: AssistantBlock) -> None:
    out.write(RawEvent(event=payload.data, source=payload.kind, subagent_run_id=agent.subagent_run_id))


def _convert_view(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: AssistantView) -> None:
    view = payload.view
    out.views.apply(envelope, payload)
    if view.kind == A2UI_KIND:
        _convert_surface(out, agent, envelope.channel, view)
        return
    out.write_activity(agent, f"view-{view.view_id}", "view", msgspec.to_builtins(view))


def _convert_surface(out: AgUiWriter, agent: AgUiAgent, channel: str | None, view: View) -> None:
    """Write a surface of A2UI as the activity that AG-UI's own middleware for A2UI writes."""
    message_id = f"a2ui-surface-{view.view_id}"
    operations = surface_operations(out.views, channel, view)
    if operations is not None:
        out.write_activity(agent, message_id, "a2ui-surface", {"a2ui_operations": operations})
        return
    # An earlier response has created the surface: its client has the activity.
    patch = [
        {"op": "add", "path": "/a2ui_operations/-", "value": message} for message in view.tree["messages"]
    ]
    out.write(
        ActivityDelta(
            message_id=message_id, activity_type="a2ui-surface", patch=patch, timestamp=out.timestamp
        )
    )


def _convert_files(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: AssistantFiles) -> None:
    out.write_activity(agent, envelope.id, "files", {"files": msgspec.to_builtins(payload.files)})


# calls


def _convert_tool_call(out: AgUiWriter, agent: AgUiAgent, _: Envelope, payload: ToolCall) -> None:
    args = call_args(payload)
    text = args if isinstance(args, str) else to_json_text(args)
    whole = StreamedBlock("tool_call", payload.call_id, payload.tool)
    more: dict[str, Any] = {}
    if payload.executor == "provider":
        more["metadata"] = {METADATA_KEY: {"executor": "provider"}}
    finish_block(out, agent, payload.block_id, whole, text, **more)
    if payload.block_id is not None:
        agent.call_ids[payload.block_id] = payload.call_id


def _convert_tool_progress(out: AgUiWriter, agent: AgUiAgent, _: Envelope, payload: ToolProgress) -> None:
    content = {"toolCallId": payload.call_id, "text": payload.text}
    out.write_activity(agent, f"progress-{payload.call_id}", "tool-progress", content)


def _convert_tool_result(out: AgUiWriter, agent: AgUiAgent, envelope: Envelope, payload: ToolResult) -> None:
    out.questions.pop(payload.call_id, None)
    if out.run is not None and payload.call_id in out.run.own_results:
        return
    metadata = None
    if payload.error is not None:
        metadata = {METADATA_KEY: {"error": payload.error.code}}
    out.write(
        ToolCallResult(
            message_id=out.choose_id(payload.client_message_id, envelope.id),
            tool_call_id=payload.call_id,
            content=build_result_parts(payload, out.version),
            subagent_run_id=agent.subagent_run_id,
            timestamp=out.timestamp,
            metadata=metadata,
        )
    )


def _convert_tool_await(out: AgUiWriter, _: AgUiAgent, __: Envelope, payload: ToolAwait) -> None:
    for call in payload.calls:
        out.questions[call.call_id] = call


CONVERTERS: dict[type, Callable[[AgUiWriter, AgUiAgent, Envelope, Any], None]] = {
    UiMessage: _convert_user_message,
    UiAction: _convert_person_event,
    ApprovalDecision: _convert_person_event,
    SessionTitle: _convert_person_event,
    SessionClose: _convert_person_event,
    AgentStart: _convert_agent_start,
    AgentEnd: _convert_agent_end,
    AgentHandoff: _convert_handoff,
    AgentUsage: _convert_usage,
    SessionError: _convert_error,
    BlockStart: convert_block_start,
    BlockDelta: convert_block_delta,
    BlockEnd: convert_block_end,
    BlockRetract: _convert_retract,
    AssistantMessage: _convert_assistant_message,
    AssistantThinking: _convert_assistant_thinking,
    AssistantBlock: _convert_assistant_block,
    AssistantView: _convert_view,
    AssistantFiles: _convert_files,
    ToolCall: _convert_tool_call,
    ToolProgress: _convert_tool_progress,
    ToolResult: _convert_tool_result,
    ToolAwait: _convert_tool_await,
}
