"""`turnlog sessions`: the list, for people and for programs."""

import json

import pytest

from tests.unit.cli.harness import GUIDE, Place, error, event, no_log, said, turn

LISTED = """\
session  app    events  created           state   title
sess_1   tour        2  2026-01-08 12:34  closed  one
sess_2   other       0  2026-01-08 12:34  idle
"""


def filled(place: Place) -> Place:
    place.session("sess_1", said("one", "two"))
    place.session("sess_2", [], app="other")
    place.close_session("sess_1")
    return place


def plain(output: str) -> str:
    """A table without the blanks that fill its last column."""
    return "".join(line.rstrip() + "\n" for line in output.split("\n")[:-1])


def test_sessions_are_a_table(place: Place) -> None:
    result = filled(place).run("sessions")
    assert (result.exit_code, plain(result.stdout), result.stderr) == (0, LISTED, "")


def test_damage_gets_a_column_if_there_is_some(place: Place) -> None:
    filled(place)
    place.lose("sess_1", 1, 1)
    place.lose("sess_1", 3, 5)
    place.lose("sess_2", -1, -1)
    heading, first, second = plain(place.run("sessions").stdout).split("\n")[:-1]
    assert heading.endswith("state   title  damage")
    assert first.endswith("closed  one    seq 1 lost, seq 3 to 5 lost")
    assert second.endswith("idle           its record was damaged")


def test_a_session_whose_record_is_damaged_is_named_beside_the_others(place: Place) -> None:
    filled(place).spoil("update session set rank = 7 where name = 'sess_1'")
    result = place.run("sessions")
    assert [line.split()[0] for line in result.stdout.split("\n")[:-1]] == ["session", "sess_2"]
    assert result.stderr.startswith("warning: sess_1 cannot be read because its record is damaged")
    assert place.run("sessions", "--json").stderr == result.stderr


def test_much_damage_is_counted(place: Place) -> None:
    filled(place)
    for seq in range(10, 18, 2):
        place.lose("sess_1", seq, seq)
    assert "closed  one    4 parts lost" in place.run("sessions").stdout


def test_json_is_one_object_per_session(place: Place) -> None:
    filled(place)
    place.lose("sess_2", 3, 5, "gone")
    lines = place.run("sessions", "--json").stdout.split("\n")[:-1]
    created = "2026-01-08T12:34:56.789Z"
    assert [json.loads(line) for line in lines] == [
        {
            "session_id": "sess_1",
            "app": "tour",
            "title": "one",
            "state": "closed",
            "events": 2,
            "created": created,
            "updated": created,
            "closed": True,
            "damage": [],
        },
        {
            "session_id": "sess_2",
            "app": "other",
            "title": "",
            "state": "idle",
            "events": 6,
            "created": created,
            "updated": None,
            "closed": False,
            "damage": [{"first": 3, "last": 5, "problem": "gone"}],
        },
    ]


def test_an_empty_log_says_so_beside_the_data(place: Place) -> None:
    place.work(lambda log: log.sessions())
    result = place.run("sessions")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "This log has no sessions yet.\n"
    assert place.run("sessions", "--json").output == ""


def test_an_app_cannot_control_the_terminal(place: Place) -> None:
    place.session("sess_1", [], app="a\x1b[2Jb\nc")
    output = place.run("sessions").stdout
    assert "a\\x1b[2Jb\\nc" in output
    assert output.count("\n") == 2


def test_a_long_id_is_never_cut(place: Place) -> None:
    name = "sess_" + "x" * 64
    place.session(name, [], app="y" * 100)
    assert f"{name}  {'y' * 100} " in place.run("sessions", env={"COLUMNS": "40"}).stdout


def test_the_environment_names_the_log_and_the_option_wins(place: Place) -> None:
    other = Place(place.path.with_name("other.db"))
    filled(place)
    assert error(other.run("sessions")) == no_log(other)
    assert other.run("sessions", "--log", place.url).stdout == place.run("sessions").stdout


def waiting(place: Place) -> Place:
    """Sessions with an agent that works, one that waits for a person, and one that is done."""
    start, call = turn()[1], event(10, "tool.call", ASK, GUIDE, "model")
    awaited = event(11, "tool.await", {"calls": [ASK]}, GUIDE, "system")
    place.session("sess_run", [start])
    place.session("sess_wait", [start, call, awaited])
    place.session("sess_done", turn())
    return place


ASK = {"call_id": "c9", "tool": "confirm", "args": {}, "executor": "frontend"}


def listed(place: Place, *arguments: str) -> dict[str, str]:
    lines = place.run("sessions", "--json", *arguments).stdout.split("\n")[:-1]
    return {(item := json.loads(line))["session_id"]: item["state"] for line in lines}


def test_sessions_say_which_agents_run_and_which_wait(place: Place) -> None:
    found = listed(waiting(place))
    assert found == {"sess_run": "running", "sess_wait": "waiting", "sess_done": "idle"}


def test_sessions_of_a_state_are_listed_alone(place: Place) -> None:
    assert listed(waiting(place), "--state", "waiting") == {"sess_wait": "waiting"}


@pytest.mark.parametrize("text", ["rome", "SESS_DONE", "tour"])
def test_sessions_with_a_text_in_id_title_or_application_are_listed_alone(place: Place, text: str) -> None:
    place.session("sess_other", said("Oslo"), app="shop")
    place.session("sess_done", turn(), app="tour")
    assert listed(place, text) == {"sess_done": "idle"}


def test_sessions_without_a_match_say_so(place: Place) -> None:
    result = filled(place).run("sessions", "nowhere")
    assert (result.exit_code, result.output) == (0, "None of 2 sessions matches.\n")


def test_sessions_cut_a_long_title(place: Place) -> None:
    place.session("sess_1", said("x" * 80))
    assert "x" * 60 + "…" in place.run("sessions").stdout


def test_close_of_a_session_ends_it(place: Place) -> None:
    place.session("sess_1", said("one"))
    assert place.run("close", "sess_1", "--reason", "Booked.").stdout == "sess_1 is closed\n"
    assert listed(place) == {"sess_1": "closed"}
    assert "session.close" in place.run("tail", "sess_1").stdout
    assert "by local, Booked." in place.run("tail", "sess_1").stdout
    assert place.run("close", "sess_1").stdout == "sess_1 is closed\n"
    lines = [json.loads(line) for line in place.run("export", "sess_1").stdout.splitlines()]
    assert lines[0]["closed"]
    assert [line["type"] for line in lines[1:]] == ["ui.message", "session.close"]
    assert lines[-1]["payload"] == {"by": "local", "reason": "Booked."}
    assert place.run("verify").exit_code == 0


def test_close_with_a_reason_that_no_event_can_have_closes_none(place: Place) -> None:
    place.session("sess_1", said("one"))
    assert "reason" in error(place.run("close", "sess_1", "--reason", "two\nlines"))
    assert listed(place) == {"sess_1": "idle"}


def test_close_of_a_session_whose_agent_is_open_is_refused_and_closes_none(place: Place) -> None:
    problem = error(waiting(place).run("close", "sess_done", "sess_wait"))
    assert problem == "an agent of sess_wait is still active; stop it in the console first"
    assert listed(place)["sess_done"] == "idle"
