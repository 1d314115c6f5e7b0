"""The journal: what the server does, as one JSON object per line, for machines that collect logs.

`Journal` writes one line per request, with the template of its route; paths, queries, headers and bodies are
never written. What a request was signed in with (Authorization, cookies, one-time codes) is struck out of
everything that is logged while it is answered, whoever logs it, and so is what looks like it anywhere else.
An error in a request is told by where it happened: what it says may quote a body.
"""

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("turnlog.server")

EXTRA_FIELDS = ("method", "route", "status", "ms", "bytes", "principal", "session", "turn", "exception")
Header = tuple[bytes, bytes]

REDACTED = "[struck out]"
MIN_SECRET_CHARS = 8  # what is shorter is no secret, and stands in the middle of other words
MAX_NAME_CHARS = 80  # of a name that a caller may have chosen
SECRET_HEADERS = {b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"}
SECRET_PATTERN = re.compile(
    r"""( \b(?:proxy-)?authorization ['"]?\s*[:=,]\s*b?['"]?
        | \b(?:set-)?cookie ['"]?\s*[:=,]\s*b?['"]? (?=[^\s=]{0,256}=) ) [^\r\n]+
      | ( \bbearer\s+ | \bcode= ) [^\s&'",;)]+""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(slots=True)
class RequestRecord:
    """What the journal knows of a request and its response: what must not be told, and what was sent.

    Tasks that a request leaves behind keep it, so it holds on to nothing of the connection.
    """

    secret_headers: list[Header]
    query: bytes
    start_s: float
    status: int | None = None
    sent_bytes: int = 0
    end_s: float | None = None
    error: BaseException | None = None

    def record_message(self, message: Message) -> None:
        """One message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.secret_headers += select_secret_headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.sent_bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.end_s = time.monotonic()

    def collect_secrets(self) -> list[str]:
        """What must not be told, the longest first; made when it is asked for, because few ask."""
        return sorted(
            {*iter_header_secrets(self.secret_headers), *iter_query_secrets(self.query)},
            key=len,
            reverse=True,
        )


CURRENT_REQUEST: ContextVar[RequestRecord | None] = ContextVar("exchange", default=None)  # of this task


class JsonFormatter(logging.Formatter):
    """A record as one line: JSON in ASCII, so that nothing in it ends the line or speaks to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "ts": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": get_record_message(record),
        }
        line |= {name: value for name in EXTRA_FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: redact(value) for name, value in line.items()})


def get_record_message(record: logging.LogRecord) -> str:
    """What a record says; one whose parts do not fit together is told as it was written."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  whatever a value's own text raises: the rest is still worth a line
        return str(record.msg)


def redact(value: Any) -> Any:
    """A value without secrets; what is no text or number is told by its kind."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return f"<{type(value).__name__}>"
    exchange = CURRENT_REQUEST.get()
    for secret in exchange.collect_secrets() if exchange else ():
        value = value.replace(secret, REDACTED)
    return SECRET_PATTERN.sub(lambda found: f"{found[1] or found[2]}{REDACTED}", value)


def select_secret_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers with secrets."""
    return [header for header in headers if header[0].lower() in SECRET_HEADERS]


def iter_header_secrets(headers: Iterable[Header]) -> Iterator[str]:
    """The secrets in such headers: each value whole and in its parts, also as Python would quote it."""
    for name, raw in headers:
        value = raw.decode("latin-1")
        parts = re.split(r"[;\s]+", value)[: 1 if name.lower() == b"set-cookie" else None]
        for part in (value, *parts, *(part.partition("=")[2].strip('"') for part in parts)):
            yield from iter_secret_variants(part)


def iter_query_secrets(query: bytes) -> Iterator[str]:
    """The one-time codes in a query, as they came and decoded."""
    for pair in query.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if unquote_plus(name) == "code":
            yield from iter_secret_variants(value)
            yield from iter_secret_variants(unquote_plus(value))


def iter_secret_variants(secret: str) -> Iterator[str]:
    """The ways in which a secret may stand in a text."""
    if len(secret) >= MIN_SECRET_CHARS:
        yield from (secret, repr(secret)[1:-1], ascii(secret)[1:-1])


class AccessLogMiddleware:
    """ASGI middleware that writes a line for each request, when its response has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = RequestRecord(
            select_secret_headers(scope["headers"]), scope.get("query_string", b""), time.monotonic()
        )
        CURRENT_REQUEST.set(
            exchange
        )  # not reset: the server logs what goes wrong after this, in the same task
        try:
            await self._app(scope, receive, RecordingSend(exchange, send))
        except Exception as error:
            exchange.error = error
            exchange.status = exchange.status or 500  # what the server answers now
            raise
        finally:
            log_request(scope, exchange)


class RecordingSend:
    """A `send` that tells an exchange."""

    __slots__ = ("_record", "_send")

    def __init__(self, record: RequestRecord, send: Send) -> None:
        self._record = record
        self._send = send

    async def __call__(self, message: Message) -> None:
        self._record.record_message(message)
        await self._send(message)


def log_request(scope: Scope, record: RequestRecord) -> None:
    """The line of a request; an error in it is told by where it was. A stream has counted its own bytes."""
    took_s = (record.end_s or time.monotonic()) - record.start_s
    fields = {
        "method": truncate_name(scope["method"]),
        "route": getattr(scope.get("route"), "path", None),
        "status": record.status,
        "ms": round(took_s * 1000, 1),
        "bytes": scope.get("turnlog.bytes", record.sent_bytes),
        "principal": truncate_name(getattr(scope.get("turnlog.principal"), "name", None)),
        "session": truncate_name(scope.get("turnlog.session")),
        "turn": truncate_name(scope.get("turnlog.turn")),
    }
    if record.error is None:
        log.info("request", extra=fields)
    else:
        log.error(
            "request failed",
            extra=fields | {"exception": "".join(format_traceback_without_messages(record.error))},
        )


def truncate_name(name: str | None) -> str | None:
    """A name, or the beginning of one that is too long to be one."""
    return name[:MAX_NAME_CHARS] if name else None


def format_traceback_without_messages(error: BaseException | None) -> Iterator[str]:
    """Where errors happened, the one that was raised first before what it led to; not what they say."""
    while error is not None:
        yield from traceback.format_tb(error.__traceback__)
        yield f"{type(error).__module__}.{type(error).__qualname__}\n"
        if isinstance(error, BaseExceptionGroup):
            for part in error.exceptions:
                yield from format_traceback_without_messages(part)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether a record tells more than the line of the request that failed with the same error.

    That a peer sends what is no HTTP is no news: any peer could fill the journal with it.
    """
    if record.name == "uvicorn.error" and record.msg == "Invalid HTTP request received.":
        return False
    exchange = CURRENT_REQUEST.get()
    told = exchange.error if exchange else None
    return not (told and record.exc_info and record.exc_info[1] is told)


def configure_logging(level: str, formatter: logging.Formatter | None = None) -> None:
    """Write what Turnlog and uvicorn log to stderr, from this level on; uvicorn's own access log is off.

    Records are lines of JSON, unless a formatter is given; one that is given strikes out secrets itself.

    uvicorn must not set up logging itself: its `Config` is given `log_config=None`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or JsonFormatter())
    handler.addFilter(is_worth_logging)
    for name in ("turnlog", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [], False
