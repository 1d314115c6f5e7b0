"""Docstrings in Google's style, as data."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnlog.agents.docstring import parse_docstring

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "calls" / "docstrings.json").read_text())


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_a_docstring_is_taken_apart(case: dict[str, Any]) -> None:
    assert parse_docstring(case["doc"]) == (case["description"], case["words"])
