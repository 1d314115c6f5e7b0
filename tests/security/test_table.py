"""`docs/threats.md` names tests and controls that exist, both in every row, and forgets none of them."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


class Row(NamedTuple):
    """A row of the table: its number, and the tests it names as (file, function)."""

    number: int
    tests: list[tuple[str, str]]
    controls: list[tuple[str, str]]


def read_rows(text: str) -> list[Row]:
    """The rows of a table of threats."""
    cells = [line.split(" | ") for line in text.split("\n") if re.match(r"\| \d+ \|", line)]
    return [Row(int(row[0].strip("| ")), NAMED.findall(row[3]), NAMED.findall(row[4])) for row in cells]


TABLE = read_rows((ROOT / "docs" / "threats.md").read_text())


@cache
def functions(name: str) -> frozenset[str]:
    """The tests of a file; a name alone is one of this folder."""
    file = ROOT / name if "/" in name else HERE / name
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def missing(row: Row) -> list[str]:
    """What a row names and nobody wrote, and what it lacks."""
    named = [name for file, name in (*row.tests, *row.controls) if name not in functions(file)]
    named += [name for _, name in row.tests if not name.startswith("test_")]
    named += [name for _, name in row.controls if not name.startswith("test_control_")]
    return named + ["a test"] * (not row.tests) + ["a control"] * (not row.controls)


def test_rows_are_numbered_without_a_gap() -> None:
    assert [row.number for row in TABLE] == list(range(1, len(TABLE) + 1))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"row {row.number}")
def test_a_row_names_tests_and_controls_that_exist(row: Row) -> None:
    assert missing(row) == []


def test_every_test_of_this_folder_is_in_the_table() -> None:
    written = {(file.name, name) for file in HERE.glob("test_*.py") for name in functions(file.name)}
    tests = {(file, name) for file, name in written if name.startswith("test_") and file != "test_table.py"}
    assert tests - {pair for row in TABLE for pair in (*row.tests, *row.controls)} == set()


def test_control_a_row_that_names_what_nobody_wrote_is_noticed() -> None:
    line = "| 1 | a | b | `test_hosts.py::test_nothing` | `test_hosts.py::test_no_control` |"
    [row] = read_rows(line)
    assert missing(row) == ["test_nothing", "test_no_control", "test_no_control"]
    assert missing(Row(2, [], [])) == ["a test", "a control"]
