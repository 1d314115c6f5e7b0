"""Before every route: who is let in, who is not and in which words, alone and mounted."""

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from turnlog.app import Principal
from turnlog.server.auth import authentication
from turnlog.server.auth.authentication import AuthenticationCheck, get_identity
from turnlog.server.auth.credentials import BuiltinAuth, Identity, hash_token
from turnlog.server.limits import Limits
from turnlog.server.limits.rate_limiter import RateLimiter
from turnlog.server.middleware import RequestChecksMiddleware
from turnlog.server.scope_keys import PRINCIPAL_KEY

ADA, BOB = Principal("ada"), Principal("bob", frozenset({"operator"}))
TOKENS = {hash_token("a"): ADA, hash_token("b"): BOB}


class Asked:
    """An application behind the entry that remembers who came."""

    def __init__(self, limits: Limits = Limits(), auth: Any = None) -> None:  # noqa: B008
        self.scopes: list[Scope] = []
        check = AuthenticationCheck(
            auth or BuiltinAuth(b"k" * 32, TOKENS), RateLimiter(limits), ["/", "/healthz"]
        )
        self.entry = RequestChecksMiddleware(self, [check])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def get(self, path: str, token: str = "", **scope: Any) -> tuple[int, dict[str, str], Any]:
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def ask() -> None:
            asked = {"type": "http", "method": "GET", "path": path, "headers": headers, **scope}
            await self.entry(asked, _never, send)

        asyncio.run(ask())
        start, body = sent
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], named, json.loads(body["body"])


async def _never() -> Message:
    raise AssertionError("nobody reads a body")


def test_who_is_known_is_in_the_scope() -> None:
    asked = Asked()
    assert asked.get("/api/me", "b")[0] == 200
    [scope] = asked.scopes
    assert (get_identity(scope).principal, scope[PRINCIPAL_KEY]) == (BOB, BOB)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_who_is_not_known_is_told_how_to_sign_in(token: str) -> None:
    asked = Asked()
    status, headers, body = asked.get("/api/me", token)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert body == {"error": authentication.SIGN_IN_MESSAGE + authentication.HOW_TO_SIGN_IN}
    assert asked.scopes == []


def test_where_people_sign_in_elsewhere_no_link_is_named() -> None:
    class Host:
        async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
            return Identity(ADA) if connection.headers.get("authorization") == "Bearer mine" else None

    asked = Asked(auth=Host())
    assert asked.get("/api/me")[2] == {"error": "sign in first"}
    assert asked.get("/api/me", "mine")[0] == 200


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_public_paths_are_for_everybody(path: str) -> None:
    asked = Asked()
    assert [asked.get(path)[0], asked.get(path, "wrong")[0], asked.get(path, "a")[0]] == [200, 200, 200]
    assert [scope.get(PRINCIPAL_KEY) for scope in asked.scopes] == [None, None, ADA]


@pytest.mark.parametrize(
    "path", ["", "//", "/healthz/", "/healthz/x", "/Healthz", "/api/../healthz", "/healthz;x", "/x/healthz"]
)
def test_a_path_that_only_looks_public_is_not(path: str) -> None:
    assert Asked().get(path)[0] == 401


def test_mounted_the_public_paths_are_below_the_prefix() -> None:
    asked = Asked()
    assert asked.get("/log/healthz", root_path="/log")[0] == 200
    assert asked.get("/log/", root_path="/log")[0] == 200
    assert asked.get("/log/api/me", root_path="/log")[0] == 401
    assert asked.get("/log/healthz", root_path="")[0] == 401


def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    asked = Asked(Limits(requests_per_s=0.1, burst=2))
    answers = [asked.get("/api/me", "a") for _ in range(3)]
    assert [status for status, _, _ in answers] == [200, 200, 429]
    _, headers, body = answers[-1]
    assert 1 <= int(headers["retry-after"]) <= 10
    assert body == {"error": "too many requests, wait a little"}
    assert asked.get("/api/me", "b")[0] == 200, "others are not touched"
    assert asked.get("/healthz", "a")[0] == 200, "nor is what is public"


def test_a_wait_of_less_than_a_second_is_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "turnlog.server.auth.authentication.time.monotonic", lambda: 1000.0
    )  # both requests come at the same moment
    asked = Asked(Limits(requests_per_s=5.0, burst=1))
    assert asked.get("/api/me", "a")[0] == 200
    status, headers, _ = asked.get("/api/me", "a")
    assert (status, headers["retry-after"]) == (429, "1")


def test_what_is_no_request_passes() -> None:
    asked = Asked()
    seen: list[Message] = []

    async def send(message: Message) -> None:
        seen.append(message)

    asyncio.run(asked.entry({"type": "lifespan"}, _never, send))
    assert [scope["type"] for scope in asked.scopes] == ["lifespan"]


def test_an_authenticator_that_waits_holds_up_no_other_request() -> None:
    class Database:
        """Users that are looked up elsewhere; `slow` waits until another request was answered."""

        def __init__(self) -> None:
            self.answered = asyncio.Event()

        async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
            if connection.headers.get("authorization") == "Bearer slow":
                await self.answered.wait()
            return Identity(ADA)

    async def ask(asked: Asked, token: str) -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/api/me", "headers": headers}
        await asked.entry(scope, _never, send)
        return sent

    async def run() -> None:
        database = Database()
        asked = Asked(auth=database)
        async with asyncio.timeout(20):
            slow = asyncio.create_task(ask(asked, "slow"))
            await asyncio.sleep(0)
            assert (await ask(asked, "fast"))[0]["status"] == 200
            database.answered.set()
            assert (await slow)[0]["status"] == 200

    asyncio.run(run())
