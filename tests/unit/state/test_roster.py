"""The team on its grid: hatching, alive, sleeping; and what the log does to document 004's state machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.folds import apply_events, fold_documents
from tests.support.tables import check_laws, for_each_row
from tests.support.written_logs import vector_log
from turnlog.state.snapshot import dump, load
from turnlog.team.roster import REDUCERS, SEAT_COUNT, Roster, Team, build_roster_report

VECTORS = Path(__file__).parents[2] / "vectors" / "roster" / "cases.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
TURN = {"trace_id": "tr_1", "agent_id": "agt_1", "depth": 0}


def joined(name: str, seat: int) -> dict[str, Any]:
    return {"type": "roster.join", "payload": {"name": name, "seat": seat}}


def listed(**seats: int) -> dict[str, Any]:
    agents = [{"name": name, "status": "alive", "seat": seat} for name, seat in seats.items()]
    return {"type": "roster.status", "payload": {"agents": agents}}


def ended(process: str, reason: str) -> dict[str, Any]:
    return {"type": "process.end", "payload": {"process": process, "reason": reason}}


SUMMON: dict[str, Any] = {"type": "ui.command", "payload": {"command": {"kind": "summon"}}}
BEGIN: dict[str, Any] = {"type": "agent.start", **TURN, "payload": {"name": "Julian", "via": "prompt"}}
OVER: dict[str, Any] = {"type": "agent.end", **TURN, "payload": {"stop_reason": "end_turn"}}
DAY = [SUMMON, BEGIN, joined("Lyra", 0), joined("Mira", 1), OVER, listed(Lyra=0), joined("Nils", 8)]


def states(roster: Roster) -> dict[int, str]:
    """What everybody's team does."""
    return {seat: member.state for seat, member in roster.teams.get("", Team()).seats.items()}


def after(events: list[dict[str, Any]]) -> Roster:
    return apply_events(Roster(), vector_log(events))


def check_teams(case: dict[str, Any]) -> None:
    assert json.loads(dump(after(case["events"])))["teams"] == case["teams"]


def check_a_snapshot_at_any_event_goes_on_like_the_whole(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    whole = dump(apply_events(Roster(), items))
    for cut in range(len(items) + 1):
        kept = load(Roster, dump(apply_events(Roster(), items[:cut])))
        assert dump(apply_events(kept, items[cut:])) == whole


def check_who_is_alive_in_the_documents_is_alive_here(case: dict[str, Any]) -> None:
    items = vector_log(case["events"])
    teams = apply_events(Roster(), items).teams
    for document in fold_documents(items).values():
        if document.type == "agent-identity":
            body = json.loads(document.body)
            member = teams[body.get("channel", "")].seats[body["gridPosition"]]
            assert member.name == body["name"]
            assert (member.state == "alive") == (body["status"] == "alive")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_teams,
        check_a_snapshot_at_any_event_goes_on_like_the_whole,
        check_who_is_alive_in_the_documents_is_alive_here,
    ]
    check_laws(laws, case)


def test_teams_are_told_with_their_channel_and_nine_places() -> None:
    ours, theirs = joined("Lyra", 0), {**SUMMON, "channel": "b"}
    told = build_roster_report(after([theirs, ours]).teams)
    assert [(team["channel"], len(team["grid"]), team["hatching"] is None) for team in told] == [
        (None, 9, True),
        ("b", 9, False),
    ]
    assert (told[0]["grid"][0].name, told[1]["grid"]) == ("Lyra", [None] * 9)


def test_a_grid_has_nine_places() -> None:
    team = after([joined("Lyra", 0), joined("Lyra", 8), joined("Mira", 4)]).teams[""]
    assert SEAT_COUNT == 9
    assert [member and member.name for member in team.grid()] == [
        "Lyra", None, None,
        None, "Mira", None,
        None, None, "Lyra",
    ]  # fmt: skip


def test_a_team_is_seen_by_those_in_its_channel() -> None:
    roster = after([joined("Lyra", 0), {**joined("Mira", 0), "channel": "staff"}])
    assert set(roster.visible_in([])) == {""}
    assert set(roster.visible_in(["staff", "other"])) == {"", "staff"}


def test_consequence_1_a_reader_that_was_away_misses_no_registration() -> None:
    items = vector_log(DAY)
    for cut in range(len(items) + 1):
        reader = apply_events(Roster(), items[:cut])
        assert states(apply_events(reader, items[cut:])) == {0: "alive", 1: "sleeping", 8: "alive"}


@for_each_row("end", [[BEGIN, OVER], [ended("model", "process_crash")], [listed()]])
def test_consequence_2_a_summon_makes_no_placeholder_and_leaves_no_ghost(end: list[dict[str, Any]]) -> None:
    summoned = after([SUMMON]).teams[""]
    assert (summoned.hatching is not None, summoned.seats) == (True, {})
    quiet = after([SUMMON, *end]).teams[""]
    assert (quiet.hatching, quiet.turn, quiet.seats) == (None, None, {})
    assert fold_documents(vector_log([SUMMON, BEGIN, OVER])) == {}


def test_consequence_3_the_latest_status_tells_who_is_alive_whatever_was_known_before() -> None:
    known = [[], [joined("Lyra", 0)], [joined("Mira", 1)], DAY]
    for before in known:
        roster = after([*before, listed(Lyra=0, Otto=5)])
        assert {seat for seat, state in states(roster).items() if state == "alive"} == {0, 5}


@for_each_row("process", ["model", "server"])
@for_each_row("reason", ["user_ended", "inactivity_timeout", "process_crash", "server_shutdown"])
def test_consequence_4_the_end_of_a_session_puts_everybody_to_sleep(process: str, reason: str) -> None:
    assert set(states(after([*DAY, ended(process, reason)])).values()) == {"sleeping"}
    again = [ended(process, reason), {"type": "process.start", "payload": {"process": process, "pid": 2}}]
    assert set(states(after([*DAY, SUMMON, *again])).values()) == {"sleeping"}, "no ghosts after a restart"


def test_consequence_5_one_tab_does_not_change_another() -> None:
    items = vector_log([*DAY, ended("model", "user_ended")])
    first, second = Roster(), apply_events(Roster(), items[:3])
    before = dump(second)
    assert set(states(apply_events(first, items)).values()) == {"sleeping"}
    assert dump(second) == before
    assert dump(apply_events(second, items[3:])) == dump(first), "both are where the log is"


def test_only_these_events_change_it() -> None:
    assert {kind.__name__ for kind in REDUCERS} == {
        "AgentEnd", "AgentStart", "ProcessEnd", "RosterJoin", "RosterStatus", "UiCommand",
    }  # fmt: skip
