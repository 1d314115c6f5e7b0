"""The body of an AG-UI run, and the events that it means: answers to open calls, then a message.

A client sends its whole history with every run. The log has that history, so only what is new counts:
`resume` and tool messages that answer calls which wait, an action on a surface of A2UI, or a user message at
the end. The client's state and
its system messages are ignored: the application owns both.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from turnlog.app import ClientEvent
from turnlog.errors import BadInput
from turnlog.events.strict_json import split_validation_error
from turnlog.server.prompt_content import (
    CheckedPrompt,
    ContentBlock,
    TextContentBlock,
    check_prompt,
    convert_blocks,
)
from turnlog.server.protocols.client_input import (
    CANCELLED_BY_CLIENT,
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
from turnlog.wire.dialects.run_outcome import answering_roles, is_asked

MAX_RESUME_ENTRIES = 100
MAX_CONTEXT_ITEMS = 100
# A conversation ends with one of these; others do not come from its participants.
SPOKEN_ROLES = frozenset({"user", "assistant", "tool"})


class ResumeEntry(msgspec.Struct, rename="camel"):
    interrupt_id: ClientId
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ContextItem(msgspec.Struct):
    description: str
    value: str


class RunAgentBody(msgspec.Struct, rename="camel"):
    """RunAgentInput of AG-UI. Fields that the server does not know are ignored."""

    thread_id: ClientId
    run_id: ClientId
    messages: list[dict[str, Any]] = []
    tools: list[ToolBody] = []
    context: Annotated[list[ContextItem], msgspec.Meta(max_length=MAX_CONTEXT_ITEMS)] = []
    resume: Annotated[list[ResumeEntry], msgspec.Meta(max_length=MAX_RESUME_ENTRIES)] = []
    parent_run_id: ClientId | None = None
    state: Any = None
    forwarded_props: Any = None
    protocol_version: str | None = None


class A2uiUserAction(msgspec.Struct, rename="camel"):
    """An action on a surface, as AG-UI's middleware for A2UI sends it in `forwardedProps.a2uiAction`."""

    name: str
    surface_id: str
    source_component_id: str
    context: dict[str, Any] = {}


class RunInput(NamedTuple):
    """What a run brings. `stops`: the client cancelled a question.

    `action` is an action on a view. `prompt` is None without a new message, and beside an action.
    `prompt_id` is the client's id of the message.
    """

    answers: list[ClientEvent]
    action: dict[str, Any] | None
    prompt: CheckedPrompt | None
    prompt_id: str | None
    stops: bool


async def insert_run_files(body: RunAgentBody, files: StoredFiles) -> None:
    """Replace addresses of stored files in a message at the end by their content."""
    index = find_prompt(body.messages)
    content = None if index is None else body.messages[index].get("content")
    for part in content if isinstance(content, list) else ():
        source = part.get("source") if isinstance(part, dict) else None
        if not isinstance(source, dict) or source.get("type") != "url":
            continue
        file = await files.load(source.get("value"))
        if file is not None:
            part["source"] = {"type": "data", "value": file.data, "mimeType": file.media_type}


def read_run_input(body: RunAgentBody, waiting: dict[str, OpenCall], roles: frozenset[str]) -> RunInput:
    """Return what is new in a body. `waiting` are the calls that wait, by id; `roles` are the member's."""
    answers: list[ClientEvent] = []
    stops = False
    answered: set[str] = set()
    for index, entry in enumerate(body.resume):
        call = waiting.get(entry.interrupt_id)
        if call is None or entry.interrupt_id in answered:
            continue
        answered.add(entry.interrupt_id)
        answer = read_resume_entry(entry, call, f"$.resume[{index}].payload")
        if answer is None:
            stops = True
        else:
            answers.append(answer)
    for answer in read_tool_messages(body.messages, waiting, roles):
        if answer.payload["call_id"] not in answered:
            answered.add(answer.payload["call_id"])
            answers.append(answer)

    action = read_action(body.forwarded_props)
    # The history of such a run ends with what came before the action.
    prompt_index = find_prompt(body.messages) if action is None else None
    stops = stops and prompt_index is None and action is None
    if prompt_index is None:
        return RunInput(answers, action, None, None, stops)
    prompt_id = read_message_id(body.messages[prompt_index].get("id"))
    return RunInput(answers, action, read_prompt(body, prompt_index), prompt_id, stops)


def read_action(forwarded_props: Any) -> dict[str, Any] | None:
    """Return the payload of the `ui.action` that a run brings; None without one."""
    props = forwarded_props if isinstance(forwarded_props, dict) else {}
    a2ui_action = props.get("a2uiAction")
    if not isinstance(a2ui_action, dict) or "userAction" not in a2ui_action:
        return None
    try:
        action = msgspec.convert(a2ui_action["userAction"], A2uiUserAction)
    except msgspec.ValidationError as error:
        problem, path = split_validation_error(error)
        raise BadInput(problem, f"$.forwardedProps.a2uiAction.userAction{path[1:]}") from None
    fields = {"name": action.name, "component_id": action.source_component_id, "context": action.context}
    return {"view_id": action.surface_id, "action": {"kind": "a2ui.action", **fields}}


