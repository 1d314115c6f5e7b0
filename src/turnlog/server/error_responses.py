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
    Closed,
    Conflict,
    Forbidden,
    InvalidEvent,
    LimitReached,
    NotFound,
    RuleFault,
    StoreError,
    TurnlogError,
    Unavailable,
    UnknownType,
)
from turnlog.server.html_pages import problem_page, wants_page
from turnlog.server.limits import TooMuch
from turnlog.server.request_body import OversizedBody, UnsupportedBody
from turnlog.server.streaming.query import Gone


class NotStarted(TurnlogError):
    """A request before the lifespan has begun, or after it has ended."""


STATUS = {
    UnsupportedBody: 415,
    OversizedBody: 413,
    BadInput: 400,
    InvalidEvent: 400,
    UnknownType: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Closed: 409,
    LimitReached: 409,
    Gone: 410,
    TooMuch: 429,
    NotStarted: 503,
    CallerError: 400,
    RuleFault: 500,
    Unavailable: 503,
    StoreError: 507,
}
NO_PAGE = 404
LATER = {429, 503}  # the same request may succeed in a second


def refusal(error: Exception) -> Response:
    """What is answered for an error."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    said: dict[str, Any] = {"error": str(error)}
    if isinstance(error, InvalidAction):
        said["fault"] = error.fault
    headers = {"retry-after": "1"} if status in LATER else None
    if isinstance(error, TooMuch):
        headers = {"retry-after": str(math.ceil(error.wait_s))}
    return Response(msgspec.json.encode(said), status, headers, "application/json")


async def refuse(_: Request, error: Exception) -> Response:
    """The same, as Starlette asks for it."""
    return refusal(error)


async def refuse_route(request: Request, error: Exception) -> Response:
    """What is answered where there is no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == NO_PAGE and wants_page(request.scope):
        return problem_page(request.scope, "There is no such page", error.status_code)
    said = {"error": f"{error.detail}: {request.method} {request.url.path[:80]}"}
    return Response(msgspec.json.encode(said), error.status_code, error.headers, "application/json")
