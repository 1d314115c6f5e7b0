"""First inputs for the fuzzer, from the vectors: the kept corpus holds what it found beyond them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
MAX_SEED_BYTES = 4096  # a long input is slow and finds nothing that a short one does not

FILES = {
    "claude_cli": [f"claude_cli/{name}.json" for name in ("agents", "calls", "faults", "turns")],
    "cursor": ["wire/cursors.json"],
    "gate": ["gate.json", "catalog.json"],
    "markers": ["markers/markers.json", "parse/tags.json"],
    "messages_api": ["parse/messages_api.json"],
    "sse": ["wire/sse.json"],
    "tags": ["parse/tags.json"],
}


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value, and its objects as JSON, one on each line of a list."""
    match value:
        case str():
            yield value
        case list() if value and all(isinstance(item, dict) for item in value):
            yield "\n".join(json.dumps(item) for item in value)
            for item in value:
                yield from texts_in(item)
        case list():
            for item in value:
                yield from texts_in(item)
        case dict():
            yield json.dumps(value)
            for item in value.values():
                yield from texts_in(item)


def seeds_of(name: str) -> list[bytes]:
    """Return the inputs of a target, each once and in a fixed order."""
    found: dict[bytes, None] = {}
    for file in FILES[name]:
        for text in texts_in(json.loads((VECTORS / file).read_text())):
            data = text.encode(errors="replace")
            if len(data) <= MAX_SEED_BYTES:
                found[data] = None
    return list(found)
