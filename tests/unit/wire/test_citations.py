"""Citations in `blocks`: what stays whole beside the cited text, and what goes first without room."""

from typing import Any

import msgspec
import pytest

from turnlog.events import Citation
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DEFAULT_OPTIONS
from turnlog.wire.dialects.blocks import encode_citations

AGENT = "0197e1a6-cd7c-7ef8-8cca-d699e1a3bb1d"


def sent(**fields: Any) -> list[dict[str, Any]]:
    item = Citation(type="web_search_result_location", **fields)
    lines = encode_citations(AGENT, (item,), DEFAULT_OPTIONS)
    assert all(len(line) <= MAX_MESSAGE_BYTES for line in lines)
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.parametrize("length", [201, 1000, 1600])
def test_citations_with_a_long_url_that_fits_keep_it_whole(length: int) -> None:
    url = "https://example.com/".ljust(length, "a")
    assert [message["url"] for message in sent(cited_text="Green.", url=url, title="Grass")] == [url]


def test_citations_with_a_long_title_that_fits_keep_it_whole() -> None:
    assert sent(cited_text="Green.", title="t" * 1000)[0]["title"] == "t" * 1000


def test_citations_without_room_shorten_the_title_before_the_url_goes() -> None:
    url = "https://example.com/".ljust(1200, "a")
    (message,) = sent(cited_text="Green.", url=url, title="t" * 1000)
    assert message["url"] == url
    assert message["title"].endswith("t…")
    assert len(message["title"]) < 200


def test_citations_with_a_url_that_does_not_fit_leave_it_out_whole() -> None:
    (message,) = sent(cited_text="Green.", url="https://example.com/".ljust(3000, "a"), title="Grass")
    assert "url" not in message
    assert message["title"] == "Grass"


def test_citations_of_a_long_text_come_in_messages_that_hold_64_bytes_or_more_of_it() -> None:
    url = "https://example.com/".ljust(1550, "a")
    messages = sent(cited_text="x" * 5000, url=url, title="t" * 150)
    assert "".join(message["delta"] for message in messages) == "x" * 5000
    assert min(len(message["delta"]) for message in messages[:-1]) >= 64
