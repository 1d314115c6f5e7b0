"""Commands of a page in the words of document 004, as commands of the log. Pure.

Input: the fields that a page sends to `POST /api/send` with a `type` of `COMMAND_BUILDERS`. Output: the
command of a `ui.command`. Fields that a command does not have are ignored.
"""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from turnlog.errors import BadInput
from turnlog.events.payload import Name, Record
from turnlog.events.ui import Command, EndSession, StartSession, Summon, Wake, WakeAgent

GridPosition = Annotated[int, Meta(ge=0, le=8)]


class AgentPayload(Record, frozen=True, kw_only=True, rename="camel"):
    """An agent to wake."""

    name: Name
    grid_position: GridPosition
    color: str = ""
    color_name: str = ""
    has_soul: bool = False
    has_transcript: bool = False


class CommandFields(Record, frozen=True, kw_only=True, rename="camel"):
    """The fields of all commands. A transcript or a catalog that is sent counts as one that there is."""

    agent_payloads: tuple[AgentPayload, ...] | None = None
    demo_mode: bool | None = None
    has_previous_transcript: bool | None = None
    has_artifact_catalog: bool | None = None
    previous_transcript: Any = None
    artifact_catalog: Any = None


def build_summon(_: CommandFields) -> Summon:
    return Summon()


def build_wake(fields: CommandFields) -> Wake:
    if fields.agent_payloads is None:
        raise BadInput("expected the agents to wake", "$.agentPayloads")
    agents = [
        WakeAgent(
            name=agent.name,
            color=agent.color,
            color_name=agent.color_name,
            seat=agent.grid_position,
            has_soul=agent.has_soul,
            has_transcript=agent.has_transcript,
        )
        for agent in fields.agent_payloads
    ]
    return Wake(agents=tuple(agents))


def build_session_start(fields: CommandFields) -> StartSession:
    return StartSession(
        demo_mode=bool(fields.demo_mode),
        has_previous_transcript=bool(fields.has_previous_transcript or fields.previous_transcript),
        has_artifact_catalog=bool(fields.has_artifact_catalog or fields.artifact_catalog),
    )


def build_session_end(_: CommandFields) -> EndSession:
    return EndSession()


COMMAND_BUILDERS: dict[str, Callable[[CommandFields], Command]] = {
    "user_summon": build_summon,
    "user_wake": build_wake,
    "user_session_start": build_session_start,
    "user_session_end": build_session_end,
}
