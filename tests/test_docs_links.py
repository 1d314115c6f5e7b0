"""Every link inside the repository leads somewhere, and every file that is named is there."""

import re
from pathlib import Path

import pytest

from tests.support.docs_blocks import DOCS, ROOT, anchors, links
from tests.support.docs_names import link_faults, path_faults
from tests.support.tables import for_each_row

PAGES = sorted(ROOT.glob("docs/**/*.md"))


@for_each_row("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_named_files_are_there(path: Path) -> None:
    assert link_faults(path) + path_faults(path) == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page.resolve() for page in PAGES} - named - {index} == set()


def test_headings_have_the_anchors_that_pages_give_them(tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(
        "# One: `two` (three)!\n## A_b - c\n## Same\n## Same\n```sh run\n# no heading\n```\n"
    )
    assert anchors(page) == {"one-two-three", "a_b---c", "same", "same-1"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[gone](gone.md)", "no file gone.md"),
        ("[gone](page.md#gone)", "no heading page.md#gone"),
        ("[gone](#gone)", "no heading #gone"),
        ("[a picture](shot.png#part)\n", "no file shot.png#part"),
        ("`tests/test_gone.py::test_it`", "no file tests/test_gone.py"),
        ("see `src/turnlog/gone/*.py`", "no file src/turnlog/gone/*.py"),
    ],
)
def test_control_what_leads_nowhere_is_reported(text: str, fault: str, tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(f"# Here\n{text}\n")
    assert link_faults(page) + path_faults(page) == [f"page.md: {fault}"]


def test_links_that_are_there_or_elsewhere_are_no_faults(tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(
        "# Here\n[x](#here) [y](page.md#here) [z](https://example.org/a_(b)) `[c](gone.md)`\n"
        "`src/turnlog/cli`\n"
    )
    assert link_faults(page) + path_faults(page) == []


def test_the_comparison_has_a_source_for_what_it_says_and_uses_each() -> None:
    facts, _, listed = (ROOT / "docs/comparison.md").read_text().partition("## Sources")
    used = {int(number) for number in re.findall(r"\[(\d+)\]", facts)}
    assert used == {int(number) for number in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)}
    rows = [line for line in facts.split("\n") if line.startswith("| ") and not line.startswith("| |")]
    assert [row for row in rows if "[" not in row] == []
