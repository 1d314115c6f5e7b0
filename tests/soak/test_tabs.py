"""Tabs in a real browser for long: walks at random, and reloads at many moments of a run."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.e2e.conftest import chrome
from tests.e2e.test_console_reload import allowance, browser, reload_at
from tests.e2e.test_web_client_walk import STEPS, context, walk_at_random
from tests.soak.figures import Measure

SEEDS = 10
MOMENTS = 40

__all__ = ["allowance", "browser", "chrome", "context"]  # fixtures


@pytest.mark.parametrize("seed", range(SEEDS))
def test_tabs_at_random_miss_nothing(
    context: BrowserContext, tmp_path: Path, seed: int, measure: Measure
) -> None:
    measure(f"{STEPS} steps")
    walk_at_random(context, tmp_path, seed)


def test_every_panel_reads_the_same_after_a_reload(
    browser: BrowserContext, allowance: int, tmp_path: Path, measure: Measure
) -> None:
    measure(f"{MOMENTS} moments")
    reload_at(MOMENTS, browser, allowance, tmp_path)
