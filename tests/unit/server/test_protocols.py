"""Protocols of other projects as parts of the server."""

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from turnlog import App
from turnlog.agents import Agent
from turnlog.agents.models.scripted import Scripted
from turnlog.app import LOCAL
from turnlog.errors import CallerError
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.openapi import Operation, get_route
from turnlog.server.protocols.base import ProtocolServer
from turnlog.server.responses import json_response

APP = App("t", Agent("Echo", "Repeat.", Scripted(lambda _: [])))
TOKEN = "x" * 32
HEADERS = {"authorization": f"Bearer {TOKEN}"}


class Counting:
    """A protocol that says how many sessions a caller has."""

    name = "counting"

    def operations(self, server: ProtocolServer) -> list[Operation]:
        async def count(request: Request) -> Response:
            memberships, _ = await server.access.sessions.list_memberships(LOCAL)
            return json_response({"sessions": len(memberships), "streams": server.limits.streams})

        return [get_route("/counting", count, "Count.")]


def client_of(*protocols: Counting) -> TestClient:
    auth = BuiltinAuth(b"k" * 32, {hash_token(TOKEN): LOCAL})
    return TestClient(create_app(APP, "memory:", auth=auth, protocols=protocols), base_url="http://localhost")


def test_a_protocol_serves_its_routes_behind_the_checks_of_the_server() -> None:
    with client_of(Counting()) as client:
        assert client.get("/counting").status_code == 401
        client.post("/api/sessions", json={}, headers=HEADERS)
        assert client.get("/counting", headers=HEADERS).json() == {"sessions": 1, "streams": 64}
        assert "/counting" in client.get("/openapi.json", headers=HEADERS).json()["paths"]
        assert client.get("/counting", headers=HEADERS | {"host": "evil.test"}).status_code == 421


def test_a_protocol_that_is_not_served_has_no_routes() -> None:
    with client_of() as client:
        assert client.get("/counting", headers=HEADERS).status_code == 404


def test_two_protocols_of_one_name_are_refused() -> None:
    with pytest.raises(CallerError, match="got counting twice"):
        client_of(Counting(), Counting())


def test_pages_of_allowed_origins_get_headers_and_answers_to_their_preflight_requests() -> None:
    auth = BuiltinAuth(b"k" * 32, {hash_token(TOKEN): LOCAL})
    application = create_app(APP, "memory:", auth=auth, origins=["https://app.example.org"])
    page = {"origin": "https://app.example.org"}
    with TestClient(application, base_url="http://localhost") as client:
        answer = client.get("/api/me", headers=HEADERS | page)
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        other = client.get("/api/me", headers=HEADERS)
        assert (other.headers["vary"], "access-control-allow-origin" in other.headers) == ("origin", False)
        preflight = {**page, "access-control-request-method": "POST"}
        assert client.options("/api/send", headers=preflight).status_code == 204
        assert client.options("/api/send", headers=page).status_code == 401
    with pytest.raises(CallerError, match="expected an origin"):
        create_app(APP, "memory:", origins=["*"])
