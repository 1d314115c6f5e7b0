"""Only the classes that declare it name a channel in their payload; in others `channel` is any field."""

from typing import Any, ClassVar

import pytest
from msgspec import Raw

from tests.support.written_logs import place
from turnlog.events import (
    CORE,
    AssistantMessage,
    Catalog,
    Payload,
    Scope,
    UiMessage,
    UnknownPayload,
    Vocabulary,
)
from turnlog.events.catalog import get_payload_channel
from turnlog.events.payload import ANY_ORIGIN
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript


class PickContact(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = ANY_ORIGIN
    channel: str


class Tune(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = ANY_ORIGIN
    channel: int


CATALOG = Catalog(CORE, Vocabulary("shop", [PickContact, Tune]))


def transcript_of(payload: Payload) -> Transcript:
    transcript = Transcript()
    event = CATALOG.build_event(payload, id="evt_1", origin="ui", scope=Scope(trace_id="tr_1"))
    transcript.apply(*place(event, 0, CATALOG))
    return transcript


@pytest.mark.parametrize("payload", [PickContact(channel="email"), Tune(channel=7)])
def test_transcript_of_an_event_with_a_field_channel_is_for_everybody(payload: Payload) -> None:
    assert [bubble.channel for bubble in transcript_of(payload).visible_in([])] == [None]


def test_transcript_of_an_event_with_a_number_as_channel_loads_from_its_snapshot() -> None:
    transcript = transcript_of(Tune(channel=7))
    assert load(Transcript, dump(transcript)) == transcript


@pytest.mark.parametrize(("payload", "channel"), [
    (UiMessage(text="hi", channel="buyer"), "buyer"),
    (AssistantMessage(text="hi", channel="buyer"), "buyer"),
    (AssistantMessage(text="hi"), None),
    (PickContact(channel="email"), None),
    (UnknownPayload(Raw(b"{}")), None),
])  # fmt: skip
def test_named_channel_is_that_of_messages_alone(payload: Any, channel: str | None) -> None:
    assert get_payload_channel(payload) == channel
