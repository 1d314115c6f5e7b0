"""What several translators need: counts of tokens, texts of results."""

from typing import Any

import msgspec

from turnlog.errors import BadInput
from turnlog.events import Usage
from turnlog.parse.json_values import get_field, to_json_value

INTERRUPT_TOOL = "interrupt"  # the name of a call that stands for a question which no call asks


def to_usage(input_tokens: Any, output_tokens: Any, cache_read: Any = 0, cache_write: Any = 0) -> Usage:
    """Build the usage of one completion. `input_tokens` of these frameworks include the cached ones."""
    read = to_count(cache_read)
    written = to_count(cache_write)
    return Usage(
        input_tokens=max(0, to_count(input_tokens) - read - written),
        output_tokens=to_count(output_tokens),
        cache_read_tokens=read,
        cache_creation_tokens=written,
    )


def to_count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def render_text(value: Any) -> str:
    """Return a value as a text for people: itself, or its JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(to_json_value(value)).decode()
    except BadInput:
        return ""


def get_text(item: Any, name: str) -> str:
    """Return a field that is a text; an empty one if it is not."""
    value = get_field(item, name)
    return value if isinstance(value, str) else ""
