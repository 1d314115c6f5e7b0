"""Histories of the OpenAI Responses API: which calls have no result, and what makes a history lawful. Pure.

A history is a list of input items. Every call in it needs one result before the next text.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

from turnlog.parse.foreign.common import get_text
from turnlog.parse.json_values import get_field
from turnlog.parse.runtime_input import DERIVED_ID_DIGITS, to_call_key

MIN_UNIQUE_ID_CHARS = 20  # shorter ids are counted: a provider that draws them at random needs more
CALL_TYPES = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    }
)
ANSWERED_BY_TEXT = frozenset({"function_call", "custom_tool_call"})


def get_call_id(item: Any) -> Any:
    """Return the id of a call; None if the item is no call. A request for approval has only its own id."""
    if get_text(item, "type") == "mcp_approval_request":
        return get_field(item, "id")
    return get_field(item, "call_id")


def get_call_key(item: Any) -> str:
    return to_call_key(get_call_id(item))


def find_unanswered_calls(items: Iterable[Any]) -> list[Any]:
    """Return the calls in a history that have no result."""
    calls: dict[str, Any] = {}
    for item in items:
        kind = get_text(item, "type")
        if kind == "mcp_approval_response":
            calls.pop(get_text(item, "approval_request_id"), None)
        elif kind in CALL_TYPES:
            calls[str(get_call_id(item))] = item
        elif kind.endswith("_output"):
            calls.pop(get_text(item, "call_id"), None)
    return list(calls.values())


def answer_open_calls(items: Sequence[Any], denial_of: Callable[[str], str]) -> list[Any]:
    """Return a history in which every call has a result. `denial_of` says why a call did not run.

    Calls of a kind that no text can answer, such as those of a computer, are left out.
    """
    closed = list(items)
    for call in find_unanswered_calls(items):
        denial = build_denial(call, denial_of(get_call_key(call)))
        if denial is not None:
            closed.append(denial)
        else:
            closed.remove(call)
    return closed


def build_denial(call: Any, reason: str) -> dict[str, Any] | None:
    kind = get_text(call, "type")
    if kind == "mcp_approval_request":
        response = {"type": "mcp_approval_response", "approval_request_id": get_text(call, "id")}
        return response | {"approve": False, "reason": reason}
    if kind in ANSWERED_BY_TEXT:
        return {"type": f"{kind}_output", "call_id": get_text(call, "call_id"), "output": reason}
    return None


def rename_counted_calls(items: Sequence[Any]) -> list[Any]:
    """Return a history whose call ids no later turn uses again.

    The framework drops an earlier item of the same call id, also if it is the call of another turn. Models
    that count their calls begin at the same number in every turn.
    """
    renamed: list[Any] = []
    new_ids: dict[str, str] = {}
    for position, item in enumerate(items):
        call_id = get_text(item, "call_id")
        if not call_id or len(call_id) >= MIN_UNIQUE_ID_CHARS:
            renamed.append(item)
            continue
        if get_text(item, "type") in CALL_TYPES:
            digest = sha256(f"{position} {call_id}".encode(errors="surrogatepass")).hexdigest()
            new_ids[call_id] = f"call_{digest[:DERIVED_ID_DIGITS]}"
        renamed.append({**item, "call_id": new_ids.get(call_id, call_id)})
    return renamed
