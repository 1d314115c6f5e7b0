"""What is seen of the office: nine seats, what was written, what is on the screen, which work there is.

A fold over events of the vocabulary `team`, the commands of people and the lives of processes. The grid is
that of `turnlog.team.roster`, but for the seat in the middle: it is Julian's, who is awake while his process
runs. Another member who registers there finds it taken.
"""

from typing import Any

from msgspec import Struct, field, structs

from turnlog.events import AgentEnd, AgentStart, Envelope, ProcessEnd, ProcessStart, UiCommand
from turnlog.state import Reducers
from turnlog.team import (
    NO_CHANNEL,
    SEAT_COUNT,
    ArtifactWrite,
    JobSuggest,
    Roster,
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
    Team,
    TeamMember,
)

HOME = 4  # Julian's own seat, in the middle of the grid
SHOWN = 20  # commands and offers; the log has all of them


class Artifact(Struct, frozen=True):
    """A file of the memory folder, as written last."""

    size_bytes: int
    written: str
    writes: int
    description: str | None = None
    category: str | None = None
    chapter: str | None = None


class Offer(Struct, frozen=True):
    """Work that was offered."""

    agent: str
    jobs: tuple[str, ...]


class Floor(Struct, frozen=True):
    """The whole office. `hatching` is since when a member is expected, `turn` which turn brings it."""

    grid: tuple[TeamMember | None, ...] = tuple(
        TeamMember(name="Julian", seat=HOME, state="sleeping") if seat == HOME else None
        for seat in range(SEAT_COUNT)
    )
    hatching: str | None = None
    turn: str | None = None
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    face: str | None = None
    screen: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()
    form: dict[str, Any] = field(default_factory=dict)


def seated(floor: Floor, payload: Any, envelope: Envelope) -> Floor:
    """What happens on the grid."""
    seats = {member.seat: structs.replace(member) for member in floor.grid if member}
    julian = seats.pop(HOME)
    team = Team(seats=seats, hatching=floor.hatching, turn=floor.turn)
    Roster({NO_CHANNEL: team}).apply(envelope, payload)
    team.seats[HOME] = julian
    return structs.replace(floor, grid=tuple(team.grid()), hatching=team.hatching, turn=team.turn)


def started(floor: Floor, payload: ProcessStart, envelope: Envelope) -> Floor:
    """Julian is there when his process is."""
    return with_julian(floor, "alive", envelope.ts) if payload.process == "model" else floor


def ended(floor: Floor, payload: ProcessEnd, envelope: Envelope) -> Floor:
    """Everybody sleeps, Julian too."""
    return with_julian(seated(floor, payload, envelope), "sleeping", None)


def with_julian(floor: Floor, state: Any, ts: str | None) -> Floor:
    """The grid with Julian in this state."""
    julian = next(member for member in floor.grid if member and member.seat == HOME)
    now = structs.replace(julian, state=state, born=julian.born or ts, last_alive=ts or julian.last_alive)
    return structs.replace(floor, grid=(*floor.grid[:HOME], now, *floor.grid[HOME + 1 :]))


def written(floor: Floor, payload: ArtifactWrite, envelope: Envelope) -> Floor:
    """A file is new, or newer."""
    before = None if payload.is_new else floor.artifacts.get(payload.path)
    known = structs.asdict(payload.meta) if payload.meta else {}
    artifact = Artifact(payload.size_bytes, envelope.ts, before.writes + 1 if before else 1, **known)
    return structs.replace(floor, artifacts={**floor.artifacts, payload.path: artifact})


def drawn(floor: Floor, payload: ScreenCommand, _: Envelope) -> Floor:
    """What is on the screen."""
    commands = (*floor.screen, payload.command)[-SHOWN:]
    return structs.replace(floor, screen=commands, face=payload.expression or floor.face)


def offered(floor: Floor, payload: RosterOffer, _: Envelope) -> Floor:
    """Work that was offered to a member."""
    offers = (*floor.offers, Offer(payload.agent, payload.jobs))[-SHOWN:]
    return structs.replace(floor, offers=offers)


def suggested(floor: Floor, payload: JobSuggest, _: Envelope) -> Floor:
    """What could stand in the form of a job."""
    return structs.replace(floor, form=payload.suggestions)


REDUCERS: Reducers = {
    UiCommand: seated,
    RosterJoin: seated,
    RosterStatus: seated,
    AgentStart: seated,
    AgentEnd: seated,
    ProcessStart: started,
    ProcessEnd: ended,
    ArtifactWrite: written,
    ScreenCommand: drawn,
    RosterOffer: offered,
    JobSuggest: suggested,
}
