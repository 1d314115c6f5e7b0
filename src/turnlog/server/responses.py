"""JSON responses. Every JSON body that the application sends is encoded here."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def json_error(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return json_response({"error": message}, status, headers)
