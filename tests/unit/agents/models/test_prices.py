"""What completions cost, by vectors."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from turnlog.agents.models.prices import PRICES, PRICES_DATE, compute_cost, find_price
from turnlog.events import Cost, Usage

VECTORS = Path(__file__).parents[3] / "vectors" / "models" / "prices.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


def usage(tokens: list[int]) -> Usage:
    given, said, read, written = tokens
    return Usage(
        input_tokens=given, output_tokens=said, cache_read_tokens=read, cache_creation_tokens=written
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']} {case['usage']}")
def test_vector(case: dict[str, Any]) -> None:
    found = compute_cost(case["model"], usage(case["usage"]))
    if case["cost"] is None:
        assert found is None
        return
    given, said, read, written, total = case["cost"]
    assert found == Cost(
        total_cost=total, input_cost=given, output_cost=said, cache_read_cost=read, cache_write_cost=written
    )


def test_every_price_is_found_by_its_own_id_and_by_a_dated_one() -> None:
    for name, price in PRICES.items():
        assert find_price(name) is find_price(f"{name}-20260101") is price


def test_the_table_has_a_date() -> None:
    assert datetime.date.fromisoformat(PRICES_DATE) > datetime.date(2025, 1, 1)
