"""What every payload shares: forms of names and ids, the bound in bytes, the declarations."""

import json
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from msgspec import Meta, inspect

from tests.support.tables import for_each_row
from turnlog.events import CATALOG, Payload, Record, UiMessage
from turnlog.events.base import (
    NAME_BYTES,
    UNDECLARED,
    AgentId,
    Amount,
    Count,
    EventId,
    Key,
    Name,
    SessionId,
    Timestamp,
    TraceId,
    bound,
    null,
)

FORMS: list[tuple[Any, list[Any], list[Any]]] = [
    (
        Name,
        ["a", "Sarah John's", "é €😀", " ", "a" * 128, "\u2028"],
        ["", "a\n", "\n", "a\rb", "\0", "\x1f", "\x7f", "a" * 129, 1],
    ),
    (Key, ["a", "toolu_01", "!~", "a" * 128], ["", " ", "a b", "é", "a\n", "\x7f", "a" * 129]),
    (
        EventId,
        ["evt_1", "evt_A-Z_09", "evt_" + "x" * 64],
        ["evt_", "evt_" + "x" * 65, "evt_1\n", "evt_é", "tr_1", "Evt_1", " evt_1", "evt_1.2"],
    ),
    (SessionId, ["sess_1", "sess_" + "x" * 64], ["sess_", "sess_" + "x" * 65, "sess_1\n", "sess_/", "evt_1"]),
    (TraceId, ["tr_1", "tr_" + "x" * 64], ["tr_", "tr_" + "x" * 65, "tr_1\n", "evt_1"]),
    (AgentId, ["agt_1", "agt_" + "x" * 64], ["agt_", "agt_" + "x" * 65, "agt_1\n", "evt_1"]),
    (Count, [0, 1, 2**53 - 1], [-1, 1.5, "1", True, 2**53]),
    (Amount, [0, 0.0, 0.1, 5], [-0.1, "1"]),
    (
        Timestamp,
        ["2026-01-08T12:34:56.789Z"],
        [
            "2026-01-08T12:34:56Z",
            "2026-01-08T12:34:56.789+00:00",
            "2026-01-08 12:34:56.789Z",
            "2026-01-08T12:34:56.789Z\n",
        ],
    ),
]
GOOD = [(form, value) for form, good, _ in FORMS for value in good]
BAD = [(form, value) for form, _, bad in FORMS for value in bad]


@for_each_row(("form", "value"), GOOD)
def test_a_form_takes_what_is_right(form: Any, value: object) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=form) == value


@for_each_row(("form", "value"), BAD)
def test_a_form_refuses_what_is_wrong(form: Any, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(value), type=form)


class Part(Record, frozen=True, kw_only=True):
    name: Name


class Whole(Payload, frozen=True, kw_only=True):
    name: Name
    described: Annotated[Name | None, Meta(description="A name with a description.")] = None
    names: tuple[Name, ...] = ()
    parts: tuple[Part, ...] = ()
    text: str = ""


class Wider(Whole, frozen=True, kw_only=True):
    more: Name | None = None


FITS, TOO_LONG = "€" * 42, "€" * 43  # 126 and 129 bytes


@for_each_row(
    "fields",
    [
        {"name": FITS},
        {"name": "a", "described": FITS},
        {"name": "a", "names": [FITS, FITS]},
        {"name": "a", "parts": [{"name": FITS}]},
        {"name": "a", "text": "€" * 1000},
        {"name": "a", "more": FITS},
    ],
)
def test_a_name_may_have_128_bytes(fields: dict[str, Any]) -> None:
    payload = msgspec.convert(fields, Wider)
    assert json.loads(msgspec.json.encode(payload)) == fields


@for_each_row(
    "fields",
    [
        {"name": TOO_LONG},
        {"name": "a", "described": TOO_LONG},
        {"name": "a", "names": [FITS, TOO_LONG]},
        {"name": "a", "parts": [{"name": TOO_LONG}]},
        {"name": "a", "more": TOO_LONG},
    ],
)
def test_a_name_of_more_bytes_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="at most 128 bytes"):
        msgspec.convert(fields, Wider)


