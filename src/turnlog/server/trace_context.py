"""The W3C trace context of a request: the header `traceparent`."""

from starlette.requests import Request

from turnlog.events.ui import Traceparent
from turnlog.parse.json_values import convert_or_none


def read_traceparent(request: Request) -> str | None:
    """Return the trace context of a request; None without one, or if it is invalid, as W3C demands."""
    traceparent: str | None = convert_or_none(request.headers.get("traceparent"), Traceparent)
    return traceparent
