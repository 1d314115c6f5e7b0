"""`Idempotency-Key` of what makes a session or a link: sent again, it happens once."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.unit.server.test_signin import HOME, Site, make_auth, plain
from turnlog.server import create_app


@pytest.fixture
def site() -> Iterator[Site]:
    auth = make_auth()
    with TestClient(create_app([plain(), plain("other")], "memory:", auth=auth), base_url=HOME) as client:
        yield Site(client, auth)


def made(site: Site, who: str, key: str, **body: str) -> tuple[int, str]:
    answer = site.ask(who, "POST", "/api/sessions", body, headers={"idempotency-key": key})
    return answer.status_code, answer.json().get("session_id", "")


def invite_of(site: Site, session: str, key: str, *roles: str) -> str:
    """Make a link; return its invite."""
    body = {"session": session, "roles": roles}
    answer = site.ask("ada", "POST", "/api/links", body, headers={"idempotency-key": key})
    return str(answer.json()["invite"])


def test_create_with_a_key_again_is_the_same_session(site: Site) -> None:
    first, again = made(site, "ada", "k", title="A"), made(site, "ada", "k", title="A")
    assert first == again
    assert first[0] == 201
    assert len(site.get("ada", "/api/sessions").json()["sessions"]) == 1


def test_create_with_a_key_of_another_request_is_a_conflict(site: Site) -> None:
    assert made(site, "ada", "k", title="A")[0] == 201
    others = [made(site, "ada", "k", title="B"), made(site, "ada", "k"), made(site, "ada", "k", app="other")]
    assert [status for status, _ in others] == [409, 409, 409]


def test_create_with_a_key_of_another_principal_is_another_session(site: Site) -> None:
    assert made(site, "ada", "k")[1] != made(site, "bob", "k")[1]


def test_create_with_a_key_that_is_too_long_is_refused(site: Site) -> None:
    assert made(site, "ada", "k" * 257)[0] == 400


def test_link_with_a_key_again_is_the_same_invite(site: Site) -> None:
    session = site.session("ada")
    assert invite_of(site, session, "k", "guest") == invite_of(site, session, "k", "guest")
    assert len(site.get("ada", f"/api/invites?session={session}").json()["invites"]) == 1


def test_link_with_another_key_session_or_role_is_another_invite(site: Site) -> None:
    session = site.session("ada")
    invites = {
        invite_of(site, session, "k", "guest"),
        invite_of(site, session, "l", "guest"),
        invite_of(site, session, "k", "owner"),
        invite_of(site, site.session("ada"), "k", "guest"),
    }
    assert len(invites) == 4
