"""A reload of the console at many moments of a run shows the same in every panel."""

from pathlib import Path

from playwright.sync_api import BrowserContext

from tests.e2e.conftest import chrome, shared_browser
from tests.e2e.test_console_reload import allowance, browser, reload_at
from tests.soak.figures import Measure

MOMENTS = 40

__all__ = ["allowance", "browser", "chrome", "shared_browser"]  # fixtures


def test_every_panel_reads_the_same_after_a_reload(
    browser: BrowserContext, allowance: int, tmp_path: Path, measure: Measure
) -> None:
    measure(f"{MOMENTS} moments")
    reload_at(MOMENTS, browser, allowance, tmp_path)
