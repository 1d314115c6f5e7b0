"""Which blobs the events of a session name, and who sees such an event."""

from typing import ClassVar

import pytest
from msgspec import Raw, json

from turnlog.events import (
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    Envelope,
    Payload,
    ToolResult,
    UiMessage,
    UnknownPayload,
)
from turnlog.events.assistant import File
from turnlog.events.blob_addresses import MAX_TEXT_ADDRESSES, find_text_blob_names
from turnlog.events.content import PromptImage
from turnlog.events.tool import Image
from turnlog.state.blob_references import BlobReferences
from turnlog.state.channels import may_see_all
from turnlog.state.visible_events import EventView

NAME = f"sess_1/{'a' * 64}"
SRC = f"api/blobs/{NAME}"
CONVERSATION = EventView(shows_internals=False, app_types=frozenset({"case.scan"}))


class Scan(Payload, frozen=True, kw_only=True):
    EXAMPLE: ClassVar = {"pages": [SRC]}

    pages: list[str]


def folded(payload: Payload, type: str = "", channel: str | None = None, depth: int = 0) -> BlobReferences:
    references = BlobReferences()
    envelope = Envelope(
        type=type or payload.TYPE,
        id="evt_1",
        seq=1,
        ts="2026-01-01T00:00:00.000Z",
        session_id="sess_1",
        channel=channel,
        depth=depth,
        origin="model",
        payload=Raw(json.encode(payload)),
    )
    references.apply(envelope, payload)
    references.apply(envelope, payload)
    return references


def image_result() -> ToolResult:
    return ToolResult(call_id="c", tool="t", ok=True, images=(Image(src=SRC, media_type="image/png"),))


def test_a_reader_with_internals_sees_every_blob_of_its_channels() -> None:
    references = folded(image_result(), channel="seller")
    assert len(references.by_name[NAME]) == 1
    assert references.is_visible(NAME, may_see_all, EventView())
    assert not references.is_visible(NAME, lambda channel: channel != "seller", EventView())
    assert not references.is_visible("sess_1/b", may_see_all, EventView())


def test_a_reader_without_internals_sees_the_blobs_of_the_conversation() -> None:
    message = UiMessage(text="hi", content=(PromptImage(src=SRC),))
    files = AssistantFiles(files=(File(file_id="f", filename="a", storage_location=SRC),))
    assert folded(message).is_visible(NAME, may_see_all, CONVERSATION)
    assert folded(files).is_visible(NAME, may_see_all, CONVERSATION)
    assert not folded(files, depth=2).is_visible(NAME, may_see_all, CONVERSATION)
    assert not folded(image_result()).is_visible(NAME, may_see_all, CONVERSATION)


def test_events_of_the_application_count_if_the_view_has_them() -> None:
    scan = Scan(pages=["no address", SRC])
    assert folded(scan, "case.scan").is_visible(NAME, may_see_all, CONVERSATION)
    assert not folded(scan, "case.other").is_visible(NAME, may_see_all, CONVERSATION)


def test_events_without_an_address_and_unknown_events_leave_no_visible_blob() -> None:
    assert folded(UiMessage(text="hi")).by_name == {}
    references = BlobReferences()
    payload = Raw(json.encode({"src": SRC}))
    envelope = Envelope(
        type="new.type",
        id="evt_1",
        seq=1,
        ts="2026-01-01T00:00:00.000Z",
        session_id="sess_1",
        origin="model",
        payload=payload,
    )
    references.apply(envelope, UnknownPayload(payload))
    assert not references.is_visible(NAME, may_see_all, CONVERSATION)
    assert references.is_visible(NAME, may_see_all, EventView())


@pytest.mark.parametrize(
    "text",
    [
        f"![plan]({SRC})",
        f"See [the plan](/{SRC} 'plan').",
        f"{SRC}.",
        f"<{SRC}>",
        f"![]({SRC})![]({SRC})",
    ],
)
def test_an_address_in_the_text_of_a_message_counts(text: str) -> None:
    assert folded(AssistantMessage(text=text)).is_visible(NAME, may_see_all, CONVERSATION)
    assert folded(UiMessage(text=text)).is_visible(NAME, may_see_all, CONVERSATION)
    assert len(folded(UiMessage(text=text)).by_name) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"![](https://example.org/{SRC})",
        f"![](//example.org/{SRC})",
        f"![](../{SRC})",
        f"![]({SRC}a)",
        f"![]({SRC}/more)",
        f"![]({SRC[:-1]})",
        f"![](api/blobs/sess_2/{'a' * 64})",
        f"![](api/blobs/sess_1/private-{'a' * 32})",
        "api/blobs/sess_" * 3,
    ],
)
def test_other_addresses_in_a_text_do_not_count(text: str) -> None:
    assert folded(AssistantMessage(text=text)).by_name == {}


def test_a_text_that_the_reader_does_not_see_does_not_count() -> None:
    message = AssistantMessage(text=f"![]({SRC})")
    assert not folded(message, depth=1).is_visible(NAME, may_see_all, CONVERSATION)
    assert folded(message, depth=1).is_visible(NAME, may_see_all, EventView())
    in_channel = folded(message, channel="seller")
    assert not in_channel.is_visible(NAME, lambda channel: channel != "seller", CONVERSATION)
    assert folded(AssistantThinking(text=f"![]({SRC})")).by_name == {}


def test_a_text_counts_for_a_limited_number_of_addresses() -> None:
    addresses = [f"![](api/blobs/sess_1/{number:064x})" for number in range(MAX_TEXT_ADDRESSES + 1)]
    assert len(folded(UiMessage(text=" ".join(addresses))).by_name) == MAX_TEXT_ADDRESSES
    assert len(find_text_blob_names(" ".join(addresses[:3]))) == 3
