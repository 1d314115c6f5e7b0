"""The events of AG-UI 1.0 as structs, under the names that the protocol has on its wire.

Absent fields are omitted, never null: the protocol's own client refuses null. A timestamp is an integer of
milliseconds. What the protocol has no field for is in `metadata`, under one key.
"""

from typing import Any, Literal

import msgspec

PROTOCOL_VERSION = "1.0"
METADATA_KEY = "turnlog"

Metadata = dict[str, dict[str, Any]]
Json = dict[str, Any]


class AgUiEvent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="type"
):
    """An event of a run."""

    timestamp: int | None = None
    metadata: Metadata | None = None


class OwnedEvent(AgUiEvent, frozen=True, kw_only=True):
    """An event of the agent that answers, or of the sub-agent that it names."""

    subagent_run_id: str | None = None


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    model: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class RunStarted(AgUiEvent, frozen=True, kw_only=True, tag="RUN_STARTED"):
    thread_id: str
    run_id: str
    protocol_version: str = msgspec.field(default_factory=lambda: PROTOCOL_VERSION)  # always written
    parent_run_id: str | None = None


class RunFinished(AgUiEvent, frozen=True, kw_only=True, tag="RUN_FINISHED"):
    thread_id: str
    run_id: str
    result: Any = None
    outcome: Json | None = None
    usage: list[TokenUsage] | None = None


class RunFailed(AgUiEvent, frozen=True, kw_only=True, tag="RUN_ERROR"):
    message: str
    code: str | None = None
    usage: list[TokenUsage] | None = None


class StepStarted(OwnedEvent, frozen=True, kw_only=True, tag="STEP_STARTED"):
    step_name: str


class StepFinished(OwnedEvent, frozen=True, kw_only=True, tag="STEP_FINISHED"):
    step_name: str


class TextMessageStart(OwnedEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: Literal["assistant", "user"]
    name: str | None = None


class TextMessageContent(OwnedEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextMessageEnd(OwnedEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_END"):
    message_id: str


class ToolCallStart(OwnedEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str


class ToolCallArgs(OwnedEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class ToolCallEnd(OwnedEvent, frozen=True, kw_only=True, tag="TOOL_CALL_END"):
    tool_call_id: str


class ToolCallResult(OwnedEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: str | list[Json]
    role: Literal["tool"] = msgspec.field(default_factory=lambda: "tool")


class ReasoningStart(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_START"):
    message_id: str


class ReasoningEnd(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_END"):
    message_id: str


class ReasoningMessageStart(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_START"):
    message_id: str
    role: Literal["reasoning"] = msgspec.field(default_factory=lambda: "reasoning")


class ReasoningMessageContent(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class ReasoningMessageEnd(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_END"):
    message_id: str


class ReasoningEncryptedValue(OwnedEvent, frozen=True, kw_only=True, tag="REASONING_ENCRYPTED_VALUE"):
    subtype: Literal["message"] = msgspec.field(default_factory=lambda: "message")
    entity_id: str
    encrypted_value: str


class SubagentStarted(AgUiEvent, frozen=True, kw_only=True, tag="SUBAGENT_STARTED"):
    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None


class SubagentFinished(AgUiEvent, frozen=True, kw_only=True, tag="SUBAGENT_FINISHED"):
    subagent_run_id: str
    result: str | None = None
    outcome: Json


class SubagentFailed(AgUiEvent, frozen=True, kw_only=True, tag="SUBAGENT_ERROR"):
    subagent_run_id: str
    message: str
    code: str | None = None


class StateSnapshot(AgUiEvent, frozen=True, kw_only=True, tag="STATE_SNAPSHOT"):
    snapshot: Any


class StateDelta(AgUiEvent, frozen=True, kw_only=True, tag="STATE_DELTA"):
    delta: list[Json]


class MessagesSnapshot(AgUiEvent, frozen=True, kw_only=True, tag="MESSAGES_SNAPSHOT"):
    messages: list[Any]


class ActivitySnapshot(OwnedEvent, frozen=True, kw_only=True, tag="ACTIVITY_SNAPSHOT"):
    message_id: str
    activity_type: str
    content: Json


class ActivityDelta(OwnedEvent, frozen=True, kw_only=True, tag="ACTIVITY_DELTA"):
    message_id: str
    activity_type: str
    patch: list[Json]


class RawEvent(OwnedEvent, frozen=True, kw_only=True, tag="RAW"):
    event: Any
    source: str | None = None


class CustomEvent(OwnedEvent, frozen=True, kw_only=True, tag="CUSTOM"):
    name: str
    value: Any


encode_event = msgspec.json.Encoder().encode