def records(shape: inspect.Type) -> list[inspect.StructType]:
    """The record types inside a type, itself included."""
    match shape:
        case inspect.StructType():
            return [shape, *(record for field in shape.fields for record in records(field.type))]
        case inspect.UnionType():
            return [record for member in shape.types for record in records(member)]
        case inspect.VarTupleType():
            return records(shape.item_type)
        case inspect.Metadata():
            return records(shape.type)
    return []


def is_name(shape: inspect.Type) -> bool:
    match shape:
        case inspect.UnionType():
            return any(is_name(member) for member in shape.types)
        case inspect.VarTupleType():
            return is_name(shape.item_type)
        case inspect.Metadata():
            return is_name(shape.type)
    return shape == inspect.type_info(Name)


@for_each_row("kind", list(CATALOG), ids=lambda kind: kind.name)
def test_every_name_of_the_vocabulary_is_bound_in_bytes(kind: Any) -> None:
    for record in records(inspect.type_info(kind.payload)):
        names = {field.name for field in record.fields if is_name(field.type)}
        assert issubclass(record.cls, Record)
        assert names == set(record.cls.NAMES), record.cls


def test_bound_measures_utf_8_and_takes_anything_that_can_be_a_name() -> None:
    for value in (None, (), "a" * NAME_BYTES, ("a", "b"), "\ud800"):
        bound("name", value)
    for value in ("a" * (NAME_BYTES + 1), "é" * 65, ("a", "é" * 65)):
        with pytest.raises(ValueError, match=r"Expected name to be a name of at most 128 bytes"):
            bound("name", value)


class Quoted(Payload, frozen=True, kw_only=True):
    by: Name
    price: int = 0

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("Expected a price")


class Signed(Quoted, frozen=True, kw_only=True):
    witness: Name = "nobody"


class Dated(Signed, frozen=True, kw_only=True):
    day: int = 1

    def __post_init__(self) -> None:
        if self.day < 1:
            raise ValueError("Expected a day")


@for_each_row(
    ("kind", "wrong"),
    [
        (Quoted, {"price": -1}),
        (Quoted, {"by": "€" * 43}),
        (Signed, {"price": -1}),
        (Signed, {"by": "€" * 43}),
        (Signed, {"witness": "€" * 43}),
        (Dated, {"day": 0}),
        (Dated, {"witness": "€" * 43}),
    ],
)
def test_what_a_class_checks_itself_is_checked_beside_its_names(kind: Any, wrong: dict[str, Any]) -> None:
    good = {"by": "Ada"}
    assert msgspec.convert(good, kind) == kind(**good)
    with pytest.raises(msgspec.ValidationError, match="Expected"):
        msgspec.convert(good | wrong, kind)


def test_a_payload_is_frozen_and_keyword_only() -> None:
    message = UiMessage(text="hi")
    with pytest.raises(AttributeError):
        message.text = "ho"  # type: ignore[misc]
    with pytest.raises(TypeError):
        UiMessage("hi")  # type: ignore[call-arg]


def test_absent_fields_are_omitted() -> None:
    assert msgspec.json.encode(Whole(name="a")) == b'{"name":"a"}'
    assert msgspec.json.encode(UiMessage(text="", speaker=None)) == b'{"text":""}'


def test_a_null_default_that_is_written() -> None:
    class Answer(Record, frozen=True, kw_only=True):
        error: str | None = msgspec.field(default_factory=null)

    assert msgspec.json.encode(Answer()) == b'{"error":null}'


def test_a_class_declares_nothing_unless_it_says_so() -> None:
    assert (Payload.TYPE, Payload.ORIGINS, Payload.LIVE, Payload.LEGACY, Payload.EXAMPLE) == (
        "",
        UNDECLARED,
        False,
        False,
        {},
    )


def test_declarations_are_not_fields() -> None:
    class Marked(Payload, frozen=True, kw_only=True):
        LIVE: ClassVar = True
        text: str

    assert Marked.__struct_fields__ == ("text",)
