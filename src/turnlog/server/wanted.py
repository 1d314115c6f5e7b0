"""What a reader of `GET /api/events` asks for: sessions, dialect and options, and which events.

Filters apply to log events, before the dialect: `types=` takes full names or their first words, `depth=` that
depth and less, `turn=` one turn. What a request gets wrong is a `BadInput` that names the parameter.
"""

from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, quote
from turnlog.log.choice import Choice
from turnlog.wire.dialect import BlocksOptions
from turnlog.wire.telling import DIALECTS, Wanted

TYPES = 64  # names in one filter


def wanted_dialect(query: QueryParams, default: str = "turnlog") -> Wanted:
    """The dialect and the options a request asks for."""
    name = query.get("dialect", default)
    if name not in DIALECTS:
        raise BadInput(f"expected one of the dialects {', '.join(DIALECTS)}, got {quote(name)}", "dialect")
    options = {key: flag(query[key], key) for key in BlocksOptions.__struct_fields__ if key in query}
    return Wanted(name, BlocksOptions(**options))


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
