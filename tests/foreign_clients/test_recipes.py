"""The recipe that attaches AG-UI's client is the one that the tests run."""

from pathlib import Path

from tests.support.docs_blocks import ROOT, blocks

RECIPES = ROOT / "docs" / "howto" / "other-clients.md"
DRIVER = Path(__file__).with_name("ag_ui.mjs")


def test_the_agent_of_the_recipe_is_the_one_that_is_tested() -> None:
    [recipe] = [block.text for block in blocks(RECIPES) if "class TurnlogAgent" in block.text]
    _, _, body = recipe.partition("export ")
    assert body.strip() in DRIVER.read_text()
