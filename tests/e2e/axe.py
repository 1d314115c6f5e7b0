"""What axe-core finds wrong on a page: every rule that it has switched on, those of good practice too."""

from collections.abc import Sequence

from playwright.sync_api import BrowserContext, Page

from tests.e2e.harness import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async (rules) => {
  const options = { preload: false, resultTypes: ["violations"], ...(rules.length && { runOnly: rules }) };
  const { violations, passes } = await axe.run(document, options);
  const told = ({ target, html, failureSummary }) => [target.join(" "), html.slice(0, 120), failureSummary];
  const found = violations.flatMap(({ id, nodes }) => nodes.map((node) => [id, ...told(node)].join(" | ")));
  return { rules: passes.length, found };
}"""
FEWEST = 10  # rules that every page of the console is held to; fewer, and axe has not seen it


def carry(context: BrowserContext) -> None:
    """Have axe on every page of a browser, where its policy for scripts does not reach."""
    assert AXE.exists(), "axe-core is not installed: `make web-test` installs it"
    context.add_init_script(path=AXE)


def violations(page: Page, only: Sequence[str] = ()) -> list[str]:
    """Return each with its rule, its element and what would help; all rules apply, or only some."""
    answer = page.evaluate(RUN, list(only))
    assert answer["rules"] >= (1 if only else FEWEST), answer
    return list(answer["found"])
