"""The documents say what is there: tests named in the statement table exist, links resolve."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
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


def test_every_statement_is_shown_pending_or_changed_on_purpose() -> None:
    changes = set(re.findall(r"^\| (C\d+) \|", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE))
    for document, number, shown in statement_rows():
        if shown.startswith("changed: "):
            assert shown.removeprefix("changed: ") in changes, (document, number)
        elif shown != "pending":
            named = SHOWN.findall(shown)
            assert named, f"{document}-{number}: {shown}"
            for path, function in named:
                assert function in functions(path), f"{document}-{number}: no {function} in {path}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_python_in_the_documents_runs(path: Path, tmp_path: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_inside_the_repository_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), target
