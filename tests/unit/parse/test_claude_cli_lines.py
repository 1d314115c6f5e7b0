"""Lines of a process: cut anywhere, too long, half, mended; and the lines that go down."""

import hashlib
import json
from typing import Any

import pytest

from turnlog.events import ParseReject
from turnlog.parse.claude.lines import (
    MAX_LINE_BYTES,
    LineDecoder,
    allow_line,
    deny_line,
    interrupt_line,
    make_raw_line_event,
    message_line,
    unsupported_line,
)


def read(*pieces: bytes) -> list[Any]:
    lines = LineDecoder()
    return [line for piece in pieces for line in lines.feed(piece)] + lines.flush()


def test_cut_at_every_position() -> None:
    data = '{"a": "é\\n"}\r\n\n {"b": [1]} \noops é\n{"c": 3}'.encode()
    whole = read(data)
    assert [line if isinstance(line, dict) else line.reason for line in whole] == [
        {"a": "é\n"}, {"b": [1]}, "bad_line", {"c": 3},
    ]  # fmt: skip
    assert whole[2] == ParseReject(
        reason="bad_line", length=6, sha256=hashlib.sha256("oops é".encode()).hexdigest()
    )
    for at in range(len(data) + 1):
        assert read(data[:at], data[at:]) == whole


def test_half_a_line_is_refused() -> None:
    (reject,) = read(b'{"a"')
    assert reject.reason == "cut_line"


@pytest.mark.parametrize("size", [1 << 20, 1 << 24])
def test_a_line_that_is_too_long_is_skipped_to_its_end(size: int) -> None:
    body = "é" * (MAX_LINE_BYTES // 2 + 1)
    data = b"{}\n" + body.encode() + b'\n{"a": 1}\n'
    first, reject, last = read(*(data[at : at + size] for at in range(0, len(data), size)))
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    assert reject == ParseReject(reason="too_long", length=len(body), sha256=sha256)
    assert (first, last) == ({}, {"a": 1})


def test_a_line_of_the_limit_is_read() -> None:
    line = b'{"a":"' + b"x" * (MAX_LINE_BYTES - 8) + b'"}'
    (value,) = read(line + b"\n")
    assert len(line) == MAX_LINE_BYTES
    assert isinstance(value, dict)
    (end,) = read(line + b" \n")
    assert end.reason == "too_long"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"a": "cut \\ud83d"}', {"a": "cut �"}),
        (b'{"a": "\xff"}', {"a": "�"}),
        (b'{"a": NaN}', {"a": None}),
    ],
)
def test_what_is_no_unicode_is_mended(line: bytes, value: Any) -> None:
    assert read(line) == [value]


@pytest.mark.parametrize(
    "line",
    [b'{"a": ' + b"[" * 32 + b"]" * 32 + b"}", b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b", \xff}"],
    ids=["deep", "very deep", "large"],
)
def test_what_the_log_cannot_hold_is_refused(line: bytes) -> None:
    assert [reject.reason for reject in read(line + b"\n")] == ["bad_line"]


def test_a_line_that_is_kept_says_what_it_is() -> None:
    assert make_raw_line_event({"type": "system", "subtype": "x"}).kind == "system.x"
    assert make_raw_line_event({"type": ["?"]}).kind == "unknown"
    assert make_raw_line_event({"type": "😀" * 40, "subtype": "😀" * 40}).kind == "😀" * 32


def test_lines_that_go_down() -> None:
    assert json.loads(message_line("Hi\n", "u-1")) == {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": "Hi\n"}]},
        "uuid": "u-1",
    }
    with_file = json.loads(message_line("Hi", "u-1", [{"type": "image"}]))
    assert with_file["message"]["content"] == [{"type": "text", "text": "Hi"}, {"type": "image"}]
    assert json.loads(interrupt_line("r-1")) == {
        "type": "control_request", "request_id": "r-1", "request": {"subtype": "interrupt"},
    }  # fmt: skip
    answers = [allow_line("r-1", {"a": 1}), deny_line("r-2", "No."), unsupported_line("r-3")]
    assert [json.loads(line) for line in answers] == [
        {"type": "control_response", "response": response}
        for response in (
            {"subtype": "success", "request_id": "r-1",
             "response": {"behavior": "allow", "updatedInput": {"a": 1}}},
            {"subtype": "success", "request_id": "r-2", "response": {"behavior": "deny", "message": "No."}},
            {"subtype": "error", "request_id": "r-3", "error": "not supported"},
        )
    ]  # fmt: skip
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in answers)
