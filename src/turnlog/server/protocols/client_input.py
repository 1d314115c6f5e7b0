"""What clients of several protocols send: ids, tools of a page, and answers to calls that wait."""

from typing import Annotated, Any

import msgspec

from turnlog.app import ClientEvent
from turnlog.events import ApprovalRequest
from turnlog.ids import new_id
from turnlog.state.tree import OpenCall

MAX_ID_CHARS = 256
IMAGE_PREFIX = "image/"
CANCELLED_BY_CLIENT = "The user cancelled it."

ClientId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]


class ToolBody(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None

    def to_payload(self) -> dict[str, Any]:
        """Return the tool as `ui.message` has it. A tool without parameters takes none."""
        parameters = {"type": "object", "properties": {}, **(self.parameters or {})}
        return {"name": self.name, "description": self.description, "parameters": parameters}


def read_message_id(value: Any) -> str | None:
    """Return the id of a client's message; None if it is none that can be stored."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS else None


def answer_approval(request: ApprovalRequest, is_approved: bool, notes: str | None) -> ClientEvent:
    decision = "approve" if is_approved else "deny"
    payload = {"call_id": request.call_id, "args_hash": request.args_hash, "decision": decision}
    if notes is not None:
        payload["notes"] = notes
    return ClientEvent("approval.decision", payload, new_id("evt_"))


def answer_input(call: OpenCall, value: Any) -> ClientEvent:
    values = value if isinstance(value, dict) else {"value": value}
    action = {"kind": "input.submit", "values": values}
    return ClientEvent("ui.action", {"action": action, "call_id": call.call.call_id}, new_id("evt_"))


def answer_frontend_call(
    call: OpenCall, content: Any, error: str | None, client_message_id: str | None = None
) -> ClientEvent:
    payload: dict[str, Any] = {"call_id": call.call.call_id, "tool": call.call.tool, "ok": error is None}
    if client_message_id is not None:
        payload["client_message_id"] = client_message_id
    if error is None:
        payload["result"] = content
    else:
        code = "CANCELLED" if error == CANCELLED_BY_CLIENT else "EXECUTION_ERROR"
        payload["error"] = {"code": code, "message": error}
    return ClientEvent("tool.result", payload, new_id("evt_"))
