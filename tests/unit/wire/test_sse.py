"""The SSE codec against the EventSource chapter of the HTML standard, fed whole and in every cut."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.tables import check_laws, for_each_row
from turnlog.errors import BadInput, CallerError, PeerError
from turnlog.wire.sse import MAX_SSE_MESSAGE_BYTES, Decoder, ServerSentEvent, encode

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "wire" / "sse.json").read_text()
)


def stream_of(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["hex"]) if "hex" in case else case["input"].encode()


def expected(case: dict[str, Any]) -> tuple[list[ServerSentEvent], str, int | None]:
    messages = msgspec.convert(case["messages"], list[ServerSentEvent])
    last_id = messages[-1].id if messages else ""
    return messages, case.get("last_id", last_id), case.get("retry_ms")


def decode(pieces: Iterable[bytes]) -> tuple[list[ServerSentEvent], str, int | None]:
    decoder = Decoder()
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    return messages + decoder.flush(), decoder.last_id, decoder.retry_ms


def decode_until_refused(pieces: Iterable[bytes], limit_bytes: int) -> tuple[list[ServerSentEvent], bool]:
    decoder, messages = Decoder(limit_bytes), []
    try:
        for piece in pieces:
            messages += decoder.feed(piece)
        messages += decoder.flush()
    except BadInput:
        return messages, True
    return messages, False


def singles(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def check_decode_whole(case: dict[str, Any]) -> None:
    assert decode([stream_of(case)]) == expected(case)


def check_decode_byte_by_byte(case: dict[str, Any]) -> None:
    assert decode(singles(stream_of(case))) == expected(case)


def check_decode_cut_at_every_position(case: dict[str, Any]) -> None:
    stream = stream_of(case)
    for at in range(len(stream) + 1):
        assert decode([stream[:at], b"", stream[at:]]) == expected(case), at


def check_decode_with_an_unfinished_message_behind(case: dict[str, Any]) -> None:
    if not case.get("input", "").endswith(("\n", "\r")):
        return
    assert decode([stream_of(case) + b": end\nid: junk\nevent: junk\ndata: junk\n"]) == expected(case)


@pytest.mark.parametrize("case", VECTORS["decode"], ids=lambda case: case["name"])
def test_decode_vector(case: dict[str, Any]) -> None:
    laws = [
        check_decode_whole,
        check_decode_byte_by_byte,
        check_decode_cut_at_every_position,
        check_decode_with_an_unfinished_message_behind,
    ]
    check_laws(laws, case)


@for_each_row("case", VECTORS["encode"], ids=lambda case: repr(case["frame"]))
def test_encode(case: dict[str, Any]) -> None:
    data = None if case["data"] is None else case["data"].encode()
    options = {key: case[key] for key in ("id", "event", "retry_ms") if key in case}
    assert encode(data, **options) == case["frame"].encode()


@for_each_row("case", VECTORS["refuse"], ids=lambda case: ascii(case))
def test_refused_fields(case: dict[str, Any]) -> None:
    options = {key: case[key] for key in ("id", "event", "retry_ms") if key in case}
    with pytest.raises(CallerError, match=rf"^expected .* \(at {case['at']}\)$"):
        encode(b"{}", **options)


def test_what_the_refusal_prevents() -> None:
    event = "a\ndata: forged\n\n"
    messages, _, _ = decode([f"event: {event}\ndata: x\n\n".encode()])
    assert ServerSentEvent("forged", "a") in messages


def test_a_message_is_out_with_its_last_byte() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\r\n") == []
    assert decoder.feed(b"\r") == [ServerSentEvent("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n\n") == [ServerSentEvent("b")]


def test_flush_begins_a_new_stream_after_the_last_id() -> None:
    decoder = Decoder()
    decoder.feed(b"id: 4\ndata: a\n\nid: 5\nevent: lost\nretry: 9\ndata: lost\r")
    assert decoder.flush() == []
    assert decoder.last_id == "4"
    assert decoder.feed(b"\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent("b", id="4")]


BEFORE = b"data: 1\n\n"
BOUNDS = [
    ("data of the limit", b"data: " + b"x" * 14 + b"\n\n", False),
    ("data over the limit", b"data: " + b"x" * 15 + b"\n\n", True),
    ("an endless line", b"data: " + b"x" * 40, True),
    ("an endless comment", b":" + b"x" * 40, True),
    ("an endless id", b"id:" + b"x" * 40, True),
    ("many comments", b": ping\n" * 40, False),
    ("many data lines", b"data: x\n" * 40, True),
    ("many empty data lines", b"data\n" * 40, True),
    ("data lines that just fit", b"data:x\n" * 8 + b"\n", False),
    ("data lines and a long last line", b"data:x\n" * 8 + b":123456\n\n", True),
    ("a byte order mark counts", b"\xef\xbb\xbf" + b"x" * 17, False),
    ("a byte order mark too many", b"\xef\xbb\xbf" + b"x" * 18, True),
]


@for_each_row(("stream", "refused"), [bound[1:] for bound in BOUNDS], ids=[bound[0] for bound in BOUNDS])
def test_bounds_hold_in_every_cut(stream: bytes, refused: bool) -> None:
    whole = decode_until_refused([stream], 20)
    assert whole[1] is refused
    assert decode_until_refused(singles(stream), 20) == whole
    for at in range(len(stream)):
        assert decode_until_refused([stream[:at], stream[at:]], 20) == whole


def test_messages_before_a_refused_one_are_handed_out() -> None:
    stream = BEFORE + b"data: " + b"x" * 40 + b"\n\ndata: after\n\n"
    assert decode_until_refused([stream], 20) == ([ServerSentEvent("1")], True)
    assert decode_until_refused(singles(stream), 20) == ([ServerSentEvent("1")], True)


def test_a_refusal_is_final() -> None:
    decoder = Decoder(limit_bytes=20)
    with pytest.raises(
        PeerError, match=r"^expected an SSE message of at most 20 bytes, got more \(at stream\)$"
    ):
        decoder.feed(b"x" * 21)
    with pytest.raises(BadInput):
        decoder.feed(b"\n\ndata: a\n\n")
    with pytest.raises(BadInput):
        decoder.flush()


@without_coverage()
def test_the_largest_message_in_small_pieces() -> None:
    text = b"x" * (MAX_SSE_MESSAGE_BYTES - 6)  # copied anew for each piece, this would be 4 TB of copying
    frame, piece = encode(text), 32
    messages, _, _ = decode(frame[at : at + piece] for at in range(0, len(frame), piece))
    assert messages == [ServerSentEvent(text.decode())]
