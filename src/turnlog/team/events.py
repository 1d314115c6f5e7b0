"""The vocabulary `team`: a roster of agents, their artifacts, screen and jobs (document 004).

It is declared like an application's vocabulary, but with fixed type names, because other programs use them.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from turnlog.events.catalog import Vocabulary
from turnlog.events.payload import Count, Name, Origins, Payload, Record

Seat = Annotated[int, Meta(ge=0, le=8, description="The position on the 3 x 3 grid.")]
TEAM_ORIGINS: frozenset[str] = frozenset({"model", "app", "system"})


class Face(Record, frozen=True, kw_only=True):
    eyes: str = "default"
    mouth: str = "default"


class RosterJoin(Payload, frozen=True, kw_only=True):
    """An agent joined the team. Parsed from the model's registration marker."""

    TYPE: ClassVar = "roster.join"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS
    EXAMPLE: ClassVar = {
        "name": "Lyra",
        "seat": 0,
        "color": "#c9b1ff",
        "color_name": "lavender",
        "gender": "woman",
    }

    name: Name
    seat: Seat
    color: str = ""
    color_name: str = ""
    gender: Literal["man", "woman"] = "man"
    face: Face = Face()
    soul: str = ""
    created_at: str | None = None


class RosterMember(Record, frozen=True, kw_only=True):
    name: Name
    status: Literal["alive", "idle", "shutdown"]
    seat: Seat


class RosterStatus(Payload, frozen=True, kw_only=True):
    """The status of the team's agents. Parsed from the model's status marker; agents not listed sleep."""

    TYPE: ClassVar = "roster.status"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS
    EXAMPLE: ClassVar = {"agents": [{"name": "Lyra", "status": "alive", "seat": 0}]}

    agents: tuple[RosterMember, ...]


class RosterOffer(Payload, frozen=True, kw_only=True):
    """Jobs were offered to an agent of the team."""

    TYPE: ClassVar = "roster.offer"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS
    EXAMPLE: ClassVar = {"agent": "Lyra", "jobs": ["librarian"]}

    agent: Name
    jobs: tuple[Name, ...]


class ArtifactMeta(Record, frozen=True, kw_only=True):
    description: str | None = None
    category: str | None = None
    chapter: str | None = None


class ArtifactWrite(Payload, frozen=True, kw_only=True):
    """A tool wrote an artifact, and its result confirmed it."""

    TYPE: ClassVar = "artifact.write"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS | {"tool"}
    EXAMPLE: ClassVar = {
        "filename": "shared/readme.html",
        "path": "memory/shared/readme.html",
        "is_new": True,
        "size_bytes": 18,
        "meta": {"description": "What this is", "category": "knowledge"},
    }

    filename: str
    path: str
    is_new: bool
    size_bytes: Count
    meta: ArtifactMeta | None = None


class ScreenCommand(Payload, frozen=True, kw_only=True):
    """An agent sent a command to its screen. Parsed from a tool call."""

    TYPE: ClassVar = "screen.command"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS | {"tool"}
    EXAMPLE: ClassVar = {"command": "FACE happy", "expression": "happy"}

    command: str
    expression: Name | None = None


class JobSuggest(Payload, frozen=True, kw_only=True):
    """An agent suggested values for a job form."""

    TYPE: ClassVar = "job.suggest"
    ORIGINS: ClassVar[Origins] = TEAM_ORIGINS
    EXAMPLE: ClassVar = {"suggestions": {"name": "Librarian"}}

    suggestions: dict[str, Any]


TEAM = Vocabulary("team", [RosterJoin, RosterStatus, RosterOffer, ArtifactWrite, ScreenCommand, JobSuggest])
