"""Which view a member has: by its roles, by how it came, and by what the application says."""

import pytest

from tests.unit.app.desk import CASES, CloseCase, NoteFact, make_app
from turnlog.app import Membership, Principal, Roles, RoleView
from turnlog.app.app import EVERYTHING
from turnlog.app.membership import is_guest, membership_of
from turnlog.log import SessionRecord
from turnlog.state.visible_events import EventView

NAMES = frozenset(kind.name for kind in CASES)
GUEST = Principal("guest_1")
BOB = Principal("bob")


def member(principal: Principal, *own_roles: str, roles: Roles = Roles()) -> Membership:  # noqa: B008
    app = make_app(roles=roles, vocabulary=CASES)
    record = SessionRecord("sess_1", "e1", app.name, creator="ada", members={principal.name: own_roles})
    membership = membership_of(principal, record, app)
    assert membership is not None
    return membership


@pytest.mark.parametrize(
    ("principal", "role", "shows_internals"),
    [
        (BOB, "owner", True),
        (BOB, "clerk", True),
        (BOB, "guest", False),
        (GUEST, "guest", False),
        (GUEST, "clerk", False),
        (GUEST, "owner", True),
        (Principal("root", frozenset({"operator"})), "guest", True),
        (Principal("worker", frozenset({"executor"})), "guest", True),
        (Principal("feed", frozenset({"source"})), "guest", True),
    ],
)
def test_guests_see_the_conversation_and_members_see_everything(
    principal: Principal, role: str, shows_internals: bool
) -> None:
    view = member(principal, role).event_view
    assert (view.shows_internals, view.shows_all) == (shows_internals, shows_internals)
    assert is_guest(principal) == (principal is GUEST)


def test_an_application_opens_and_narrows_what_a_role_sees() -> None:
    roles = Roles(
        event_views={
            "guest": RoleView(events=[NoteFact]),
            "auditor": RoleView(events=[CloseCase], internals=True),
            "partner": EVERYTHING,
            "silent": RoleView(),
        }
    )
    [note] = [name for name in NAMES if name.endswith("note_fact")]
    [close] = [name for name in NAMES if name.endswith("close_case")]
    guest = member(GUEST, "guest", roles=roles).event_view
    assert (guest.shows_internals, guest.app_types) == (False, frozenset({note}))
    auditor = member(BOB, "auditor", roles=roles).event_view
    assert (auditor.shows_internals, auditor.app_types) == (True, frozenset({close}))
    assert not auditor.shows_all
    both = member(BOB, "guest", "auditor", roles=roles).event_view
    assert (both.shows_internals, both.app_types) == (True, frozenset({note, close}))
    assert member(GUEST, "partner", roles=roles).event_view.shows_all
    assert member(BOB, "silent", roles=roles).event_view.app_types == frozenset()
    assert isinstance(guest, EventView)


def test_a_deleted_session_has_no_members_and_no_operators() -> None:
    app = make_app()
    record = SessionRecord("sess_1", "e1", app.name, last=3, members={"bob": ("owner",)}).erase()
    assert record.is_erased
    for principal in (BOB, Principal("root", frozenset({"operator"}))):
        assert membership_of(principal, record, app) is None


def test_owners_and_the_creator_delete_a_session() -> None:
    assert member(BOB, "owner").may_delete
    assert not member(BOB, "clerk").may_delete
    assert member(Principal("ada"), "clerk").may_delete
    assert not member(BOB, "clerk").may_close
