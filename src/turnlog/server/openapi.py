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
    says: str
    body: type | None = None
    query: Mapping[str, str] = {}
    answers: Mapping[int, Any] = {200: None}
    media_type: str = "application/json"
    public: bool = False
    body_type: str = "application/json"


def get(path: str, endpoint: Endpoint, says: str, answer: Any = None, **more: Any) -> Operation:
    """A route that only looks."""
    return Operation("GET", path, endpoint, says, **{"answers": {200: answer}, **more})


def post(
    path: str, endpoint: Endpoint, says: str, body: type | None, answers: Mapping[int, Any], **more: Any
) -> Operation:
    """A route that does something."""
    return Operation("POST", path, endpoint, says, body, answers=answers, **more)


class Refusal(msgspec.Struct):
    """Why something was not done."""

    error: str


WORDS = str.maketrans("/-{}.", "_____")  # what an operation is called, made of its path
REFUSALS = {
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


def openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The description of all routes, as OpenAPI 3.1."""
    operations = list(operations)
    types = [kind for one in operations for kind in (one.body, *one.answers.values()) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [Refusal, *types], ref_template="#/components/schemas/{name}"
    )
    known = {repr(kind): schema for kind, schema in zip([Refusal, *types], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, known)
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


def _described(one: Operation, known: Mapping[str, Any]) -> dict[str, Any]:
    """One operation."""
    described: dict[str, Any] = {
        "summary": one.says,
        "operationId": f"{one.method.lower()}{one.path.translate(WORDS)}",
        "responses": {str(status): _answer(one, kind, known) for status, kind in one.answers.items()},
    }
    inside = [name[1:-1] for name in one.path.split("/") if name.startswith("{")]
    described["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in inside
    ] + [
        {"name": name, "in": "query", "description": says, "schema": {"type": "string"}}
        for name, says in one.query.items()
    ]
    if one.body is not None:
        content = {one.body_type: {"schema": known[repr(one.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    if one.public:
        described["security"] = []
    refusal = {"application/json": {"schema": known[repr(Refusal)]}}
    for status, says in REFUSALS.items():
        described["responses"].setdefault(str(status), {"description": says, "content": refusal})
    return described


def _answer(one: Operation, kind: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    if kind is not None:
        return {"description": one.says, "content": {one.media_type: {"schema": known[repr(kind)]}}}
    plain = one.media_type != "application/json"
    return {"description": one.says, **({"content": {one.media_type: {}}} if plain else {})}
