"""Names and sentences that a stranger finds by searching: rules that are checked for every file."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.tables import for_each_row

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "turnlog"
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
MAX_NODES_PER_LINE = 10  # h11 has 7.6, starlette 8.1
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("web/*/*.md")])

# Each says that something happened, and not what the thing is or does.
PARTICIPLES = {
    "asked", "begun", "called", "carried", "found", "given", "gone", "held", "heard", "kept", "left", "made",
    "mended", "met", "said", "seen", "sent", "shown", "spent", "struck", "taken", "told", "tried", "voided",
    "wanted",
}  # fmt: skip
WIRE_NAMES = {"shown"}  # fields of events and of stored structs
NO_ACTOR = re.compile(r"\b(somebody|nobody|whoever)\b", re.IGNORECASE)

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def public_definitions() -> dict[str, set[str]]:
    """Return the modules that define each public top-level class or function."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                modules[node.name].add(str(path.relative_to(SOURCE)))
    return modules


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of classes, functions, methods and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def nodes_per_line(paths: list[Path]) -> float:
    nodes = sum(1 for path in paths for _ in ast.walk(parsed(path)))
    lines = [line.strip() for path in paths for line in path.read_text().split("\n")]
    return nodes / sum(1 for line in lines if line and not line.startswith("#"))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments, docstrings and messages of a Python file with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def test_public_names_are_defined_in_one_module_only() -> None:
    assert {name: sorted(where) for name, where in public_definitions().items() if len(where) > 1} == {}


@for_each_row("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_name_is_a_bare_past_participle(path: Path) -> None:
    names = {name.strip("_").lower() for name in defined_names(parsed(path))}
    assert sorted((names & PARTICIPLES) - WIRE_NAMES) == []


@for_each_row("package", PACKAGES, ids=str)
def test_code_is_not_denser_than_ten_nodes_a_line(package: str) -> None:
    assert nodes_per_line(sorted((SOURCE / package).rglob("*.py"))) <= MAX_NODES_PER_LINE


@for_each_row("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_comments_and_messages_name_their_actors(path: Path) -> None:
    assert [(line, text[:80]) for line, text in prose(path) if NO_ACTOR.search(text)] == []


@for_each_row("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_their_actors(path: Path) -> None:
    lines = enumerate(path.read_text().split("\n"), 1)
    assert [(number, line[:80]) for number, line in lines if NO_ACTOR.search(line)] == []


def test_control_the_rules_see_what_they_forbid() -> None:
    tree = ast.parse("class A:\n    def _told(self): self.kept = 1\n")
    assert {name.strip("_") for name in defined_names(tree)} & PARTICIPLES == {"told", "kept"}
    assert NO_ACTOR.search("nothing that Somebody wrote")
    assert [name for name, where in public_definitions().items() if len(where) > 0 and name == "Log"] == [
        "Log"
    ]
