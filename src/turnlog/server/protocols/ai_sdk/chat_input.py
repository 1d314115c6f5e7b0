"""The body of an AI SDK chat, and the events that it means: answers to open calls, then a message.

A client sends its whole history with every request. Only what is new counts: a user message at the end, or
the outputs and approvals in the last message of the assistant. `approvals` and `answers` are for what the
client's version has no part for.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from turnlog.app import ClientEvent
from turnlog.errors import BadInput
from turnlog.ids import new_id
from turnlog.server.prompt_content import CheckedPrompt, check_prompt, convert_blocks
from turnlog.server.protocols.client_input import (
    IMAGE_PREFIX,
    ClientId,
    ToolBody,
    answer_approval,
    answer_frontend_call,
    answer_input,
    read_message_id,
)
from turnlog.server.protocols.stored_files import StoredFiles
from turnlog.state.tree import OpenCall

MAX_ANSWERS = 100
DATA_PREFIX = "data:"


class ApprovalBody(msgspec.Struct):
    id: str
    approved: bool
    reason: str | None = None


class MessageBody(msgspec.Struct):
    id: str
    role: Literal["user", "assistant", "system"]
    parts: list[dict[str, Any]] = []


class ChatRequestBody(msgspec.Struct):
    """What the SDK's chat transport sends. Fields that the server does not know are ignored."""

    id: ClientId
    messages: list[MessageBody]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    tools: list[ToolBody] = []
    approvals: Annotated[list[ApprovalBody], msgspec.Meta(max_length=MAX_ANSWERS)] = []
    answers: dict[str, Any] = {}


class ChatInput(NamedTuple):
    """What a request brings. `key` names its message: the same request again has the same.

    `prompt_id` is the client's id of the message.
    """

    answers: list[ClientEvent]
    prompt: CheckedPrompt | None
    prompt_id: str | None
    key: str


async def insert_chat_files(body: ChatRequestBody, files: StoredFiles) -> None:
    """Replace addresses of stored files in a message at the end by their content."""
    last = body.messages[-1] if body.messages else None
    if last is None or last.role != "user":
        return
    for part in last.parts:
        file = await files.load(part.get("url")) if part.get("type") == "file" else None
        if file is not None:
            part["mediaType"] = file.media_type
            part["url"] = f"data:{file.media_type};base64,{file.data}"


def read_chat_input(body: ChatRequestBody, waiting: dict[str, OpenCall]) -> ChatInput:
    """Return what is new in a body. `waiting` are the calls that wait for this member, by id."""
    last = body.messages[-1] if body.messages else None
    answers: dict[str, ClientEvent] = {}
    if last is not None and last.role == "assistant":
        for call_id, answer in read_tool_parts(last.parts, waiting):
            answers.setdefault(call_id, answer)
    for approval in body.approvals:
        call = waiting.get(approval.id)
        if call is not None and call.approval_request is not None:
            event = answer_approval(call.approval_request, approval.approved, approval.reason)
            answers.setdefault(approval.id, event)
    for call_id, value in body.answers.items():
        call = waiting.get(call_id)
        if call is not None and call.approval_request is None:
            is_page_call = call.call.executor == "frontend"
            event = answer_frontend_call(call, value, None) if is_page_call else answer_input(call, value)
            answers.setdefault(call_id, event)

    if last is None or last.role != "user":
        return ChatInput(list(answers.values()), None, None, "")
    path = f"$.messages[{len(body.messages) - 1}].parts"
    blocks = [to_content_block(part, f"{path}[{index}]") for index, part in enumerate(last.parts)]
    prompt = check_prompt(convert_blocks([block for block in blocks if block], path), path)
    if all(block is None or block["type"] == "text" for block in blocks):
        prompt = CheckedPrompt(prompt.text, [])
    key = message_key(body, last, prompt)
    return ChatInput(list(answers.values()), prompt, read_message_id(last.id), key)


def message_key(body: ChatRequestBody, last: MessageBody, prompt: CheckedPrompt) -> str:
    """Return a key of the message: another text under the same id is an edit, which is a new message."""
    if body.trigger == "regenerate-message":
        return new_id("evt_")
    digest = sha256(msgspec.json.encode(last.parts)).hexdigest()[:16]
    return f"{last.id}:{digest}"


def read_tool_parts(
    parts: list[dict[str, Any]], waiting: dict[str, OpenCall]
) -> Iterator[tuple[str, ClientEvent]]:
    for part in parts:
        call_id = str(part.get("toolCallId"))
        call = waiting.get(call_id)
        if call is None:
            continue
        state = part.get("state")
        approval = part.get("approval")
        if call.approval_request is not None:
            if state == "approval-responded" and isinstance(approval, dict):
                reason = approval.get("reason")
                notes = reason if isinstance(reason, str) else None
                yield call_id, answer_approval(call.approval_request, approval.get("approved") is True, notes)
        elif call.call.executor == "frontend" and state == "output-available":
            yield call_id, answer_frontend_call(call, part.get("output"), None)
        elif call.call.executor == "frontend" and state == "output-error":
            yield call_id, answer_frontend_call(call, None, str(part.get("errorText") or "It failed."))


def to_content_block(part: dict[str, Any], path: str) -> dict[str, Any] | None:
    """Return a text or a file as a content block; None for parts that are only for the page."""
    if part.get("type") == "text":
        return {"type": "text", "text": part.get("text")}
    if part.get("type") != "file":
        return None
    media_type = part.get("mediaType")
    url = part.get("url")
    if not isinstance(media_type, str) or not isinstance(url, str):
        raise BadInput("expected a file with mediaType and url", path)
    kind = "image" if media_type.startswith(IMAGE_PREFIX) else "document"
    if url.startswith(DATA_PREFIX):
        source: dict[str, Any] = {"type": "base64", "media_type": media_type, "data": url.partition(",")[2]}
    else:
        # A page does not know the type of every file.
        source = {"type": "url", "url": url, "media_type": media_type or None}
    block: dict[str, Any] = {"type": kind, "source": source}
    if kind == "document" and isinstance(part.get("filename"), str):
        block["title"] = part["filename"]
    return block
