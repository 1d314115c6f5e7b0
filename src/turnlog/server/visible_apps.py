"""The applications that a caller knows of: a guest those of its sessions, any other caller all of them."""

from turnlog.app import App, Membership, Sessions
from turnlog.app.membership import Principal, is_guest


async def find_guest_memberships(sessions: Sessions, principal: Principal) -> list[Membership] | None:
    """Return the memberships of a guest; None for a caller who may make sessions."""
    if not is_guest(principal):
        return None
    memberships, _ = await sessions.list_memberships(principal)
    return memberships


def apps_for(sessions: Sessions, guest_memberships: list[Membership] | None) -> list[App]:
    """Return the applications that a caller knows of: all, or those of a guest's sessions."""
    apps = list(sessions.apps.values())
    if guest_memberships is None:
        return apps
    return [app for app in apps if any(one.app is app for one in guest_memberships)]
