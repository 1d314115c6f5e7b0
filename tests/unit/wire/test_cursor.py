"""Cursors as headers and queries write them (protocol section 7)."""

import pytest

from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.ids import new_epoch
from turnlog.wire.cursor import MAX_CURSOR_SEQ, Cursor, parse_cursor, parse_request_cursor

START = Cursor(-1, None, None)


@for_each_row(
    ("text", "cursor"),
    [
        ("41:k3x9", Cursor(41, "k3x9")),
        ("41.0:k3x9", Cursor(41, "k3x9", 0)),
        ("41.7:k3x9", Cursor(41, "k3x9", 7)),
        ("0:0", Cursor(0, "0")),
        ("34:12", Cursor(34, "12")),
        ("41", Cursor(41)),
        ("0", Cursor(0)),
        ("41.2", Cursor(41, None, 2)),
        ("-1", START),
        ("-1:k3x9", Cursor(-1, "k3x9")),
        ("9" * 18, Cursor(10**18 - 1)),
        ("1:" + "a" * 32, Cursor(1, "a" * 32)),
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
    assert parse_cursor(" 41:k3x9 ") == Cursor(41, "k3x9")


@for_each_row(
    "text",
    [
        "x",
        "41:",
        ":k3x9",
        "k3x9:41",
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
        "3:a:b",
        "41:K3X9",
        "41:k-9",
        "41:k3x9,42:k3x9",
        "0x10",
        "1" * 19,
        "1." + "1" * 10,
        "1:" + "a" * 33,
        "null",
        "41\0",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected a cursor like `41:k3x9` or `41`, got ") as refused:
        parse_cursor(text)
    assert refused.value.path == "after"


def test_a_refusal_quotes_little_of_a_long_cursor() -> None:
    with pytest.raises(BadInput) as refused:
        parse_cursor("41:" + "x" * 10_000)
    assert len(str(refused.value)) < 200


@for_each_row("text", ["٣", "４２", "٤١:k3x9", "1.٢", "-1.0", "-1.3:k3x9"])
def test_what_nobody_writes_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_cursor(text)


def test_parse_request_cursor_of_an_epoch_is_the_start() -> None:
    for _ in range(100):
        epoch = new_epoch()
        assert parse_request_cursor(epoch) == parse_request_cursor(f"{epoch}:41") == START


def test_parse_request_cursor_of_more_digits_than_python_reads_is_past_every_log() -> None:
    assert parse_request_cursor("1" * 100_000) == Cursor(MAX_CURSOR_SEQ)
    assert parse_request_cursor("0" * 100_000 + "7") == Cursor(7)
