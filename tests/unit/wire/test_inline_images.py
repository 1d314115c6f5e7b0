"""Images as data URIs: which of them a reader gets in its messages, and how."""

import json
from typing import Literal

import pytest

from tests.support.written_logs import entry, scope
from turnlog.events import AgentStart, ToolResult, UiMessage
from turnlog.events.tool import Image
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.inline_images import addresses_to_inline, inline_images

BLOB = "api/blobs/sess_1/abc"


def result(src: str = BLOB, size_bytes: int | None = None) -> ToolResult:
    image = Image(src=src, media_type="image/png", size_bytes=size_bytes)
    return ToolResult(call_id="toolu_1", tool="draw", ok=True, images=(image, image))


@pytest.mark.parametrize(
    ("src", "size_bytes", "images", "is_inlined"),
    [
        (BLOB, 1200, "url", True),
        (BLOB, 1400, "url", False),
        (BLOB, None, "url", False),
        (BLOB, None, "inline", True),
        (BLOB, 5_000_000, "inline", True),
        ("https://example.com/a.png", 10, "inline", False),
        ("data:image/png;base64,AAAA", 3, "inline", False),
    ],
)
def test_blob_is_inlined_if_it_fits_or_if_the_reader_asks_for_it(
    src: str, size_bytes: int | None, images: Literal["url", "inline"], is_inlined: bool
) -> None:
    found = addresses_to_inline(result(src, size_bytes), DialectOptions(images=images))
    assert found == ([src] if is_inlined else [])


def test_event_without_images_needs_no_blob() -> None:
    assert addresses_to_inline(UiMessage(text="hi"), DialectOptions(images="inline")) == []


@pytest.mark.parametrize("size", [3, 1200, 100_000])
def test_inlined_image_is_one_message_whatever_its_size(size: int) -> None:
    envelope, _ = entry(result(size_bytes=size), scope("agt_" + "1" * 64))
    payload = inline_images(result(size_bytes=size), {BLOB: b"x" * size})
    messages = Blocks().convert(envelope, payload)
    text, first, second, end = map(json.loads, messages)
    assert (text["delta"], text["final"], end["final"]) == ("", False, True)
    assert first == second
    assert first["src"].startswith("data:image/png;base64,eHh4")
    assert (len(messages[1]) <= MAX_MESSAGE_BYTES) == (size <= 1200)


def test_image_that_is_not_there_keeps_its_address() -> None:
    assert inline_images(result(), {}) == result()


def test_agents_of_one_conversation_have_its_name_unless_another_open_agent_has_it() -> None:
    blocks = Blocks()
    start = AgentStart(name="Guide", via="prompt", conversation_id="mine")
    named = [
        json.loads(message)["agent"]
        for agent in ("agt_1", "agt_2")
        for message in blocks.convert(*entry(start, scope(agent)))
    ]
    assert named == ["mine", "2"]
