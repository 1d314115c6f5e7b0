"""What a route is: method, path, what it takes and answers. The routes and their OpenAPI are made of it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

Endpoint = Callable[..., Any]


class Operation(NamedTuple):
    """One route. `query` says what each parameter is; `answers` which body comes with which status."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    body: type | None = None
    query: Mapping[str, str] = {}
    responses: Mapping[int, Any] = {200: None}
    media_type: str = "application/json"
    public: bool = False
    body_type: str = "application/json"


def get_route(path: str, endpoint: Endpoint, summary: str, response: Any = None, **more: Any) -> Operation:
    """A route that only looks."""
    return Operation("GET", path, endpoint, summary, **{"responses": {200: response}, **more})


def post_route(
    path: str, endpoint: Endpoint, summary: str, body: type | None, responses: Mapping[int, Any], **more: Any
) -> Operation:
    """A route that does something."""
    return Operation("POST", path, endpoint, summary, body, responses=responses, **more)


class ErrorBody(msgspec.Struct):
    """Why something was not done."""

    error: str


OPERATION_ID_CHARS = str.maketrans("/-{}.", "_____")  # what an operation is called, made of its path
ERROR_DESCRIPTIONS = {
    400: "the request is wrong; the error says where",
    401: "not signed in",
    403: "not allowed: the caller may not do this, or a page of another site asked",
    404: "there is no such thing for you",
    409: "it has another answer already, or has moved on",
    410: "the cursor cannot be continued",
    412: "the caller is not the principal that `Turnlog-Principal` names",
    413: "too large",
    415: "not JSON",
    421: "a host this server does not answer for",
    429: "too many requests",
    503: "the server has not started, or is stopping",
    507: "the log cannot be written or read",
}


def build_openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The description of all routes, as OpenAPI 3.1."""
    operations = list(operations)
    types = [kind for one in operations for kind in (one.body, *one.responses.values()) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [ErrorBody, *types], ref_template="#/components/schemas/{name}"
    )
    known = {repr(kind): schema for kind, schema in zip([ErrorBody, *types], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _describe_operation(one, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Turnlog", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _describe_operation(operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """One operation."""
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{operation.path.translate(OPERATION_ID_CHARS)}",
        "responses": {
            str(status): _describe_response(operation, kind, schemas)
            for status, kind in operation.responses.items()
        },
    }
    inside = [name[1:-1] for name in operation.path.split("/") if name.startswith("{")]
    described["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in inside
    ] + [
        {"name": name, "in": "query", "description": says, "schema": {"type": "string"}}
        for name, says in operation.query.items()
    ]
    if operation.body is not None:
        content = {operation.body_type: {"schema": schemas[repr(operation.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.public:
        described["security"] = []
    refusal = {"application/json": {"schema": schemas[repr(ErrorBody)]}}
    for status, says in ERROR_DESCRIPTIONS.items():
        described["responses"].setdefault(str(status), {"description": says, "content": refusal})
    return described


def _describe_response(operation: Operation, type_: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    if type_ is not None:
        return {
            "description": operation.summary,
            "content": {operation.media_type: {"schema": schemas[repr(type_)]}},
        }
    plain = operation.media_type != "application/json"
    return {"description": operation.summary, **({"content": {operation.media_type: {}}} if plain else {})}
