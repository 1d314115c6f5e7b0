"""Cursors as headers and queries write them (protocol section 7)."""

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.wire.cursor import Cursor, parse_cursor

START = Cursor(-1, None, None)


@for_each_row(
    ("text", "cursor"),
    [
        ("k3x9:41", Cursor(41, "k3x9")),
        ("k3x9:41.0", Cursor(41, "k3x9", 0)),
        ("k3x9:41.7", Cursor(41, "k3x9", 7)),
        ("0:0", Cursor(0, "0")),
        ("12:34", Cursor(34, "12")),
        ("41", Cursor(41)),
        ("0", Cursor(0)),
        ("41.2", Cursor(41, None, 2)),
        ("-1", START),
        ("k3x9:-1", Cursor(-1, "k3x9")),
        ("9" * 18, Cursor(10**18 - 1)),
        ("a" * 32 + ":1", Cursor(1, "a" * 32)),
    ],
)
def test_a_cursor_is_read_and_written_back(text: str, cursor: Cursor) -> None:
    assert parse_cursor(text) == cursor
    assert str(cursor) == text


@for_each_row("text", ["", " ", "\t", "-1"])
def test_nothing_is_the_start(text: str) -> None:
    assert parse_cursor(text) == START == Cursor()
    assert str(parse_cursor(text)) == "-1"


def test_white_space_around_it_does_not_count() -> None:
    assert parse_cursor(" k3x9:41 ") == Cursor(41, "k3x9")


@for_each_row(
    "text",
    [
        "x",
        "k3x9:",
        ":41",
        "k3x9",
        "-2",
        "+1",
        "--1",
        "1e3",
        "4 1",
        "41.",
        ".5",
        "41.-1",
        "41.2.3",
        "a:b:3",
        "K3X9:41",
        "k-9:41",
        "k3x9:41,k3x9:42",
        "0x10",
        "1" * 19,
        "1." + "1" * 10,
        "a" * 33 + ":1",
        "null",
        "41\0",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected a cursor like `k3x9:41` or `41`, got ") as refused:
        parse_cursor(text)
    assert refused.value.path == "after"


def test_a_refusal_quotes_little_of_a_long_cursor() -> None:
    with pytest.raises(BadInput) as refused:
        parse_cursor("k3x9:" + "x" * 10_000)
    assert len(str(refused.value)) < 200


@for_each_row("text", ["٣", "４２", "k3x9:٤١", "1.٢", "-1.0", "k3x9:-1.3"])
def test_what_nobody_writes_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_cursor(text)
