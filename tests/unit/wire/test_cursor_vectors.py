"""Cursors as Python and JavaScript both read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnlog.errors import BadInput
from turnlog.wire.cursor import Cursor, parse_cursor, parse_request_cursor

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "wire" / "cursors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["cursors"], ids=lambda vector: vector["text"])
def test_parse_cursor_reads_every_part_and_str_writes_it_back(vector: dict[str, Any]) -> None:
    cursor = parse_cursor(vector["text"])
    assert cursor == Cursor(int(vector["seq"]), vector["epoch"], vector["chunk"])
    assert str(cursor) == vector["text"]
    assert parse_request_cursor(vector["text"]) == cursor


@pytest.mark.parametrize("text", VECTORS["refused"])
def test_parse_text_that_is_no_cursor_raises(text: str) -> None:
    with pytest.raises(BadInput):
        parse_cursor(text)


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda vector: vector["text"])
def test_parse_request_cursor_of_text_that_is_no_cursor_reads_its_number(vector: dict[str, Any]) -> None:
    cursor = parse_request_cursor(vector["text"])
    assert cursor == Cursor(int(vector["seq"]), vector["epoch"])
    assert parse_request_cursor(str(cursor)) == cursor, "an id of several sessions repeats it"
