"""The description of the routes: valid OpenAPI, of every route and of no other, as the protocol has them."""

import re
from pathlib import Path
from typing import Any

from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.support.coverage_pause import without_coverage
from tests.support.tables import for_each_row
from turnlog.app import LOCAL, App
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.console_files import console_routes
from turnlog.server.openapi import Operation, build_openapi
from turnlog_examples.tour import make_app

PROTOCOL = Path(__file__).parent.parent.parent.parent / "docs" / "protocol.md"
TOKEN = "a" * 32
UNTOLD = {
    "/openapi.json",
    *(route.path for route in console_routes()),
}  # the description itself, and the files of the page

ROW = re.compile(r"^\| `(GET|POST) (/[^ ?`]*)(?:\?([^` ]*))?(?:` `(\{.*?\}))?` \| (.*) \|$", re.MULTILINE)
ANSWER = re.compile(r"^(\d{3})? ?`(\{.*?\})`")
FIELD = re.compile(r'"(\w+)"(\??)')


def visitor() -> TestClient:
    app = create_app(make_app(), "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token(TOKEN): LOCAL}))
    return TestClient(app, base_url="http://localhost", headers={"authorization": f"Bearer {TOKEN}"})


def described() -> dict[str, Any]:
    with visitor() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


DOCUMENT = described()


def rows() -> list[tuple[str, str, str, str, str]]:
    """The table of routes: method, path, query, body, answer."""
    text = PROTOCOL.read_text()
    table = text[text.index("### 8.3") : text.index("## 9.")]
    found = [row.groups(default="") for row in ROW.finditer(table)]
    assert len(found) == len(re.findall(r"^\| `", table, re.MULTILINE)), "every row is read"
    return found  # type: ignore[return-value]


def operation(method: str, path: str) -> Any:
    return DOCUMENT["paths"][re.sub(r"<(\w+)>", r"{\1}", path).replace("{hash}", "{digest}")][method.lower()]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


def test_what_is_no_route_is_refused_in_words_like_all_else() -> None:
    with visitor() as client:
        unknown, wrong = client.post("/api/chat/"), client.get("/api/send")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Not Found: POST /api/chat/"})
    assert (wrong.status_code, wrong.json()) == (405, {"error": "Method Not Allowed: GET /api/send"})
    assert wrong.headers["allow"] == "POST"


@without_coverage()
def test_the_document_is_valid_openapi() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


def test_a_document_that_is_not_would_be_seen() -> None:
    wrong = build_openapi([Operation("GET", "/x/{y}", described, "No.")], "1")
    del wrong["paths"]["/x/{y}"]["get"]["parameters"]
    assert list(OpenAPIV31SpecValidator(wrong).iter_errors()) != []


def test_every_route_is_described_and_nothing_else() -> None:
    app = create_app(App("plain", make_app().agent), "memory:")
    routes = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path not in UNTOLD
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert len(app.routes) == len(routes) + len(UNTOLD)
    told = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert told == routes


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in names), names


def test_who_need_not_sign_in_is_said() -> None:
    free = {
        path
        for path, methods in DOCUMENT["paths"].items()
        if any(m.get("security") == [] for m in methods.values())
    }
    assert free == {"/sign-in", "/healthz"}


def test_streams_and_downloads_say_what_they_are() -> None:
    kinds = {
        path: list(methods["get"]["responses"]["200"].get("content", {}))
        for path, methods in DOCUMENT["paths"].items()
        if "get" in methods and "200" in methods["get"]["responses"]
    }
    assert kinds["/api/events"] == ["text/event-stream"]
    assert kinds["/api/log"] == ["application/jsonl"]
    assert kinds["/metrics"] == ["text/plain"]
    assert kinds["/api/me"] == ["application/json"]
    assert all(kinds.values())


def test_the_protocol_and_the_document_name_the_same_routes() -> None:
    sign = {
        ("GET", "/sign-in"),
        ("POST", "/sign-in"),
        ("POST", "/api/sign-in"),
        ("POST", "/api/sign-out"),
    }  # in section 8.1
    told = {
        (method, re.sub(r"<(\w+)>", r"{\1}", path).replace("{hash}", "{digest}"))
        for method, path, *_ in rows()
    }
    assert told | sign == {(m.upper(), path) for path, methods in DOCUMENT["paths"].items() for m in methods}
    assert all(path in PROTOCOL.read_text() for _, path in sign)


