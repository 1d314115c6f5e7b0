"""Members and invites: what is decided, what is appended, and what happens when two decide at once."""

import asyncio

import pytest

from tests.unit.app.desk import ADA, BOB, ROOT, Desk, desk, make_app, play
from turnlog.app import Membership, Principal, Roles
from turnlog.app.invites import MAX_OPEN_INVITES
from turnlog.app.member_changes import OwnInvite
from turnlog.errors import CallerError, Forbidden, LimitReached, NotFound
from turnlog.events import SessionInviteEnd
from turnlog.ids import new_id

NOW = 1_000_000
WEEK_MS = 7 * 24 * 3600 * 1000
EVE = Principal("eve")


async def link(at: Desk, seat: Membership, *roles: str, now_ms: int = NOW) -> str:
    invite_id = new_id("inv_")
    await at.sessions.member_changes.make_link(seat, roles or ("guest",), invite_id, now_ms)
    return invite_id


async def redeem(at: Desk, session_id: str, invite_id: str, principal: str, now_ms: int = NOW) -> int:
    return await at.sessions.member_changes.redeem_invite(principal, session_id, invite_id, now_ms)


async def ends(at: Desk, seat: Membership) -> list[tuple[str, str, str | None]]:
    """The ends of invites: which, why, and by whom."""
    found: list[tuple[str, str, str | None]] = []
    for envelope in await at.told(seat, "session.invite_end"):
        payload = seat.app.catalog.decode_payload(envelope)
        assert isinstance(payload, SessionInviteEnd)
        found.append((payload.invite_id, payload.reason, envelope.actor))
    return found


def test_redeem_by_many_at_once_makes_one_member() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            invite_id = await link(at, ada)
            tries = [redeem(at, ada.session_id, invite_id, f"guest_{number}") for number in range(5)]
            found = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(one, int) for one in found) == 1
            assert {type(one) for one in found if not isinstance(one, int)} == {NotFound}
            assert len((await at.log.info(ada.session_id)).members) == 2

    play(run)


def test_redeem_while_the_link_is_revoked_gives_one_of_both() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            invite_id = await link(at, ada)
            both = (
                redeem(at, ada.session_id, invite_id, "guest_1"),
                at.sessions.member_changes.revoke_invite(ada, invite_id),
            )
            found = await asyncio.gather(*both, return_exceptions=True)
            assert sorted(type(one).__name__ for one in found) == ["NotFound", "int"]

    play(run)


def test_redeem_of_an_expired_link_ends_it_once() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            invite_id = await link(at, ada)
            for now_ms in (NOW + WEEK_MS, NOW + WEEK_MS, NOW):
                with pytest.raises(NotFound):
                    await redeem(at, ada.session_id, invite_id, "guest_1", now_ms)
            assert await ends(at, ada) == [(invite_id, "expired", None)]

    play(run)


def test_redeem_by_the_maker_or_a_member_is_refused_and_leaves_the_link() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.member(ada, BOB, "guest")
            invite_id = await link(at, ada)
            with pytest.raises(OwnInvite):
                await redeem(at, ada.session_id, invite_id, "ada")
            with pytest.raises(Forbidden, match="already"):
                await redeem(at, ada.session_id, invite_id, "bob")
            assert await redeem(at, ada.session_id, invite_id, "eve") > 0

    play(run)


def test_redeem_of_an_invitation_of_another_person_is_not_found() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            change = await at.sessions.member_changes.change_roles(ada, "bob", ("guest",), NOW)
            assert change.invite_id is not None
            for principal in ("bob", "eve"):  # an invitation is accepted, and no link leads to it
                with pytest.raises(NotFound):
                    await redeem(at, ada.session_id, change.invite_id, principal)

    play(run)


def test_accept_decline_and_revoke_sent_again_answer_as_before() -> None:
    async def run() -> None:
        async with desk() as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            first = (await do.change_roles(ada, "bob", ("guest",), NOW)).invite_id
            second = (await do.change_roles(ada, "eve", ("guest",), NOW)).invite_id
            assert first is not None
            assert second is not None
            accepted = [await do.accept_invite(BOB, ada.session_id, first, NOW) for _ in range(2)]
            declined = [await do.decline_invite(EVE, ada.session_id, second) for _ in range(2)]
            third = await link(at, ada)
            revoked = [await do.revoke_invite(ada, third) for _ in range(2)]
            for pair in (accepted, declined, revoked):
                assert pair[0] == pair[1]
            with pytest.raises(NotFound):
                await do.accept_invite(EVE, ada.session_id, first, NOW)
            with pytest.raises(NotFound):
                await do.decline_invite(BOB, ada.session_id, second)

    play(run)


def test_invitation_of_the_same_person_takes_the_place_of_the_first() -> None:
    async def run() -> None:
        async with desk() as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            changes = [await do.change_roles(ada, "bob", (role,), NOW) for role in ("guest", "clerk")]
            [listed] = await do.list_principal_invites(BOB, NOW)
            assert (listed.invite_id, listed.invite.roles) == (changes[1].invite_id, ("clerk",))
            assert await ends(at, ada) == [(changes[0].invite_id, "revoked", "ada")]

    play(run)


