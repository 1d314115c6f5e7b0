"""The front: nothing gets past its checks, whichever way it is answered, and every answer says the same."""

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Scope

from turnlog.errors import NotFound
from turnlog.server.middleware import SECURITY_HEADERS, RequestChecksMiddleware

PATHS = ["/routed", "/direct"]


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {request.query_params.get('name', '')}")


async def missing(_: Request) -> Response:
    raise NotFound("no such thing")


async def broken(_: Request) -> Response:
    raise ValueError("this is nobody's fault but ours")


async def framed(_: Request) -> Response:
    return PlainTextResponse("mine", headers={"referrer-policy": "origin"})


async def never(scope: Scope) -> Response | None:
    return PlainTextResponse("no", 403)


async def marked(scope: Scope) -> Response | None:
    scope["marked"] = True
    return None


async def only_marked(scope: Scope) -> Response | None:
    return None if scope.get("marked") else PlainTextResponse("not marked", 401)


ROUTES = [Route("/routed", hello), Route("/framed", framed)]
DIRECT = [Route("/direct", hello), Route("/missing", missing), Route("/broken", broken)]


def behind(*checks: Any, **given: Any) -> Starlette:
    """An application with some routes that are answered by its front, and some that are not."""
    front = Middleware(RequestChecksMiddleware, checks=checks, bypass_router=DIRECT, **given)
    return Starlette(routes=[*ROUTES, *DIRECT], middleware=[front])


def ask(application: Starlette, path: str, method: str = "GET", root: str = "") -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer; the route that the journal tells is in the headers too."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": root + path, "root_path": root, "headers": [],
        "query_string": b"name=ada",
    }  # fmt: skip
    asyncio.run(application(scope, receive, send))
    start, *body = sent
    named = dict(start["headers"])
    route = scope.get("route")
    return start["status"], named | {"route": route and route.path}, b"".join(one["body"] for one in body)


@pytest.mark.parametrize("path", PATHS)
def test_a_route_answers_the_same_from_the_front_and_from_the_router(path: str) -> None:
    status, headers, body = ask(behind(), path)
    assert (status, body, headers["route"]) == (200, b"hello ada", path)


@pytest.mark.parametrize("path", [*PATHS, "/missing", "/broken", "/nowhere"])
def test_whatever_is_asked_the_first_check_that_refuses_answers(path: str) -> None:
    assert ask(behind(marked, never, only_marked), path)[::2] == (403, b"no")
    assert ask(behind(only_marked, never), path)[::2] == (401, b"not marked")


@pytest.mark.parametrize("path", PATHS)
def test_checks_see_what_those_before_them_left(path: str) -> None:
    assert ask(behind(marked, only_marked), path)[0] == 200


def test_what_a_direct_route_refuses_is_answered_as_everywhere() -> None:
    status, _, body = ask(behind(), "/missing")
    assert (status, body) == (404, b'{"error":"no such thing"}')


def test_an_error_that_is_no_refusal_goes_to_the_server() -> None:
    with pytest.raises(ValueError, match="but ours"):
        ask(behind(), "/broken")


def test_another_method_is_the_routers() -> None:
    assert ask(behind(), "/direct", "POST")[0] == 405


@pytest.mark.parametrize(
    ("path", "checks"), [("/routed", []), ("/direct", []), ("/missing", []), ("/nowhere", []), ("/", [never])]
)
def test_every_answer_says_how_browsers_must_treat_it(path: str, checks: list[Any]) -> None:
    headers = ask(behind(*checks), path)[1]
    assert [(name, headers.get(name)) for name, _ in SECURITY_HEADERS] == SECURITY_HEADERS


def test_an_answer_that_says_it_itself_is_left_alone() -> None:
    assert ask(behind(), "/framed")[1][b"referrer-policy"] == b"origin"


def test_control_without_headers_nothing_is_said() -> None:
    headers = ask(behind(headers=()), "/direct")[1]
    assert [name for name, _ in SECURITY_HEADERS if name in headers] == []


@pytest.mark.parametrize("path", PATHS)
def test_mounted_the_paths_are_below_the_prefix(path: str) -> None:
    host = Starlette(routes=[Mount("/log", behind(marked, only_marked))])
    assert ask(host, f"/log{path}")[2] == b"hello ada"
    assert ask(behind(), path, root="/log")[2] == b"hello ada"
