"""The statement table says what is there: the tests that it names exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (00[0-4])-(\d+) \| (.+) \| ([^|]+) \|$")
SHOWN = re.compile(r"`(tests/[\w/]+\.(?:py|mjs))::(\w+)`")


def statement_rows() -> list[tuple[str, int, str]]:
    lines = (ROOT / "docs/seeds.md").read_text().split("\n")
    rows = [line for line in lines if line.startswith("| 00")]
    matches = [ROW.match(line) for line in rows]
    assert all(matches), [line for line, match in zip(rows, matches, strict=True) if not match]
    return [(match[1], int(match[2]), match[4]) for match in matches if match]


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_statement_rows_are_numbered_without_gaps() -> None:
    rows = statement_rows()
    for document in ("000", "001", "002", "003", "004"):
        numbers = [number for name, number, _ in rows if name == document]
        assert numbers == list(range(1, len(numbers) + 1))


def test_every_statement_is_shown_or_changed_on_purpose() -> None:
    changes = set(re.findall(r"^\| (C\d+) \|", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE))
    for document, number, shown in statement_rows():
        if shown.startswith("changed: "):
            assert shown.removeprefix("changed: ") in changes, (document, number)
        else:
            named = SHOWN.findall(shown)
            assert named, f"{document}-{number}: {shown}"
            for path, function in named:
                assert function in functions(path), f"{document}-{number}: no {function} in {path}"
