"""Log records as lines of JSON without secrets, for machines that collect logs.

The credentials of a request (Authorization, cookies, one-time codes) are removed from every record that is
logged while it is served, by whichever logger, and so is text that looks like a credential. A traceback has
the places of an error, not its messages: these may quote a body.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

EXTRA_FIELDS = ("method", "route", "status", "ms", "bytes", "principal", "session", "turn", "exception")
REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8  # a shorter text is not a secret, and may be a part of other words
SECRET_HEADERS = {b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"}
SECRET_PATTERN = re.compile(
    r"""( \b(?:proxy-)?authorization ['"]?\s*[:=,]\s*b?['"]?
        | \b(?:set-)?cookie ['"]?\s*[:=,]\s*b?['"]? (?=[^\s=]{0,256}=) ) [^\r\n]+
      | ( \bbearer\s+ | \bcode= ) [^\s&'",;)]+""",
    re.IGNORECASE | re.VERBOSE,
)

Header = tuple[bytes, bytes]


@dataclass(slots=True)
class RequestSecrets:
    """The headers and the query of a request that may hold secrets, and the error that it failed with.

    Tasks that a request leaves behind keep this object, so it refers to nothing of the connection.
    """

    headers: list[Header]
    query: bytes
    error: BaseException | None = None

    def collect(self) -> list[str]:
        secrets = {*iter_header_secrets(self.headers), *iter_query_secrets(self.query)}
        return sorted(secrets, key=len, reverse=True)


# The request that this task serves.
CURRENT_REQUEST: ContextVar[RequestSecrets | None] = ContextVar("current_request", default=None)


def configure_logging(level: str, formatter: logging.Formatter | None = None) -> None:
    """Write the records of Turnlog and uvicorn to stderr, from this level on, without uvicorn's access log.

    Records are lines of JSON, unless there is a formatter, which then must call `redact` itself. uvicorn must
    not configure logging: its `Config` gets `log_config=None`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or JsonFormatter())
    handler.addFilter(is_worth_logging)
    for name in ("turnlog", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    uvicorn_access = logging.getLogger("uvicorn.access")
    uvicorn_access.handlers = []
    uvicorn_access.propagate = False


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of ASCII JSON, so that no text ends the line or controls a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "ts": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": get_record_message(record),
        }
        for name in EXTRA_FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: redact(value) for name, value in fields.items()})


def get_record_message(record: logging.LogRecord) -> str:
    """Return the message; the format string alone if its arguments do not fit."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  an argument's own __str__ may raise anything: the rest is still useful
        return str(record.msg)


def redact(value: Any) -> Any:
    """Return a number as it is, a text without secrets, and the type name of any other value."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return f"<{type(value).__name__}>"

    request = CURRENT_REQUEST.get()
    if request is not None:
        for secret in request.collect():
            value = value.replace(secret, REDACTED)
    return SECRET_PATTERN.sub(lambda match: f"{match[1] or match[2]}{REDACTED}", value)


def select_secret_headers(headers: Iterable[Header]) -> list[Header]:
    return [header for header in headers if header[0].lower() in SECRET_HEADERS]


def iter_header_secrets(headers: Iterable[Header]) -> Iterator[str]:
    for name, raw in headers:
        value = raw.decode("latin-1")
        parts = re.split(r"[;\s]+", value)
        if name.lower() == b"set-cookie":
            parts = parts[:1]  # the others are attributes of the cookie
        for text in (value, *parts, *(part.partition("=")[2].strip('"') for part in parts)):
            yield from iter_secret_variants(text)


def iter_query_secrets(query: bytes) -> Iterator[str]:
    for pair in query.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if unquote_plus(name) == "code":
            yield from iter_secret_variants(value)
            yield from iter_secret_variants(unquote_plus(value))


def iter_secret_variants(secret: str) -> Iterator[str]:
    if len(secret) >= MIN_SECRET_CHARS:
        yield from (secret, repr(secret)[1:-1], ascii(secret)[1:-1])


def format_traceback_without_messages(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from traceback.format_tb(error.__traceback__)
        yield f"{type(error).__module__}.{type(error).__qualname__}\n"
        if isinstance(error, BaseExceptionGroup):
            for part in error.exceptions:
                yield from format_traceback_without_messages(part)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for a record that repeats an error of the access log, and for invalid HTTP.

    Any peer can send bytes that are not HTTP, and could fill the log with it.
    """
    if record.name == "uvicorn.error" and record.msg == "Invalid HTTP request received.":
        return False
    request = CURRENT_REQUEST.get()
    if request is None or request.error is None or not record.exc_info:
        return True
    return record.exc_info[1] is not request.error
