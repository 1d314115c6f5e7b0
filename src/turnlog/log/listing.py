"""The lists that contain a session: which ones there are, and how recently each sees the session as active.

A durable store keeps one entry for each list of a session, so that a page of a list reads no other record.
"""

from turnlog.log.records import SessionRecord


def list_name(principal: str | None) -> str:
    """Return the name of the list of a member's sessions; None: of all sessions."""
    return "all" if principal is None else f"of {principal}"


def invitations_name(principal: str) -> str:
    return f"inviting {principal}"


def listing_entries(record: SessionRecord) -> dict[str, int]:
    """Return the time of the last event that each list sees, by the name of the list."""
    entries = {list_name(None): record.active_ms(None)}
    for principal in record.members:
        entries[list_name(principal)] = record.active_ms(principal)
    for principal in record.invited_principals:
        entries[invitations_name(principal)] = record.active_ms(principal)
    return entries
