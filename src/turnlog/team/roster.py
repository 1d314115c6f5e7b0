"""The team on its 3 x 3 grid: which agents are hatching, alive or asleep (vocabulary `team`).

Input: the events of the log. Output: one team for each channel, with its agents by seat, 0 to 8. Names are
not unique.

- `roster.join` makes an agent alive, and so does a `roster.status` that lists it as alive or idle. An agent
  that is listed as shut down, or not listed, sleeps. The end of any process puts all agents to sleep.
- A summon makes the team `hatching` and no agent. A wake makes its seats hatch until they join or are listed.
- Hatching ends with a status, with the end of its turn (of the command, or else the next one to begin) or
  with the end of a process. Agents that never joined are then removed.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from turnlog.events import AgentEnd, AgentStart, Envelope, Payload, ProcessEnd, UiCommand, UnknownPayload
from turnlog.events.ui import Summon, Wake, WakeAgent
from turnlog.state.channels import is_channel_visible, visible_channel
from turnlog.team.events import RosterJoin, RosterStatus

MemberState = Literal["hatching", "alive", "sleeping"]

SEAT_COUNT = 9
NO_CHANNEL = ""  # the key of the team whose events have no channel


class TeamMember(Struct, kw_only=True):
    """An agent of the team. `born` is None while it has only been woken and never joined."""

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
    """The agents of one channel by seat.

    `hatching` is the time of the summon or wake that is under way, `turn` the turn that carries it out.
    """

    seats: dict[int, TeamMember] = field(default_factory=dict)
    hatching: str | None = None
    turn: str | None = None

    def grid(self) -> list[TeamMember | None]:
        """Return all nine seats, row by row."""
        return [self.seats.get(seat) for seat in range(SEAT_COUNT)]

    def end_hatching(self) -> None:
        """Remove agents that never joined. Put the other hatching ones to sleep."""
        self.hatching = None
        self.turn = None
        self.seats = {seat: member for seat, member in self.seats.items() if member.born is not None}
        for member in self.seats.values():
            if member.state == "hatching":
                member.state = "sleeping"

    def put_to_sleep_except(self, awake_seats: Collection[int] = ()) -> None:
        self.end_hatching()
        for seat, member in self.seats.items():
            if seat not in awake_seats:
                member.state = "sleeping"


class Roster(Struct):
    """The teams of a session by channel."""

    teams: dict[str, Team] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        reduce = REDUCERS.get(type(payload))
        if reduce is not None:
            reduce(self, envelope, payload)

    def visible_in(self, channels: Collection[str]) -> dict[str, Team]:
        """Return the teams that a member of these channels sees."""
        return {name: team for name, team in self.teams.items() if is_channel_visible(name or None, channels)}

    def team_for(self, envelope: Envelope, payload: Payload) -> Team:
        """Return the team of the event's channel. Create it if there is none."""
        return self.teams.setdefault(team_key(envelope, payload), Team())


def team_key(envelope: Envelope, payload: Payload) -> str:
    return visible_channel(envelope, payload) or NO_CHANNEL


def build_roster_report(teams: Mapping[str, Team]) -> list[dict[str, Any]]:
    """Return teams as JSON values: their channel, the time of hatching and the nine seats."""
    return [
        {"channel": name or None, "hatching": team.hatching, "grid": team.grid()}
        for name, team in sorted(teams.items())
    ]


def _command(roster: Roster, envelope: Envelope, payload: UiCommand) -> None:
    command = payload.command
    if not isinstance(command, Summon | Wake):
        return
    team = roster.team_for(envelope, payload)
    team.hatching = envelope.ts
    team.turn = envelope.trace_id
    if isinstance(command, Wake):
        for agent in command.agents:
            wake_member(team, agent)


def wake_member(team: Team, agent: WakeAgent) -> None:
    """Make the agent of a seat hatch if it sleeps. An empty seat gets an agent with the event's looks."""
    member = team.seats.get(agent.seat)
    if member is None:
        team.seats[agent.seat] = TeamMember(
            name=agent.name,
            seat=agent.seat,
            state="hatching",
            color=agent.color,
            color_name=agent.color_name,
        )
    elif member.state == "sleeping":
        member.state = "hatching"


def _join(roster: Roster, envelope: Envelope, payload: RosterJoin) -> None:
    team = roster.team_for(envelope, payload)

    # An agent that joins again keeps its time of birth; another agent on its seat does not.
    previous = team.seats.get(payload.seat)
    born = previous.born if previous is not None and previous.name == payload.name else None

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
    """Make the listed agents alive. A listed agent without a seat gets one, unless it is shut down."""
    team = roster.team_for(envelope, payload)
    agents_by_seat = {agent.seat: agent for agent in payload.agents}

    awake_seats: set[int] = set()
    for seat, agent in agents_by_seat.items():
        if agent.status == "shutdown":
            continue
        awake_seats.add(seat)
        member = team.seats.setdefault(seat, TeamMember(name=agent.name, seat=seat, state="alive"))
        member.state = "alive"
        member.born = member.born or envelope.ts
        member.last_alive = envelope.ts
    team.put_to_sleep_except(awake_seats)


def _agent_start(roster: Roster, envelope: Envelope, payload: AgentStart) -> None:
    # A command that opened no turn of its own is carried out by the next turn.
    team = roster.teams.get(team_key(envelope, payload))
    if team and team.hatching and team.turn is None:
        team.turn = envelope.trace_id


def _agent_end(roster: Roster, envelope: Envelope, payload: AgentEnd) -> None:
    is_turn_over = not envelope.depth and payload.stop_reason != "handoff"
    team = roster.teams.get(team_key(envelope, payload))
    if team and is_turn_over and team.turn is not None and team.turn == envelope.trace_id:
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
