"""What an aborted block shows of a value that came whole fits into one event."""

from typing import Any

import pytest

from turnlog.events import CATALOG, BlockEnd, ParseReject, Payload
from turnlog.parse import MessagesParser, ReplyBuilder
from turnlog.parse.json_values import MAX_VALUE_BYTES

LONG = [""] * 4_000_000  # 12 MB of JSON that is mostly quotes: as a text in JSON it is 20 MB


def aborted(block: dict[str, Any]) -> list[Payload]:
    parser = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}1"))
    parser.feed({"type": "content_block_start", "index": 0, "content_block": block})
    return parser.flush()


@pytest.mark.parametrize("block", [
    {"type": "weird", "l": LONG},
    {"type": "tool_use", "id": "c", "name": "t", "input": {"l": LONG}},
], ids=["other", "call"])  # fmt: skip
def test_aborted_block_with_too_much_to_show_is_counted_and_not_shown(block: dict[str, Any]) -> None:
    end, reject = aborted(block)
    assert isinstance(end, BlockEnd)
    assert end.text == ""
    assert isinstance(reject, ParseReject)
    assert (reject.reason, reject.length > 12_000_000) == ("too_long", True)
    assert len(CATALOG.build_event(end, id="evt_1", origin="model").body) < MAX_VALUE_BYTES


def test_aborted_block_of_ordinary_size_shows_its_value() -> None:
    (end,) = aborted({"type": "weird", "l": ["x"]})
    assert isinstance(end, BlockEnd)
    assert end.text == '{"type":"weird","l":["x"]}'
