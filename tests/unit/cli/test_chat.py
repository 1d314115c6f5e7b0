"""`turnlog chat`: turns, questions and approvals in a terminal, without a server."""

from pathlib import Path

from click.testing import CliRunner, Result

from turnlog.cli import main
from turnlog.cli.chat import read_answer

TOUR = "turnlog_examples.tour:app"


def run_chat(*args: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["chat", TOUR, *args], input=typed, catch_exceptions=False)


def test_message_runs_one_turn_and_asks_what_the_agent_waits_for() -> None:
    result = run_chat("Oslo", typed="yes\n")
    assert result.exit_code == 0
    assert "Note a trip to Oslo?" in result.output
    assert result.output.rstrip().endswith("Noted: Oslo, clear and 21 °C. Have a good time!")


def test_all_levels_are_printed_with_their_depth() -> None:
    output = run_chat("Oslo", "--all", typed="no\n").output
    assert "\n  Scout │ In Oslo, do not miss the harbour at dusk.\n" in output
    assert "confirm(question=Note a trip to Oslo?) → false" in output
    assert "Noted:" not in output


def test_lines_are_sent_until_the_input_ends() -> None:
    output = run_chat(typed="hello\nBergen\nyes\n").output
    assert output.index("Hello! Name a city") < output.index("Noted: Bergen")


def test_log_has_the_events_afterwards(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path / 'talk.db'}"
    run_chat("hello", "--log", log)
    listed = CliRunner().invoke(main, ["tail", "--log", log], catch_exceptions=False)
    assert "hello" in listed.output


def test_unknown_module_is_one_line() -> None:
    result = CliRunner().invoke(main, ["chat", "no_such_module:app"])
    assert result.exit_code == 2
    assert "no_such_module" in result.output
    assert "Traceback" not in result.output


def test_answers_are_yes_no_json_or_text() -> None:
    answers = {"yes": True, "N": False, "7": 7, '{"a": 1}': {"a": 1}, "next week": "next week"}
    assert {text: read_answer(text) for text in answers} == answers
