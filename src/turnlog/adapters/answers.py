"""What people answered, in the forms that LangChain's middleware and `interrupt` expect."""

from typing import Any

from turnlog.adapters.runner import Answer, Approved, Denied, Returned
from turnlog.parse.foreign.common import render_text


def to_decision(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Approved):
        return {"type": "approve"}
    reason = answer.reason if isinstance(answer, Denied) else render_text(answer.value)
    return {"type": "reject", "message": reason}


def to_value(answer: Answer) -> Any:
    if isinstance(answer, Returned):
        return answer.value
    return True if isinstance(answer, Approved) else {"error": answer.reason}
