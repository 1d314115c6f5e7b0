"""The envelope: its place, its bytes, and what it keeps without understanding it."""

import json

import msgspec
import pytest

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import (
    CATALOG,
    Envelope,
    EnvelopeDraft,
    Scope,
    UnknownPayload,
    decode_any_envelope,
    decode_envelope,
    encode_envelope,
)
from turnlog.events.envelope import decode_stored_envelope, format_timestamp, parse_timestamp_ms

LINE = (
    b'{"type":"tool.call","id":"evt_1","seq":42,"ts":"2026-01-08T12:34:56.789Z","session_id":"sess_1",'
    b'"trace_id":"tr_1","agent_id":"agt_1","agent_name":"Researcher","depth":1,"channel":"customer",'
    b'"actor":"ada","origin":"model",'
    b'"payload":{"call_id":"toolu_01","tool":"grep_search","args":{}}}'
)
SCOPE = Scope(
    trace_id="tr_1", agent_id="agt_1", agent_name="Researcher", depth=1, channel="customer", actor="ada"
)
SHORT = (
    b'{"type":"ui.message","id":"evt_1","seq":0,"ts":"1970-01-01T00:00:00.000Z","session_id":"sess_1",'
    b'"origin":"ui","payload":%s}'
)


def test_a_stamped_event_has_the_documented_form() -> None:
    event = CATALOG.build_event(
        "tool.call",
        {"call_id": "toolu_01", "tool": "grep_search", "args": {}},
        id="evt_1",
        origin="model",
        scope=SCOPE,
    )
    assert encode_envelope(event, session_id="sess_1", seq=42, ts_ms=1767875696789) == LINE


def test_stamping_is_pure() -> None:
    event = CATALOG.build_event("ui.message", {"text": "hi"}, id="evt_1", origin="ui")
    first, second = (encode_envelope(event, session_id="sess_1", seq=0, ts_ms=0) for _ in range(2))
    assert first == second == SHORT % b'{"text":"hi"}'


@pytest.mark.parametrize("line", [LINE, SHORT % b'{"text":"hi"}', SHORT % b"null"])
def test_a_line_survives(line: bytes) -> None:
    assert msgspec.json.encode(decode_envelope(line)) == line
    assert msgspec.structs.asdict(decode_stored_envelope(line)) == msgspec.structs.asdict(
        decode_envelope(line)
    )


def test_a_decoded_envelope_is_typed() -> None:
    envelope = decode_envelope(LINE)
    assert (envelope.type, envelope.seq, envelope.depth, envelope.origin) == ("tool.call", 42, 1, "model")
    assert bytes(envelope.payload) == b'{"call_id":"toolu_01","tool":"grep_search","args":{}}'
    assert decode_envelope(SHORT % b"{}").agent_id is None


def test_a_field_of_a_newer_writer_does_not_hurt() -> None:
    newer = LINE[:-1] + b',"region":"eu"}'
    assert msgspec.json.encode(decode_envelope(newer)) == LINE


@for_each_row(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1000, "1970-01-01T00:00:01.000Z"),
        (1767875696789, "2026-01-08T12:34:56.789Z"),
        (4102444800001, "2100-01-01T00:00:00.001Z"),
        (8602040266182, "2242-08-03T15:37:46.182Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_is_exact(ms: int, text: str) -> None:
    assert format_timestamp(ms) == text


@for_each_row(
    ("line", "says"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (LINE + b"{}", "trailing"),
        (LINE.replace(b'"seq":42', b'"seq":-1'), "seq"),
        (LINE.replace(b'"seq":42,', b""), "seq"),
        (LINE.replace(b"evt_1", b"evt 1"), "id"),
        (LINE.replace(b"sess_1", b"tr_1"), "session_id"),
        (LINE.replace(b".789Z", b"Z"), "ts"),
        (LINE.replace(b'"model"', b'"human"'), "origin"),
        (LINE.replace(b"Researcher", b"\xff"), "utf-8"),
        (LINE.replace(b"Researcher", "€".encode() * 43), "agent_name"),
        (SHORT % (b"[" * 100_000 + b"]" * 100_000), "envelope"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_no_envelope_is_an_invalid_event(line: bytes, says: str) -> None:
    with pytest.raises(InvalidEvent, match="not an envelope") as caught:
        decode_envelope(line)
    assert says in str(caught.value)


@pytest.mark.parametrize("line", [b"[]", b"{", LINE.replace(b"42", b'"42"'), LINE.replace(b'"id"', b'"no"')])
def test_a_stored_line_that_is_no_envelope_is_an_invalid_event(line: bytes) -> None:
    with pytest.raises(InvalidEvent, match="not an envelope"):
        decode_stored_envelope(line)


def test_an_unknown_payload_is_its_bytes() -> None:
    unknown = UnknownPayload(msgspec.Raw(b'{"a":  1}'))
    assert bytes(unknown.data) == b'{"a":  1}'


@for_each_row("text", ["\n", "\r", "\r\n", "a\u2028b\u2029c", "\0\x1f\x7f\x85", '"\\', "😀"])
def test_no_text_breaks_the_line(text: str) -> None:
    event = CATALOG.build_event("ui.message", {"text": text}, id="evt_1", origin="ui")
    line = encode_envelope(event, session_id="sess_1", seq=0, ts_ms=0)
    assert not set(line) & set(b"\r\n")
    assert json.loads(line)["payload"]["text"] == text


def test_line_breaks_between_the_fields_do_not_reach_a_line() -> None:
    spread = SHORT % b'{\r\n  "text": "hi"\n}'
    with pytest.raises(InvalidEvent):
        decode_envelope(spread)


def test_the_wire_order_is_the_order_of_the_fields() -> None:
    assert Envelope.__struct_fields__ == tuple(json.loads(LINE))


@pytest.mark.parametrize("ms", [0, 1, 999, 1_767_875_696_789, 253_402_300_799_999])
def test_a_time_stamp_gives_its_milliseconds_back(ms: int) -> None:
    assert parse_timestamp_ms(format_timestamp(ms)) == ms


def test_a_date_that_no_calendar_has_is_no_error() -> None:
    assert parse_timestamp_ms("2026-02-30T00:00:00.000Z") == 0


DRAFT = (
    b'{"type":"ui.message","id":"evt_1","ts":"...","session_id":"sess_1","payload":{"seq":1,"origin":"x"}}'
)


def test_decode_any_envelope_of_a_stored_line_is_an_envelope() -> None:
    assert decode_any_envelope(LINE) == decode_envelope(LINE)


def test_decode_any_envelope_without_seq_and_origin_is_a_draft() -> None:
    draft = decode_any_envelope(DRAFT)
    assert draft == EnvelopeDraft(
        type="ui.message", id="evt_1", ts="...", session_id="sess_1", payload={"seq": 1, "origin": "x"}
    )


@for_each_row(
    ("line", "problem"),
    [
        (b'{"type":"ui.message","id":"evt_1","seq":0,"session_id":"sess_1","payload":{}}', "field `ts`"),
        (DRAFT.replace(b"evt_1", b"evt_..."), r"regex .* at `\$.id`"),
        (DRAFT.replace(b"sess_1", b"sess_..."), r"regex .* at `\$.session_id`"),
        (DRAFT.replace(b'"ts"', b'"agent_id"'), "unknown field `agent_id`"),
        (DRAFT.replace(b"ui.message", b"x" * 129), "length <= 128"),
        (b"[]", "Expected `object`, got `array`"),
        (DRAFT + b"\n", "expected one line"),
    ],
)
def test_decode_any_envelope_of_a_wrong_line_names_the_field(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        decode_any_envelope(line)
