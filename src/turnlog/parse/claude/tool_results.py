"""The results of tool calls in the `user` lines of a Claude CLI process. Pure."""

from typing import Any

from turnlog.events import ErrorInfo, ToolCall, ToolResult
from turnlog.parse.json_values import JsonObject, as_list, get_field
from turnlog.parse.messages_api import bounded_text


def parse_tool_result(call: ToolCall, block: JsonObject, denied: bool) -> ToolResult:
    content = join_text_blocks(block.get("content"))
    if block.get("is_error") is not True:
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=content)

    message = bounded_text(content) or "The tool failed."
    error = ErrorInfo(
        code="DENIED" if denied else "EXECUTION_ERROR",
        message=message,
        details=None if message == content else {"content": content},
    )
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=error)


def join_text_blocks(content: Any) -> Any:
    if not isinstance(content, list) or not content:
        return content
    texts: list[str] = []
    for block in content:
        text = get_field(block, "text")
        if get_field(block, "type") != "text" or not isinstance(text, str):
            return content
        texts.append(text)
    return "\n".join(texts)


def get_text_content(line: JsonObject) -> str | None:
    """Return the text of a line's message; None if it contains anything else."""
    content = join_text_blocks(get_field(line.get("message"), "content"))
    return content if isinstance(content, str) else None


def find_denied_calls(line: JsonObject) -> set[str]:
    denied: set[str] = set()
    for item in as_list(line.get("tool_result_meta")):
        if str(get_field(item, "permission_decision")).startswith("den"):
            denied.add(str(get_field(item, "id")))
    return denied