@for_each_row("row", [row for row in rows() if row[3]], ids=lambda row: row[1])
def test_bodies_are_those_of_the_protocol(row: tuple[str, ...]) -> None:
    method, path, _, body, _ = row
    schema = operation(method, path)["requestBody"]["content"]["application/json"]["schema"]
    schema = resolved(schema.get("anyOf", [schema])[0])
    outer = re.sub(r"\[.*\]", "", body)
    assert {name for name, _ in FIELD.findall(outer)} == set(schema["properties"])
    assert {name for name, free in FIELD.findall(outer) if not free} == set(schema.get("required", []))
    # These routes ignore fields that they do not know, as documents 003 and 004 do (protocol 8.3).
    ignores_unknown_fields = path == "/api/send" or path.startswith("/agent/")
    assert schema.get("additionalProperties", True) is ignores_unknown_fields


@for_each_row("row", [row for row in rows() if ANSWER.match(row[4])], ids=lambda row: row[1])
def test_answers_are_those_of_the_protocol(row: tuple[str, ...]) -> None:
    method, path, *_, answer = row
    match = ANSWER.match(answer)
    assert match
    status, fields = match.groups()
    content = operation(method, path)["responses"][status or "200"]["content"]["application/json"]
    outer = re.sub(r"\[.*\]", "", fields)
    assert {name for name, _ in FIELD.findall(outer)} == set(resolved(content["schema"])["properties"]) - {
        "session"
    }


@for_each_row("row", [row for row in rows() if row[2]], ids=lambda row: row[1])
def test_parameters_are_those_of_the_protocol(row: tuple[str, ...]) -> None:
    method, path, query, *_ = row
    asked = {one["name"] for one in operation(method, path)["parameters"] if one["in"] == "query"}
    assert set(re.findall(r"(\w+)=", query)) == asked


EXAMPLES: list[tuple[str, Any]] = [
    ("/api/sessions", {}),
    ("/api/sessions", {"app": "tour", "title": "Oslo"}),
    ("/api/send", {"message": "Hello"}),
    ("/api/send", {"message": "Hello", "session": "sess_1", "targetAgent": "Guide", "channel": "guest"}),
    ("/agent/run", {"user_prompt": {"any": ["thing"]}, "agent_uuid": "sess_1"}),
    ("/agent/tool_results", {"agent_uuid": "sess_1", "tool_results": [{"tool_use_id": "c", "content": 1}]}),
    ("/api/events", {"session": "sess_1", "events": [{"type": "tool.result", "payload": {"call_id": "c"}}]}),
    ("/api/stop", {"session": "sess_1"}),
    ("/api/members", {"session": "sess_1", "principal": "bob", "roles": []}),
    ("/api/links", {"session": "sess_1", "roles": ["guest"]}),
]
WRONG: list[tuple[str, Any]] = [
    ("/api/sessions", {"name": "x"}),
    ("/api/sessions", {"title": ""}),
    ("/api/send", {"type": "user_dance"}),
    ("/api/send", {"message": 1}),
    ("/api/events", {"session": "sess_1", "events": [{"payload": {}}]}),
    ("/api/members", {"session": "sess_1", "principal": "bob", "roles": ["Owner"]}),
    ("/api/links", {"session": "sess_1", "roles": []}),
    ("/agent/tool_results", {"agent_uuid": "sess_1", "tool_results": [{"content": 1}]}),
]


def valid(path: str, body: Any) -> bool:
    """Whether the document lets a body through."""
    schema = operation("POST", path)["requestBody"]["content"]["application/json"]["schema"]
    validator = OAS31Validator({**schema, "components": DOCUMENT["components"]})
    return bool(validator.is_valid(body))


@for_each_row(("path", "body"), EXAMPLES)
def test_requests_that_are_right_fit(path: str, body: Any) -> None:
    assert valid(path, body)


@for_each_row(("path", "body"), WRONG)
def test_requests_that_are_wrong_do_not(path: str, body: Any) -> None:
    assert not valid(path, body)


def test_the_server_agrees_with_its_description() -> None:
    app = create_app(make_app(), "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token(TOKEN): LOCAL}))
    with TestClient(app, base_url="http://localhost", headers={"authorization": f"Bearer {TOKEN}"}) as client:
        for path, body in EXAMPLES:
            assert client.post(path, json=body).status_code in (200, 201, 202, 404), path
        for path, body in WRONG:
            answer = client.post(path, json=body)
            assert (answer.status_code, list(answer.json())) == (400, ["error"]), path
