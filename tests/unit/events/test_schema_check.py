"""Checks of JSON values against a schema: each keyword, and errors that name the fault."""

from typing import Any

import pytest

from tests.support.tables import for_each_row
from turnlog.events.schema_check import compile_check

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SHAPES = {
    "oneOf": [
        {"properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "box"}, "w": {"type": "number"}}, "required": ["kind"]},
    ]
}


def find_error(schema: Any, value: Any) -> tuple[str, str] | None:
    return compile_check({"s": schema}, "s")(value, "$")


@for_each_row(
    ("schema", "good", "bad", "error"),
    [
        ({"type": "string"}, "a", 1, ("expected a text", "$")),
        ({"type": "number"}, 1.5, True, ("expected a number", "$")),
        ({"type": "integer"}, 2.0, 1.5, ("expected an integer", "$")),
        ({"type": "integer"}, 3, "3", ("expected an integer", "$")),
        ({"type": "boolean"}, False, 0, ("expected true or false", "$")),
        ({"type": "array"}, [], {}, ("expected a list", "$")),
        ({"type": "object"}, {}, [], ("expected an object", "$")),
        ({"const": "a"}, "a", "b", ("expected 'a', got 'b'", "$")),
        ({"enum": ["a", "b"]}, "b", "c", ("expected one of a, b, got 'c'", "$")),
        ({"pattern": "^a$"}, "a", "a\n", ("expected a text like ^a$, got 'a\\n'", "$")),
        ({"pattern": "^a$"}, 5, "b", ("expected a text like ^a$, got 'b'", "$")),
        ({"minimum": 1}, 1, 0, ("expected at least 1", "$")),
        ({"minimum": 1}, "a", 0.5, ("expected at least 1", "$")),
        ({"minItems": 1}, [0], [], ("expected at least 1 items", "$")),
        ({"minItems": 2}, "a", [1], ("expected at least 2 items", "$")),
        ({"items": {"type": "string"}}, ["a"], ["a", 1], ("expected a text", "$[1]")),
        ({"items": {"type": "string"}}, "a", [1], ("expected a text", "$[0]")),
        (NAMED, {"name": "a", "more": 1}, {"name": 1}, ("expected a text", "$.name")),
        (NAMED, {"name": "a"}, {}, ("expected a field name", "$")),
        ({"required": ["a"], "properties": {}}, 5, {}, ("expected a field a", "$")),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"a": 1},
            {"a": 1, "b": 2},
            ("expected no field 'b'", "$"),
        ),
        ({"additionalProperties": False}, 1, {"b": 2}, ("expected no field 'b'", "$")),
        ({"additionalProperties": True, "type": "object"}, {"a": 1}, 1, ("expected an object", "$")),
        (
            {"properties": {"a": {}}, "additionalProperties": {"type": "string"}},
            {"a": 1, "b": "x"},
            {"b": 2},
            ("expected a text", "$.b"),
        ),
        ({"additionalProperties": {"type": "string"}}, 7, {"b": 2}, ("expected a text", "$.b")),
        (
            {"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/B"}], "unevaluatedProperties": False}
            | {"$defs": {"B": {"properties": {"b": {"type": "string"}}}}},
            {"a": 1, "b": "x"},
            {"a": 1, "c": 1},
            ("expected no field 'c'", "$"),
        ),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, [], 1, ("expected a text, or a list", "$")),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, "", 1, ("expected a text, or a list", "$")),
        (
            {"oneOf": [{"type": "number"}, {"minimum": 5}]},
            4,
            6,
            ("expected a value of one form, got one of several", "$"),
        ),
        ({"oneOf": [{"type": "string"}, NAMED]}, "a", {"name": 1}, ("expected a text", "$.name")),
        (SHAPES, {"kind": "box", "w": 1}, {"kind": "box", "w": ""}, ("expected a number", "$.w")),
        (
            SHAPES,
            {"kind": "circle"},
            {"kind": "star"},
            ("unknown kind 'star': expected one of circle, box", "$.kind"),
        ),
        (
            SHAPES,
            {"kind": "circle"},
            {"kind": ["box"]},
            ("unknown kind ['box']: expected one of circle, box", "$.kind"),
        ),
        (
            {"oneOf": [{"properties": {"v": {"const": 1}, "a": {}}, "required": [name]} for name in "ab"]},
            {"v": 1, "a": 1},
            {"v": 1},
            ("expected a field a, or a field b", "$"),
        ),
        (SHAPES, {"kind": "circle"}, {}, ("expected a field kind", "$")),
        (SHAPES, {"kind": "circle"}, "box", ("expected an object", "$")),
        ({"if": {"type": "string"}, "then": {"const": "a"}}, 1, "b", ("expected 'a', got 'b'", "$")),
        ({"format": "date"}, "2026-01-08", "2026-1-8", ("expected a date, got '2026-1-8'", "$")),
        ({"format": "date"}, 8, "2026-02-30", ("expected a date, got '2026-02-30'", "$")),
        ({"format": "time"}, "12:30:00Z", "12:30", ("expected a time, got '12:30'", "$")),
        (
            {"format": "date-time"},
            "2026-01-08T12:30:00+01:00",
            "2026-13-08T12:30:00Z",
            ("expected a date-time, got '2026-13-08T12:30:00Z'", "$"),
        ),
        ({"format": "date-time"}, "2026-01-08T12:30:00Z", "x", ("expected a date-time, got 'x'", "$")),
        ({"format": "uri"}, "https://a/b?c#d", "a b", ("expected a uri, got 'a b'", "$")),
    ],
)
def test_value_fits_or_has_an_error(schema: Any, good: Any, bad: Any, error: tuple[str, str]) -> None:
    assert find_error(schema, good) is None
    assert find_error(schema, bad) == error


def test_schema_that_refers_to_itself_checks_every_level() -> None:
    tree = {"type": "object", "properties": {"inner": {"$ref": "#"}}, "additionalProperties": False}
    assert find_error(tree, {"inner": {"inner": {}}}) is None
    assert find_error(tree, {"inner": {"inner": {"x": 1}}}) == ("expected no field 'x'", "$.inner.inner")


def test_reference_into_another_document_is_followed() -> None:
    documents: dict[str, Any] = {"a": {"$ref": "b#/$defs/Name"}, "b": {"$defs": {"Name": {"type": "string"}}}}
    check = compile_check(documents, "a")
    assert check("x", "$") is None
    assert check(1, "$.name") == ("expected a text", "$.name")


def test_unknown_keyword_is_refused_and_not_ignored() -> None:
    with pytest.raises(ValueError, match="maxProperties is not known"):
        compile_check({"s": {"maxProperties": 1}}, "s")
