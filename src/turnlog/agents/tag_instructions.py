"""The section of a system prompt that explains how to emit the application's events as inline tags. Pure.

The section is generated from the vocabulary, so prompt and parser cannot disagree. For each event that a
model may emit it has the bare name, the meaning, the fields and an example tag.
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
    """Return the instructions, followed by the section if the vocabulary has events for models."""
    if vocabulary is None:
        return instructions
    descriptions = [describe_tag_event(kind) for kind in vocabulary if is_for_models(kind)]
    if not descriptions:
        return instructions
    return "\n\n".join([instructions, TAG_RULES, *descriptions])


def is_for_models(kind: EventType) -> bool:
    """Return whether a model may emit it. If that depends on the payload, the declared example decides."""
    payload_class = kind.payload_class
    if payload_class.LEGACY:
        return False
    origins: Any = payload_class.ORIGINS
    if callable(origins):
        origins = origins(msgspec.convert(payload_class.EXAMPLE, payload_class))
    return "model" in origins


def describe_tag_event(kind: EventType) -> str:
    payload_class = kind.payload_class
    schema = msgspec.json.schema_components([payload_class])[1][payload_class.__name__]
    data = json.dumps(payload_class.EXAMPLE, ensure_ascii=False).replace("'", "\\u0027")
    fields = json.dumps(schema.get("properties", {}), ensure_ascii=False)
    required = ", ".join(schema.get("required", [])) or "none"
    meaning = (payload_class.__doc__ or "").strip().split("\n")[0]
    return (
        f"### {kind.tag}\n{meaning}\nFields: {fields}\nRequired: {required}\n"
        f"<agent-event type=\"{kind.tag}\" data='{data}' />"
    )
