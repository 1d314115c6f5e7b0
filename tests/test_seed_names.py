"""Every event name of the source documents stands in the mapping table of the protocol, section 3."""

import json
import re
from pathlib import Path

from tests.support.tables import for_each_row
from turnlog.vocabularies import FULL_CATALOG

ROOT = Path(__file__).parent.parent
NAMES: dict[str, list[str]] = json.loads((ROOT / "tests" / "vectors" / "seeds" / "names.json").read_text())


def mapping() -> list[list[str]]:
    """The rows of the table, cell by cell."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    section = re.search(r"^## 3\. The vocabulary\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section
    return [line.strip("|").split("|") for line in section[1].split("\n") if line.startswith("|")]


def named(column: int) -> set[str]:
    """The names in backticks in a column."""
    return {name for row in mapping() for name in re.findall(r"`([^`]+)`", row[column])}


def test_the_documents_are_the_columns() -> None:
    assert [cell.strip() for cell in mapping()[0]] == ["event", "contents", *NAMES]


def test_every_name_is_listed_once() -> None:
    assert {seed: len(names) for seed, names in NAMES.items()} == {
        "000": 21,
        "001": 6,
        "002": 6,
        "003": 13,
        "004": 22,
    }
    assert all(len(set(names)) == len(names) for names in NAMES.values())


@for_each_row("seed", NAMES)
def test_every_name_of_a_document_is_mapped(seed: str) -> None:
    column = ["event", "contents", *NAMES].index(seed)
    assert set(NAMES[seed]) - named(column) == set()


def test_every_event_of_the_vocabulary_is_mapped_to() -> None:
    assert set(FULL_CATALOG.types) - named(0) == set()
