"""A session is named by its id or by the beginning of it, wherever a command takes one."""

import pytest

from tests.unit.cli.harness import Place, error, said

COMMANDS = [
    ["tail"],
    ["state"],
    ["export"],
    ["stats"],
    ["search", "one"],
    ["prune", "--older-than", "1s"],
    ["close"],
]


@pytest.fixture
def filled(place: Place) -> Place:
    place.session("sess_96cf1abc", said("one"))
    place.session("sess_96d", said("one"))
    place.session("sess_96d2", said("one"))
    return place


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_with_the_beginning_of_an_id_takes_that_session(filled: Place, command: list[str]) -> None:
    for name in ("sess_96cf1", "96cf", "sess_96cf1abc"):
        result = filled.run(*command, name)
        assert result.exit_code == 0, result.output
        assert "96d" not in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_with_the_beginning_of_several_ids_lists_them(filled: Place, command: list[str]) -> None:
    problem = error(filled.run(*command, "sess_96"))
    assert problem == "sess_96 matches several sessions: sess_96cf1abc, sess_96d, sess_96d2"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_with_no_such_session_names_the_list(filled: Place, command: list[str]) -> None:
    assert error(filled.run(*command, "sess_x")) == "no session sess_x; `turnlog sessions` lists all sessions"


def test_id_that_is_also_the_beginning_of_another_is_that_session(filled: Place) -> None:
    assert filled.run("export", "sess_96d").stdout.startswith('{"type":"session","session_id":"sess_96d",')


def test_beginning_of_many_ids_lists_five_of_them(place: Place) -> None:
    for number in range(8):
        place.session(f"sess_a{number}", [])
    assert error(place.run("tail", "sess_a")).endswith("sess_a3, sess_a4 and 3 more")
