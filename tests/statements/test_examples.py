"""Every JSON example of documents 002 and 003 is made from a log (tests/vectors/seeds/examples.json).

`...`, `abc-123` and an empty object stand for any value; further keys are allowed. Chunks are joined, JSON
in a delta is compared as JSON. The one example that is a measure, the empty message, the chunker makes alone.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import turnlog
from tests.support.written_logs import vector_log
from turnlog import Scope, open_log
from turnlog.log import envelope_json
from turnlog.wire.chunks import chunk
from turnlog.wire.dialects.base import DialectOptions
from turnlog.wire.dialects.blocks import Blocks

EXAMPLES = json.loads((Path(__file__).parents[1] / "vectors" / "seeds" / "examples.json").read_text())
EMPTY = b'{"type":"text","agent":"abc-123","final":false,"delta":""}'
WHOLE = frozenset({"text", "thinking", "citation", "tool_result_image"})  # each message by itself

Json = dict[str, Any]


def fits(example: Any, value: Any) -> bool:
    """Whether a value is what the example shows."""
    if isinstance(example, dict):
        same = isinstance(value, dict) and example.keys() <= value.keys()
        return same and all(fits(item, value[key]) for key, item in example.items())
    if isinstance(example, list):
        same = isinstance(value, list) and len(example) == len(value)
        return same and all(map(fits, example, value))
    if isinstance(example, str) and "..." in example:
        start, _, end = example.partition("...")
        return isinstance(value, str) and value.startswith(start) and value.endswith(end)
    return type(example) is type(value) and bool(example == value)


def fits_delta(example: str, delta: str) -> bool:
    if example[:1] in ("{", "["):
        return fits(json.loads(example), json.loads(delta))
    return fits(example, delta)


def joined(messages: list[Json]) -> list[Json]:
    """The messages with the chunks of one payload in one."""
    whole: list[Json] = []
    for message in messages:
        last = whole[-1] if whole else {"type": ""}
        key = [last.get(name) == message.get(name) for name in ("type", "agent", "id")]
        if all(key) and not last["final"] and last["type"] not in WHOLE:
            last |= {"delta": last["delta"] + message["delta"], "final": message["final"]}
        else:
            whole.append(dict(message))
    return whole


def shows(examples: list[Json], messages: list[Json]) -> bool:
    """Whether these messages are those of the example; names of agents stand for one agent each."""
    agents = {
        (example["agent"], message["agent"]) for example, message in zip(examples, messages, strict=True)
    }
    bodies = [({**example, "agent": "...", "delta": "..."}, example["delta"]) for example in examples]
    return len(agents) == len(dict(agents)) and all(
        fits(fields, message) and fits_delta(delta, message["delta"])
        for (fields, delta), message in zip(bodies, messages, strict=True)
    )


def appended(event: Json) -> Any:
    """The event as a reader of a log gets it."""

    async def append() -> bytes:
        log = await open_log("memory:")
        session = await log.create("examples")
        scope = Scope(trace_id=event.get("trace_id"))
        made = turnlog.event(event["type"], event["payload"], origin=event["origin"], scope=scope)
        await log.append(session, [made])
        [row] = await log.read(session)
        await log.close()
        return envelope_json(row)

    return json.loads(asyncio.run(append()))


@pytest.mark.parametrize("case", EXAMPLES["002"], ids=lambda case: case["name"])
def test_an_example_of_002_is_what_a_log_holds(case: Json) -> None:
    example = {**case["example"], "ts": "..."}
    if example["type"] == "string":
        example["type"] = "..."
    said = appended(case["event"])
    assert fits(example, said)
    assert "seq" in said, "what is more than the example"
    assert not fits({**example, "session_id": "other"}, said), "the comparison can fail"


@pytest.mark.parametrize("case", EXAMPLES["003"], ids=lambda case: case["name"])
def test_an_example_of_003_is_said_of_a_log(case: Json) -> None:
    blocks = Blocks(msgspec.convert(case.get("options", {}), DialectOptions))
    said = [json.loads(text) for item in vector_log(case["events"]) for text in blocks.convert(*item)]
    messages, examples = joined(said), joined(case["messages"])
    places = range(len(messages) - len(examples) + 1)
    assert any(shows(examples, messages[at : at + len(examples)]) for at in places), messages
    spoiled = [{**examples[0], "delta": examples[0]["delta"] + " "}, *examples[1:]]
    if examples[0]["delta"][:1] not in ("{", "["):
        assert not any(shows(spoiled, messages[at : at + len(examples)]) for at in places)


def test_every_kind_of_message_has_an_example() -> None:
    assert len({message["type"] for case in EXAMPLES["003"] for message in case["messages"]}) == 13
    assert len(EXAMPLES["002"]) == 8


def test_the_empty_message_is_the_measure_of_the_room_beside_it() -> None:
    assert chunk("text", "abc-123", "", final=False) == [EMPTY]
    first, *_ = chunk("text", "abc-123", "x" * 5000)
    assert len(json.loads(first)["delta"]) == 2048 - len(EMPTY)
