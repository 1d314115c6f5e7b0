"""The event reference is what the catalog says."""

import json
import re

from tests.generate_docs import REFERENCE, dump, recorded, render
from turnlog.vocabularies import FULL_CATALOG


def test_the_reference_is_up_to_date() -> None:
    assert REFERENCE.read_text() == render(), "run `make docs`"


def test_every_type_has_its_section() -> None:
    headings = re.findall(r"^### (.+)$", render(), re.MULTILINE)
    assert headings[: len(FULL_CATALOG.types)] == list(FULL_CATALOG.types)


def test_every_link_leads_to_a_heading() -> None:
    text = render()
    headings = [
        heading.lower().replace(" ", "-") for heading in re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    ]
    anchors = [re.sub(r"[^a-z0-9-]", "", heading) for heading in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\(#([^)]+)\)", text)) <= set(anchors)


def test_every_table_is_even() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", render(), re.MULTILINE)
    assert len(tables) > len(FULL_CATALOG.types)
    for table in tables:
        assert len({line.count("|") for line in table.rstrip("\n").split("\n")}) == 1, table


def test_every_example_is_json() -> None:
    blocks = re.findall(r"```json\n(.+?)\n```", render(), re.DOTALL)
    assert [json.loads(block) for block in blocks[1:]] == [
        kind.payload_class.EXAMPLE for kind in FULL_CATALOG
    ]


def test_the_snapshot_is_written_one_fact_per_line() -> None:
    assert json.loads(dump(recorded())) == recorded()
    assert dump(recorded()).count("\n") == len(recorded()) + 2
