"""Short text descriptions of events: one function per payload class, in the table `DESCRIBERS`.

Other payloads, such as events of an application, are described by their JSON. The text may contain control
characters: `terminal.escape_controls` must escape it before it is printed.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.cli.terminal import format_count
from turnlog.events import (
    AgentCheckpoint,
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
    ContextCompact,
    ParseReject,
    Payload,
    ProcessAuth,
    ProcessEnd,
    ProcessStart,
    SessionClose,
    SessionError,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    UnknownPayload,
    Usage,
)
from turnlog.team.events import ArtifactWrite, RosterJoin, RosterOffer, RosterStatus, ScreenCommand


def describe_payload(payload: Payload | UnknownPayload) -> str:
    if isinstance(payload, UnknownPayload):
        return bytes(payload.data).decode(errors="replace")
    return DESCRIBERS.get(type(payload), short_json)(payload)


def short_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def join_parts(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def describe_tokens(usage: Usage | None) -> str | None:
    return f"tokens {usage.input_tokens} in, {usage.output_tokens} out" if usage else None


def describe_agent_start(event: AgentStart) -> str:
    tools = f"tools {' '.join(event.tools)}" if event.tools else None
    return join_parts(f"by {event.via}", event.model, tools) + (f": {event.prompt}" if event.prompt else "")


def describe_agent_end(event: AgentEnd) -> str:
    steps = format_count(event.steps, "step") if event.steps else None
    done = join_parts(event.stop_reason, steps, describe_tokens(event.usage))
    return done + (f": {event.result}" if event.result else "")


def describe_message(event: UiMessage | AssistantMessage) -> str:
    return f"{event.speaker}: {event.text}" if event.speaker else event.text


def describe_ui_action(event: UiAction) -> str:
    target = event.view_id or event.call_id
    return short_json(event.action) + (f" on {target}" if target else "")


def describe_block_end(event: BlockEnd) -> str:
    return event.status + (f": {event.text}" if event.text else "")


def describe_tool_call(event: ToolCall) -> str:
    executor = "" if event.executor == "backend" else f" ({event.executor})"
    args = event.incomplete if event.incomplete is not None else short_json(event.args)
    return f"{event.tool}{executor} {args}"


def describe_tool_result(event: ToolResult) -> str:
    if event.error is not None:
        return f"{event.tool} failed: {event.error.code}, {event.error.message}"
    return f"{event.tool} {'->' if event.ok else 'failed:'} {short_json(event.result)}"


def describe_tool_await(event: ToolAwait) -> str:
    return "waits for " + ", ".join(f"{call.tool} {short_json(call.args)}" for call in event.calls)


def describe_usage(event: AgentUsage) -> str:
    cost = f"{event.cost.total_cost:.4f} {event.cost.currency}" if event.cost else None
    took = None if event.duration_ms is None else f"{event.duration_ms} ms"
    return join_parts(event.model, describe_tokens(event.usage), cost, took)


def describe_process_start(event: ProcessStart) -> str:
    return join_parts(f"{event.process} {event.pid}", event.model, "demo" if event.demo_mode else None)


def describe_process_end(event: ProcessEnd) -> str:
    code = None if event.exit_code is None else f"exit code {event.exit_code}"
    return join_parts(
        event.process if event.pid is None else f"{event.process} {event.pid}", event.reason, code
    )


def describe_checkpoint(event: AgentCheckpoint) -> str:
    size = None if event.size_bytes is None else format_count(event.size_bytes, "byte")
    return join_parts(f"{event.source} {event.version}", "paused" if event.paused else None, size)


def describe_compaction(event: ContextCompact) -> str:
    return f"{event.tokens_before or '?'} to {event.tokens_after or '?'} tokens"


def describe_reject(event: ParseReject) -> str:
    return join_parts(event.reason, event.name, f"{event.length} characters")


def describe_artifact_write(event: ArtifactWrite) -> str:
    return join_parts(event.path, format_count(event.size_bytes, "byte"), "new" if event.is_new else None)


DESCRIBERS: dict[type, Callable[[Any], str]] = {
    ProcessStart: describe_process_start,
    ProcessEnd: describe_process_end,
    ProcessAuth: lambda event: join_parts(event.method, "needs setup" if event.needs_setup else None),
    SessionError: lambda event: f"{event.code}: {event.message}",
    SessionMember: lambda event: f"{event.principal}: {', '.join(event.roles) or 'no longer a member'}",
    SessionInvite: lambda event: f"{event.principal or 'link'}: {', '.join(event.roles)}",
    SessionInviteEnd: lambda event: f"{event.invite_id} {event.reason}",
    SessionTitle: lambda event: event.title,
    SessionClose: lambda event: join_parts(f"by {event.by}", event.reason),
    UiMessage: describe_message,
    UiAction: describe_ui_action,
    UiCommand: lambda event: short_json(event.command),
    AgentStart: describe_agent_start,
    AgentEnd: describe_agent_end,
    AgentHandoff: lambda event: f"to {event.to}",
    AgentUsage: describe_usage,
    AgentCheckpoint: describe_checkpoint,
    ContextCompact: describe_compaction,
    BlockStart: lambda event: join_parts(event.kind, event.tool),
    BlockDelta: lambda event: event.text,
    BlockEnd: describe_block_end,
    BlockRetract: lambda event: f"{event.reason}: {' '.join(event.block_ids)}",
    AssistantMessage: describe_message,
    AssistantThinking: lambda event: event.text or "(redacted)",
    AssistantBlock: lambda event: f"{event.kind} {short_json(event.data)}",
    AssistantView: lambda event: join_parts(event.view.view_id, event.view.title),
    AssistantFiles: lambda event: ", ".join(file.filename for file in event.files),
    ToolCall: describe_tool_call,
    ToolProgress: lambda event: event.text,
    ToolResult: describe_tool_result,
    ToolAwait: describe_tool_await,
    ApprovalRequest: lambda event: join_parts(event.tool, event.risk, event.reason),
    ApprovalDecision: lambda event: join_parts(event.decision, event.notes),
    ParseReject: describe_reject,
    RosterJoin: lambda event: f"{event.name}, seat {event.seat}",
    RosterStatus: lambda event: ", ".join(f"{agent.name} {agent.status}" for agent in event.agents),
    RosterOffer: lambda event: f"{event.agent}: {', '.join(event.jobs)}",
    ArtifactWrite: describe_artifact_write,
    ScreenCommand: lambda event: event.command,
}
