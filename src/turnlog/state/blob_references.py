"""Which blobs the events of a session name, and in which channels: for readers who do not see every event.

A fold over the log. An event names a blob by its address: a whole string anywhere in its payload, or a part
of the text of a message, such as `![plan](api/blobs/...)`. Addresses of other sessions do not count in a
text. The map grows with the blobs of the session, and with the types of events and the channels that name
one. Of the text of one message it has at most `MAX_TEXT_ADDRESSES`.
"""

from msgspec import Struct, field, json

from turnlog.events import (
    AssistantFiles,
    AssistantMessage,
    AssistantView,
    Envelope,
    Payload,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.blob_addresses import BLOB_URL_PREFIX, find_blob_names, find_text_blob_names
from turnlog.state.channels import ChannelFilter
from turnlog.state.visible_events import EventView

ADDRESS_PREFIX = BLOB_URL_PREFIX.encode()
# Events whose blobs a reader without internals sees, as far as it sees the event itself.
CONVERSATION_TYPES = frozenset(
    {UiMessage.TYPE, AssistantMessage.TYPE, AssistantFiles.TYPE, AssistantView.TYPE}
)
# Of these, a reader without internals sees those of root agents alone.
ROOT_TYPES = frozenset({AssistantMessage.TYPE, AssistantFiles.TYPE})


class BlobReference(Struct, frozen=True, order=True):
    """A kind of event that names a blob; `channel` is "" for events in no channel."""

    type: str
    channel: str
    depth: int
    is_app_event: bool


class BlobReferences(Struct):
    """The references by the name of the blob."""

    by_name: dict[str, list[BlobReference]] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        if ADDRESS_PREFIX not in bytes(envelope.payload):
            return
        is_app_event = isinstance(payload, Payload) and not type(payload).TYPE
        reference = BlobReference(
            envelope.type, envelope.channel or "", min(envelope.depth or 0, 1), is_app_event
        )
        names = find_blob_names(json.decode(envelope.payload))
        if isinstance(payload, AssistantMessage | UiMessage):
            own_prefix = f"{envelope.session_id}/"
            names |= {name for name in find_text_blob_names(payload.text) if name.startswith(own_prefix)}
        for name in names:
            references = self.by_name.setdefault(name, [])
            if reference not in references:
                references.append(reference)

    def is_visible(self, name: str, may_see: ChannelFilter, view: EventView) -> bool:
        """Return whether a reader with this view and these channels sees an event that names the blob."""
        references = self.by_name.get(name, ())
        return any(may_see(item.channel or None) and is_shown(item, view) for item in references)


def is_shown(reference: BlobReference, view: EventView) -> bool:
    if reference.is_app_event:
        return view.shows_app_type(reference.type)
    if view.shows_internals:
        return True
    return reference.type in CONVERSATION_TYPES and (reference.type not in ROOT_TYPES or not reference.depth)
