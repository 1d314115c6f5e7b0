"""Errors as JSON responses: a table maps each class of error to its HTTP status."""

import logging
import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from turnlog.app.client_events import InvalidAction
from turnlog.errors import (
    BadInput,
    CallerError,
    Conflict,
    Fenced,
    Forbidden,
    InvalidEvent,
    LimitReached,
    NotFound,
    RuleError,
    SessionClosed,
    SessionDamaged,
    StoreAway,
    StoreError,
    TurnlogError,
    Unavailable,
    UnknownType,
)
from turnlog.server.html_pages import accepts_html, error_page
from turnlog.server.limits.rate_limiter import RateLimitExceeded
from turnlog.server.request_body import OversizedBody, UnsupportedBody
from turnlog.server.responses import json_error, json_response
from turnlog.server.streaming.query import CursorGone

log = logging.getLogger("turnlog.server")


class NotStarted(TurnlogError):
    """A request came before the lifespan has begun, or after it has ended."""


# The status of an error is that of the first class in its method resolution order that is here; else 500.
STATUS_BY_ERROR = {
    UnsupportedBody: 415,
    OversizedBody: 413,
    BadInput: 400,
    InvalidEvent: 400,
    UnknownType: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Fenced: 410,
    SessionClosed: 409,
    LimitReached: 409,
    CursorGone: 410,
    RateLimitExceeded: 429,
    NotStarted: 503,
    CallerError: 400,
    RuleError: 500,
    Unavailable: 503,
    StoreAway: 503,
    StoreError: 507,
}
NOT_FOUND_STATUS = 404
STORE_AWAY_MESSAGE = "the database of the log does not answer; try again"
STORE_FAILED_MESSAGE = "the log of this server failed; its operator finds the reason in what the server logs"
RETRYABLE_STATUSES = {429, 503}  # the same request may succeed after a second


def error_response(error: Exception) -> Response:
    body: dict[str, Any] = {"error": get_public_message(error)}
    if isinstance(error, InvalidAction):
        body["fault"] = error.fault

    status = find_status(error)
    headers = {}
    if isinstance(error, RateLimitExceeded):
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif status in RETRYABLE_STATUSES:
        headers["retry-after"] = "1"
    return json_response(body, status, headers)


def get_public_message(error: Exception) -> str:
    """Return the message of an error. What a store says is logged: its hosts, roles and tables are no
    business of members."""
    if isinstance(error, StoreAway):  # the store has logged it when it went away
        return STORE_AWAY_MESSAGE
    if isinstance(error, StoreError) and not isinstance(error, SessionDamaged | Unavailable):
        log.error("the log failed: %s", error)
        return STORE_FAILED_MESSAGE
    return str(error)


def find_status(error: Exception) -> int:
    for error_class in type(error).__mro__:
        if error_class in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[error_class]
    return 500


async def handle_error(_: Request, error: Exception) -> Response:
    return error_response(error)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == NOT_FOUND_STATUS and accepts_html(request.scope):
        return error_page(request.scope, "There is no such page", error.status_code)
    message = f"{error.detail}: {request.method} {request.url.path[:80]}"
    return json_error(message, error.status_code, error.headers)
