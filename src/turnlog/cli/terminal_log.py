"""The server's log on a terminal: one line of text per record, with readable tracebacks."""

import logging
import sys
from datetime import datetime

from turnlog.cli.terminal import escape_controls
from turnlog.server.log_format import EXTRA_FIELDS, get_record_message, redact


class TerminalFormatter(logging.Formatter):
    """Formats a record as text, with secrets redacted and control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        time_text = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        extras = {name: getattr(record, name, None) for name in EXTRA_FIELDS}
        trace = extras.pop("exception", None) or ""
        if record.exc_info:
            trace = self.formatException(record.exc_info)

        fields = "".join(f" {name}={redact(value)}" for name, value in extras.items() if value is not None)
        line = f"{time_text} {record.levelname.lower()} {redact(get_record_message(record))}{fields}"
        return "\n".join(map(escape_controls, [line, *redact(trace).split("\n")])).rstrip("\n")


def make_terminal_formatter() -> logging.Formatter | None:
    """Return the formatter for stderr if it is a terminal; else None: then the log is lines of JSON."""
    return TerminalFormatter() if sys.stderr.isatty() else None
