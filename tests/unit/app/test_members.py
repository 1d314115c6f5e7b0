"""Who somebody is in a session: roles, channels, and what is for whom (protocol 8.2)."""

from typing import Any

import pytest

from tests.unit.app.desk import ADA, BOB, ROOT, agent, make_app
from turnlog.app import LOCAL, App, Membership, Principal, Roles
from turnlog.app.membership import membership_of
from turnlog.errors import CallerError, Forbidden
from turnlog.log import SessionRecord

PLAIN = make_app()
SHOP = App("shop", {"buyer": agent("B"), "seller": agent("S")})


def seated(principal: Principal, app: App, **members: tuple[str, ...]) -> Membership:
    seat = membership_of(principal, SessionRecord("sess_1", "e", app.name, members=members), app)
    assert seat is not None
    return seat


def test_who_has_no_role_has_no_seat() -> None:
    head = SessionRecord("sess_1", "e", "plain", members={"bob": ("guest",)})
    assert membership_of(ADA, head, PLAIN) is None
    assert membership_of(Principal("Bob"), head, PLAIN) is None
    assert membership_of(Principal(""), head, PLAIN) is None


def test_roles_are_those_in_the_session_and_those_everywhere() -> None:
    assert seated(BOB, PLAIN, bob=("guest",)).roles == {"guest"}
    assert seated(ROOT, PLAIN).effective_roles == {"operator", "owner"}
    worker = seated(Principal("bob", frozenset({"executor"})), PLAIN, bob=("guest",))
    assert (worker.roles, worker.effective_roles) == (frozenset({"guest"}), frozenset({"guest", "executor"}))
    assert seated(LOCAL, PLAIN).session_id == "sess_1"


def test_without_channels_everybody_sees_everything() -> None:
    seat = seated(BOB, PLAIN, bob=("guest",))
    assert (seat.visible_channels, seat.channel, seat.may_see(None), seat.may_see("buyer")) == (
        None,
        None,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("roles", "sees", "channel"),
    [
        (("owner",), None, None),
        (("owner", "seller"), None, "seller"),
        (("buyer",), {"buyer"}, "buyer"),
        (("seller", "buyer"), {"buyer", "seller"}, "buyer"),
        (("clerk",), {"clerk"}, None),
    ],
)
def test_a_channel_is_a_roles(roles: tuple[str, ...], sees: Any, channel: str | None) -> None:
    seat = seated(BOB, SHOP, bob=roles)
    assert (seat.visible_channels, seat.channel) == (sees, channel)
    assert seat.may_see(None)
    assert [seat.may_see(name) for name in ("buyer", "seller")] == [
        sees is None or name in sees for name in ("buyer", "seller")
    ]


def test_a_role_sees_its_part_of_the_state_and_the_owner_all() -> None:
    roles = Roles(state_views={"buyer": lambda state: state["open"], "seller": lambda state: "sold"})
    app = App("shop", {"buyer": agent("B"), "seller": agent("S")}, roles=roles)
    state = {"open": 1, "secret": 2}
    assert seated(BOB, app, bob=("buyer",)).visible_state(state) == 1
    assert seated(BOB, app, bob=("seller",)).visible_state(state) == "sold"
    assert seated(BOB, app, bob=("owner", "buyer")).visible_state(state) == state
    assert seated(ROOT, app).visible_state(state) == state
    assert seated(BOB, app, bob=("clerk",)).visible_state(state) is None, "the table is closed"


def test_server_role_in_the_log_grants_nothing() -> None:
    head = SessionRecord("sess_1", "e", "plain", members={"bob": ("operator",), "eve": ("guest", "executor")})
    assert membership_of(BOB, head, PLAIN) is None
    eve = membership_of(Principal("eve"), head, PLAIN)
    assert eve is not None
    assert eve.effective_roles == {"guest"}


@pytest.mark.parametrize("role", ["executor", "source"])
def test_server_role_alone_reads_and_may_not_speak_post_or_see_the_state(role: str) -> None:
    seat = seated(Principal("worker", frozenset({role})), PLAIN)
    assert (seat.is_member, seat.is_owner, seat.may_rename, seat.visible_state({"secret": 1})) == (
        False,
    ) * 3 + (None,)
    assert not seat.may_change_roles(["guest"], "bob")
    assert not seat.may_invite(["guest"])
    with pytest.raises(Forbidden):
        seat.require_member()


def test_app_with_a_server_role_of_its_own_is_refused() -> None:
    with pytest.raises(CallerError, match="operator is a role of the server"):
        App("shop", agent("A"), roles=Roles(creator=("operator",)))


def test_an_application_has_an_agent_or_one_for_each_channel() -> None:
    assert (PLAIN.channels, PLAIN.agents) == ((), {})
    assert SHOP.channels == ("buyer", "seller")
    assert SHOP.agent is SHOP.agents["buyer"]
    with pytest.raises(CallerError, match="app shop: expected an agent, got none"):
        App("shop", {})
