"""Examples and the code in documents import public modules of Turnlog only."""

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.support.docs_blocks import DOCS, blocks
from tests.support.public_modules import PUBLIC_MODULES

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
TEMPLATE = sorted((ROOT / "src" / "turnlog" / "cli" / "template").glob("*.py.txt"))


def find_imports(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the module of each import of Turnlog, and the name that it takes from there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def find_private_imports(text: str) -> list[str]:
    """Return what a text imports from Turnlog that is not public."""
    private = []
    for module, name in find_imports(text):
        if module.partition(".")[0] != "turnlog":
            continue
        submodule = f"{module}.{name}"
        if module in PUBLIC_MODULES and (name is None or is_exported(module, name)):
            continue
        if submodule not in PUBLIC_MODULES:
            private.append(f"{module}: {name}")
    return private


def is_exported(module: str, name: str) -> bool:
    """Return whether a public module declares a name: in `__all__`, or as its own if it has none."""
    loaded = import_module(module)
    exported: list[str] | None = getattr(loaded, "__all__", None)
    return name in exported if exported is not None else hasattr(loaded, name)


def test_examples_import_public_modules_only() -> None:
    assert {path.name: found for path in EXAMPLES if (found := find_private_imports(path.read_text()))} == {}


def test_the_template_of_turnlog_new_imports_public_modules_only() -> None:
    texts = {path.name: path.read_text().replace("$", "") for path in TEMPLATE}
    assert texts
    assert {name: found for name, text in texts.items() if (found := find_private_imports(text))} == {}


def test_code_in_documents_imports_public_modules_only() -> None:
    code = [block for path in DOCS for block in blocks(path) if block.language == "python"]
    assert code
    assert {str(block): found for block in code if (found := find_private_imports(block.text))} == {}


def test_public_modules_exist() -> None:
    missing = [module for module in PUBLIC_MODULES if find_spec(module) is None]
    assert missing == []


def test_control_private_imports_are_found() -> None:
    assert find_private_imports("from turnlog.cli.terminal import make_console") == [
        "turnlog.cli.terminal: make_console"
    ]
    assert find_private_imports("import turnlog.cli") == ["turnlog.cli: None"]
    assert find_private_imports("from turnlog import cli") == ["turnlog: cli"]
    assert find_private_imports("from turnlog.agents import AgentTeam") == ["turnlog.agents: AgentTeam"]
    assert find_private_imports("from turnlog.agents import Agent\nimport turnlog, os") == []
