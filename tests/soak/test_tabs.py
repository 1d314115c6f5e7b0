"""Tabs that come, go, reload and freeze at random in a real browser, for long."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.e2e.test_web_client_walk import STEPS, chrome, context, walk_at_random
from tests.soak.figures import Measure

SEEDS = 10

__all__ = ["chrome", "context"]  # fixtures


@pytest.mark.parametrize("seed", range(SEEDS))
def test_tabs_at_random_miss_nothing(
    context: BrowserContext, tmp_path: Path, seed: int, measure: Measure
) -> None:
    measure(f"{STEPS} steps")
    walk_at_random(context, tmp_path, seed)
