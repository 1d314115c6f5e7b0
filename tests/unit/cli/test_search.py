"""`turnlog search` and `turnlog stats`."""

import json

import pytest

from tests.unit.cli.harness import GUIDE, LIVE, Place, event, said, turn

USAGE = {"model": "scripted", "usage": {"input_tokens": 10, "output_tokens": 4}}


@pytest.fixture
def filled(place: Place) -> Place:
    place.session("sess_1", turn())
    place.session("sess_2", [*said("Oslo", "ROME in June"), event(9, "agent.usage", USAGE, GUIDE, "system")])
    return place


def test_search_prints_the_events_of_every_session_below_its_heading(filled: Place) -> None:
    lines = filled.run("search", "rome").stdout.split("\n")[:-1]
    assert lines[0] == "sess_1  tour  Rome"
    assert [line.split()[2] for line in lines[1:3]] == ["ui.message", "tool.call"]
    assert lines[3] == "sess_2  tour  Oslo"
    assert lines[4].endswith("ROME in June")


def test_search_leaves_out_live_pieces(filled: Place) -> None:
    found = [json.loads(line)["type"] for line in filled.run("search", "see", "--json").stdout.splitlines()]
    assert found == ["assistant.message"]


def test_search_of_a_type_and_a_session_looks_nowhere_else(filled: Place) -> None:
    result = filled.run("search", "rome", "sess_1", "--type", "tool", "--json")
    assert [json.loads(line)["type"] for line in result.stdout.splitlines()] == ["tool.call"]


def test_search_without_a_match_says_so_and_exits_with_1(filled: Place) -> None:
    result = filled.run("search", "Atlantis")
    assert (result.exit_code, result.output) == (1, "No event contains this text.\n")


def test_search_passes_over_damage_and_names_it(filled: Place) -> None:
    filled.spoil("update event set frame = cast(replace(frame, 'Oslo', 'Oslu') as blob) where id = 'evt_0'")
    result = filled.run("search", "june")
    assert "ROME in June" in result.stdout
    assert result.stderr == "sess_2 seq 0: the event is not what was written\n"


def test_search_prints_nothing_that_controls_a_terminal(place: Place) -> None:
    place.session("sess_1", said("\x1b[2J needle"))
    assert "\x1b" not in place.run("search", "needle").stdout


def test_stats_count_sessions_events_types_and_tokens(filled: Place) -> None:
    filled.close_session("sess_2")
    counts = json.loads(filled.run("stats", "--json").stdout)
    assert (counts["sessions"], counts["closed"], counts["apps"]) == (2, 1, {"tour": 2})
    assert (counts["events"], counts["live"], counts["blobs"]) == (len(turn()) + 3, len(LIVE), 0)
    assert counts["types"]["ui.message"] == 3
    assert counts["models"] == {"scripted": {"input_tokens": 10, "output_tokens": 4, "cost": {}}}


def test_stats_of_a_session_count_it_alone(filled: Place) -> None:
    assert json.loads(filled.run("stats", "sess_2", "--json").stdout)["events"] == 3


def test_stats_for_people_have_a_line_for_each_count(filled: Place) -> None:
    lines = [line.split(maxsplit=1) for line in filled.run("stats").stdout.splitlines()]
    assert ["sessions", "2, 0 closed"] in lines
    assert ["events", "16, 3 of them live"] in lines
    assert ["scripted", "tokens 10 in, 4 out"] in lines
