"""The vocabulary under any input: what is written is read back, and the gate refuses only by `BadInput`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect, structs
from msgspec.json import encode as to_json

from tests.support.examples import examples
from tests.support.random_views import TREES
from turnlog.errors import BadInput
from turnlog.events import (
    Envelope,
    EventType,
    Scope,
    UnknownPayload,
    View,
    decode_envelope,
    encode_envelope,
    strict_json,
)
from turnlog.events.envelope import decode_stored_envelope, format_timestamp
from turnlog.events.payload import MAX_NAME_BYTES
from turnlog.events.ui import ClientTool
from turnlog.ids import uuid7
from turnlog.vocabularies import FULL_CATALOG
from turnlog_examples.broker.events import BROKER

EVERY = examples(11)
MANY = examples(63)

KINDS = [*FULL_CATALOG, *BROKER]
VALUE: Any = Any
YEAR_10000_MS = 253402300800000

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["\n", "\r\n", "\u2028\u2029", "\0\x1f\x7f\x85", '"\\/', "😀", "<!--", "data: x\n\nid: 1\n"]
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


def string(shape: inspect.StrType) -> st.SearchStrategy[str]:
    if shape.pattern is None:
        least, most = shape.min_length or 0, shape.max_length or 2**31
        return TEXT.filter(lambda text: least <= len(text) <= most)
    longest = shape.max_length or MAX_NAME_BYTES
    return st.from_regex(shape.pattern).filter(lambda text: len(text.encode()) <= longest)


def payload(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Any instance of a struct: required fields always, the others sometimes."""
    fields = structs.fields(cls)
    shapes = {field.name: field.type for field in inspect.type_info(cls).fields}  # type: ignore[attr-defined]
    if cls is ClientTool:
        properties = st.dictionaries(
            TEXT, st.sampled_from([{"type": "string"}, {"type": "number"}]), max_size=3
        )
        schemas = properties.map(lambda chosen: {"type": "object", "properties": chosen})
        known = {name: values(shapes[name]) for name in ("name", "description")}
        return st.builds(ClientTool, parameters=schemas, **known)
    if cls is View:
        known = {name: values(shapes[name]) for name in ("kind", "view_id", "title")}
        return st.builds(View, tree=TREES, **known)
    return st.fixed_dictionaries(
        {field.name: values(shapes[field.name]) for field in fields if field.required},
        optional={field.name: values(shapes[field.name]) for field in fields if not field.required},
    ).map(lambda chosen: cls(**chosen))


VALUES: dict[type[inspect.Type], Callable[[Any], st.SearchStrategy[Any]]] = {
    inspect.Metadata: lambda shape: values(shape.type),
    inspect.UnionType: lambda shape: st.one_of([values(member) for member in shape.types]),
    inspect.StructType: lambda shape: payload(shape.cls),
    inspect.VarTupleType: lambda shape: st.lists(
        values(shape.item_type), min_size=shape.min_length or 0, max_size=3
    ).map(tuple),
    inspect.LiteralType: lambda shape: st.sampled_from(shape.values),
    inspect.StrType: string,
    inspect.BytesType: lambda shape: st.binary(
        min_size=shape.min_length or 0, max_size=min(shape.max_length or 64, 64)
    ),
    inspect.IntType: lambda shape: st.integers(
        -(2**63) if shape.ge is None else shape.ge, shape.le or 2**63 - 1
    ),
    inspect.FloatType: lambda shape: st.floats(shape.ge, shape.le, allow_nan=False, allow_infinity=False),
    inspect.BoolType: lambda shape: st.booleans(),
    inspect.NoneType: lambda shape: st.none(),
    inspect.DictType: lambda shape: OBJECT,
    inspect.AnyType: lambda shape: JSON,
}


