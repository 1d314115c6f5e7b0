"""Bodies, SSE frames and cursors of streams."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each_row
from turnlog.events import encode_envelope
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.durable_streams.events import (
    StreamAppend,
    StreamClose,
    StreamDelete,
    StreamTouch,
)
from turnlog.wire.durable_streams.framing import (
    CURSOR_EPOCH_MS,
    CURSOR_INTERVAL_MS,
    NO_CONTENT,
    Control,
    StoredContent,
    StreamFormat,
    decode_content,
    encode_control_event,
    encode_data_event,
    format_of,
    join_contents,
    next_cursor,
    take_prefix,
)
from turnlog.wire.sse import Decoder, ServerSentEvent

OFFSET = "0000000000000002_0000000000000001"
JSON, TEXT, BINARY = StreamFormat.JSON, StreamFormat.TEXT, StreamFormat.BINARY
Stored = StreamAppend | StreamClose | StreamDelete | StreamTouch
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=5,
)


def stored_line(payload: Stored) -> bytes:
    event = FULL_CATALOG.build_event(payload, id="evt_1", origin="system")
    return encode_envelope(event, session_id="sess_1", seq=3, ts_ms=0)


def stored_content(payload: Stored, stream_format: StreamFormat) -> StoredContent:
    return decode_content(payload.TYPE, stored_line(payload), stream_format)


def decode_events(data: bytes) -> list[ServerSentEvent]:
    return Decoder().feed(data)


@for_each_row(
    ("content_type", "expected"),
    [
        ("application/json; charset=utf-8", JSON),
        ("text/plain", TEXT),
        ("TEXT/html", TEXT),
        ("application/ndjson", BINARY),
        ("application/octet-stream", BINARY),
    ],
)
def test_the_content_type_decides_the_format(content_type: str, expected: StreamFormat) -> None:
    assert format_of(content_type) is expected


@given(st.lists(st.lists(json_values, min_size=1, max_size=4), max_size=4))
def test_json_messages_come_back_as_one_array(batches: list[list[object]]) -> None:
    contents = [stored_content(StreamAppend(messages=tuple(batch)), JSON).content for batch in batches]
    body = join_contents([content for content in contents if content is not None], JSON)
    assert json.loads(body) == [message for batch in batches for message in batch]


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_bytes_come_back_joined(chunks: list[bytes]) -> None:
    contents = [stored_content(StreamAppend(data=chunk), BINARY).content for chunk in chunks]
    assert join_contents([content or b"" for content in contents], BINARY) == b"".join(chunks)


def test_events_without_content_say_whether_the_stream_ends() -> None:
    assert stored_content(StreamClose(), TEXT) == StoredContent(None, ends=True)
    assert stored_content(StreamDelete(), TEXT) == StoredContent(None, ends=True, is_deleted=True)
    assert stored_content(StreamTouch(), TEXT) == NO_CONTENT
    assert stored_content(StreamAppend(data=b"x", closes=True), TEXT) == StoredContent(b"x", ends=True)


@given(st.text(st.sampled_from("a\r\n: ")))
def test_text_of_any_lines_is_one_event(text: str) -> None:
    data = encode_data_event(text.encode(), TEXT, OFFSET)
    [event] = decode_events(data + encode_control_event(Control(OFFSET)))[:-1]
    assert (event.event, event.id) == ("data", OFFSET)
    assert event.data == text.replace("\r\n", "\n").replace("\r", "\n")


@given(st.binary())
def test_bytes_are_sent_as_base64(body: bytes) -> None:
    [event] = decode_events(encode_data_event(body, BINARY, OFFSET))
    assert base64.b64decode(event.data) == body


def test_control_events_have_the_fields_that_are_set() -> None:
    [event] = decode_events(encode_control_event(Control(OFFSET, "17", up_to_date=True)))
    assert (event.event, event.id) == ("control", OFFSET)
    assert json.loads(event.data) == {"streamNextOffset": OFFSET, "streamCursor": "17", "upToDate": True}
    [event] = decode_events(encode_control_event(Control(OFFSET, stream_closed=True)))
    assert json.loads(event.data) == {"streamNextOffset": OFFSET, "streamClosed": True}


def test_a_prefix_is_counted_in_messages_or_bytes() -> None:
    assert take_prefix(b"1,[2,3]", JSON, 2) == StreamAppend(messages=(1, [2, 3]))
    assert take_prefix(b"1,[2,3]", JSON, 3) is None
    assert take_prefix(b"hello", TEXT, 3) == StreamAppend(data=b"hel")
    assert take_prefix(b"hello", TEXT, 6) is None


@given(st.integers(CURSOR_EPOCH_MS, 2**42), st.none() | st.integers(0, 2**40), st.integers(1, 180))
def test_a_cursor_is_later_than_that_of_the_client(now_ms: int, client: int | None, jitter: int) -> None:
    interval = (now_ms - CURSOR_EPOCH_MS) // CURSOR_INTERVAL_MS
    cursor = next_cursor(client, now_ms, jitter)
    assert cursor >= interval
    assert client is None or cursor > client
    if client is None or client < interval:
        assert cursor == interval
