"""How an AG-UI run ends: its outcome, the interrupts that a person must answer, and the tokens used.

An approval and a tool that asked for input are interrupts. Calls of the page's own tools are
`pendingToolCallIds` of a success. What only members with other roles may answer is neither: a client would
have to resolve its interrupt before it may send again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from turnlog.events import AgentEnd, AwaitedCall, Usage
from turnlog.state.tree import OpenCall, Tree
from turnlog.wire.dialects._common import question_text
from turnlog.wire.dialects.ag_ui.events import METADATA_KEY, AgUiEvent, RunFailed, RunFinished, TokenUsage
from turnlog.wire.dialects.run_outcome import (
    ReaderRoles,
    RunOutcome,
    answering_roles,
    is_asked,
    is_subagent,
    list_page_calls,
)

APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "notes": {"type": "string"}},
    "required": ["approved"],
}


def build_run_end(
    outcome: RunOutcome,
    thread_id: str,
    run_id: str,
    tree: Tree,
    interrupts: list[dict[str, Any]],
    version: str,
    roles: ReaderRoles,
) -> AgUiEvent:
    """Build the last event of a run, for a client of a version."""
    usage = [token_usage(model, usage) for model, usage in outcome.usage.items()] or None
    failure = outcome.failure
    if failure is not None:
        return RunFailed(message=failure.message, code=failure.code, usage=usage)

    end = outcome.end
    result = None
    fields: dict[str, Any] | None
    if interrupts:
        fields = {"type": "interrupt", "interrupts": interrupts}
    elif outcome.is_cancelled:
        # Clients before 1.0 have no word for it, and refuse a word that they do not have.
        fields = {"type": "cancelled"} if version != "0" else None
    else:
        fields = {"type": "success"}
        result = end.result if end is not None else None
        pending = list_page_calls(tree, roles)
        if pending and version != "0":
            fields["pendingToolCallIds"] = pending
    return RunFinished(
        thread_id=thread_id,
        run_id=run_id,
        result=result,
        outcome=fields,
        usage=usage,
        metadata={METADATA_KEY: describe_end(end)} if end is not None else None,
    )


def describe_end(end: AgentEnd) -> dict[str, Any]:
    fields: dict[str, Any] = {"stop_reason": end.stop_reason}
    if end.cost is not None:
        fields["cost"] = msgspec.to_builtins(end.cost)
    return fields


def token_usage(model: str, usage: Usage) -> TokenUsage:
    # The protocol counts cached tokens as part of the input, and not beside it.
    input_tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens
    return TokenUsage(
        model=model,
        input_tokens=input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=input_tokens + usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens or None,
        cache_write_input_tokens=usage.cache_creation_tokens or None,
    )


def find_interrupts(
    tree: Tree, questions: Mapping[str, AwaitedCall], roles: ReaderRoles
) -> list[dict[str, Any]]:
    """Return what the reader must decide or enter, in the order of the calls."""
    interrupts: list[dict[str, Any]] = []
    for agent_id, invocation in tree.open.items():
        for call in invocation.calls.values():
            if not is_asked(answering_roles(call), roles):
                continue
            if call.approval_request is not None:
                interrupt = approval_interrupt(call)
            elif call.awaits_page and call.call.executor != "frontend":
                interrupt = input_interrupt(call, questions.get(call.call.call_id))
            else:
                continue
            if is_subagent(invocation):
                interrupt["subagentRunId"] = agent_id
            interrupts.append(interrupt)
    return interrupts


def find_waiting_calls(tree: Tree) -> list[tuple[str, OpenCall]]:
    """Return the calls that wait for a person or for the page, each with its agent."""
    return [
        (agent_id, call)
        for agent_id, invocation in tree.open.items()
        for call in invocation.calls.values()
        if call.approval_request is not None or call.awaits_page
    ]


def approval_interrupt(call: OpenCall) -> dict[str, Any]:
    request = call.approval_request
    assert request is not None
    interrupt: dict[str, Any] = {
        "id": request.call_id,
        "reason": "tool_call",
        "message": request.reason or f"May {request.tool} run?",
        "toolCallId": request.call_id,
        "responseSchema": APPROVAL_SCHEMA,
        "metadata": {METADATA_KEY: {"tool": request.tool, "risk": request.risk}},
    }
    if request.expires_at is not None:
        interrupt["expiresAt"] = request.expires_at
    return interrupt


def input_interrupt(call: OpenCall, question: AwaitedCall | None) -> dict[str, Any]:
    call_id = call.call.call_id
    interrupt: dict[str, Any] = {"id": call_id, "reason": "input_required", "toolCallId": call_id}
    if question is not None:
        interrupt["message"] = question_text(question)
        interrupt["metadata"] = {METADATA_KEY: {"tool": question.tool, "questions": question.args}}
    return interrupt
