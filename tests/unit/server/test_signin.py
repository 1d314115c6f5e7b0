"""Signing in and inviting: what each route hands out, to whom, and what it refuses (protocol 8.1, 8.2)."""

import asyncio
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from tests.support.invitations import FORM, redemption
from turnlog.agents import Agent, Scripted
from turnlog.app import LOCAL, App, Principal, Roles
from turnlog.log import open_log
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, Identity, hash_token

KEY = b"k" * 32
PEOPLE = {"ada": Principal("ada"), "bob": Principal("bob"), "root": LOCAL}
HOME = "http://localhost"


def plain(name: str = "plain", roles: Roles = Roles()) -> App:  # noqa: B008
    return App(name, Agent("Echo", "", Scripted(lambda messages: ["Yes."])), roles=roles)


def make_auth() -> BuiltinAuth:
    return BuiltinAuth(KEY, {hash_token(name): principal for name, principal in PEOPLE.items()})


class Site:
    """A server, asked by several people."""

    def __init__(self, client: TestClient, auth: BuiltinAuth) -> None:
        self.client, self.auth = client, auth

    def ask(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        self.client.cookies.clear()
        headers = {"authorization": f"Bearer {who}"} if who else {}
        headers |= more.pop("headers", {})
        return self.client.request(method, path, json=body, headers=headers, follow_redirects=False, **more)

    def post(self, who: str, path: str, body: Any = None) -> Any:
        return self.ask(who, "POST", path, body)

    def get(self, who: str, path: str, cookie: str = "") -> Any:
        return self.ask(who, "GET", path, headers={"cookie": cookie} if cookie else {})

    def session(self, who: str) -> str:
        return str(self.post(who, "/api/sessions", {}).json()["session_id"])

    def link(self, who: str, session: str, *roles: str) -> str:
        return str(self.post(who, "/api/links", {"session": session, "roles": roles}).json()["path"])

    def enrol(self, by: str, session: str, name: str, *roles: str) -> None:
        """Give a person roles; one who is no member accepts the invitation."""
        answer = self.post(by, "/api/members", {"session": session, "principal": name, "roles": roles})
        assert answer.status_code == 202, answer.text
        if invite := answer.json().get("invite"):
            accepted = self.post(name, "/api/invites/accept", {"session": session, "invite": invite})
            assert accepted.status_code == 202, accepted.text

    def join(self, path: str, name: str = "Sarah") -> Any:
        """Redeem a link, as the form of its page does."""
        self.client.cookies.clear()
        address, body = redemption(path, name)
        return self.client.post(
            address.removeprefix("/log"), content=body, headers={"content-type": FORM}, follow_redirects=False
        )


def cookie_of(response: Any) -> str:
    """The cookie of an answer, as a browser sends it back."""
    [(name, morsel)] = SimpleCookie(response.headers["set-cookie"]).items()
    return f"{name}={morsel.value}"


@pytest.fixture
def site() -> Iterator[Site]:
    auth = make_auth()
    with TestClient(create_app(plain(), "memory:", auth=auth), base_url=HOME) as client:
        yield Site(client, auth)


class TestSignIn:
    def test_a_link_gives_a_cookie_once_and_leads_to_the_page(self, site: Site) -> None:
        path = f"/sign-in?code={site.auth.make_sign_in_code(time.time())}"
        first, second = site.get("", path), site.get("", path)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert site.get("", "/api/me", cookie_of(first)).json()["name"] == "local"
        assert (second.status_code, "set-cookie" in second.headers) == (403, False)
        assert "This link was used before or revoked, or it is too old." in second.text
        assert '<a href="/">' in second.text, "who is signed in already finds the page"
        assert second.headers["content-type"].startswith("text/html")

    def test_it_may_lead_to_a_session_that_the_code_names(self, site: Site) -> None:
        code = site.auth.make_sign_in_code(time.time(), "sess_1")
        assert site.get("", f"/sign-in?code={code}&session=sess_2").headers["location"] == "/?session=sess_1"

    def test_nothing_of_it_is_kept_or_told_to_others(self, site: Site) -> None:
        for response in (
            site.get("", f"/sign-in?code={site.auth.make_sign_in_code(time.time())}"),
            site.get("", "/sign-in"),
        ):
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["referrer-policy"] in ("no-referrer", "same-origin")

    def test_a_cookie_is_for_this_server_and_no_script(self, site: Site) -> None:
        response = site.get("", f"/sign-in?code={site.auth.make_sign_in_code(time.time())}")
        words = {word.strip().lower() for word in response.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= words
        assert "secure" not in words

    def test_over_tls_it_stays_there(self) -> None:
        auth = make_auth()
        with TestClient(create_app(plain(), "memory:", auth=auth), base_url="https://localhost") as client:
            response = Site(client, auth).post("ada", "/api/sign-in")
        assert "; secure" in response.headers["set-cookie"].lower()

    @pytest.mark.parametrize("code", ["", "x", "a.b", "e30.e30"])
    def test_what_is_no_code_is_refused(self, site: Site, code: str) -> None:
        assert site.get("", f"/sign-in?code={code}").status_code == 403

    def test_looking_at_a_link_does_not_use_it_up(self, site: Site) -> None:
        path = f"/sign-in?code={site.auth.make_sign_in_code(time.time())}"
        looked = site.ask("", "HEAD", path)
        assert (looked.status_code, "set-cookie" in looked.headers) == (204, False)
        assert site.get("", path).status_code == 303

    def test_a_token_gives_a_cookie_that_is_as_good(self, site: Site) -> None:
        response = site.post("ada", "/api/sign-in")
        assert response.status_code == 204
        assert site.get("", "/api/me", cookie_of(response)).json() == {
            "name": "ada",
            "roles": [],
            "apps": ["plain"],
            "may_create_sessions": True,
        }
        assert site.post("wrong", "/api/sign-in").status_code == 401

    def test_signing_out_takes_the_cookie_away(self, site: Site) -> None:
        response = site.post("ada", "/api/sign-out")
        assert response.status_code == 204
        assert cookie_of(response) in (f"{site.auth.cookie_name}=", f'{site.auth.cookie_name}=""')
        assert "max-age=0" in response.headers["set-cookie"].lower()


class TestLinks:
    def test_a_guest_comes_in_once_with_its_roles_in_one_session(self, site: Site) -> None:
        session, other = site.session("ada"), site.session("ada")
        path = site.link("ada", session, "guest", "owner")
        joined = site.join(path)
        assert (joined.status_code, joined.headers["location"]) == (303, f"/talk/{session}")
        cookie = cookie_of(joined)
        [seen] = site.get("", "/api/sessions", cookie).json()["sessions"]
        assert (seen["session_id"], seen["roles"], seen["members"]) == (session, ["guest", "owner"], 2)
        assert site.get("", f"/api/state?session={other}", cookie).status_code == 404
        assert site.get("", path).status_code == 403
        assert len(site.get("ada", "/api/sessions").json()["sessions"]) == 2

    def test_every_link_is_for_a_guest_of_its_own(self, site: Site) -> None:
        session = site.session("ada")
        cookies = [cookie_of(site.join(site.link("ada", session, "guest"))) for _ in range(2)]
        names = {site.get("", "/api/me", cookie).json()["name"] for cookie in cookies}
        assert len(names) == 2
        assert all(name.startswith("guest_") for name in names)

    def test_who_was_sent_away_does_not_come_back_by_the_old_link_nor_after_a_restart(
        self, tmp_path: Path
    ) -> None:
        url = f"sqlite:///{tmp_path}/log.db"
        with TestClient(create_app(plain(), url, auth=make_auth()), base_url=HOME) as client:
            site = Site(client, make_auth())
            session = site.session("ada")
            path = site.link("ada", session, "guest")
            cookie = cookie_of(site.join(path))
            name = site.get("", "/api/me", cookie).json()["name"]
            gone = site.post("ada", "/api/members", {"session": session, "principal": name, "roles": []})
            assert gone.status_code == 202
            assert site.get("", f"/api/state?session={session}", cookie).status_code == 404
            assert site.get("", path).status_code == 403
        with TestClient(create_app(plain(), url, auth=make_auth()), base_url=HOME) as client:
            site = Site(client, make_auth())
            assert site.get("", path).status_code == 403
            assert site.get("", "/api/sessions", cookie).json() == {"sessions": []}
            fresh = site.link("ada", session, "guest")
        with TestClient(create_app(plain(), url, auth=make_auth()), base_url=HOME) as client:
            assert Site(client, make_auth()).join(fresh).status_code == 303, (
                "one that was not used still is good"
            )

    def test_a_link_to_what_is_not_there_any_more_says_so_to_a_person(self, tmp_path: Path) -> None:
        url, auth = f"sqlite:///{tmp_path}/log.db", make_auth()

        async def close(session: str) -> None:
            log = await open_log(url)
            await log.close_session(session)
            await log.close()

        with TestClient(create_app(plain(), url, auth=auth), base_url=HOME) as client:
            site = Site(client, auth)
            closed, foreign = (
                site.link("ada", session, "guest") for session in (site.session("ada"), site.session("ada"))
            )
            lost = f"/sign-in?code={auth.make_join_code('sess_none', 'inv_1')}"
            assert site.get("", lost).status_code == 403
            session = site.get("ada", "/api/sessions").json()["sessions"][-1]["session_id"]
        asyncio.run(close(session))
        with TestClient(create_app(plain(), url, auth=auth), base_url=HOME) as client:
            looks = [Site(client, auth).get("", path).status_code for path in (closed, foreign)]
            assert sorted(looks) == [200, 403]
        with TestClient(create_app(plain("another"), url, auth=auth), base_url=HOME) as client:
            assert Site(client, auth).get("", foreign).status_code == 403

    @pytest.mark.parametrize("roles", [[], ["Owner"], [""], "guest", None, [1]])
    def test_a_link_says_which_roles(self, site: Site, roles: Any) -> None:
        assert (
            site.post("ada", "/api/links", {"session": site.session("ada"), "roles": roles}).status_code
            == 400
        )

    def test_only_the_owner_makes_links_and_changes_members(self, site: Site) -> None:
        session = site.session("ada")
        link, member = (
            {"session": session, "roles": ["guest"]},
            {"session": session, "principal": "eve", "roles": ["owner"]},
        )
        assert [
            site.post("bob", "/api/links", link).status_code,
            site.post("bob", "/api/members", member).status_code,
        ] == [404] * 2
        site.enrol("ada", session, "bob", "guest")
        for path, body in (("/api/links", link), ("/api/members", member)):
            answer = site.post("bob", path, body)
            assert answer.status_code == 403
            assert site.post("root", path, body).status_code in (201, 202), "who owns every session may"


class TestMembers:
    def test_a_member_comes_changes_and_goes(self, site: Site) -> None:
        session = site.session("ada")

        def change(*roles: str) -> list[list[str]]:
            site.enrol("ada", session, "bob", *roles)
            return [seen["roles"] for seen in site.get("bob", "/api/sessions").json()["sessions"]]

        assert [change("guest"), change("owner"), change()] == [[["guest"]], [["owner"]], []]

    @pytest.mark.parametrize(
        "body",
        [
            {"principal": "", "roles": []},
            {"principal": "a\nb", "roles": []},
            {"principal": "ü" * 65, "roles": []},
            {"principal": "bob", "roles": ["ü"]},
            {"principal": "bob"},
            {"principal": "bob", "roles": [], "more": 1},
        ],
    )
    def test_what_is_no_name_or_role_is_refused(self, site: Site, body: Any) -> None:
        answer = site.post("ada", "/api/members", {"session": site.session("ada"), **body})
        assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_where_people_sign_in_elsewhere_these_routes_are_not_there() -> None:
    class Host:
        async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
            return Identity(Principal("ada"))

    with TestClient(create_app(plain(), "memory:", auth=Host()), base_url=HOME) as client:
        site = Site(client, make_auth())
        session = site.session("")
        link = site.post("", "/api/links", {"session": session, "roles": ["guest"]})
        refused = [
            site.post("", "/api/sign-in"),
            site.post("", "/api/sign-out"),
            site.get("", "/sign-in"),
            link,
        ]
        assert {answer.status_code for answer in refused} == {404}
        assert refused[0].json() == {"error": "this server uses an external sign-in"}
        member = {"session": session, "principal": "bob", "roles": ["guest"]}
        assert site.post("", "/api/members", member).status_code == 202, "members are members all the same"


def test_a_path_leads_back_to_this_server() -> None:
    auth = make_auth()
    app = create_app(plain(), "memory:", auth=auth)
    with TestClient(app, base_url=HOME, root_path="/log") as client:
        site = Site(client, auth)
        parts = urlsplit(site.link("ada", site.session("ada"), "guest"))
        assert parts.path == "/log/sign-in"
        joined = site.join(f"/log/sign-in?{parts.query}")
        assert joined.headers["location"].startswith("/log/talk/sess_")
        assert "path=/log;" in joined.headers["set-cookie"].lower() + ";"
