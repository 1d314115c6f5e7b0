"""Events from people and their pages: messages, actions on views, commands."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, ValidationError, json

from turnlog.events.content import PromptPart
from turnlog.events.json_schema import find_schema_error
from turnlog.events.payload import (
    UI_ORIGINS,
    AgentId,
    ClientMessageId,
    ConversationId,
    EventId,
    Name,
    OpaqueId,
    Origins,
    Payload,
    Record,
    TraceId,
)

MAX_CLIENT_TOOLS = 64  # more than a page has; each is sent to the model with every request
MAX_TOOL_SCHEMA_BYTES = 16 * 1024


# https://www.w3.org/TR/trace-context/: ids of zeros are invalid
Traceparent = Annotated[
    str, Meta(pattern=r"^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$(?!\n)")
]


class ClientTool(Record, frozen=True, kw_only=True):
    """A tool that the page of a message runs itself. `parameters` is the JSON schema of its arguments."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
    description: Annotated[str, Meta(max_length=4096)] = ""
    parameters: dict[str, Any]

    def __post_init__(self) -> None:
        error = find_schema_error(self.parameters)
        if error is None and len(json.encode(self.parameters)) > MAX_TOOL_SCHEMA_BYTES:
            error = f"expected a schema of at most {MAX_TOOL_SCHEMA_BYTES} bytes", "$"
        if error is not None:
            sentence, path = error
            raise ValidationError(f"{sentence} - at `$.parameters{path[1:]}`")


class UiMessage(Payload, frozen=True, kw_only=True):
    """A person wrote to the agent. The message opens a turn, or joins a turn that waits for one."""

    TYPE: ClassVar = "ui.message"
    ORIGINS: ClassVar[Origins] = UI_ORIGINS
    NAMES_CHANNEL: ClassVar = True
    EXAMPLE: ClassVar = {
        "text": "Weigh-in 187.6 today",
        "speaker": "Ada",
        "target": "Lyra",
        "channel": "customer",
    }

    text: str
    speaker: Name | None = None
    target: Annotated[Name | None, Meta(description="The agent that is addressed.")] = None
    channel: Name | None = None
    target_seat: Annotated[
        Annotated[int, Meta(ge=0, le=8)] | None,
        Meta(description="The seat of the target in its team: names are not unique."),
    ] = None
    content: Annotated[
        tuple[PromptPart, ...], Meta(description="The parts of a message that is more than a text.")
    ] = ()
    conversation_id: Annotated[
        ConversationId | None,
        Meta(description="The id that the client gave the conversation; it counts before the first agent."),
    ] = None
    tools: Annotated[
        Annotated[tuple[ClientTool, ...], Meta(max_length=MAX_CLIENT_TOOLS)],
        Meta(description="Tools of the page, for the agents that answer this turn; the page answers them."),
    ] = ()
    client_message_id: Annotated[
        ClientMessageId | None,
        Meta(description="The id of the message at its client: AG-UI and AI SDK readers get it back."),
    ] = None
    traceparent: Annotated[
        Traceparent | None,
        Meta(description="The W3C trace context of the request: the spans of the turn continue its trace."),
    ] = None


class FormSubmit(Record, frozen=True, kw_only=True, tag_field="kind", tag="form.submit"):
    form_id: OpaqueId
    values: dict[str, Any]


class TableSave(Record, frozen=True, kw_only=True, tag_field="kind", tag="table.save"):
    table_id: OpaqueId
    rows: tuple[dict[str, Any], ...]
    deleted: Annotated[
        tuple[OpaqueId, ...],
        Meta(description="The rows to delete; a row in neither list does not change."),
    ] = ()


class TableAddRow(Record, frozen=True, kw_only=True, tag_field="kind", tag="table.add_row"):
    table_id: OpaqueId


class TableDeleteRow(Record, frozen=True, kw_only=True, tag_field="kind", tag="table.delete_row"):
    table_id: OpaqueId
    row_id: OpaqueId


class ButtonClick(Record, frozen=True, kw_only=True, tag_field="kind", tag="button.click"):
    button_id: OpaqueId


class A2uiAction(Record, frozen=True, kw_only=True, tag_field="kind", tag="a2ui.action"):
    """A button of an A2UI surface was clicked: the `action` message of the standard, in the log's words."""

    name: str
    component_id: str
    context: dict[str, Any]
    data_model: Annotated[Any, Meta(description="The data model, if the surface asked for it.")] = None


class InputSubmit(Record, frozen=True, kw_only=True, tag_field="kind", tag="input.submit"):
    values: dict[str, Any]


Action = FormSubmit | TableSave | TableAddRow | TableDeleteRow | ButtonClick | A2uiAction | InputSubmit


class UiAction(Payload, frozen=True, kw_only=True):
    """A person acted on a view, or gave the input that a call waits for."""

    TYPE: ClassVar = "ui.action"
    ORIGINS: ClassVar[Origins] = UI_ORIGINS
    EXAMPLE: ClassVar = {
        "view_id": "view_1",
        "action": {
            "kind": "form.submit",
            "form_id": "weight_entry",
            "values": {"measured_at": "2026-01-08", "weight_lbs": 187.6},
        },
    }

    action: Action
    view_id: OpaqueId | None = None
    call_id: Annotated[OpaqueId | None, Meta(description="The pending call this answers.")] = None
    shown: Annotated[
        EventId | None,
        Meta(
            description="The `assistant.view` that the person acted on; the server fills it in. The action "
            "is refused if another view has replaced it, also while the action waited for its turn."
        ),
    ] = None


class Summon(Record, frozen=True, kw_only=True, tag_field="kind", tag="summon"):
    pass


class WakeAgent(Record, frozen=True, kw_only=True):
    name: Name
    color: str
    color_name: str
    seat: Annotated[int, Meta(ge=0, le=8)]
    has_soul: bool
    has_transcript: bool


class Wake(Record, frozen=True, kw_only=True, tag_field="kind", tag="wake"):
    agents: tuple[WakeAgent, ...]


class StartSession(Record, frozen=True, kw_only=True, tag_field="kind", tag="session.start"):
    demo_mode: bool = False
    has_previous_transcript: bool = False
    has_artifact_catalog: bool = False


class EndSession(Record, frozen=True, kw_only=True, tag_field="kind", tag="session.end"):
    pass


class OfferWork(Record, frozen=True, kw_only=True, tag_field="kind", tag="offer_work"):
    agent: Name
    jobs: tuple[Name, ...]


class JobHelp(Record, frozen=True, kw_only=True, tag_field="kind", tag="job_help"):
    form: dict[str, Any]


class Stop(Record, frozen=True, kw_only=True, tag_field="kind", tag="stop"):
    """Stop everything in the channel of the command. The fields are conditions: all must hold."""

    turn: Annotated[
        TraceId | None, Meta(description="Only if this turn is still open; other turns stop with it.")
    ] = None
    agent_id: Annotated[
        AgentId | None, Meta(description="Only if this agent is still open; other agents stop with it.")
    ] = None


Command = Summon | Wake | StartSession | EndSession | OfferWork | JobHelp | Stop


class UiCommand(Payload, frozen=True, kw_only=True):
    """A person sent a command to the session: summon, wake, start, end, offer work, ask for help, stop."""

    TYPE: ClassVar = "ui.command"
    ORIGINS: ClassVar[Origins] = UI_ORIGINS
    EXAMPLE: ClassVar = {"command": {"kind": "stop"}}

    command: Command


EVENTS = (UiMessage, UiAction, UiCommand)
