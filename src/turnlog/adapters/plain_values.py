"""Values of frameworks that are built on Pydantic, as JSON values."""

from typing import Any

import pydantic_core

from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.parse.foreign.common import render_text
from turnlog.parse.json_values import encode_json


def to_plain(value: Any) -> Any:
    """Return a JSON value for any object. Never raise: a result of a tool must not fail its run.

    Bytes are base64, and an object without a JSON form is its `repr`. Lone surrogates are replaced.
    """
    for encode in (encode_object, encode_repaired):
        try:
            return pydantic_core.from_json(encode(value))
        except Exception:  # noqa: BLE001  the code of the object may raise anything
            continue
    return describe_object(value)


def encode_object(value: Any) -> bytes:
    return pydantic_core.to_json(value, bytes_mode="base64", serialize_unknown=True, fallback=repr)


def encode_repaired(value: Any) -> bytes:
    """Encode texts that have lone surrogates."""
    plain = pydantic_core.to_jsonable_python(
        value, bytes_mode="base64", serialize_unknown=True, fallback=repr
    )
    return encode_json(plain, None)


def describe_object(value: Any) -> str:
    try:
        return replace_lone_surrogates(repr(value))
    except Exception:  # noqa: BLE001
        return f"<{type(value).__name__}>"


def describe_output(output: Any) -> str | None:
    """Return the output of a run as a text: itself, or its JSON."""
    return None if output is None else render_text(to_plain(output))
