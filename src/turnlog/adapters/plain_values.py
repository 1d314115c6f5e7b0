"""Values of frameworks that are built on Pydantic, as JSON values."""

from typing import Any

import pydantic_core

from turnlog.parse.foreign.common import render_text


def to_plain(value: Any) -> Any:
    """Return a JSON value for any object: one without a JSON form is its `repr`."""
    return pydantic_core.to_jsonable_python(value, serialize_unknown=True, fallback=repr)


def describe_output(output: Any) -> str | None:
    """Return the output of a run as a text: itself, or its JSON."""
    return None if output is None else render_text(to_plain(output))
