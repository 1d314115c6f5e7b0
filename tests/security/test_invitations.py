"""Links for guests: programs that fetch them, texts in their page, names that guests choose (row 26)."""

import time
from http.cookies import SimpleCookie

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, desk, run, without
from tests.support.invitations import redemption
from turnlog.app import Principal
from turnlog.server import html_pages
from turnlog.server.auth.credentials import JoinCode
from turnlog.server.auth.host_check import HostOriginCheck
from turnlog.server.routes import sign_in

MARKUP = "<img src=x onerror=alert(1)>\"'&"
BOT = {"user-agent": "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)", "accept": "*/*"}
SPOOFS = ("\u202eada", "ad\u2066a", "\u200b", "ada\u0000", "a\nb", "\u2028", "\ue000")


async def link_of(at: Desk, title: str = "A house") -> tuple[str, str]:
    """A session of Ada's, and a link to it."""
    made = await at.post("ada", "/api/sessions", {"title": title})
    session = str(made.value["session_id"])
    link = await at.post("ada", "/api/links", {"session": session, "roles": ["guest"]})
    return session, str(link.value["path"])


async def fetched(at: Desk, link: str) -> list[Answer]:
    """What programs get that look at a link before a person does."""
    return [await at.ask(None, method, link, None, BOT) for method in ("GET", "HEAD", "GET")]


def test_a_link_that_programs_have_fetched_is_still_good() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session, link = await link_of(at)
            before = await at.told("ada", session, "session.member")
            looks = await fetched(at, link)
            assert [look.status for look in looks] == [200, 204, 200]
            assert [name for look in looks for name, _ in look.headers if name == "set-cookie"] == []
            assert await at.told("ada", session, "session.member") == before
            assert (await at.post(None, *redemption(link))).status == 303

    run(scenario())


def test_control_a_server_that_redeems_what_is_fetched_has_its_links_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(self: sign_in.SignIn, request: Request) -> Response:
        code = request.query_params["code"]
        given = self._builtin_auth().verify_signed(code, 0)
        assert isinstance(given, JoinCode)
        link = sign_in.OpenedLink(request, code, given, None, time.time())
        return await self._redeem_invite(link, Principal("guest_1")) or Response(status_code=303)

    async def scenario() -> None:
        monkeypatch.setattr(sign_in.SignIn, "sign_in_by_code", at_once)
        async with desk(plain) as at:
            _, link = await link_of(at)
            assert (await fetched(at, link))[0].status == 303
            assert (await at.post(None, *redemption(link))).status == 403

    run(scenario())


async def page_of(at: Desk) -> tuple[str, str]:
    """The page of an invitation to a session with markup in its title, and the policy of the page."""
    _, link = await link_of(at, MARKUP)
    answer = await at.get(None, link, accept="text/html")
    return answer.body.decode(), answer.header("content-security-policy")


def test_texts_in_the_page_of_an_invitation_stay_text() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            text, policy = await page_of(at)
            assert "<img" not in text
            assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;" in text
            assert "script-src" not in policy
            assert policy.startswith("default-src 'none'; style-src 'sha256-")

    run(scenario())


def test_control_a_page_that_does_not_escape_has_the_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(html_pages, "escape", str)
        async with desk(plain) as at:
            assert MARKUP in (await page_of(at))[0]

    run(scenario())


async def named(at: Desk, name: str) -> int:
    _, link = await link_of(at)
    return (await at.post(None, *redemption(link, name))).status


def test_a_name_that_changes_how_other_text_reads_is_refused() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for name in SPOOFS:
                assert await named(at, name) == 400, name
            for name in ("Sarah O'Neil", "José", "علی", "नमस्ते", "क\u094d\u200dष"):
                assert await named(at, name) == 303, name

    run(scenario())


def test_control_without_that_check_a_name_turns_the_text_around(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(sign_in, "SPOOFING_CATEGORIES", frozenset[str]())
        async with desk(plain) as at:
            assert await named(at, SPOOFS[0]) == 303

    run(scenario())


async def from_elsewhere(at: Desk) -> Answer:
    """The form of an invitation, sent by a page of another site: it would sign its visitor in as a guest."""
    _, link = await link_of(at)
    return await at.post(None, *redemption(link), origin="http://evil.example")


def test_a_form_of_another_site_redeems_no_link() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert (await from_elsewhere(at)).status == 403

    run(scenario())


def test_control_without_the_guard_it_signs_its_visitor_in() -> None:
    async def scenario() -> None:
        async with desk(plain, change=without(HostOriginCheck)) as at:
            assert SimpleCookie((await from_elsewhere(at)).header("set-cookie"))

    run(scenario())
