"""Pages of lists: the query parameters `after` and `limit`, and the cursor `next` of a response."""

from starlette.datastructures import QueryParams

from turnlog.errors import BadInput, quote
from turnlog.events import is_session_id
from turnlog.log import ListPosition

MAX_TIME_DIGITS = 16
MAX_LIMIT_DIGITS = 9


def parse_page_cursor(query: QueryParams) -> ListPosition | None:
    """Return the position after which a page begins; None for the first page."""
    text = query.get("after")
    if not text:
        return None

    time, _, session_id = text.partition("-")
    is_time = time.isascii() and time.isdigit() and len(time) <= MAX_TIME_DIGITS
    if not is_time or not is_session_id(session_id):
        raise BadInput(f"expected the `next` of a page before, got {quote(text)}", "after")
    return ListPosition(int(time), session_id)


def format_page_cursor(position: ListPosition | None) -> str | None:
    if position is None:
        return None
    return f"{position.active_ms}-{position.session_id}"


def parse_limit(query: QueryParams, name: str, default: int, maximum: int) -> int:
    text = query.get(name)
    if text is None:
        return default

    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_LIMIT_DIGITS
    if not is_number or not 1 <= int(text) <= maximum:
        raise BadInput(f"expected a number from 1 to {maximum}, got {quote(text)}", name)
    return int(text)
