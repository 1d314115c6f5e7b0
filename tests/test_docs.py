"""The statement table says what is there: the tests that it names exist, and so do their vectors."""

import ast
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

from turnlog.testing import CONTRACTS, DURABLE_CONTRACTS, SHARED_CONTRACTS
from turnlog.testing.runtimes import RUNTIME_CONTRACTS

ROOT = Path(__file__).parent.parent
PROTOCOL = ROOT / "docs/protocol.md"
ROW = re.compile(r"^\| (00[0-4])-(\d+) \| (.+) \| ([^|]+) \|$")
SHOWN = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^`]+)\])?`")
MANY = {
    "test_vector",
    "test_contract",
}  # of which a row says which vector, or contract, it means


def statement_rows() -> list[tuple[str, int, str]]:
    lines = (ROOT / "tests/statements/statements.md").read_text().split("\n")
    rows = [line for line in lines if line.startswith("| 00")]
    matches = [ROW.match(line) for line in rows]
    assert all(matches), [line for line, match in zip(rows, matches, strict=True) if not match]
    return [(match[1], int(match[2]), match[4]) for match in matches if match]


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def cases(path: str) -> set[str]:
    """What the vectors and contracts are called that a file of tests goes through."""
    source = (ROOT / path).read_text()
    names = {str(contract) for contract in CONTRACTS if "CONTRACTS" in source}
    for file in re.findall(r'"(\w+\.json)"', source):
        for vectors in (ROOT / "tests/vectors").rglob(file):
            lists = [items for items in json.loads(vectors.read_text()).values() if isinstance(items, list)]
            names |= {item.get("name", item.get("id")) for items in lists for item in items}
    return names


def test_each_contract_of_a_suite_has_a_number_of_its_own() -> None:
    for suite in ([*CONTRACTS, *DURABLE_CONTRACTS, *SHARED_CONTRACTS], RUNTIME_CONTRACTS):
        counts = Counter(contract.number for contract in suite)
        repeated = [str(contract) for contract in suite if counts[contract.number] > 1]
        assert repeated == []


def test_statement_rows_are_numbered_without_gaps() -> None:
    rows = statement_rows()
    for document in ("000", "001", "002", "003", "004"):
        numbers = [number for name, number, _ in rows if name == document]
        assert numbers == list(range(1, len(numbers) + 1))


def test_each_changed_statement_names_a_change_of_its_document() -> None:
    """`pytest -s` prints the counts: document, statements, with a test, changed."""
    changes = dict(re.findall(r"^\| (C\d+) \| (00\d) \|", PROTOCOL.read_text(), re.MULTILINE))
    counts = {"test": Counter[str](), "changed": Counter[str]()}
    for document, number, shown in statement_rows():
        is_changed = shown.startswith("changed: ")
        counts["changed" if is_changed else "test"][document] += 1
        if is_changed:
            assert changes.get(shown.removeprefix("changed: ")) == document, f"{document}-{number}: {shown}"
    for document in sorted(counts["test"]):
        tested, changed = counts["test"][document], counts["changed"][document]
        counted = f"{document}: {tested + changed} statements, {tested} with a test, {changed} changed"
        print(counted)  # noqa: T201


def test_every_statement_is_shown_or_changed_on_purpose() -> None:
    changes = set(re.findall(r"^\| (C\d+) \|", PROTOCOL.read_text(), re.MULTILINE))
    for document, number, shown in statement_rows():
        if shown.startswith("changed: "):
            assert shown.removeprefix("changed: ") in changes, (document, number)
        else:
            named = SHOWN.findall(shown)
            assert named, f"{document}-{number}: {shown}"
            assert len(named) == shown.count("`") // 2, f"{document}-{number}: {shown}"
            for path, function, case in named:
                assert function in functions(path), f"{document}-{number}: no {function} in {path}"
                assert bool(case) == (function in MANY), f"{document}-{number}: which vector of {path}?"
                assert not case or case in cases(path), f"{document}-{number}: no {case} in {path}"
