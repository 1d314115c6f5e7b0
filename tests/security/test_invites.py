"""Links and invitations: who may use them, for how long, and what the log says of them (rows 29 and 30)."""

from types import SimpleNamespace

import pytest

from tests.security.apps import make, plain
from tests.security.desk import Answer, Desk, desk, run
from tests.support.invitations import redemption
from turnlog.app import App, Membership, Roles, invites, member_changes
from turnlog.events import CATALOG, SessionMember
from turnlog.log import Log, MemoryStore, append
from turnlog.server.routes import sign_in
from turnlog_examples.broker import ROLES, make_agents, start
from turnlog_examples.broker.events import BROKER

CLERKS = make("clerks", Roles(creator=("clerk",)), channels=("clerk",))


async def link_of(at: Desk, who: str, session: str, role: str) -> str:
    answer = await at.post(who, "/api/links", {"session": session, "roles": [role]})
    assert answer.status == 201, answer.body
    return str(answer.value["path"])


async def redeem(at: Desk, link: str, who: str | None = None) -> Answer:
    """Redeem a link, as the page does that was shown to this person."""
    return await at.post(who, *redemption(link, signed_in_as=who or ""))


async def sees(at: Desk, joined: Answer, session: str) -> int:
    """Ask for the log with the cookie of an answer."""
    cookie = joined.header("set-cookie").partition(";")[0]
    return (await at.ask(None, "GET", f"/api/log?session={session}", None, {"cookie": cookie})).status


async def come_back(at: Desk) -> tuple[int, int]:
    """Bob, a clerk, makes a link, is removed, and opens his link: what he gets, also for the log."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "clerk")
    link = await link_of(at, "bob", session, "clerk")
    await at.enrol("ada", session, "bob")
    joined = await redeem(at, link)
    return joined.status, await sees(at, joined, session)


def test_link_of_a_member_who_was_removed_is_dead() -> None:
    async def scenario() -> None:
        async with desk(CLERKS) as at:
            assert await come_back(at) == (403, 401)

    run(scenario())


def test_control_links_that_outlive_their_makers_right_let_him_back_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(invites, "may_maker_invite", lambda *_: True)
        async with desk(CLERKS) as at:
            assert await come_back(at) == (303, 200)

    run(scenario())


async def remove_creator(at: Desk) -> tuple[int, int]:
    """Bob, who has the role of the creator, removes her: his answer, and hers when she asks for the log."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "clerk")
    removed = await at.post("bob", "/api/members", {"session": session, "principal": "ada", "roles": []})
    return removed.status, (await at.get("ada", f"/api/log?session={session}")).status


def test_creator_is_removed_by_an_operator_only() -> None:
    async def scenario() -> None:
        async with desk(CLERKS) as at:
            assert await remove_creator(at) == (403, 200)
            session = await at.session("ada")
            await at.enrol("root", session, "ada")
            assert (await at.get("ada", f"/api/log?session={session}")).status == 404

    run(scenario())


def test_control_a_creator_without_protection_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "is_protected", lambda *_: False)
        async with desk(CLERKS) as at:
            assert await remove_creator(at) == (202, 404)

    run(scenario())


RING_EVENTS = 4


async def use_again(at: Desk) -> list[int]:
    """A guest joins, is removed, and opens the same link again, at once and when its events are gone."""
    session = await at.session("ada")
    link = await link_of(at, "ada", session, "guest")
    joined = await redeem(at, link)
    guest = (await at.log("ada", session))[-1]["payload"]["principal"]
    await at.enrol("ada", session, guest)
    again = await redeem(at, link)
    note = {"type": "case.note", "payload": {"text": "milk"}}
    for _ in range(3 * RING_EVENTS):
        await at.post("ada", "/api/events", {"session": session, "events": [note]})
    assert "session.invite" not in {event["type"] for event in await at.log("ada", session)}
    return [joined.status, again.status, (await redeem(at, link)).status]


def test_used_link_stays_used_when_the_ring_has_turned() -> None:
    async def scenario() -> None:
        async with desk(plain, MemoryStore(ring_events=RING_EVENTS)) as at:
            assert await use_again(at) == [303, 403, 403]

    run(scenario())


