"""What a reader of `GET /api/events` asks for: sessions, dialect and options, and which events.

Filters choose log events, and a dialect tells the chosen ones as it tells them without a filter: `types=`
takes full names or their first words, `depth=` that depth and less, `turn=` one turn. What a request gets
wrong is a `BadInput` that names the parameter.
"""

from collections.abc import Mapping
from dataclasses import replace

from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, TurnlogError, quote
from turnlog.log import Head
from turnlog.log.filter import Choice
from turnlog.wire import cursor
from turnlog.wire.cursor import Cursor
from turnlog.wire.dialects.base import BlocksOptions
from turnlog.wire.dialects.registry import DIALECTS, Make, Wanted

TYPES = 64  # names in one filter
SESSIONS = 32  # on one stream


class Gone(TurnlogError):
    """A cursor that cannot be continued."""


def wanted_sessions(query: QueryParams) -> list[str]:
    """The sessions a request names, each once."""
    names = query.get("session", "").split(",")
    if len(names) > SESSIONS:
        raise BadInput(f"expected at most {SESSIONS} sessions, got {len(names)}", "session")
    if len(set(names)) < len(names):
        raise BadInput("expected each session once", "session")
    return names


def wanted_cursors(text: str, sessions: int) -> list[Cursor]:
    """A cursor for each session: none, or as many as there are sessions."""
    parts = text.split(",") if text.strip() else [""] * sessions
    if len(parts) != sessions:
        raise BadInput(f"expected {sessions} cursors with commas between them, got {len(parts)}", "after")
    return [cursor.parse(part) for part in parts]


def in_epoch(at: Cursor, head: Head) -> Cursor:
    """A cursor that says which epoch it means: a bare number means the one of now."""
    return replace(at, epoch=at.epoch or head.epoch) if at.seq >= 0 else at


def whole(at: Cursor) -> int:
    """The last seq that was seen whole: a chunk of another dialect says nothing of an event."""
    return at.seq if at.chunk is None else at.seq - 1


def reset_reason(at: Cursor, head: Head) -> str | None:
    """Why a cursor cannot be continued, if it cannot."""
    if at.epoch is not None and at.epoch != head.epoch:
        return "epoch"
    if at.seq > head.last:
        return "ahead"
    return "expired" if at.seq < head.first - 1 else None


def continued(at: Cursor, head: Head) -> int:
    """The seq after which a plain answer begins; a cursor that cannot be continued is gone."""
    if at.seq >= 0 and (reason := reset_reason(at, head)):
        raise Gone(
            f"this cursor cannot be continued ({reason}): the log is {head.epoch}:{head.first} to {head.last}"
        )
    return whole(at)


def wanted_dialect(query: QueryParams, own: Mapping[str, Make], default: str = "turnlog") -> Wanted:
    """The dialect and the options a request asks for; it may be one of the applications' own."""
    name, names = query.get("dialect", default), (*DIALECTS, *own)
    if name not in names:
        raise BadInput(f"expected one of the dialects {', '.join(names)}, got {quote(name)}", "dialect")
    options = {key: flag(query[key], key) for key in BlocksOptions.__struct_fields__ if key in query}
    return Wanted(name, BlocksOptions(**options), own.get(name))


def wanted_events(query: QueryParams) -> Choice:
    """The events a request asks for."""
    types = tuple(name for name in query.get("types", "").split(",") if name)
    if len(types) > TYPES:
        raise BadInput(f"expected at most {TYPES} types, got {len(types)}", "types")
    depth = query.get("depth")
    if depth is not None and not (depth.isascii() and depth.isdigit() and len(depth) <= 9):
        raise BadInput(f"expected a depth like 0 or 1, got {quote(depth)}", "depth")
    return Choice(types, None if depth is None else int(depth), query.get("turn") or None)


def flag(text: str, name: str) -> bool:
    """An option of a request."""
    if text not in ("true", "false"):
        raise BadInput(f"expected true or false, got {quote(text)}", name)
    return text == "true"
