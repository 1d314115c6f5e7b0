"""The query parameters of `GET /api/events`: sessions, cursors, dialect and options, filters.

Filters select log events, which a dialect then converts as without a filter. `types=` takes full names or
their first words, `depth=` that depth and less, `turn=` one turn. A wrong value raises `BadInput` with the
name of the parameter. A cursor is never wrong: see `parse_request_cursor`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, TurnlogError, quote
from turnlog.log import SessionRecord
from turnlog.log.filter import EventFilter
from turnlog.wire.cursor import END, UNKNOWN_POSITION, Cursor, parse_request_cursor
from turnlog.wire.dialects.base import BlocksOptions
from turnlog.wire.dialects.registry import DialectRegistry, DialectRequest

MAX_TYPES = 64  # names in one filter
MAX_SESSIONS = 32  # on one stream
MAX_DEPTH_DIGITS = 9
FLAG_VALUES = {"true": True, "false": False}
OPTION_VALUES: dict[str, dict[str, Any]] = {
    "stream_meta_history_and_tool_results": FLAG_VALUES,
    "stream_tool_results": FLAG_VALUES,
    "images": {"url": "url", "inline": "inline"},
    "citations": {"chunks": "chunks", "whole": "whole"},
    "ids": {"seq": "seq", "dense": "dense"},
}


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
    """Return the last seq of which every frame was seen. A chunk of another dialect does not count."""
    return at.seq if at.chunk is None else at.seq - 1


def reset_reason(at: Cursor, record: SessionRecord) -> str | None:
    """Return why the log cannot continue a cursor, or None if it can."""
    if at.epoch is not None and at.epoch != record.epoch:
        return "epoch"
    if at.seq > record.last:
        return "ahead"
    if at.seq < record.first - 1:
        return "expired"
    return None


def resolve_resume_seq(at: Cursor, record: SessionRecord) -> int:
    """Return the seq after which a response without `reset` events begins; raise `CursorGone`."""
    reason = reset_reason(at, record) if at.seq >= 0 else None
    if reason is not None:
        log_range = f"{record.first} to {record.last} of epoch {record.epoch}"
        raise CursorGone(f"this cursor cannot be continued ({reason}): the log is {log_range}")
    return last_complete_seq(at)


def parse_dialect_request(
    query: QueryParams, dialects: DialectRegistry, default: str = "turnlog"
) -> DialectRequest:
    name = query.get("dialect", default)
    if name not in dialects.names:
        expected = ", ".join(dialects.names)
        raise BadInput(f"expected one of the dialects {expected}, got {quote(name)}", "dialect")
    texts = {key: query[key] for key in BlocksOptions.__struct_fields__ if key in query}
    request = dialects.request(name, parse_block_options(texts))
    if request.options.ids == "dense" and not request.has_dense_ids:
        raise BadInput(f"expected a dialect with dense ids, got {name}", "ids")
    return request


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


def parse_block_options(texts: Mapping[str, str]) -> BlocksOptions:
    """Return the options that the texts name; raise `BadInput` with the name of a wrong one."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        allowed = OPTION_VALUES[name]
        if text not in allowed:
            raise BadInput(f"expected {' or '.join(allowed)}, got {quote(text)}", name)
        values[name] = allowed[text]
    return BlocksOptions(**values)