def read_resume_entry(entry: ResumeEntry, call: OpenCall, path: str) -> ClientEvent | None:
    """Return the answer to an interrupt; None if the client cancelled a question, which has no answer."""
    is_cancelled = entry.status == "cancelled"
    request = call.approval_request
    if request is not None:
        is_approved = not is_cancelled and read_decision(entry.payload, path)
        notes = entry.payload.get("notes") if isinstance(entry.payload, dict) else None
        return answer_approval(request, is_approved, notes if isinstance(notes, str) else None)
    if call.call.executor == "frontend":
        return answer_frontend_call(call, entry.payload, CANCELLED_BY_CLIENT if is_cancelled else None)
    if is_cancelled:
        return None
    return answer_input(call, entry.payload)


def read_decision(payload: Any, path: str) -> bool:
    approved = payload.get("approved") if isinstance(payload, dict) else payload
    if not isinstance(approved, bool):
        raise BadInput('expected {"approved": true} or {"approved": false}', path)
    return approved


def read_tool_messages(
    messages: list[dict[str, Any]], waiting: dict[str, OpenCall], roles: frozenset[str]
) -> Iterator[ClientEvent]:
    for message in messages:
        call = waiting.get(str(message.get("toolCallId")))
        if message.get("role") != "tool" or call is None or call.call.executor != "frontend":
            continue
        # A page runs every call of its tools. Its result would be refused with each of its later runs.
        if not is_asked(answering_roles(call), roles):
            continue
        error = message.get("error")
        text = error if isinstance(error, str) and error else None
        yield answer_frontend_call(call, message.get("content"), text, read_message_id(message.get("id")))


def find_prompt(messages: list[dict[str, Any]]) -> int | None:
    """Return the index of the user message at the end of a history; None without one."""
    spoken = [index for index, message in enumerate(messages) if message.get("role") in SPOKEN_ROLES]
    return spoken[-1] if spoken and messages[spoken[-1]]["role"] == "user" else None


def read_prompt(body: RunAgentBody, index: int) -> CheckedPrompt:
    """Return the user message at an index, with the context before it."""
    message = body.messages[index]
    path = f"$.messages[{index}].content"
    prompt = check_prompt(read_content(message.get("content"), path), path)
    if not body.context:
        return prompt

    lines = [f"{item.description}: {item.value}" for item in body.context]
    context = TextContentBlock("What the page shows:\n" + "\n".join(lines))
    parts = read_content(message.get("content"), path)
    blocks: list[ContentBlock] = [TextContentBlock(parts)] if isinstance(parts, str) else parts
    with_context = check_prompt([context, *blocks], path)
    # People see the message without the context.
    return CheckedPrompt(prompt.text, with_context.blocks)


def read_content(content: Any, path: str) -> str | list[ContentBlock]:
    """Return a text, or the parts of a message as content blocks. Raise `BadInput` for other media."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadInput("expected a text or a list of parts", path)
    return convert_blocks([to_block(part, f"{path}[{index}]") for index, part in enumerate(content)], path)


def to_block(part: Any, path: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"type": "text", "text": part.get("text")}
    if kind == "binary":
        return to_block(modernize_binary(part), path)
    if kind not in ("image", "document"):
        raise BadInput("expected a part of the type text, image or document", f"{path}.type")
    source = part.get("source")
    fields = source if isinstance(source, dict) else {}
    value = fields.get("value")
    block: dict[str, Any] = {"type": kind}
    metadata = part.get("metadata")
    filename = metadata.get("filename") if isinstance(metadata, dict) else None
    if kind == "document" and isinstance(filename, str):
        block["title"] = filename
    if fields.get("type") == "url":
        media_type = fields.get("mimeType") or None
        return block | {"source": {"type": "url", "url": value, "media_type": media_type}}
    if fields.get("type") == "data":
        source = {"type": "base64", "media_type": fields.get("mimeType"), "data": value}
        return block | {"source": source}
    raise BadInput("expected a source of the type data or url", f"{path}.source.type")


def modernize_binary(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part `binary`, which clients before 1.0 send, as a part of 1.0."""
    media_type = part.get("mimeType")
    is_image = isinstance(media_type, str) and media_type.startswith(IMAGE_PREFIX)
    source: dict[str, Any] = {"type": "data", "value": part.get("data"), "mimeType": media_type}
    if part.get("data") is None:
        source = {"type": "url", "value": part.get("url"), "mimeType": media_type}
    metadata = {"filename": part.get("filename")}
    return {"type": "image" if is_image else "document", "source": source, "metadata": metadata}
