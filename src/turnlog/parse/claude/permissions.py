"""What the lines of a Claude CLI process say of calls, tasks and files, and the permissions it waits for."""

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from turnlog.events import ApprovalDecision, ApprovalRequest, ErrorInfo, File, ToolCall, ToolResult
from turnlog.events.agent import StopReason
from turnlog.parse.claude.agents import CliAgent
from turnlog.parse.claude.lines import allow_line, deny_line
from turnlog.parse.json_values import JsonObject, as_name, as_opaque_id, get_field
from turnlog.parse.messages_api import bounded_text

DEFAULT_RISK = "tool_use"  # the process does not say how bad a call could be
HASH_DIGITS = 32  # of the arguments, as for every other approval
TASK_STOP_REASONS: dict[Any, StopReason] = {
    "completed": "end_turn",
    "failed": "error",
    "stopped": "cancelled",
    "killed": "cancelled",
}


class PermissionRequest(NamedTuple):
    """A permission that the process waits for."""

    request_id: str
    call: ToolCall
    approval_request: ApprovalRequest
    agent: CliAgent

    @property
    def is_open(self) -> bool:
        """Whether the call still has no result."""
        return self.call.call_id in self.agent.open_calls


class PermissionRequests:
    """The permissions that are asked for, by call."""

    def __init__(self) -> None:
        self._by_call: dict[str, PermissionRequest] = {}

    def add(self, request: PermissionRequest) -> ApprovalRequest:
        """Another one; those whose calls are over are forgotten."""
        self._by_call = {key: known for key, known in self._by_call.items() if known.is_open}
        self._by_call[request.call.call_id] = request
        return request.approval_request

    def decide(self, decision: ApprovalDecision, updated_args: JsonObject | None) -> bytes | None:
        """The line that says a decision; None if it is not for a call that waits, with these arguments."""
        question = self._by_call.get(decision.call_id)
        if (
            question is None
            or not question.is_open
            or question.approval_request.args_hash != decision.args_hash
        ):
            return None
        del self._by_call[decision.call_id]
        if decision.decision == "approve":
            return allow_line(
                question.request_id, question.call.args if updated_args is None else updated_args
            )
        return deny_line(question.request_id, decision.notes or f"The answer is: {decision.decision}.")

    def withdraw(self, request_id: Any) -> PermissionRequest | None:
        """The process does not want to know any more."""
        found = [question for question in self._by_call.values() if question.request_id == request_id]
        return self._by_call.pop(found[0].call.call_id) if found else None


def parse_requested_call(request: JsonObject) -> ToolCall | None:
    """The call that a permission is asked for."""
    call_id, tool, args = (
        as_opaque_id(request.get("tool_use_id")),
        as_name(request.get("tool_name")),
        request.get("input"),
    )
    if call_id is None or tool is None or not isinstance(args, dict):
        return None
    return ToolCall(call_id=call_id, tool=tool, args=args)


def make_approval_request(call: ToolCall, request: JsonObject) -> ApprovalRequest:
    """The question to a person."""
    reason = bounded_text(request.get("decision_reason")) or bounded_text(request.get("description"))
    return ApprovalRequest(
        call_id=call.call_id,
        tool=call.tool,
        args_hash=hash_permission_args(call.args),
        risk=DEFAULT_RISK,
        reason=reason,
    )


def hash_permission_args(args: JsonObject) -> str:
    """The hash of a call's arguments: equal for equal JSON, whatever the order of its keys."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:HASH_DIGITS]


def parse_tool_result(call: ToolCall, block: JsonObject, denied: bool) -> ToolResult:
    """What a tool answered: text as text, anything else as it came."""
    content = join_text_blocks(block.get("content"))
    if block.get("is_error") is not True:
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=content)
    message = bounded_text(content) or "The tool failed."
    fault = ErrorInfo(
        code="DENIED" if denied else "EXECUTION_ERROR",
        message=message,
        details=None if message == content else {"content": content},
    )
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


def join_text_blocks(content: Any) -> Any:
    """Blocks of text as one text."""
    if not isinstance(content, list) or not content:
        return content
    texts = [get_field(block, "text") if get_field(block, "type") == "text" else None for block in content]
    words = [text for text in texts if isinstance(text, str)]
    return "\n".join(words) if len(words) == len(content) else content


def find_denied_calls(line: JsonObject) -> set[str]:
    """The calls of a `user` line that were not allowed to run."""
    meta = line.get("tool_result_meta")
    return {
        str(get_field(item, "id"))
        for item in (meta if isinstance(meta, list) else [])
        if str(get_field(item, "permission_decision")).startswith("den")
    }


def get_text_content(line: JsonObject) -> str | None:
    """The text of a line, if that is all it has."""
    content = join_text_blocks(get_field(line.get("message"), "content"))
    return content if isinstance(content, str) else None


def get_task_id(line: JsonObject) -> str | None:
    """The task that an agent is to the process."""
    return as_opaque_id(line.get("task_id")) or as_opaque_id(line.get("agent_id"))


def get_task_stop_reason(status: Any) -> StopReason | None:
    """How a task ended, if it did."""
    return TASK_STOP_REASONS.get(status) if isinstance(status, str) else None


def parse_persisted_file(item: Any) -> File | None:
    """A file that the provider keeps."""
    file_id, name = as_opaque_id(get_field(item, "file_id")), get_field(item, "filename")
    if file_id is None or not isinstance(name, str):
        return None
    return File(file_id=file_id, filename=name, storage_location=f"provider:{file_id}")
