"""Events of the log as parts of the AI SDK: one function for each type, in `CONVERTERS`."""

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
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
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiMessage,
)
from turnlog.wire.dialects.ai_sdk.parts import (
    citation_part,
    message_id_of,
    part,
    result_parts,
)
from turnlog.wire.dialects.ai_sdk.writer import AiSdkAgent, AiSdkBlock, AiSdkWriter
from turnlog.wire.dialects.run_outcome import FAILED_STOPS, is_asked
from turnlog.wire.dialects.streamed_blocks import (
    convert_block_delta,
    convert_block_end,
    convert_block_start,
    finish_text,
    list_part_ids,
)
from turnlog.wire.dialects.surfaces import surface_operations

APPROVALS_SINCE = 6
RESET_STEP_SINCE = 7
APPROVAL_RESPONSES_SINCE = 7


# people


def _convert_user_message(out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: UiMessage) -> None:
    is_own = out.run is not None and envelope.id == out.run.own_message
    # A response shows one message: what others write meanwhile does not end it.
    if out.run is not None and out.has_begun and not is_own:
        return
    if envelope.agent_id is not None:
        if out.has_begun and not is_own:
            out.finish()
            out.ended = out.take_output()
        out.begin_message(message_id_of(envelope.id))
    elif is_own:
        out.begin_message(message_id_of(envelope.trace_id or envelope.id))
    if is_own:
        out.is_silent = False
        out.out = [part("start", messageId=out.message_id)]


# agents


def _convert_agent_start(out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: AgentStart) -> None:
    agent_id = envelope.agent_id or ""
    agent = AiSdkAgent(payload.name)
    out.agents[agent_id] = agent
    if payload.parent_id is None:
        out.outcome.begin_turn()
        if payload.via == "prompt":
            out.begin_message(message_id_of(envelope.trace_id or envelope.id))
        out.start_step()
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
    out.write_card(agent)


def _convert_agent_end(out: AiSdkWriter, agent: AiSdkAgent, envelope: Envelope, payload: AgentEnd) -> None:
    if out.agents.pop(envelope.agent_id or "", None) is None:
        return
    for block in agent.blocks.values():
        out.end_block(agent, block)
    if agent.card is not None:
        has_failed = payload.stop_reason in FAILED_STOPS
        out.write_card(agent, payload.stop_reason if has_failed else "done")
        return
    out.finish_step()
    out.outcome.end_turn(payload)


def _convert_handoff(out: AiSdkWriter, agent: AiSdkAgent, envelope: Envelope, payload: AgentHandoff) -> None:
    out.write_data("handoff", {"from": agent.name, "to": payload.to}, id=envelope.id)


def _convert_usage(out: AiSdkWriter, agent: AiSdkAgent, _: Envelope, payload: AgentUsage) -> None:
    out.outcome.add_usage(payload)
    if agent.card is None:
        out.finish_step()


def _convert_error(out: AiSdkWriter, _: AiSdkAgent, __: Envelope, payload: SessionError) -> None:
    out.outcome.error = payload


# blocks


def _convert_retract(out: AiSdkWriter, agent: AiSdkAgent, envelope: Envelope, payload: BlockRetract) -> None:
    part_ids = list_part_ids(agent, payload.block_ids)
    # A reset removes all parts of the step, and none of earlier steps.
    is_whole_step = out.in_step and out.step_parts == set(part_ids)
    can_reset = is_whole_step and out.version >= RESET_STEP_SINCE
    for block_id in payload.block_ids:
        block = agent.blocks.pop(block_id, None)
        if block is not None and not can_reset:
            out.end_block(agent, block)
    if agent.card is not None:
        kept = [item for item in agent.card["parts"] if item["id"] not in part_ids]
        agent.card["parts"] = kept
        out.write_card(agent)
    elif can_reset:
        out.write("reset-step")
        out.step_parts.clear()
    else:
        out.write_data("retract", {"ids": part_ids}, id=envelope.id)
    for part_id in part_ids:
        out.tools.pop(part_id, None)


# output


def _convert_assistant_message(
    out: AiSdkWriter, agent: AiSdkAgent, envelope: Envelope, payload: AssistantMessage
) -> None:
    part_id = finish_text(out, agent, envelope, "text", payload)
    if part_id is not None and agent.card is None:
        for number, citation in enumerate(payload.citations):
            out.out.append(citation_part(citation, f"{envelope.id}-{number}"))


def _convert_assistant_thinking(
    out: AiSdkWriter, agent: AiSdkAgent, envelope: Envelope, payload: AssistantThinking
) -> None:
    finish_text(out, agent, envelope, "thinking", payload)


