"""Row 25: what an identity provider calls a role opens no session, unless the server's own map says so."""

import time
from collections.abc import Mapping

import jwt
import pytest

from tests.security.apps import plain
from tests.security.desk import Desk, desk, run
from turnlog.server.auth.jwt import JwtTokens

SECRET = b"a secret that the provider and the server share"
NAMES = ("operator", "owner", "executor", "source", "guest", "user", "offline_access", "default-roles-acme")


def provider(roles: Mapping[str, str]) -> JwtTokens:
    return JwtTokens(SECRET, ["HS256"], "turnlog", "https://id.example", roles=roles)


def bearer(sub: str, *roles: str) -> dict[str, str]:
    claims = {"sub": sub, "aud": "turnlog", "iss": "https://id.example", "exp": time.time() + 3600}
    token = jwt.encode({**claims, "roles": list(roles)}, SECRET, "HS256")
    return {"authorization": f"Bearer {token}"}


async def statuses(at: Desk, session: str, headers: dict[str, str]) -> list[int]:
    """Try to read, to list, to speak and to stop in ada's session."""
    message = {"session": session, "message": "hi"}
    read = await at.ask(None, "GET", f"/api/log?session={session}", None, headers)
    listed = await at.ask(None, "GET", "/api/sessions", None, headers)
    sent = await at.ask(None, "POST", "/api/send", message, headers)
    stopped = await at.ask(None, "POST", "/api/stop", {"session": session}, headers)
    return [read.status, len(listed.value["sessions"]), sent.status, stopped.status]


@pytest.mark.parametrize("role", NAMES)
def test_role_of_a_provider_without_a_map_opens_no_session(role: str) -> None:
    async def scenario() -> None:
        async with desk(plain, verify=provider({})) as at:
            session = await at.session("ada")
            assert await statuses(at, session, bearer("zoe", role)) == [404, 0, 404, 404]

    run(scenario())


def test_control_role_that_the_map_names_opens_every_session_while_the_token_has_it() -> None:
    async def scenario() -> None:
        async with desk(plain, verify=provider({"turnlog-operators": "operator"})) as at:
            session = await at.session("ada")
            assert await statuses(at, session, bearer("zoe", "turnlog-operators")) == [200, 1, 202, 202]
            assert await statuses(at, session, bearer("zoe")) == [404, 0, 404, 404], "taken away"

    run(scenario())


@pytest.mark.parametrize("sub", ["ada", "root", "local", "guest_0123456789abcdef"])
def test_sub_equal_to_a_name_of_another_source_is_another_principal(sub: str) -> None:
    async def scenario() -> None:
        async with desk(plain, verify=provider({})) as at:
            session = await at.session("ada")
            me = await at.ask(None, "GET", "/api/me", None, bearer(sub))
            assert me.value["name"] == f"jwt:{sub}"
            assert await statuses(at, session, bearer(sub)) == [404, 0, 404, 404]

    run(scenario())


def test_control_without_the_name_of_its_source_a_sub_is_the_member_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("turnlog.server.auth.jwt.make_provider_prefix", lambda name: "")
        async with desk(plain, verify=provider({})) as at:
            session = await at.session("ada")
            assert await statuses(at, session, bearer("ada")) == [200, 1, 202, 202]

    run(scenario())


@pytest.mark.parametrize("path", ["/api/members", "/api/links"])
@pytest.mark.parametrize("role", ["operator", "executor", "source"])
def test_no_member_gives_a_server_role(path: str, role: str) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            body = {"session": session, "roles": [role]}
            body |= {"principal": "bob"} if path == "/api/members" else {}
            assert (await at.post("ada", path, body)).status == 400

    run(scenario())


def test_executor_reads_and_does_not_speak_stop_or_see_the_state() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            for path, body in (
                ("/api/send", {"session": session, "message": "hi"}),
                ("/api/stop", {"session": session}),
                ("/api/links", {"session": session, "roles": ["guest"]}),
                ("/api/members", {"session": session, "principal": "bob", "roles": ["guest"]}),
            ):
                assert (await at.post("worker", path, body)).status == 403, path
            assert (await at.get("worker", f"/api/log?session={session}")).status == 200
            assert (await at.get("worker", f"/api/state?session={session}")).value["state"] is None

    run(scenario())


def test_only_operators_read_the_metrics() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert [(await at.get(who, "/metrics")).status for who in ("root", "ada", "worker")] == [
                200,
                403,
                403,
            ]

    run(scenario())


def test_guests_do_not_rename_a_session() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            await at.enrol("ada", session, "bob", "guest")
            title = {"type": "session.title", "payload": {"title": "Your payroll"}}
            body = {"session": session, "events": [title]}
            assert [(await at.post(who, "/api/events", body)).status for who in ("bob", "ada")] == [400, 202]

    run(scenario())
