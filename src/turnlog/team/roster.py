"""The team on its 3 x 3 grid: who is hatching, alive or asleep (vocabulary `team`).

An agent is known by its seat, 0 to 8; names are not unique. `roster.join` makes it alive, and so does being
listed as alive or idle in a `roster.status`; who is listed as shut down, or not at all, sleeps. The end of a
process puts everybody to sleep, whatever ended it, so nobody is left over from a crash or a restart.

A summon names nobody and makes no agent: the team as a whole is `hatching`. A wake names seats, which hatch
until they join or are listed. Both are over when a status tells who is there, when the turn is over (that of
the command, or else the next one to begin) or when a process ends; who never joined is forgotten then. What
is for one channel is a team of its own.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from turnlog.events import (
    AgentEnd,
    AgentStart,
    Envelope,
    Payload,
    ProcessEnd,
    RosterJoin,
    RosterStatus,
    UiCommand,
    UnknownPayload,
)
from turnlog.events.ui import Summon, Wake, WakeAgent
from turnlog.state.descriptions import visible_channel

MemberState = Literal["hatching", "alive", "sleeping"]

SEAT_COUNT = 9
NO_CHANNEL = ""  # the team of those events that have no channel


class TeamMember(Struct, kw_only=True):
    """An agent of the team. `born` is when it was first there; who has only been woken was not yet."""

    name: str
    seat: int
    state: MemberState
    color: str = ""
    color_name: str = ""
    gender: Literal["man", "woman"] = "man"
    eyes: str = "default"
    mouth: str = "default"
    soul: str = ""
    born: str | None = None
    last_alive: str | None = None


class Team(Struct, kw_only=True):
    """The agents of one channel by seat. `hatching` is since when somebody is expected, `turn` is the turn
    that makes them come."""

    seats: dict[int, TeamMember] = field(default_factory=dict)
    hatching: str | None = None
    turn: str | None = None

    def grid(self) -> list[TeamMember | None]:
        """All nine places, from the first row to the last."""
        return [self.seats.get(seat) for seat in range(SEAT_COUNT)]

    def end_hatching(self) -> None:
        """Nobody hatches any more; who never joined is gone."""
        self.hatching = self.turn = None
        self.seats = {seat: member for seat, member in self.seats.items() if member.born is not None}
        for member in self.seats.values():
            if member.state == "hatching":
                member.state = "sleeping"

    def put_to_sleep_except(self, awake: Collection[int] = ()) -> None:
        """Everybody else sleeps."""
        self.end_hatching()
        for seat, member in self.seats.items():
            if seat not in awake:
                member.state = "sleeping"


class Roster(Struct):
    """The teams of a session by channel."""

    teams: dict[str, Team] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        step = REDUCERS.get(type(payload))
        if step is not None:
            step(self, envelope, payload)

    def visible_in(self, channels: Collection[str]) -> dict[str, Team]:
        """The teams that somebody sees who is in these channels."""
        return {name: team for name, team in self.teams.items() if name in (NO_CHANNEL, *channels)}

    def team_for(self, envelope: Envelope, payload: Payload) -> Team:
        """The team that an event is about."""
        return self.teams.setdefault(visible_channel(envelope, payload) or NO_CHANNEL, Team())


def build_roster_report(teams: Mapping[str, Team]) -> list[dict[str, Any]]:
    """Teams as JSON values: their channel, since when somebody is expected, and the nine places."""
    return [
        {"channel": name or None, "hatching": team.hatching, "grid": team.grid()}
        for name, team in sorted(teams.items())
    ]


def _command(roster: Roster, envelope: Envelope, payload: UiCommand) -> None:
    command = payload.command
    if not isinstance(command, Summon | Wake):
        return
    team = roster.team_for(envelope, payload)
    team.hatching, team.turn = envelope.ts, envelope.trace_id
    for agent in command.agents if isinstance(command, Wake) else ():
        wake_member(team, agent)


def wake_member(team: Team, agent: WakeAgent) -> None:
    """Somebody is woken: by its seat, with its looks if nobody sat there."""
    member = team.seats.setdefault(
        agent.seat,
        TeamMember(
            name=agent.name,
            seat=agent.seat,
            state="hatching",
            color=agent.color,
            color_name=agent.color_name,
        ),
    )
    if member.state == "sleeping":
        member.state = "hatching"


def _join(roster: Roster, envelope: Envelope, payload: RosterJoin) -> None:
    """Somebody is here; who joins again keeps its birth, another one on the seat begins anew."""
    team = roster.team_for(envelope, payload)
    before = team.seats.get(payload.seat)
    born = before.born if before is not None and before.name == payload.name else None
    team.seats[payload.seat] = TeamMember(
        name=payload.name,
        seat=payload.seat,
        state="alive",
        color=payload.color,
        color_name=payload.color_name,
        gender=payload.gender,
        eyes=payload.face.eyes,
        mouth=payload.face.mouth,
        soul=payload.soul,
        born=born or payload.created_at or envelope.ts,
        last_alive=envelope.ts,
    )


def _status(roster: Roster, envelope: Envelope, payload: RosterStatus) -> None:
    """Who is there. Somebody who is alive and unknown is known from now on; one who is not is no ghost."""
    team = roster.team_for(envelope, payload)
    last = {listed.seat: listed for listed in payload.agents}
    awake = {seat: listed.name for seat, listed in last.items() if listed.status != "shutdown"}
    for seat, name in awake.items():
        member = team.seats.setdefault(seat, TeamMember(name=name, seat=seat, state="alive"))
        member.state, member.born, member.last_alive = "alive", member.born or envelope.ts, envelope.ts
    team.put_to_sleep_except(awake)


def _agent_start(roster: Roster, envelope: Envelope, payload: AgentStart) -> None:
    """A command that opened no turn of its own is carried out by the next one."""
    team = roster.teams.get(visible_channel(envelope, payload) or NO_CHANNEL)
    if team and team.hatching and team.turn is None:
        team.turn = envelope.trace_id


def _agent_end(roster: Roster, envelope: Envelope, payload: AgentEnd) -> None:
    """The turn of a summon or a wake is over."""
    team = roster.teams.get(visible_channel(envelope, payload) or NO_CHANNEL)
    over = not envelope.depth and payload.stop_reason != "handoff"
    if team and over and team.turn is not None and team.turn == envelope.trace_id:
        team.end_hatching()


def _process_end(roster: Roster, _: Envelope, __: ProcessEnd) -> None:
    for team in roster.teams.values():
        team.put_to_sleep_except()


REDUCERS: dict[type, Callable[[Roster, Envelope, Any], None]] = {
    UiCommand: _command,
    RosterJoin: _join,
    RosterStatus: _status,
    AgentStart: _agent_start,
    AgentEnd: _agent_end,
    ProcessEnd: _process_end,
}
