"""JSON schemas that a client sends: `find_schema_error` says what is wrong with one.

The keywords below must have values of their types, however deep; unknown keywords are allowed, as JSON Schema
has it. References are not resolved. The depth of a schema is bounded where its JSON is decoded.
"""

from typing import Any, Literal, Union

import msgspec

from turnlog.events.strict_json import split_validation_error

TypeName = Literal["null", "boolean", "object", "array", "number", "string", "integer"]
SchemaOrBool = Union["JsonSchema", bool]


class JsonSchema(msgspec.Struct, rename="camel"):
    """The keywords of draft 2020-12 that say what a value looks like."""

    type: TypeName | list[TypeName] | None = None
    title: str = ""
    description: str = ""
    enum: list[Any] = []
    properties: dict[str, SchemaOrBool] = {}
    pattern_properties: dict[str, SchemaOrBool] = {}
    additional_properties: SchemaOrBool = True
    required: list[str] = []
    items: SchemaOrBool = True
    prefix_items: list[SchemaOrBool] = []
    any_of: list[SchemaOrBool] = []
    one_of: list[SchemaOrBool] = []
    all_of: list[SchemaOrBool] = []
    not_: SchemaOrBool = msgspec.field(default=True, name="not")
    minimum: float | None = None
    maximum: float | None = None
    min_length: int = 0
    max_length: int | None = None
    min_items: int = 0
    max_items: int | None = None
    pattern: str = ""
    format: str = ""
    ref: str = msgspec.field(default="", name="$ref")
    defs: dict[str, SchemaOrBool] = msgspec.field(default_factory=dict, name="$defs")


def find_schema_error(schema: object) -> tuple[str, str] | None:
    """Return what is wrong with the schema of an object and the JSON path, or None."""
    try:
        checked = msgspec.convert(schema, JsonSchema)
    except msgspec.ValidationError as error:
        return split_validation_error(error)
    if checked.type != "object":
        return "expected the schema of an object", "$.type"
    return None
