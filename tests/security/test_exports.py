"""Row 20: what is in a log controls no terminal and no other program's lines."""

import io
import json
import logging
import re

import click
import pytest
from click.testing import CliRunner

from tests.security.apps import plain
from tests.security.desk import desk, run
from turnlog.cli import main, tail, terminal
from turnlog.cli.terminal import CONTROL_CHARACTERS
from turnlog.server.log_format import JsonFormatter

HOSTILE = (
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "over\rwritten",
    "two\nlines",
    "\u202etxt.exe",
    "\u2066hidden\u2069",
    "a\u2028b",
    "\x00\x08\x7f",
    "\U000e0041tag",
    "=HYPERLINK(1)",
)
CONTROL = re.compile("(?!\n)" + CONTROL_CHARACTERS.pattern)


@pytest.fixture(scope="module")
def log_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log in which people wrote what they could think of."""
    folder = tmp_path_factory.mktemp("hostile")
    url = f"sqlite:///{folder}/log.db"

    async def scenario() -> None:
        async with desk(plain, url) as at:
            session = await at.session("ada")
            for number, text in enumerate(HOSTILE, 1):
                await at.send("ada", session, f"recall {text}")
                await at.told("ada", session, "agent.end", number)

    run(scenario())
    return url


class Screen(io.BytesIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def shown(log_url: str) -> str:
    """What a person sees of the log."""
    result = CliRunner().invoke(main, ["tail", "--log", log_url])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_nothing_in_a_log_controls_a_terminal(log_url: str) -> None:
    text = shown(log_url)
    assert CONTROL.findall(text) == []
    assert "\\x1b]0;owned\\x07" in text
    assert "\\u202etxt.exe" in text


def test_control_text_that_is_not_escaped_does(log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "escape_controls", str)
    assert {"\x1b", "\u202e", "\x9b"} <= set(CONTROL.findall(shown(log_url)))


def exported(log_url: str) -> list[bytes]:
    """The lines of an export."""
    return CliRunner().invoke(main, ["export", "--log", log_url]).stdout_bytes.split(b"\n")[:-1]


def test_an_export_is_lines_of_json_and_as_it_is_in_a_file(log_url: str) -> None:
    lines = exported(log_url)
    events = [json.loads(line) for line in lines]
    texts = [event["payload"]["text"] for event in events if event["type"] == "ui.message"]
    assert texts == [f"recall {text}" for text in HOSTILE]  # nothing is changed or prefixed: it is no table


def test_on_a_terminal_an_export_is_escaped_and_still_the_same_json(log_url: str) -> None:
    for line in exported(log_url):
        screen = Screen()
        terminal.write_json(screen, line)
        text = screen.getvalue().decode()
        assert CONTROL.findall(text) == []
        assert json.loads(text) == json.loads(line)


def test_control_the_bytes_of_the_export_would_control_it(log_url: str) -> None:
    whole = b"\n".join(exported(log_url)).decode()
    assert {"\u202e", "\x9b"} <= set(CONTROL.findall(whole))


def test_there_is_no_table_to_export() -> None:
    commands = main.list_commands(click.Context(main))
    assert "export" in commands
    assert not [name for name in commands if re.search("csv|table|sheet", name)]


def line(text: str, formatter: logging.Formatter) -> str:
    """What is logged of a name that a caller chose."""
    record = logging.LogRecord("turnlog", logging.INFO, "", 0, "request %s", (text,), None)
    record.__dict__["session"] = text
    return formatter.format(record)


def test_names_that_callers_choose_stay_inside_a_line_of_the_journal() -> None:
    for text in HOSTILE:
        written = line(text, JsonFormatter())
        assert written.isascii()
        assert written.isprintable()
        assert json.loads(written)["session"] == text


def test_control_other_loggers_write_them_as_they_are() -> None:
    written = "".join(line(text, logging.Formatter()) for text in HOSTILE)
    assert {"\x1b", "\n", "\u202e"} <= set(written)
