"""What was said in a session, as bubbles."""

import json
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.support.folds import apply_events
from tests.support.written_logs import place, vector_log
from turnlog.events import CORE, Catalog, Payload, Scope, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.state.transcript import Transcript

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "transcript.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


class Agree(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = ANY_ORIGIN
    granted: bool


CATALOG = Catalog(CORE, Vocabulary("broker", [Agree]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    transcript = apply_events(Transcript(), vector_log(case["events"]))
    assert msgspec.to_builtins(list(transcript.entries.values())) == case["bubbles"]
    assert [bubble.seq for bubble in transcript.visible_in(["customer"])] == case["customer"]
    assert [bubble.seq for bubble in transcript.visible_in([])] == case["everybody"]


@pytest.mark.parametrize(("origin", "texts"), [
    ("ui", ['[The user acted: {"type":"agree","data":{"granted":true}}]']),
    ("model", []),
    ("app", []),
])  # fmt: skip
def test_an_event_of_the_application_is_noted_if_a_page_sent_it(origin: Any, texts: list[str]) -> None:
    at = Scope(trace_id="tr_1", channel="customer", actor="sarah")
    event = CATALOG.build_event(Agree(granted=True), id="evt_1", origin=origin, scope=at)
    transcript = apply_events(Transcript(), [place(event, 3, CATALOG)])
    assert [bubble.text for bubble in transcript.entries.values()] == texts
    assert transcript.visible_in(["installer"]) == []
    for bubble in transcript.visible_in(["installer", "customer"]):
        assert (bubble.seq, bubble.who, bubble.speaker, bubble.turn) == (3, "note", "sarah", "tr_1")


def test_texts_that_can_no_longer_be_retracted_are_forgotten() -> None:
    transcript = apply_events(Transcript(), vector_log(CASES[1]["events"]))
    assert list(transcript.seqs_by_block) == ["agt_2"]
