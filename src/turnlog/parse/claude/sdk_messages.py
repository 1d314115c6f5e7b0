"""The messages of the Claude Agent SDK: objects of its classes in, events out. Pure: it imports no framework.

The SDK makes objects of the lines of the Claude Code program. `to_line` makes the lines again, for the parser
that reads the program itself (`parse.claude`). A class is recognised by its name; one that is not in the
table is dropped, and so are the fields of a line that the SDK does not keep.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from turnlog.parse.agent_events import AgentEventBuilder, RuntimeAgent
from turnlog.parse.claude.hosted_lines import HostedLines
from turnlog.parse.claude.results import TurnEnd
from turnlog.parse.foreign.common import render_text
from turnlog.parse.json_values import JsonObject, as_list, as_opaque_id, get_field
from turnlog.parse.messages_api import bounded_text

# Classes of blocks: the `type` on the line, and its fields.
BLOCK_TYPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "TextBlock": ("text", ("text",)),
    "ThinkingBlock": ("thinking", ("thinking", "signature")),
    "ToolUseBlock": ("tool_use", ("id", "name", "input")),
    "ToolResultBlock": ("tool_result", ("tool_use_id", "content", "is_error")),
    "ServerToolUseBlock": ("server_tool_use", ("id", "name", "input")),
    "ServerToolResultBlock": ("advisor_tool_result", ("tool_use_id", "content")),
}
COMMON_FIELDS = ("uuid", "session_id", "parent_tool_use_id", "user_message_uuid", "user_message_uuids")
RESULT_FIELDS = (
    "subtype",
    "is_error",
    "num_turns",
    "stop_reason",
    "total_cost_usd",
    "usage",
    "result",
    "errors",
    "terminal_reason",
    *COMMON_FIELDS,
)
TOTAL_FIELDS = ("total_cost_usd", "modelUsage")


class RequestedCall(NamedTuple):
    """A call that the program asks a permission for. `reason` says why; `args` are those that will run."""

    agent: RuntimeAgent
    call_id: str
    args: JsonObject
    reason: str | None


class ClaudeSdkTranslator:
    """Feeds the messages of one part to the parser of the program. `root` answers the user.

    `totals` are those of the conversation: of the last result, or of the one before this part.
    """

    def __init__(
        self, builder: AgentEventBuilder, root: RuntimeAgent, totals: JsonObject | None = None
    ) -> None:
        self._builder = builder
        self._root = root
        lines = HostedLines(builder, root, totals)
        self._turn = lines.turn
        self._parser = lines.parser
        self._output: Any = None
        self.totals: JsonObject = totals or {}

    @property
    def session_id(self) -> str | None:
        """Return the program's own id of the conversation; None before it has begun."""
        return self._parser.source_session

    @property
    def end(self) -> TurnEnd | None:
        """Return how the turn ended; None before its result."""
        return self._turn.end

    @property
    def result(self) -> str | None:
        """Return the structured output as JSON; None without one."""
        return None if self._output is None else render_text(self._output)

    @property
    def has_background_agents(self) -> bool:
        return any(agent.is_background for agent in self._turn.agents.by_id.values())

    def feed(self, message: Any) -> None:
        line = to_line(message)
        if line is not None:
            self._builder.read_line(self._root, line)
        if line is not None and line.get("type") == "result":
            self._output = get_field(message, "structured_output")
        self.read_totals(message)

    def read_totals(self, message: Any) -> None:
        """Read only the totals of a message: nothing is reported."""
        line = to_line(message)
        if line is not None and line.get("type") == "result":
            totals = {name: line[name] for name in TOTAL_FIELDS if line.get(name) is not None}
            self.totals = totals or self.totals

    def knows_call(self, call_id: str | None) -> bool:
        return self._parser.knows_call(as_opaque_id(call_id))

    def open_call(self, tool: str, args: JsonObject, context: Any) -> RequestedCall | None:
        """Return the call of a permission callback; None if no event can carry it."""
        fields = ("tool_use_id", "agent_id", "decision_reason", "description")
        request = {name: get_field(context, name) for name in fields}
        request |= {"subtype": "can_use_tool", "tool_name": tool, "input": args}
        # as the program asks: the call may be in no message yet
        self._builder.read_line(
            self._root, {"type": "control_request", "request_id": "permission", "request": request}
        )
        requested = self._parser.open_requested_call(request)
        if requested is None:
            return None
        agent, call = requested
        reason = bounded_text(request["decision_reason"]) or bounded_text(request["description"])
        # A hook may have changed the arguments since the model made the call: a person must see those.
        if agent.open_calls[call.call_id].args != call.args:
            reason = f"It will run with {render_text(call.args)}"
        return RequestedCall(cast(RuntimeAgent, agent), call.call_id, call.args, reason)


def to_line(message: Any) -> JsonObject | None:
    """Return the line that the SDK made a message of; None if the class is not known."""
    build = LINE_BUILDERS.get(type(message).__name__)
    return None if build is None else build(message)


def take_fields(item: Any, names: tuple[str, ...]) -> JsonObject:
    return {name: value for name in names if (value := get_field(item, name)) is not None}


def to_block_line(block: Any) -> JsonObject | None:
    known = BLOCK_TYPES.get(type(block).__name__)
    if known is None:
        return None
    kind, fields = known
    return {"type": kind, **take_fields(block, fields)}


def to_content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [line for block in as_list(content) if (line := to_block_line(block)) is not None]


def build_assistant_line(message: Any) -> JsonObject:
    body = {
        "id": get_field(message, "message_id"),
        "content": to_content(get_field(message, "content")),
        **take_fields(message, ("model", "usage", "stop_reason")),
    }
    return {"type": "assistant", "message": body, **take_fields(message, ("error", *COMMON_FIELDS))}


def build_user_line(message: Any) -> JsonObject:
    body = {"role": "user", "content": to_content(get_field(message, "content"))}
    return {"type": "user", "message": body, **take_fields(message, ("tool_use_result", *COMMON_FIELDS))}


def build_stream_line(message: Any) -> JsonObject:
    return {"type": "stream_event", **take_fields(message, ("event", *COMMON_FIELDS))}


def build_result_line(message: Any) -> JsonObject:
    line = {"type": "result", **take_fields(message, RESULT_FIELDS)}
    return line | {"modelUsage": get_field(message, "model_usage")}


def get_system_line(message: Any) -> JsonObject:
    data = get_field(message, "data")
    return data if isinstance(data, dict) else {}


LINE_BUILDERS: Mapping[str, Callable[[Any], JsonObject]] = {
    "AssistantMessage": build_assistant_line,
    "UserMessage": build_user_line,
    "StreamEvent": build_stream_line,
    "ResultMessage": build_result_line,
    **dict.fromkeys(
        (
            "SystemMessage",
            "TaskStartedMessage",
            "TaskProgressMessage",
            "TaskUpdatedMessage",
            "TaskNotificationMessage",
        ),
        get_system_line,
    ),
}
