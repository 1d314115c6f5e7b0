"""The sequences of the source documents' diagrams, as data; with trouble they are in `tests/faults`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_logs import lanes, lawful, told
from tests.support.agent_vectors import VECTORS, Trouble, played


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_a_sequence_is_the_one_in_the_vector(case: Mapping[str, Any], store: str, tmp_path: Path) -> None:
    events = played(case, Trouble(), "memory:" if store == "memory" else f"sqlite:///{tmp_path}/log.db")
    lawful(events)
    found, expected = told(events), case["events"]
    assert lanes(found) == lanes(expected)
    assert case.get("parallel") or found == expected
