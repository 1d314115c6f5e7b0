"""What the loop reads from calls, replies and actions. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from turnlog.agents.tools import Tool
from turnlog.events import (
    AssistantFiles,
    AwaitedCall,
    ErrorInfo,
    File,
    Payload,
    ToolCall,
    ToolResult,
    UiAction,
)
from turnlog.events.agent import StopReason
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.tree import Invocation


def check_call_prompt(call: ToolCall) -> ErrorInfo | None:
    """What is wrong with a call of an agent that does not say what to do: it knows nothing else."""
    prompt = call.args.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return None
    message = "expected a prompt that says what to do"
    return ErrorInfo(code="VALIDATION_ERROR", message=message, details={"path": ["prompt"]})


def is_frontend_call(call: ToolCall) -> bool:
    """Whether a page has to answer; arguments that are no JSON are answered here."""
    return call.executor == "frontend" and call.incomplete is None


def open_calls_after(invocation: Invocation, ending: Iterable[Payload]) -> list[ToolCall]:
    """The calls that are open when these have been said; the provider's too."""
    calls = {key: call.call for key, call in invocation.calls.items()}
    for payload in ending:
        if isinstance(payload, ToolCall):
            calls[payload.call_id] = payload
        elif isinstance(payload, ToolResult):
            calls.pop(payload.call_id, None)
    return list(calls.values())


def collect_files(ending: Iterable[Payload]) -> tuple[File, ...]:
    """The files that are named in these."""
    return tuple(file for payload in ending if isinstance(payload, AssistantFiles) for file in payload.files)


def stop_reason_of(reply: ReplyBuilder) -> StopReason:
    """Why an agent ends with this reply."""
    reason = reply.stop_reason
    return "end_turn" if reason is None or reason == "tool_use" or reason == "pause_turn" else reason


def build_awaited_call(tool: Tool | None, call: ToolCall, args: dict[str, Any]) -> AwaitedCall:
    """Build a question to the page: the roles of its tool may answer it."""
    return AwaitedCall(call_id=call.call_id, tool=call.tool, args=args, roles=tool.roles if tool else ())


def action_values(action: UiAction) -> dict[str, Any]:
    """What an action brings."""
    fields: dict[str, Any] = msgspec.to_builtins(action.action)
    values: dict[str, Any] = fields.get("values", fields)
    return values
