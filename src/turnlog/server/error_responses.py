"""What is refused, as JSON that a person can read; which status an error has is a table."""

import math
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app.client_events import InvalidAction
from turnlog.errors import (
    BadInput,
    CallerError,
    Conflict,
    Forbidden,
    InvalidEvent,
    LimitReached,
    NotFound,
    RuleError,
    SessionClosed,
    StoreError,
    TurnlogError,
    Unavailable,
    UnknownType,
)
from turnlog.server.html_pages import accepts_html, error_page
from turnlog.server.limits import RateLimitExceeded
from turnlog.server.request_body import OversizedBody, UnsupportedBody
from turnlog.server.streaming.query import CursorGone


class NotStarted(TurnlogError):
    """A request before the lifespan has begun, or after it has ended."""


STATUS_BY_ERROR = {
    UnsupportedBody: 415,
    OversizedBody: 413,
    BadInput: 400,
    InvalidEvent: 400,
    UnknownType: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    SessionClosed: 409,
    LimitReached: 409,
    CursorGone: 410,
    RateLimitExceeded: 429,
    NotStarted: 503,
    CallerError: 400,
    RuleError: 500,
    Unavailable: 503,
    StoreError: 507,
}
NOT_FOUND_STATUS = 404
RETRYABLE_STATUSES = {429, 503}  # the same request may succeed in a second


def error_response(error: Exception) -> Response:
    """What is answered for an error."""
    status = next((STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR), 500)
    said: dict[str, Any] = {"error": str(error)}
    if isinstance(error, InvalidAction):
        said["fault"] = error.fault
    headers = {"retry-after": "1"} if status in RETRYABLE_STATUSES else None
    if isinstance(error, RateLimitExceeded):
        headers = {"retry-after": str(math.ceil(error.retry_after_s))}
    return Response(msgspec.json.encode(said), status, headers, "application/json")


async def handle_error(_: Request, error: Exception) -> Response:
    """The same, as Starlette asks for it."""
    return error_response(error)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """What is answered where there is no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == NOT_FOUND_STATUS and accepts_html(request.scope):
        return error_page(request.scope, "There is no such page", error.status_code)
    said = {"error": f"{error.detail}: {request.method} {request.url.path[:80]}"}
    return Response(msgspec.json.encode(said), error.status_code, error.headers, "application/json")
