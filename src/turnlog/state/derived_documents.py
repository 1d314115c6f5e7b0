"""Documents derived from events: their form, and which members may see one.

A fold derives them: its `apply` returns each document that an event changed, complete.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec
from msgspec import Struct

from turnlog.state.channels import is_channel_visible


class DerivedDocument(NamedTuple):
    """A document of a session; its body is compact JSON with sorted keys."""

    id: str
    type: str
    category: str
    body: bytes


class DocumentChannel(Struct):
    """The field of a body that decides who may see it."""

    channel: str | None = None


def is_document_visible(channels: Collection[str], body: bytes) -> bool:
    """Return whether a member of these channels sees a document."""
    return is_channel_visible(msgspec.json.decode(body, type=DocumentChannel).channel, channels)
