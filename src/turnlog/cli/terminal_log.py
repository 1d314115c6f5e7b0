"""The server's journal for a person at a terminal: a line for each record, and readable tracebacks."""

import logging
import sys
from datetime import datetime

from turnlog.cli.terminal import escape
from turnlog.server.access_log import FIELDS, message_of, struck


class ReadableLines(logging.Formatter):
    """A record as text. Secrets are struck out, and nothing in it controls the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        known = {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        trace = known.pop("exception", "")
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        facts = "".join(f" {name}={struck(value)}" for name, value in known.items())
        text = f"{moment} {record.levelname.lower()} {struck(message_of(record))}{facts}"
        return "\n".join(map(escape, [text, *struck(trace).split("\n")])).rstrip("\n")


def terminal_formatter() -> logging.Formatter | None:
    """Return the formatter for stderr if it is a terminal; None where programs collect its lines."""
    return ReadableLines() if sys.stderr.isatty() else None
