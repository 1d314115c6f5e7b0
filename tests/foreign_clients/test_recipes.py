"""The recipes of the documentation are the programs that the tests run."""

from pathlib import Path

from tests.support.docs_blocks import ROOT, blocks
from tests.support.tables import for_each_row

RECIPES = [ROOT / "docs" / "howto" / name for name in ("other-clients.md", "copilotkit.md")]
FOLDER = Path(__file__).parent


def find_recipe(text: str) -> str:
    """Return the recipe that has a text."""
    [recipe] = [block.text for path in RECIPES for block in blocks(path) if text in block.text]
    return recipe


@for_each_row(
    ("text", "program"),
    [
        ("class TurnlogAgent", "ag_ui.mjs"),
        ("class TurnlogAgent", "react/turnlog-agent.js"),
        ("class TurnlogAgent", "copilotkit/turnlog-runner.mjs"),
        ("class TurnlogRunner", "copilotkit/turnlog-runner.mjs"),
        ("new CopilotRuntime", "copilotkit/runtime.mjs"),
        ("<CopilotChat", "copilotkit/copilotkit.jsx"),
        ("useAgUiRuntime", "react/assistant-ui.jsx"),
        ("useChat({", "react/use-chat.jsx"),
    ],
    ids=str,
)
def test_a_recipe_is_what_is_tested(text: str, program: str) -> None:
    recipe = find_recipe(text)
    tested = (FOLDER / program).read_text()
    # The lines of imports depend on the place of the file.
    paragraphs = [part.strip() for part in recipe.split("\n\n") if "import " not in part]
    assert paragraphs
    for paragraph in paragraphs:
        assert paragraph.removeprefix("export ") in tested
