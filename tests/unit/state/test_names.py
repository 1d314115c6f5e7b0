"""What members are called: the vectors that JavaScript shares."""

import json
from pathlib import Path
from typing import Any

from tests.support.folds import apply_events
from tests.support.tables import for_each_row
from tests.support.written_logs import vector_log
from turnlog.state.names import MemberNames

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "names.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


@for_each_row("case", CASES, ids=lambda case: case["name"])
def test_names_of_a_vector_are_those_it_says(case: dict[str, Any]) -> None:
    names = apply_events(MemberNames(), vector_log(case["events"]))
    assert names.names == case["names"]
    assert [names.display_name(principal) for principal in case["names"]] == list(case["names"].values())


def test_names_of_a_principal_without_one_is_the_principal() -> None:
    assert MemberNames().display_name("guest_1") == "guest_1"
