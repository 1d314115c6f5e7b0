"""An event in a few words, for people: one function per payload class, in a table.

What is not in the table, such as the events of an application, is shown as its JSON. The text is not safe
for a terminal yet: `terminal.escape` comes after.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.cli.terminal import counted
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    ArtifactWrite,
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
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
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
    Unknown,
    Usage,
)


def describe(payload: Payload | Unknown) -> str:
    """What happened."""
    if isinstance(payload, Unknown):
        return bytes(payload.data).decode(errors="replace")
    return SAYS.get(type(payload), compact)(payload)


def compact(value: object) -> str:
    """A value as short JSON."""
    return msgspec.json.encode(value).decode()


def words(*parts: str | None) -> str:
    """The parts that are there."""
    return ", ".join(part for part in parts if part)


def tokens(usage: Usage | None) -> str | None:
    """How many tokens went in and out."""
    return f"tokens {usage.input_tokens} in, {usage.output_tokens} out" if usage else None


def agent_start(event: AgentStart) -> str:
    tools = f"tools {' '.join(event.tools)}" if event.tools else None
    return words(f"by {event.via}", event.model, tools) + (f": {event.prompt}" if event.prompt else "")


def agent_end(event: AgentEnd) -> str:
    steps = counted(event.steps, "step") if event.steps else None
    done = words(event.stop_reason, steps, tokens(event.usage))
    return done + (f": {event.result}" if event.result else "")


def message(event: UiMessage | AssistantMessage) -> str:
    return f"{event.speaker}: {event.text}" if event.speaker else event.text


def action(event: UiAction) -> str:
    place = event.view_id or event.call_id
    return compact(event.action) + (f" on {place}" if place else "")


def block_end(event: BlockEnd) -> str:
    return event.status + (f": {event.text}" if event.text else "")


def tool_call(event: ToolCall) -> str:
    by = "" if event.executor == "backend" else f" ({event.executor})"
    args = event.incomplete if event.incomplete is not None else compact(event.args)
    return f"{event.tool}{by} {args}"


def tool_result(event: ToolResult) -> str:
    if event.error is not None:
        return f"{event.tool} failed: {event.error.code}, {event.error.message}"
    return f"{event.tool} {'->' if event.ok else 'failed:'} {compact(event.result)}"


def awaited(event: ToolAwait) -> str:
    return "waits for " + ", ".join(f"{call.tool} {compact(call.args)}" for call in event.calls)


def usage(event: AgentUsage) -> str:
    cost = f"{event.cost.total_cost:.4f} {event.cost.currency}" if event.cost else None
    took = None if event.duration_ms is None else f"{event.duration_ms} ms"
    return words(event.model, tokens(event.usage), cost, took)


def process_start(event: ProcessStart) -> str:
    return words(f"{event.process} {event.pid}", event.model, "demo" if event.demo_mode else None)


def process_end(event: ProcessEnd) -> str:
    code = None if event.exit_code is None else f"exit code {event.exit_code}"
    return words(event.process if event.pid is None else f"{event.process} {event.pid}", event.reason, code)


def compaction(event: ContextCompact) -> str:
    return f"{event.tokens_before or '?'} to {event.tokens_after or '?'} tokens"


def rejected(event: ParseReject) -> str:
    return words(event.reason, event.name, f"{event.length} characters")


def written(event: ArtifactWrite) -> str:
    return words(event.path, counted(event.size_bytes, "byte"), "new" if event.is_new else None)


SAYS: dict[type, Callable[[Any], str]] = {
    ProcessStart: process_start,
    ProcessEnd: process_end,
    ProcessAuth: lambda event: words(event.method, "needs setup" if event.needs_setup else None),
    SessionError: lambda event: f"{event.code}: {event.message}",
    SessionMember: lambda event: f"{event.principal}: {', '.join(event.roles) or 'no member any more'}",
    SessionInvite: lambda event: f"{event.principal or 'link'}: {', '.join(event.roles)}",
    SessionInviteEnd: lambda event: f"{event.invite_id} {event.reason}",
    SessionTitle: lambda event: event.title,
    UiMessage: message,
    UiAction: action,
    UiCommand: lambda event: compact(event.command),
    AgentStart: agent_start,
    AgentEnd: agent_end,
    AgentHandoff: lambda event: f"to {event.to}",
    AgentUsage: usage,
    ContextCompact: compaction,
    BlockStart: lambda event: words(event.kind, event.tool),
    BlockDelta: lambda event: event.text,
    BlockEnd: block_end,
    BlockRetract: lambda event: f"{event.reason}: {' '.join(event.block_ids)}",
    AssistantMessage: message,
    AssistantThinking: lambda event: event.text or "(redacted)",
    AssistantBlock: lambda event: f"{event.kind} {compact(event.data)}",
    AssistantView: lambda event: words(event.view.view_id, event.view.title),
    AssistantFiles: lambda event: ", ".join(file.filename for file in event.files),
    ToolCall: tool_call,
    ToolProgress: lambda event: event.text,
    ToolResult: tool_result,
    ToolAwait: awaited,
    ApprovalRequest: lambda event: words(event.tool, event.risk, event.reason),
    ApprovalDecision: lambda event: words(event.decision, event.notes),
    ParseReject: rejected,
    RosterJoin: lambda event: f"{event.name}, seat {event.seat}",
    RosterStatus: lambda event: ", ".join(f"{agent.name} {agent.status}" for agent in event.agents),
    RosterOffer: lambda event: f"{event.agent}: {', '.join(event.jobs)}",
    ArtifactWrite: written,
    ScreenCommand: lambda event: event.command,
}