def test_control_an_invite_that_only_its_events_close_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(append, "_invites_without", lambda head, _: head.invites)
        async with desk(plain, MemoryStore(ring_events=RING_EVENTS)) as at:
            assert (await use_again(at))[2] == 303

    run(scenario())


def test_log_says_who_invited_whom_and_who_came_by_which_link() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            assert (await redeem(at, await link_of(at, "ada", session, "guest"))).status == 303
            invite, member = (await at.log("ada", session))[-2:]
            assert (invite["type"], invite["actor"], invite["payload"]["roles"]) == (
                "session.invite",
                "ada",
                ["guest"],
            )
            assert member["payload"]["invite_id"] == invite["payload"]["invite_id"]
            assert member["actor"] == member["payload"]["principal"]
            assert member["actor"].startswith("guest_")

    run(scenario())


def broker(roles: Roles) -> App:
    return App("broker", make_agents(), vocabulary=BROKER, initial_state=start, roles=roles)


async def second_customer(at: Desk) -> tuple[int, int, int]:
    """The installer asks for a second customer link, opens its own, and asks again with a customer there."""
    session = await at.session("ada")
    link = await link_of(at, "ada", session, "customer")
    second = await at.post("ada", "/api/links", {"session": session, "roles": ["customer"]})
    own = await redeem(at, link, "ada")
    assert (await redeem(at, link)).status == 303, "the customer comes by the first one"
    third = await at.post("ada", "/api/links", {"session": session, "roles": ["customer"]})
    return second.status, own.status, third.status


def test_installer_of_the_broker_gets_one_customer_link_and_does_not_redeem_it() -> None:
    async def scenario() -> None:
        async with desk(broker(ROLES)) as at:
            assert await second_customer(at) == (409, 403, 409)

    run(scenario())


