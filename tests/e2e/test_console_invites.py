"""Invitations in the console, in real Chromium: accepting and declining one, and revoking a link."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.broker_desk import person, token, tokens_file
from tests.e2e.console import context_of, live
from tests.e2e.harness import Server, running
from tests.support.invitations import FORM, redemption

APP = "tests.e2e.console_apps:app"
OTHER_APP = "turnlog_examples.tour:app"  # with one application the console begins a session at once


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("log")
    with running(APP, folder, options=[OTHER_APP, "--tokens", str(tokens_file(folder))]) as server:
        yield server


def signed_in(page: Page, server: Server, name: str) -> None:
    page.goto(server.url)
    page.get_by_label("Token").fill(token(name))
    page.get_by_label("Token").press("Enter")


def invite(server: Server, title: str) -> str:
    """A session of bob's, to which ada is invited."""
    bob = person(server, "", "", token=token("bob"))
    session = bob.post("/api/sessions", {"title": title})[1]["session_id"]
    member = {"session": session, "principal": "ada", "roles": ["guest"]}
    assert bob.post("/api/members", member)[0] == 202
    return str(session)


def test_invitation_on_the_home_page_is_accepted_or_declined(chrome: Browser, server: Server) -> None:
    session = invite(server, "A trip to Oslo")
    with context_of(chrome) as context:
        page = context.new_page()
        signed_in(page, server, "ada")
        shown = page.get_by_label("Invitations").locator(".invitation")
        expect(shown).to_contain_text("bob invites you to A trip to Oslo as guest.")
        shown.get_by_role("button", name="Accept").click()
        page.wait_for_url(f"**/?session={session}")
        live(page)
        expect(page.get_by_role("navigation", name="Sessions")).to_contain_text("A trip to Oslo")

        invite(server, "Another trip")
        page.goto(server.url + "/")
        other = page.get_by_label("Invitations").locator(".invitation", has_text="Another trip")
        other.get_by_role("button", name="Decline").click()
        expect(other).to_have_count(0)
        expect(page.get_by_role("navigation", name="Sessions")).not_to_contain_text("Another trip")


def test_link_in_the_members_dialog_is_revoked(chrome: Browser, server: Server) -> None:
    bob = person(server, "", "", token=token("bob"))
    session = bob.session()
    with context_of(chrome) as context:
        page = context.new_page()
        signed_in(page, server, "bob")
        page.goto(f"{server.url}/?session={session}")
        live(page)
        page.get_by_role("button", name="Share").click()
        dialog = page.get_by_role("dialog", name="Members")
        dialog.get_by_role("button", name="Make a link").click()
        row = dialog.get_by_label("Open links and invitations").get_by_role("listitem")
        expect(row).to_contain_text(re.compile("A link.*guest.*by bob, until", re.DOTALL))
        link = dialog.get_by_label("The link").input_value()
        row.get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        expect(dialog.get_by_label("The link")).to_have_count(0)
        address, form = redemption(link)
        refused = context.request.post(address, data=form, headers={"content-type": FORM})
        assert refused.status in (403, 409)
