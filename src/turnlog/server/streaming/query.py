"""The query parameters of `GET /api/events`: sessions, cursors, dialect and options, filters.

Filters select log events, which a dialect then converts as without a filter. `types=` takes full names or
their first words, `depth=` that depth and less, `turn=` one turn. A wrong value raises `BadInput` with the
name of the parameter. A cursor is never wrong: see `parse_request_cursor`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from msgspec import structs
from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, TurnlogError, quote
from turnlog.log import SessionRecord
from turnlog.log.filter import EventFilter
from turnlog.wire.cursor import END, UNKNOWN_POSITION, Cursor, parse_request_cursor
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.registry import DialectRegistry, DialectRequest

MAX_TYPES = 64  # names in one filter
MAX_SESSIONS = 32  # on one stream
MAX_DEPTH_DIGITS = 9
FORMAT_DIALECTS = {"json": "blocks", "xml": "blocks-xml", "raw": "blocks-raw"}  # the names of document 003


class CursorGone(TurnlogError):
    """The log has no events to continue this cursor with."""


def parse_session_ids(query: QueryParams) -> list[str]:
    names = query.get("session", "").split(",")
    if len(names) > MAX_SESSIONS:
        raise BadInput(f"expected at most {MAX_SESSIONS} sessions, got {len(names)}", "session")
    if len(set(names)) < len(names):
        raise BadInput("expected each session once", "session")
    return names


def split_cursors(text: str, session_count: int) -> list[str]:
    """Return the text of a cursor for each session; one that is no position applies to all of them."""
    if session_count == 1:
        return [text]
    parts = text.split(",")
    if len(parts) == session_count:
        return parts
    if len(parts) == 1 and (is_end(text) or parse_request_cursor(text).seq < 0):
        return parts * session_count
    # It is not known to which sessions these positions belong.
    return [str(UNKNOWN_POSITION)] * session_count


def is_end(text: str) -> bool:
    return text.strip() == END


def resolve_cursor(text: str, record: SessionRecord) -> Cursor:
    """Return the position that `after=` or `Last-Event-ID` names: `end` is the current end of the log.

    A bare number means the current epoch.
    """
    if is_end(text):
        return Cursor(record.last, record.epoch)
    at = parse_request_cursor(text)
    if at.seq < 0 or at.epoch is not None:
        return at
    return replace(at, epoch=record.epoch)


def last_complete_seq(at: Cursor) -> int:
    return at.seq if at.chunk is None else at.seq - 1


def reset_reason(at: Cursor, record: SessionRecord) -> str | None:
    if at.epoch is not None and at.epoch != record.epoch:
        return "epoch"
    if at.seq > record.last:
        return "ahead"
    if at.seq < record.first - 1:
        return "expired"
    return None


def resolve_resume_seq(at: Cursor, record: SessionRecord) -> int:
    """Return the seq after which a response without `reset` events begins. Raise `CursorGone`."""
    reason = reset_reason(at, record) if at.seq >= 0 else None
    if reason is not None:
        log_range = f"{record.first} to {record.last} of epoch {record.epoch}"
        raise CursorGone(f"this cursor cannot be continued ({reason}): the log is {log_range}")
    return last_complete_seq(at)


def option_values(hint: object) -> dict[str, Any]:
    """Return the values of an option by their text: those of a flag, or of a `Literal`."""
    if hint is bool:
        return {"true": True, "false": False}
    return {value: value for value in get_args(hint)}


OPTION_VALUES = {name: option_values(hint) for name, hint in get_type_hints(DialectOptions).items()}


def parse_dialect_options(query: Mapping[str, str], defaults: DialectOptions) -> DialectOptions:
    changes = {}
    for name, values in OPTION_VALUES.items():
        text = query.get(name)
        if text is None:
            continue
        if text not in values:
            raise BadInput(f"expected {' or '.join(values)}, got {quote(text)}", name)
        changes[name] = values[text]
    return structs.replace(defaults, **changes)


def parse_dialect_request(
    query: QueryParams, dialects: DialectRegistry, default: DialectRequest
) -> DialectRequest:
    """Return the dialect and the options that a query names; `default` has those that it does not name."""
    name = query.get("dialect", default.name)
    if name not in dialects.names:
        expected = ", ".join(dialects.names)
        raise BadInput(f"expected one of the dialects {expected}, got {quote(name)}", "dialect")
    request = dialects.request(name, parse_dialect_options(query, default.options))
    if request.options.ids == "dense" and not request.has_dense_ids:
        raise BadInput(f"expected a dialect with dense ids, got {name}", "ids")
    return request


def parse_format(query: QueryParams) -> str | None:
    """Return the dialect that `format=` names as document 003 does; None without it."""
    text = query.get("format")
    if text is None:
        return None
    if text not in FORMAT_DIALECTS:
        raise BadInput(f"expected {' or '.join(FORMAT_DIALECTS)}, got {quote(text)}", "format")
    if query.get("dialect", FORMAT_DIALECTS[text]) != FORMAT_DIALECTS[text]:
        raise BadInput("expected a format or a dialect, got two that differ", "format")
    return FORMAT_DIALECTS[text]


def parse_event_filter(query: QueryParams) -> EventFilter:
    types = tuple(name for name in query.get("types", "").split(",") if name)
    if len(types) > MAX_TYPES:
        raise BadInput(f"expected at most {MAX_TYPES} types, got {len(types)}", "types")

    depth = None
    text = query.get("depth")
    if text is not None:
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DEPTH_DIGITS):
            raise BadInput(f"expected a depth like 0 or 1, got {quote(text)}", "depth")
        depth = int(text)
    return EventFilter(types, depth, query.get("turn") or None)