def test_link_for_a_role_that_another_person_has_by_now_is_refused(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(broker(ROLES)) as at:
            session = await at.session("ada")
            link = await link_of(at, "ada", session, "customer")
            member = SessionMember(principal="cyd", roles=("customer",))
            await kept[-1].append(session, [CATALOG.build_event(member, id="evt_app", origin="app")])
            refused = await redeem(at, link)
            assert (refused.status, b"One person can be customer here" in refused.body) == (409, True)

    run(scenario())


def test_control_a_broker_whose_customer_is_not_unique_has_two() -> None:
    async def scenario() -> None:
        async with desk(broker(ROLES._replace(unique=frozenset()))) as at:
            assert await second_customer(at) == (201, 403, 201)

    run(scenario())


async def unasked(at: Desk) -> tuple[int, int]:
    """Bob puts ada into a session of his: how many sessions she has, and what she gets of its log."""
    made = await at.post("bob", "/api/sessions", {"title": "Your payroll - sign in at evil.example"})
    session = made.value["session_id"]
    await at.invite("bob", session, "ada", "guest")
    listed = (await at.get("ada", "/api/sessions")).value["sessions"]
    return len(listed), (await at.get("ada", f"/api/log?session={session}")).status


def test_person_who_was_not_asked_is_no_member() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await unasked(at) == (0, 404)
            [invite] = (await at.get("ada", "/api/invites")).value["invites"]
            assert (invite["by"], invite["roles"]) == ("bob", ["guest"])
            named = {"session": invite["session_id"], "invite": invite["invite"]}
            assert (await at.post("cyd", "/api/invites/accept", named)).status == 404
            assert (await at.post("ada", "/api/invites/decline", named)).status == 202
            assert (await at.post("ada", "/api/invites/accept", named)).status == 404
            assert (await at.get("ada", "/api/invites")).value["invites"] == []

    run(scenario())


def test_control_where_everyone_counts_as_a_member_people_are_put_into_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(member_changes, "session_roles", lambda *_: frozenset({"guest"}))
        async with desk(plain) as at:
            assert await unasked(at) == (1, 200)

    run(scenario())


async def fixation(at: Desk) -> tuple[int, str, list[str]]:
    """Ada opens a link of bob's in the browser that she is signed in with, and sends the form of a guest:
    her answer, the cookie that it sets, and the members."""
    session = await at.session("bob")
    link = await link_of(at, "bob", session, "guest")
    sent = await at.post("ada", *redemption(link))
    members = await at.told("bob", session, "session.member")
    return sent.status, sent.header("set-cookie"), [one["actor"] for one in members]


def test_link_does_not_change_who_is_signed_in() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await fixation(at) == (409, "", ["bob"])
            session = await at.session("bob")
            link = await link_of(at, "bob", session, "guest")
            page = await at.get("ada", link)
            assert b"You are signed in as <strong>ada</strong>" in page.body
            assert b"name=name" not in page.body
            joined = await redeem(at, link, "ada")
            assert (joined.status, joined.header("set-cookie")) == (303, "")
            assert (await at.get("ada", f"/api/log?session={session}")).status == 200

    run(scenario())


def test_control_a_server_that_does_not_look_who_is_signed_in_makes_her_a_guest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(sign_in, "get_identity_or_none", lambda _: None)
        async with desk(plain) as at:
            status, cookie, _ = await fixation(at)
            assert (status, bool(cookie)) == (303, True)

    run(scenario())


def test_guest_of_another_session_is_told_and_its_old_cookie_ends() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            first, second = await at.session("ada"), await at.session("bob")
            joined = await redeem(at, await link_of(at, "ada", first, "guest"))
            cookie = {"cookie": joined.header("set-cookie").partition(";")[0]}
            guest = (await at.ask(None, "GET", "/api/me", None, cookie)).value["name"]
            link = await link_of(at, "bob", second, "guest")
            page = await at.ask(None, "GET", link, None, cookie)
            assert b"Joining signs it out there." in page.body
            path, form = redemption(link, signed_in_as=guest)
            assert (await at.ask(None, "POST", path, form, cookie)).status == 303
            assert (await at.ask(None, "GET", "/api/me", None, cookie)).status == 401

    run(scenario())


async def clock_goes_back(at: Desk, monkeypatch: pytest.MonkeyPatch, *, tried: bool) -> int:
    """A link has expired, is tried or not, and the clock of the server goes back."""
    session = await at.session("ada")
    with monkeypatch.context() as patch:
        patch.setattr(member_changes, "INVITE_MS", 0)
        link = await link_of(at, "ada", session, "guest")
    if tried:
        assert (await redeem(at, link)).status == 403
    monkeypatch.setattr(sign_in, "time", SimpleNamespace(time=lambda: 1.0))
    return (await redeem(at, link)).status


def test_link_that_was_found_expired_stays_so_when_the_clock_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await clock_goes_back(at, monkeypatch, tried=True) == 403

    run(scenario())


def test_control_a_link_of_which_no_event_says_that_it_expired_comes_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await clock_goes_back(at, monkeypatch, tried=False) == 303

    run(scenario())


async def revoked(at: Desk) -> tuple[list[int], int]:
    """Who may revoke a link of bob's, and whether it can be redeemed after that."""
    session = await at.session("root", "clerks")
    await at.enrol("root", session, "bob", "clerk")
    await at.enrol("root", session, "cyd", "clerk")
    answer = await at.post("bob", "/api/links", {"session": session, "roles": ["clerk"]})
    named = {"session": session, "invite": answer.value["invite"]}
    asked = [
        (await at.post(who, "/api/invites/revoke", named)).status for who in ("cyd", "ada", "bob", "bob")
    ]
    return asked, (await redeem(at, answer.value["path"])).status


def test_link_that_its_maker_revoked_is_dead() -> None:
    async def scenario() -> None:
        async with desk(CLERKS) as at:
            assert await revoked(at) == ([403, 404, 202, 202], 403)

    run(scenario())


def test_control_a_revocation_that_leaves_the_invite_open_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(append, "_invites_without", lambda head, _: head.invites)
        async with desk(CLERKS) as at:
            assert (await revoked(at))[1] == 303

    run(scenario())
