"""The examples of document 002 as a log of another system: imported as printed, and read as events."""

import json
from pathlib import Path
from typing import Any

from tests.statements.test_examples import EXAMPLES
from tests.unit.cli.harness import Place
from turnlog.events import EnvelopeDraft, decode_any_envelope

Json = dict[str, Any]


def examples() -> list[Json]:
    """Every example with its `...` filled in where it is an id; `ts` and texts stay as printed."""
    filled: list[Json] = []
    for number, case in enumerate(EXAMPLES["002"]):
        text = json.dumps(case["example"])
        for placeholder, value in (
            ("evt_...", f"evt_{number}"),
            ("tr_...", f"tr_{number}"),
            ("view_...", "view_1"),
        ):
            text = text.replace(f'"{placeholder}"', f'"{value}"')
        filled.append(json.loads(text) | {"session_id": "sess_1"})
    # the error case is another call's result: the document prints one call for both
    call = next(event for event in filled if event["type"] == "tool.call")
    filled.insert(-1, call | {"id": "evt_again", "trace_id": filled[-1]["trace_id"]})
    filled[-3]["trace_id"] = call["trace_id"]
    return filled


def test_every_example_is_decoded_as_an_envelope_without_a_position() -> None:
    for example in examples():
        draft = decode_any_envelope(json.dumps(example).encode())
        assert isinstance(draft, EnvelopeDraft)
        assert {name: getattr(draft, name) for name in example} == example


def test_an_import_of_the_examples_has_their_fields_and_pairs_calls_with_results(tmp_path: Path) -> None:
    place = Place(tmp_path / "log.db")
    posted = examples()
    lines = "\n".join(map(json.dumps, posted))
    assert place.run("import", input=lines.encode()).output == "9 events added, 0 known already\n"
    stored = [json.loads(line) for line in place.run("tail", "sess_1", "--json").stdout.splitlines()]
    for event, example in zip(stored, posted, strict=True):
        assert example.keys() <= event.keys() <= example.keys() | {"seq", "origin"}
        valid = {name: value for name, value in example.items() if value != "..." and name != "payload"}
        assert {name: event[name] for name in valid} == valid
        added = event["payload"].keys() - example["payload"].keys()
        assert added == ({"call_id"} if event["type"].startswith("tool.") else set())
        assert {name: event["payload"][name] for name in example["payload"]} == example["payload"]
    origins = [(event["type"], event["origin"]) for event in stored[1:]]
    assert dict(origins) == {
        "ui.message": "ui",
        "ui.action": "ui",
        "assistant.message": "model",
        "assistant.view": "model",
        "tool.call": "model",
        "tool.result": "tool",
    }
    calls, results = (
        [event["payload"]["call_id"] for event in stored if event["type"] == name]
        for name in ("tool.call", "tool.result")
    )
    assert calls == results
    assert stored[0]["ts"] == "2026-01-08T12:34:56.789Z"
    assert place.run("verify").exit_code == 0
