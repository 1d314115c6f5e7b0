"""Invitations: what their page says, whom they make a member, for which roles there are any."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tests.support.invitations import FORM, redemption
from tests.unit.server.test_signin import HOME, Site, cookie_of, make_auth, plain
from turnlog import Agent, App, tool
from turnlog.agents import Scripted
from turnlog.app import Roles
from turnlog.server import create_app


@tool(roles=("auditor",))
def look() -> str:
    """Look at the books."""
    return "fine"


AGENT = Agent("Echo", "", Scripted(lambda messages: ["Yes."]), tools=[look])
SHOP = App(
    "shop",
    {"customer": AGENT, "clerk": AGENT},
    roles=Roles(creator=("clerk",), invitable_roles={"clerk": ["customer"]}),
)


@pytest.fixture
def site() -> Iterator[Site]:
    auth = make_auth()
    with TestClient(create_app([plain(), SHOP], "memory:", auth=auth), base_url=HOME) as client:
        yield Site(client, auth)


def invited(site: Site, who: str = "ada", title: str = "Panels") -> tuple[str, str]:
    """A session, and a link to it."""
    session = site.post(who, "/api/sessions", {"title": title}).json()["session_id"]
    return session, site.link(who, session, "guest")


def test_the_page_of_an_invitation_says_who_invites_whom_to_what(site: Site) -> None:
    page = site.get("", invited(site)[1])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>ada invites you</h1>" in page.text
    assert "to <strong>Panels</strong> as <strong>guest</strong>." in page.text
    assert "set-cookie" not in page.headers


def test_the_page_of_who_started_the_server_names_nobody(site: Site) -> None:
    assert "<h1>You are invited</h1>" in site.get("", invited(site, "root")[1]).text


@pytest.mark.parametrize(
    ("accepted", "heading"),
    [
        ("de-AT,de;q=0.9,en;q=0.8", "ada lädt Sie ein"),
        ("fr, de;q=0.5", "ada lädt Sie ein"),
        ("de;q=0.2, en;q=0.7", "ada invites you"),
        ("de;q=0, x;q=y", "ada invites you"),
        ("de;v=1", "ada invites you"),
        ("de;q=7", "ada invites you"),
        ("*", "ada invites you"),
        ("", "ada invites you"),
    ],
)
def test_the_page_of_an_invitation_is_in_the_language_of_the_browser(
    site: Site, accepted: str, heading: str
) -> None:
    page = site.client.get(invited(site)[1], headers={"accept-language": accepted})
    assert f"<h1>{heading}</h1>" in page.text
    assert f"<html lang={'de' if 'lädt' in heading else 'en'}>" in page.text


def test_pages_of_links_have_no_english_for_a_german_browser(site: Site) -> None:
    german = {"accept-language": "de"}
    assert "als <strong>Gast</strong>" in site.client.get(invited(site)[1], headers=german).text
    page = site.client.get("/sign-in?code=x", headers=german)
    assert (page.status_code, "<html lang=de>" in page.text) == (403, True)
    assert "<h1>Dieser Link gilt nicht mehr</h1>" in page.text
    assert "<code>turnlog link</code>" in page.text


def test_a_link_that_was_used_leads_its_person_back_to_the_conversation(site: Site) -> None:
    session, link = invited(site)
    path, body = redemption(link)
    assert site.client.post(path, content=body, headers={"content-type": FORM}).status_code == 200
    page = site.get("", link)
    assert page.status_code == 403
    assert f'<a href="/talk/{session}">to the conversation</a>' in page.text
    assert "console" not in page.text
    german = site.client.get(link, headers={"accept-language": "de"})
    assert "zur Unterhaltung</a>" in german.text


def test_the_form_of_the_page_posts_to_the_server_below_its_prefix() -> None:
    auth = make_auth()
    with TestClient(create_app(plain(), "memory:", auth=auth), base_url=HOME, root_path="/log") as client:
        site = Site(client, auth)
        _, _, query = invited(site)[1].partition("?")
        assert 'action="/log/sign-in"' in site.get("", f"/sign-in?{query}").text


def test_redeeming_makes_a_member_with_the_name(site: Site) -> None:
    session, link = invited(site)
    cookie = cookie_of(site.join(link, "  Sarah O'Neil "))
    guest = site.get("", "/api/me", cookie).json()["name"]
    lines = site.get("ada", f"/api/log?session={session}").text
    assert f'"payload":{{"principal":"{guest}","roles":["guest"],"name":"Sarah O\'Neil",' in lines


@pytest.mark.parametrize("name", ["", "   ", "x" * 65, "€" * 64])
def test_redeeming_without_a_name_that_fits_shows_the_page_again(site: Site, name: str) -> None:
    _, link = invited(site)
    again = site.join(link, name)
    assert (again.status_code, "role=alert" in again.text, "set-cookie" in again.headers) == (
        400,
        True,
        False,
    )
    assert site.join(link).status_code == 303, "the link is still good"


def test_redeeming_twice_is_refused_whatever_the_name(site: Site) -> None:
    _, link = invited(site)
    assert [site.join(link, name).status_code for name in ("Ann", "Ann", "Bea")] == [303, 403, 403]


def test_redeeming_takes_a_form_and_nothing_else(site: Site) -> None:
    assert site.post("", "/sign-in", {"code": "x", "name": "y"}).status_code == 415
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body, status in ((b"code=\xff", 400), (b"&".join([b"a=1"] * 9), 400), (b"x" * 20_000, 413)):
        assert site.client.post("/sign-in", content=body, headers=form).status_code == status


def test_a_sign_in_code_is_not_redeemed_by_the_form(site: Site) -> None:
    code = site.auth.make_sign_in_code(0.0 + 4_000_000_000)
    assert site.join(f"/sign-in?code={code}").status_code == 403


def test_a_link_for_a_role_that_is_not_there_names_those_that_are(site: Site) -> None:
    session = site.post("root", "/api/sessions", {"app": "shop"}).json()["session_id"]
    refused = site.post("root", "/api/links", {"session": session, "roles": ["boss"]})
    assert refused.status_code == 400
    assert "auditor, clerk, customer, owner, got 'boss'" in refused.json()["error"]


def test_a_session_lists_the_roles_that_its_member_may_invite(site: Site) -> None:
    for who, roles in (
        ("ada", ["clerk", "customer"]),
        ("root", ["auditor", "clerk", "customer", "owner"]),
    ):
        site.post(who, "/api/sessions", {"app": "shop"})
        [first, *_] = site.get(who, "/api/sessions").json()["sessions"]
        assert first["invites"] == roles


def test_a_guest_is_told_that_it_makes_no_sessions_and_which_one_it_has(site: Site) -> None:
    session, link = invited(site)
    me = site.get("", "/api/me", cookie_of(site.join(link))).json()
    assert (me["may_create_sessions"], me["session"]) == (False, session)
    assert site.get("ada", "/api/me").json()["may_create_sessions"] is True


def test_a_guest_that_was_sent_away_has_no_session(site: Site) -> None:
    session, link = invited(site)
    cookie = cookie_of(site.join(link))
    name = site.get("", "/api/me", cookie).json()["name"]
    site.post("ada", "/api/members", {"session": session, "principal": name, "roles": []})
    assert "session" not in site.get("", "/api/me", cookie).json()


def test_link_opened_by_a_member_says_so_and_stays_good(site: Site) -> None:
    session, link = invited(site)
    site.enrol("ada", session, "bob", "guest")
    address, form = redemption(link, signed_in_as="bob")
    headers = {"authorization": "Bearer bob", "content-type": FORM}
    sent = site.client.post(address, content=form, headers=headers)
    for page in (site.get("bob", link), sent):
        assert (page.status_code, f"/?session={session}" in page.text) == (403, True)
    assert site.join(link).status_code == 303


def test_link_opened_by_its_maker_says_so(site: Site) -> None:
    _, link = invited(site)
    address, form = redemption(link, signed_in_as="ada")
    headers = {"authorization": "Bearer ada", "content-type": FORM}
    for page in (site.get("ada", link), site.client.post(address, content=form, headers=headers)):
        assert (page.status_code, "<h1>You made this link</h1>" in page.text) == (403, True)


def test_link_for_a_role_that_the_maker_may_not_give_is_refused(site: Site) -> None:
    session = site.post("ada", "/api/sessions", {"app": "shop"}).json()["session_id"]
    assert site.post("ada", "/api/links", {"session": session, "roles": ["owner"]}).status_code == 403
