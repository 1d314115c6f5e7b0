"""What a reader of `GET /api/events` asks for: sessions, dialect and options, and which events.

Filters choose log events, and a dialect tells the chosen ones as it tells them without a filter: `types=`
takes full names or their first words, `depth=` that depth and less, `turn=` one turn. What a request gets
wrong is a `BadInput` that names the parameter.
"""

from collections.abc import Mapping
from dataclasses import replace

from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, TurnlogError, quote
from turnlog.log import SessionRecord
from turnlog.log.filter import EventFilter
from turnlog.wire import cursor
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import BlocksOptions, DialectFactory
from turnlog.wire.dialects.registry import DIALECT_NAMES, DialectRequest

MAX_TYPES = 64  # names in one filter
MAX_SESSIONS = 32  # on one stream


class CursorGone(TurnlogError):
    """A cursor that cannot be continued."""


def parse_session_ids(query: QueryParams) -> list[str]:
    """The sessions a request names, each once."""
    names = query.get("session", "").split(",")
    if len(names) > MAX_SESSIONS:
        raise BadInput(f"expected at most {MAX_SESSIONS} sessions, got {len(names)}", "session")
    if len(set(names)) < len(names):
        raise BadInput("expected each session once", "session")
    return names


def parse_cursors(text: str, session_count: int) -> list[Cursor]:
    """A cursor for each session: none, or as many as there are sessions."""
    parts = text.split(",") if text.strip() else [""] * session_count
    if len(parts) != session_count:
        raise BadInput(
            f"expected {session_count} cursors with commas between them, got {len(parts)}", "after"
        )
    return [cursor.parse_cursor(part) for part in parts]


def with_epoch(at: Cursor, head: SessionRecord) -> Cursor:
    """A cursor that says which epoch it means: a bare number means the one of now."""
    return replace(at, epoch=at.epoch or head.epoch) if at.seq >= 0 else at


def last_complete_seq(at: Cursor) -> int:
    """The last seq that was seen whole: a chunk of another dialect says nothing of an event."""
    return at.seq if at.chunk is None else at.seq - 1


def reset_reason(at: Cursor, head: SessionRecord) -> str | None:
    """Why a cursor cannot be continued, if it cannot."""
    if at.epoch is not None and at.epoch != head.epoch:
        return "epoch"
    if at.seq > head.last:
        return "ahead"
    return "expired" if at.seq < head.first - 1 else None


def resolve_resume_seq(at: Cursor, head: SessionRecord) -> int:
    """The seq after which a plain answer begins; a cursor that cannot be continued is gone."""
    if at.seq >= 0 and (reason := reset_reason(at, head)):
        raise CursorGone(
            f"this cursor cannot be continued ({reason}): the log is {head.epoch}:{head.first} to {head.last}"
        )
    return last_complete_seq(at)


def parse_dialect_request(
    query: QueryParams, app_dialects: Mapping[str, DialectFactory], default: str = "turnlog"
) -> DialectRequest:
    """The dialect and the options a request asks for; it may be one of the applications' own."""
    name, names = query.get("dialect", default), (*DIALECT_NAMES, *app_dialects)
    if name not in names:
        raise BadInput(f"expected one of the dialects {', '.join(names)}, got {quote(name)}", "dialect")
    options = {key: parse_flag(query[key], key) for key in BlocksOptions.__struct_fields__ if key in query}
    return DialectRequest(name, BlocksOptions(**options), app_dialects.get(name))


def parse_event_filter(query: QueryParams) -> EventFilter:
    """The events a request asks for."""
    types = tuple(name for name in query.get("types", "").split(",") if name)
    if len(types) > MAX_TYPES:
        raise BadInput(f"expected at most {MAX_TYPES} types, got {len(types)}", "types")
    depth = query.get("depth")
    if depth is not None and not (depth.isascii() and depth.isdigit() and len(depth) <= 9):
        raise BadInput(f"expected a depth like 0 or 1, got {quote(depth)}", "depth")
    return EventFilter(types, None if depth is None else int(depth), query.get("turn") or None)


def parse_flag(text: str, name: str) -> bool:
    """An option of a request."""
    if text not in ("true", "false"):
        raise BadInput(f"expected true or false, got {quote(text)}", name)
    return text == "true"