def test_joining_by_a_link_ends_the_invitation_of_the_same_person() -> None:
    async def run() -> None:
        async with desk() as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            await do.change_roles(ada, "bob", ("guest",), NOW)
            await redeem(at, ada.session_id, await link(at, ada), "bob")
            assert (await at.log.info(ada.session_id)).invites == {}

    play(run)


def test_taking_the_roles_of_an_invited_person_revokes_the_invitation() -> None:
    async def run() -> None:
        async with desk() as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            change = await do.change_roles(ada, "bob", ("guest",), NOW)
            await do.change_roles(ada, "bob", (), NOW)
            assert await ends(at, ada) == [(change.invite_id, "revoked", "ada")]

    play(run)


def test_operator_gives_itself_roles_at_once() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            root = await at.sessions.get_membership(ROOT, ada.session_id)
            change = await at.sessions.member_changes.change_roles(root, "root", ("clerk",), NOW)
            assert change.invite_id is None
            assert (await at.sessions.get_membership(ROOT, ada.session_id)).roles == {"clerk"}

    play(run)


def test_link_of_an_operator_stands_without_a_membership() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            root = await at.sessions.get_membership(ROOT, ada.session_id)
            invite_id = await link(at, root)
            assert (await at.log.info(ada.session_id)).invites[invite_id].as_operator
            assert await redeem(at, ada.session_id, invite_id, "guest_1") > 0

    play(run)


def test_change_of_members_revokes_the_links_of_who_may_invite_no_more() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "owner")
            kept, lost = await link(at, ada), await link(at, bob)
            await at.sessions.member_changes.change_roles(ada, "bob", ("guest",), NOW)
            assert list((await at.log.info(ada.session_id)).invites) == [kept]
            assert await ends(at, ada) == [(lost, "revoked", "ada")]

    play(run)


def test_link_beyond_the_limit_is_refused_until_one_has_ended() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            for _ in range(MAX_OPEN_INVITES):
                await link(at, ada)
            with pytest.raises(LimitReached, match="32 open invites"):
                await link(at, ada)
            await link(at, ada, now_ms=NOW + WEEK_MS)  # the others have expired
            assert len((await at.log.info(ada.session_id)).invites) == 1

    play(run)


def test_role_for_one_person_is_taken_by_a_member_and_by_an_open_invite() -> None:
    async def run() -> None:
        app = make_app(roles=Roles(invitable_roles={"owner": ["customer"]}, unique=frozenset({"customer"})))
        async with desk(app) as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            await at.member(ada, BOB, "guest")
            invite_id = await link(at, ada, "customer")
            for principal in ("bob", "eve"):
                with pytest.raises(LimitReached, match="an invite is open"):
                    await do.change_roles(ada, principal, ("customer",), NOW)
            await redeem(at, ada.session_id, invite_id, "guest_1")
            with pytest.raises(LimitReached, match="guest_1 is"):
                await do.change_roles(ada, "bob", ("customer",), NOW)
            assert "customer" not in (await at.sessions.get_membership(ADA, ada.session_id)).invitable_roles
            await do.change_roles(ada, "guest_1", ("customer", "guest"), NOW)  # who has it keeps it

    play(run)


@pytest.mark.parametrize(
    ("shared", "roles", "problem"),
    [
        (False, Roles(joiner=("visitor",)), "joiner: expected shared_session=True"),
        (True, Roles(unique=frozenset({"owner"})), "owner is unique"),
        (True, Roles(joiner=("visitor",), unique=frozenset({"visitor"})), "visitor is unique"),
        (True, Roles(joiner=("operator",)), "operator is a role of the server"),
    ],
)
def test_roles_that_a_shared_session_cannot_have_are_refused(
    shared: bool, roles: Roles, problem: str
) -> None:
    with pytest.raises(CallerError, match=problem):
        make_app(roles=roles, shared_session=shared)


def test_role_of_those_who_join_is_a_role_of_the_application() -> None:
    roles = Roles(joiner=("visitor",), unique=frozenset({"owner"}), emits={"visitor": ()})
    assert "visitor" in make_app(roles=roles, shared_session=True).role_names


def test_unique_role_that_the_application_does_not_have_is_refused() -> None:
    with pytest.raises(CallerError, match="unique: expected roles of the application, got boss"):
        make_app(roles=Roles(unique=frozenset({"boss"})))


def test_invites_of_a_session_are_for_who_may_invite() -> None:
    async def run() -> None:
        async with desk() as at:
            ada, do = await at.sessions.create(ADA), at.sessions.member_changes
            bob = await at.member(ada, BOB, "guest")
            await link(at, ada)
            seat = await at.sessions.get_membership(ADA, ada.session_id)
            assert len(await do.list_session_invites(seat, NOW)) == 1
            assert await do.list_session_invites(seat, NOW + WEEK_MS) == []
            with pytest.raises(Forbidden):
                await do.list_session_invites(bob, NOW)

    play(run)


def test_invite_of_a_session_of_another_application_is_not_found() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            other = await at.log.create("another")
            with pytest.raises(NotFound):
                await redeem(at, other, "inv_1", "guest_1")
            with pytest.raises(NotFound):
                await at.sessions.member_changes.find_usable_invite(ada.session_id, "inv_1", NOW)

    play(run)
