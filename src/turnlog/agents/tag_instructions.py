"""What a model is told beyond its instructions: how to emit the application's events as inline tags. Pure.

The section is made from the vocabulary, so prompt and parser cannot disagree: for each event a model may
emit, its bare name, what it says, its fields and an example tag.
"""

import json
from typing import Any

import msgspec

from turnlog.events import EventType, Vocabulary

TAG_RULES = """\
## Available events
When something below happens, say so with a tag on its own line at the end of your message. The user does not
see tags. `data` is one JSON object in single quotes; write an apostrophe inside it as \\u0027. Never show a
tag as an example, and emit each event once."""


def instructions_with_tags(instructions: str, vocabulary: Vocabulary | None) -> str:
    """The instructions and, if a model may emit events here, how to."""
    kinds = [kind for kind in vocabulary or () if is_for_models(kind)]
    return "\n\n".join([instructions, TAG_RULES, *map(describe_tag_event, kinds)]) if kinds else instructions


def is_for_models(kind: EventType) -> bool:
    """Whether a model may emit it; where that depends on the payload, its example tells."""
    if kind.payload_class.LEGACY:
        return False
    origins: Any = kind.payload_class.ORIGINS
    return "model" in (origins(example_payload(kind)) if callable(origins) else origins)


def example_payload(kind: EventType) -> Any:
    """The example of a kind, as its class."""
    return msgspec.convert(kind.payload_class.EXAMPLE, kind.payload_class)


def describe_tag_event(kind: EventType) -> str:
    """One event: its name, its meaning, its fields, its tag."""
    schema = msgspec.json.schema_components([kind.payload_class])[1][kind.payload_class.__name__]
    data = json.dumps(kind.payload_class.EXAMPLE, ensure_ascii=False).replace("'", "\\u0027")
    fields = json.dumps(schema.get("properties", {}), ensure_ascii=False)
    needed = ", ".join(schema.get("required", [])) or "none"
    meaning = (kind.payload_class.__doc__ or "").strip().split("\n")[0]
    return (
        f"### {kind.tag}\n{meaning}\nFields: {fields}\nRequired: {needed}\n"
        f"<agent-event type=\"{kind.tag}\" data='{data}' />"
    )