def _convert_assistant_block(
    out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: AssistantBlock
) -> None:
    out.write_data("block", {"kind": payload.kind, "data": payload.data}, id=envelope.id)


def _convert_view(out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: AssistantView) -> None:
    view = payload.view
    data = msgspec.to_builtins(view)
    out.views.apply(envelope, payload)
    operations = surface_operations(out.views, envelope.channel, view)
    # A part replaces the one with its id, so it has the whole surface.
    if operations is not None:
        data["tree"] = {"messages": operations}
    out.write_data("view", data, id=view.view_id)


def _convert_files(out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: AssistantFiles) -> None:
    out.write_data("files", {"files": msgspec.to_builtins(payload.files)}, id=envelope.id)


# calls


def _convert_tool_call(out: AiSdkWriter, agent: AiSdkAgent, _: Envelope, payload: ToolCall) -> None:
    block = agent.blocks.pop(payload.block_id or "", None)
    if payload.block_id is not None:
        agent.call_ids[payload.block_id] = payload.call_id
    if agent.card is not None:
        call = {"type": "tool", "id": payload.call_id, "toolName": payload.tool}
        agent.card["parts"].append({**call, "state": "running"})
        out.write_card(agent)
        return
    if block is None:
        provider = payload.executor == "provider" or None
        whole = AiSdkBlock("tool_call", payload.call_id, payload.tool)
        out.start_block(agent, whole, providerExecuted=provider)
    out.write_call(payload)


def _convert_tool_progress(out: AiSdkWriter, _: AiSdkAgent, __: Envelope, payload: ToolProgress) -> None:
    out.write_data("progress", {"toolCallId": payload.call_id, "text": payload.text}, id=payload.call_id)


def _convert_tool_result(out: AiSdkWriter, agent: AiSdkAgent, _: Envelope, payload: ToolResult) -> None:
    if agent.card is not None:
        for item in agent.card["parts"]:
            if item["id"] == payload.call_id:
                item["state"] = "done" if payload.ok else "failed"
        out.write_card(agent)
    # A client refuses the result of a call that its message does not have.
    if out.tools.pop(payload.call_id, None) is not None:
        out.out += result_parts(payload, has_denial=out.version >= APPROVALS_SINCE)


def _convert_tool_await(out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: ToolAwait) -> None:
    for awaited in payload.calls:
        out.show_call(envelope.agent_id, awaited.call_id)
        if not is_asked(awaited.roles, out.roles):
            _write_waiting(out, awaited.call_id, awaited.tool, awaited.roles)
            continue
        call = out.progress.tree.find_call(envelope.agent_id, awaited.call_id)
        if call is not None and call.call.executor != "frontend":
            question = {"toolCallId": awaited.call_id, "tool": awaited.tool, "questions": awaited.args}
            out.write_data("question", question, id=awaited.call_id)


def _convert_approval_request(
    out: AiSdkWriter, _: AiSdkAgent, envelope: Envelope, payload: ApprovalRequest
) -> None:
    out.show_call(envelope.agent_id, payload.call_id)
    if payload.call_id not in out.tools:
        return
    if not is_asked(payload.roles, out.roles):
        _write_waiting(out, payload.call_id, payload.tool, payload.roles)
        return
    if out.version >= APPROVALS_SINCE:
        out.approvals.add(payload.call_id)
        call = {"approvalId": payload.call_id, "toolCallId": payload.call_id}
        out.write("tool-approval-request", **call, reason=payload.reason)
        return
    request = {"toolCallId": payload.call_id, "tool": payload.tool, "reason": payload.reason}
    out.write_data("approval", request, id=payload.call_id)


def _write_waiting(out: AiSdkWriter, call_id: str, tool: str, roles: tuple[str, ...]) -> None:
    """Write that a call waits for members with other roles than the reader's."""
    out.write_data("waiting", {"toolCallId": call_id, "tool": tool, "roles": roles}, id=call_id)


def _convert_approval_decision(
    out: AiSdkWriter, _: AiSdkAgent, __: Envelope, payload: ApprovalDecision
) -> None:
    # A client refuses the response to a request that its message does not have.
    if out.version < APPROVAL_RESPONSES_SINCE or payload.call_id not in out.approvals:
        return
    out.approvals.remove(payload.call_id)
    is_approved = payload.decision == "approve"
    out.write(
        "tool-approval-response", approvalId=payload.call_id, approved=is_approved, reason=payload.notes
    )


CONVERTERS: dict[type, Callable[[AiSdkWriter, AiSdkAgent, Envelope, Any], None]] = {
    UiMessage: _convert_user_message,
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
    ApprovalRequest: _convert_approval_request,
    ApprovalDecision: _convert_approval_decision,
}
