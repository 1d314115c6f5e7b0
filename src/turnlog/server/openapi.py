"""Operations: one description of a route, from which the router and the OpenAPI document are built."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

Endpoint = Callable[..., Any]


class Operation(NamedTuple):
    """One route. `query` describes each parameter; `responses` maps a status to the type of its body.

    `other_bodies` are further types that the body may have.
    `media_type` is that of the response, `body_type` that of the request. A `public` route needs no sign-in.
    A route that `bypasses_router` is called by the middleware (`middleware`).
    """

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
    other_bodies: tuple[Any, ...] = ()
    bypasses_router: bool = False


def get_route(path: str, endpoint: Endpoint, summary: str, response: Any = None, **more: Any) -> Operation:
    return Operation("GET", path, endpoint, summary, **{"responses": {200: response}, **more})


def post_route(
    path: str, endpoint: Endpoint, summary: str, body: type | None, responses: Mapping[int, Any], **more: Any
) -> Operation:
    return Operation("POST", path, endpoint, summary, body, responses=responses, **more)


class ErrorBody(msgspec.Struct):
    """Why the server refused the request."""

    error: str


OPERATION_ID_CHARS = str.maketrans("/-{}.", "_____")  # an operation id is made from the path
ERROR_DESCRIPTIONS = {
    400: "the request is wrong; the error says where",
    401: "not signed in",
    403: "not allowed: the caller may not do this, or a page of another site sent the request",
    404: "it does not exist, or the caller may not see it",
    409: "it was answered before with another value, or the log has moved on",
    410: "the cursor cannot be continued, or the recording has ended",
    412: "the caller is not the principal that `Turnlog-Principal` names",
    413: "too large",
    415: "not JSON",
    421: "a host that this server does not answer for",
    429: "too many requests",
    503: "the server has not started, or is stopping",
    507: "the log cannot be written or read",
}


def build_openapi(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    operations = list(operations)
    types: list[Any] = [ErrorBody]
    for operation in operations:
        for type_ in (operation.body, *operation.other_bodies, *operation.responses.values()):
            if type_ is not None:
                types.append(type_)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_by_type = {repr(type_): schema for type_, schema in zip(types, schemas, strict=True)}

    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        methods = paths.setdefault(without_converters(operation.path), {})
        methods[operation.method.lower()] = _describe_operation(operation, schema_by_type)
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


def without_converters(path: str) -> str:
    """Return a path of the router as OpenAPI writes it: `{path:path}` is `{path}`."""
    return path.replace(":path}", "}")


def _describe_operation(operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    path = without_converters(operation.path)
    description: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.method.lower() + path.translate(OPERATION_ID_CHARS),
        "responses": _describe_responses(operation, schemas),
        "parameters": _describe_parameters(operation),
    }
    if operation.body is not None:
        schema = schemas[repr(operation.body)]
        if operation.other_bodies:
            schema = {"anyOf": [schema, *(schemas[repr(type_)] for type_ in operation.other_bodies)]}
        content = {operation.body_type: {"schema": schema}}
        description["requestBody"] = {"required": True, "content": content}
    if operation.public:
        description["security"] = []
    return description


def _describe_parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for part in without_converters(operation.path).split("/"):
        if part.startswith("{"):
            parameters.append(
                {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
            )
    for name, text in operation.query.items():
        parameters.append({"name": name, "in": "query", "description": text, "schema": {"type": "string"}})
    return parameters


def _describe_responses(operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, type_ in operation.responses.items():
        response: dict[str, Any] = {"description": operation.summary}
        if type_ is not None:
            response["content"] = {operation.media_type: {"schema": schemas[repr(type_)]}}
        elif operation.media_type != "application/json":
            response["content"] = {operation.media_type: {}}
        responses[str(status)] = response

    error_content = {"application/json": {"schema": schemas[repr(ErrorBody)]}}
    for status, text in ERROR_DESCRIPTIONS.items():
        responses.setdefault(str(status), {"description": text, "content": error_content})
    return responses
