"""The server's journal for a person at a terminal: a line for each record, and readable tracebacks."""

import logging
import sys
from datetime import datetime

from turnlog.cli.terminal import escape_controls
from turnlog.server.log_format import EXTRA_FIELDS, get_record_message, redact


class TerminalFormatter(logging.Formatter):
    """A record as text. Secrets are struck out, and nothing in it controls the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        known = {name: value for name in EXTRA_FIELDS if (value := getattr(record, name, None)) is not None}
        trace = known.pop("exception", "")
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        facts = "".join(f" {name}={redact(value)}" for name, value in known.items())
        text = f"{moment} {record.levelname.lower()} {redact(get_record_message(record))}{facts}"
        return "\n".join(map(escape_controls, [text, *redact(trace).split("\n")])).rstrip("\n")


def make_terminal_formatter() -> logging.Formatter | None:
    """Return the formatter for stderr if it is a terminal; None where programs collect its lines."""
    return TerminalFormatter() if sys.stderr.isatty() else None
