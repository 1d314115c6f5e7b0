"""The journal at a terminal."""

import logging
import sys
from collections.abc import Iterator

import pytest

from turnlog.cli.terminal_log import TerminalFormatter, make_terminal_formatter
from turnlog.server.log_format import configure_logging


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """Loggers that are put back."""
    names = ("turnlog", "uvicorn", "uvicorn.access")
    before = [(log := logging.getLogger(name), log.handlers, log.propagate, log.level) for name in names]
    yield
    for log, handlers, propagate, level in before:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


def fail() -> None:
    raise ValueError("no such row: \x1b[2J")


def test_journal_at_a_terminal_prints_the_traceback_of_a_tool_line_by_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("warning", TerminalFormatter())
    try:
        fail()
    except ValueError:
        logging.getLogger("turnlog.agents").exception("tool register failed in c1")
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].endswith(" error tool register failed in c1")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-2] == "ValueError: no such row: \\x1b[2J"
    assert any(line.strip().startswith(f'File "{__file__}"') for line in lines)


def test_journal_at_a_terminal_strikes_out_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", TerminalFormatter())
    logging.getLogger("turnlog.server").error("sent Authorization: Bearer topsecretvalue")
    assert "topsecretvalue" not in capsys.readouterr().err


def test_journal_at_a_terminal_has_the_facts_of_a_request_on_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info", TerminalFormatter())
    facts = {"method": "GET", "route": "/api/state", "status": 500, "exception": "where\nwhat\n"}
    logging.getLogger("turnlog.server").error("request failed", extra=facts)
    first, *trace = capsys.readouterr().err.split("\n")
    assert first.endswith("error request failed method=GET route=/api/state status=500")
    assert trace == ["where", "what", ""]


def test_journal_is_json_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert make_terminal_formatter() is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(make_terminal_formatter(), TerminalFormatter)