def values(shape: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    return VALUES[type(shape)](shape)


IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
NAMES = string(inspect.StrType(max_length=MAX_NAME_BYTES, pattern=r"^[^\u0000-\u001f\u007f]+$(?!\n)"))
SCOPES = st.builds(
    Scope,
    trace_id=st.none() | IDS.map("tr_{}".format),
    agent_id=st.none() | IDS.map("agt_{}".format),
    agent_name=st.none() | NAMES,
    depth=st.none() | st.integers(0, 2**31),
)
TIMES = st.integers(0, YEAR_10000_MS - 1)
MOMENTS = st.integers(0, 2**48 - 1)
RANDOM = st.binary(min_size=10, max_size=10)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_payload_is_read_as_it_was_written(kind: EventType) -> None:
    @EVERY
    @given(payload(kind.payload_class))
    def check(value: Any) -> None:
        assert kind.decoder.decode(to_json(value)) == value

    check()


@MANY
@given(OBJECT, TEXT, SCOPES, IDS, IDS, st.integers(0, 2**53 - 1), TIMES)
def test_an_envelope_is_one_line_and_is_read_as_it_was_written(
    args: dict[str, Any], text: str, scope: Scope, event_id: str, session_id: str, seq: int, ts_ms: int
) -> None:
    data = {"call_id": "a", "tool": "b", "args": args, "incomplete": text}
    event = FULL_CATALOG.build_event("tool.call", data, id=f"evt_{event_id}", origin="model", scope=scope)
    line = encode_envelope(event, session_id=f"sess_{session_id}", seq=seq, ts_ms=ts_ms)
    again = decode_envelope(line)
    assert structs.asdict(decode_stored_envelope(line)) == structs.asdict(again)
    assert not set(line) & set(b"\r\n")
    place = (again.type, again.id, again.seq, again.ts, again.session_id, again.origin)
    assert place == (event.type, event.id, seq, format_timestamp(ts_ms), f"sess_{session_id}", event.origin)
    assert Scope(**{name: getattr(again, name) for name in Scope.__struct_fields__}) == scope
    assert bytes(again.payload) == event.body
    assert FULL_CATALOG.decode_payload(again) == event.payload
    assert to_json(again) == line


def stored(name: str, payload: bytes) -> bytes:
    head = {
        "type": name,
        "id": "evt_1",
        "seq": 0,
        "ts": format_timestamp(0),
        "session_id": "sess_1",
        "origin": "app",
    }
    return to_json(head)[:-1] + b',"payload":' + payload + b"}"


@MANY
@given(NAMES.filter(lambda name: name not in FULL_CATALOG.types), JSON, st.booleans())
def test_an_unknown_type_survives_byte_for_byte(name: str, value: Any, spaced: bool) -> None:
    body = json.dumps(value, separators=(" ,  ", " : ") if spaced else None).encode()
    envelope = decode_envelope(stored(name, body))
    kept = FULL_CATALOG.decode_payload(envelope)
    assert isinstance(kept, UnknownPayload)
    assert bytes(kept.data) == body
    assert to_json(envelope) == stored(name, body)


@MANY
@given(OBJECT, st.booleans())
def test_an_unknown_field_survives_byte_for_byte(extra: dict[str, Any], escaped: bool) -> None:
    body = json.dumps({"later": extra, "text": "hi", "more": [extra]}, ensure_ascii=escaped).encode()
    envelope = decode_envelope(stored("ui.message", body))
    assert (
        FULL_CATALOG.decode_payload(envelope)
        == FULL_CATALOG.build_event("ui.message", {"text": "hi"}, id="evt_1").payload
    )
    assert to_json(envelope) == stored("ui.message", body)


def nested(layers: list[bool], core: Any) -> bytes:
    for is_object in layers:
        core = {"k": core} if is_object else [core]
    return json.dumps(core).encode()


@MANY
@given(st.lists(st.booleans(), min_size=33, max_size=33), SCALARS)
@example([False] * 32 + [True], None)
@example([False, True] * 16 + [False], None)
def test_the_gate_counts_levels_whatever_nests(layers: list[bool], core: Any) -> None:
    fits, too_deep = nested(layers[1:], core), nested(layers, core)
    assert strict_json.decode_strict_json(fits, VALUE) == json.loads(fits)
    with pytest.raises(BadInput, match="at most 32 levels"):
        strict_json.decode_strict_json(too_deep, VALUE)


@MANY
@given(JSON, st.booleans(), st.sampled_from([None, 1, "\r\n\t"]))
def test_the_gate_lets_any_json_through(value: Any, escaped: bool, indent: int | str | None) -> None:
    assert (
        strict_json.decode_strict_json(json.dumps(value, ensure_ascii=escaped, indent=indent).encode(), VALUE)
        == value
    )


@MANY
@given(st.dictionaries(TEXT, JSON, min_size=1, max_size=4), st.data())
def test_the_gate_sees_any_repeated_key(value: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    twice = json.dumps(value)[:-1] + "," + json.dumps({key: None})[1:]
    with pytest.raises(BadInput, match="each key once"):
        strict_json.decode_strict_json(b"[%s]" % twice.encode(), VALUE)


MARKS = rb'{ } [ ] , : " \ \u d800 dc00 0 - 1e999 NaN null "a":'.split(b" ")
BYTES = [b" ", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc3\xa9"]
PIECES = st.lists(st.sampled_from([*MARKS, *BYTES]), max_size=30).map(b"".join)


def survives(data: bytes, kind: Any) -> None:
    try:
        value = strict_json.decode_strict_json(data, kind)
    except BadInput:
        return
    assert kind is not VALUE or value == json.loads(data)


@MANY
@given(
    st.binary(max_size=60) | PIECES,
    st.sampled_from([VALUE, Envelope, *(kind.payload_class for kind in FULL_CATALOG)]),
)
@example(b"", VALUE)
@example(b"[" * 100_000, VALUE)
@example(b'{"a":' * 100_000, VALUE)
def test_the_gate_raises_nothing_but_bad_input(data: bytes, kind: Any) -> None:
    survives(data, kind)


@EVERY
@given(st.binary(min_size=1, max_size=4), st.data())
def test_a_damaged_line_is_read_or_refused(noise: bytes, data: st.DataObject) -> None:
    line = stored("tool.call", b'{"call_id":"a","tool":"b","args":{"a":[{"b":"\\u00e9"}]}}')
    at = data.draw(st.integers(0, len(line)))
    survives(line[:at] + noise + line[at + data.draw(st.integers(0, 4)) :], Envelope)


@MANY
@given(
    st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.randoms()
)
def test_a_uuid7_is_valid_and_sorts_by_time(ms: int, other: int, random: bytes, more: Any) -> None:
    text, second = uuid7(ms, random), uuid7(other, more.randbytes(10))
    value = UUID(text)
    assert (str(value), value.version, value.variant) == (text, 7, RFC_4122)
    assert value.int >> 80 == ms
    assert ms == other or (text < second) == (ms < other)


@MANY
@given(TIMES)
def test_a_timestamp_is_exact_to_the_millisecond(ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert datetime.fromisoformat(format_timestamp(ms)) == moment
