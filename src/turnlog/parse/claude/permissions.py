"""What the lines of a Claude CLI process say of calls, tasks and files, and the permissions it waits for."""

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from turnlog.events import ApprovalDecision, ApprovalRequest, Fault, File, ToolCall, ToolResult
from turnlog.events.agent import StopReason
from turnlog.parse.claude.agents import CliAgent
from turnlog.parse.claude.lines import allow_line, deny_line
from turnlog.parse.json_values import Data, as_key, as_name, field
from turnlog.parse.messages_api import sentence

RISK = "tool_use"  # the process does not say how bad a call could be
HASH_DIGITS = 32  # of the arguments, as for every other approval
TASK_ENDS: dict[Any, StopReason] = {
    "completed": "end_turn",
    "failed": "error",
    "stopped": "cancelled",
    "killed": "cancelled",
}


class Question(NamedTuple):
    """A permission that the process waits for."""

    request_id: str
    call: ToolCall
    request: ApprovalRequest
    agent: CliAgent

    @property
    def open(self) -> bool:
        """Whether the call still has no result."""
        return self.call.call_id in self.agent.calls


class Questions:
    """The permissions that are asked for, by call."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}

    def ask(self, question: Question) -> ApprovalRequest:
        """Another one; those whose calls are over are forgotten."""
        self._open = {key: known for key, known in self._open.items() if known.open}
        self._open[question.call.call_id] = question
        return question.request

    def decide(self, decision: ApprovalDecision, updated: Data | None) -> bytes | None:
        """The line that says a decision; None if it is not for a call that waits, with these arguments."""
        question = self._open.get(decision.call_id)
        if question is None or not question.open or question.request.args_hash != decision.args_hash:
            return None
        del self._open[decision.call_id]
        if decision.decision == "approve":
            return allow_line(question.request_id, question.call.args if updated is None else updated)
        return deny_line(question.request_id, decision.notes or f"The answer is: {decision.decision}.")

    def withdraw(self, request_id: Any) -> Question | None:
        """The process does not want to know any more."""
        found = [question for question in self._open.values() if question.request_id == request_id]
        return self._open.pop(found[0].call.call_id) if found else None


def asked_for(request: Data) -> ToolCall | None:
    """The call that a permission is asked for."""
    call_id, tool, args = (
        as_key(request.get("tool_use_id")),
        as_name(request.get("tool_name")),
        request.get("input"),
    )
    if call_id is None or tool is None or not isinstance(args, dict):
        return None
    return ToolCall(call_id=call_id, tool=tool, args=args)


def approval(call: ToolCall, request: Data) -> ApprovalRequest:
    """The question to a person."""
    reason = sentence(request.get("decision_reason")) or sentence(request.get("description"))
    return ApprovalRequest(
        call_id=call.call_id, tool=call.tool, args_hash=args_hash(call.args), risk=RISK, reason=reason
    )


def args_hash(args: Data) -> str:
    """The hash of a call's arguments: equal for equal JSON, whatever the order of its keys."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:HASH_DIGITS]


def tool_result(call: ToolCall, block: Data, denied: bool) -> ToolResult:
    """What a tool answered: text as text, anything else as it came."""
    content = plain_text(block.get("content"))
    if block.get("is_error") is not True:
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=content)
    message = sentence(content) or "The tool failed."
    fault = Fault(
        code="DENIED" if denied else "EXECUTION_ERROR",
        message=message,
        details=None if message == content else {"content": content},
    )
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


def plain_text(content: Any) -> Any:
    """Blocks of text as one text."""
    if not isinstance(content, list) or not content:
        return content
    texts = [field(block, "text") if field(block, "type") == "text" else None for block in content]
    words = [text for text in texts if isinstance(text, str)]
    return "\n".join(words) if len(words) == len(content) else content


def denials(line: Data) -> set[str]:
    """The calls of a `user` line that were not allowed to run."""
    meta = line.get("tool_result_meta")
    return {
        str(field(item, "id"))
        for item in (meta if isinstance(meta, list) else [])
        if str(field(item, "permission_decision")).startswith("den")
    }


def words_of(line: Data) -> str | None:
    """The text of a line, if that is all it has."""
    content = plain_text(field(line.get("message"), "content"))
    return content if isinstance(content, str) else None


def task_of(line: Data) -> str | None:
    """The task that an agent is to the process."""
    return as_key(line.get("task_id")) or as_key(line.get("agent_id"))


def task_end(status: Any) -> StopReason | None:
    """How a task ended, if it did."""
    return TASK_ENDS.get(status) if isinstance(status, str) else None


def file_of(item: Any) -> File | None:
    """A file that the provider keeps."""
    file_id, name = as_key(field(item, "file_id")), field(item, "filename")
    if file_id is None or not isinstance(name, str):
        return None
    return File(file_id=file_id, filename=name, storage_location=f"provider:{file_id}")
