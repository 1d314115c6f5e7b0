"""What every payload shares: forms of names and ids, the declarations."""

from typing import Any, ClassVar

import msgspec
import pytest

from tests.support.tables import for_each_row
from turnlog.events import Payload, Record, UiMessage
from turnlog.events.payload import (
    DEFAULT_ORIGINS,
    AgentId,
    Amount,
    Count,
    EventId,
    Name,
    OpaqueId,
    SessionId,
    Timestamp,
    TraceId,
    explicit_null,
)

FORMS: list[tuple[Any, list[Any], list[Any]]] = [
    (
        Name,
        ["a", "Sarah John's", "é €😀", " ", "a" * 128, "\u2028"],
        ["", "a\n", "\n", "a\rb", "\0", "\x1f", "\x7f", "a" * 129, 1],
    ),
    (OpaqueId, ["a", "toolu_01", "!~", "a" * 128], ["", " ", "a b", "é", "a\n", "\x7f", "a" * 129]),
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


class Whole(Payload, frozen=True, kw_only=True):
    name: Name


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
        error: str | None = msgspec.field(default_factory=explicit_null)

    assert msgspec.json.encode(Answer()) == b'{"error":null}'


def test_a_class_declares_nothing_unless_it_says_so() -> None:
    assert (Payload.TYPE, Payload.ORIGINS, Payload.LIVE, Payload.LEGACY, Payload.EXAMPLE) == (
        "",
        DEFAULT_ORIGINS,
        False,
        False,
        {},
    )


def test_declarations_are_not_fields() -> None:
    class Marked(Payload, frozen=True, kw_only=True):
        LIVE: ClassVar = True
        text: str

    assert Marked.__struct_fields__ == ("text",)
