"""`/api/state`: an application's state and read models, now or as of a seq, as a member may see them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app import Membership
from turnlog.app.read_models import ReadModels
from turnlog.errors import BadInput, quote
from turnlog.events.catalog import Misfit
from turnlog.log import SessionRecord
from turnlog.server.openapi import Operation, get_route
from turnlog.server.responses import json_response
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.query import CursorGone, resolve_resume_seq
from turnlog.state.meters import Meters
from turnlog.state.pending import build_pending_report, build_question_report
from turnlog.state.transcript import Transcript, TranscriptEntry
from turnlog.state.tree import Tree
from turnlog.state.visible_events import EventView
from turnlog.team.roster import Roster, Team, build_roster_report
from turnlog.wire.cursor import parse_cursor

STATE_QUERY = {
    "session": "the session",
    "at": "as of this seq; now without it",
    "include": "some of transcript, meters, open, roster, with commas between them",
}


class StateResponse(msgspec.Struct, omit_defaults=True):
    """The application's state, the seq it is of, and the read models that `include` names."""

    seq: int
    state: Any
    transcript: list[TranscriptEntry] | None = None
    meters: dict[str, Any] | None = None
    open: dict[str, Any] | None = None
    roster: list[dict[str, Any]] | None = None
    misfits: list[Misfit] = []


class StateRoutes:
    """The route of states."""

    def __init__(self, access: SessionAccess) -> None:
        self._access = access

    def operations(self) -> list[Operation]:
        return [
            get_route(
                "/api/state", self.get_state, "An application's state.", StateResponse, query=STATE_QUERY
            )
        ]

    async def get_state(self, request: Request) -> Response:
        query = request.query_params
        sessions = self._access.sessions
        membership = await self._access.find_membership(request, query.get("session", ""))
        include = parse_include(query)
        at_seq = parse_at_seq(query, membership.record)
        if at_seq is not None:
            await self._check_is_stored(membership.session_id, at_seq)

        # The state of now alone is in memory: nothing is read from the log, and nothing is charged.
        if at_seq is None and not include:
            seq, state = await sessions.state(membership)
            return json_response(StateResponse(seq, state, misfits=await sessions.misfits(membership)))

        meter = self._access.start_read_meter(request)
        names = [STATE_INCLUDES[name].read_model for name in include]
        models = await sessions.load_read_models(membership, at_seq, names, meter.charge)
        included = {name: STATE_INCLUDES[name].render(models, membership) for name in include}
        misfits = await sessions.misfits(membership)
        return json_response(StateResponse(models.seq, models.state, misfits=misfits, **included))

    async def _check_is_stored(self, session_id: str, seq: int) -> None:
        """Raise `CursorGone` for a seq that was pruned. A seq below 0 is the start of the session."""
        if seq >= 0 and not await self._access.sessions.log.has_event(session_id, seq):
            raise CursorGone(f"seq {seq} is not kept any more")


def parse_include(query: QueryParams) -> list[str]:
    names = [name for name in query.get("include", "").split(",") if name]
    unknown = [name for name in names if name not in STATE_INCLUDES]
    if unknown:
        raise BadInput(f"expected some of {', '.join(STATE_INCLUDES)}, got {quote(unknown[0])}", "include")
    return names


def parse_at_seq(query: QueryParams, record: SessionRecord) -> int | None:
    """Return the seq that `at` names, or None for now. Raise `CursorGone` for one the log does not have."""
    text = query.get("at")
    if not text:
        return None
    return resolve_resume_seq(parse_cursor(text, "at"), record)


def visible_tree(tree: Tree, membership: Membership) -> Tree:
    agents = {key: agent for key, agent in tree.open.items() if membership.may_see(agent.scope.channel)}
    turns = {
        trace: turn for trace, turn in tree.queued_turns.items() if membership.may_see(turn.scope.channel)
    }
    return Tree(last_seq=tree.last_seq, open=agents, queued_turns=turns)


def visible_meters(meters: Meters, membership: Membership) -> Meters:
    if not membership.event_view.shows_internals:
        return Meters()
    if membership.visible_channels is None:
        return meters
    return meters.visible_in(membership.visible_channels)


def visible_teams(roster: Roster, membership: Membership) -> dict[str, Team]:
    if not membership.event_view.shows_internals:
        return {}
    if membership.visible_channels is None:
        return roster.teams
    return roster.visible_in(membership.visible_channels)


def visible_transcript(transcript: Transcript, membership: Membership) -> list[TranscriptEntry]:
    entries = list(transcript.entries.values())
    if membership.visible_channels is not None:
        entries = transcript.visible_in(membership.visible_channels)
    return [entry for entry in entries if is_entry_visible(entry, membership.event_view)]


def is_entry_visible(entry: TranscriptEntry, view: EventView) -> bool:
    """Return whether a member sees a text. A note has the content of an event that may be hidden."""
    if entry.who == "note":
        return view.app_types is None
    return view.shows_internals or not entry.depth


def render_transcript(models: ReadModels, membership: Membership) -> list[TranscriptEntry]:
    return visible_transcript(models.transcript, membership)


def render_meters(models: ReadModels, membership: Membership) -> dict[str, Any]:
    return visible_meters(models.meters, membership).report()


def render_open(models: ReadModels, membership: Membership) -> dict[str, Any]:
    tree = visible_tree(models.tree, membership)
    view = membership.event_view
    return build_pending_report(tree) if view.shows_internals else build_question_report(tree, view)


def render_roster(models: ReadModels, membership: Membership) -> list[dict[str, Any]]:
    return build_roster_report(visible_teams(models.roster, membership))


class StateInclude(NamedTuple):
    """The read model that a value of `include` needs, and how a member sees it."""

    read_model: str
    render: Callable[[ReadModels, Membership], Any]


STATE_INCLUDES = {
    "transcript": StateInclude("transcript", render_transcript),
    "meters": StateInclude("meters", render_meters),
    "open": StateInclude("tree", render_open),
    "roster": StateInclude("roster", render_roster),
}
