"""Channels: which channel an event belongs to, and whether a member of some channels may see it.

A channel is the name of a role; its members alone see what is in it. None is no channel: every member of the
session sees it.
"""

from collections.abc import Callable, Collection

from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.events.catalog import get_payload_channel

ChannelFilter = Callable[[str | None], bool]


def visible_channel(envelope: Envelope, payload: Payload | UnknownPayload) -> str | None:
    """Return the channel of an event; None if every member sees it. Older events name it in the payload."""
    return envelope.channel or get_payload_channel(payload)


def is_channel_visible(channel: str | None, member_channels: Collection[str]) -> bool:
    return channel is None or channel in member_channels


def may_see_all(channel: str | None) -> bool:
    return True
