"""Every regular expression of the package, and how it is used."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import turnlog

ANCHORED = ("match", "fullmatch")
SCANNING = ("search", "sub", "subn", "split", "findall", "finditer")


class Use(NamedTuple):
    """A pattern and whether it is tried at one place (`match`) or at every place (`search`)."""

    pattern: re.Pattern[Any]
    is_scanning: bool


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(turnlog.__path__, "turnlog."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def find_patterns(value: object) -> Iterator[tuple[re.Pattern[Any], str | None]]:
    """Find patterns and bound methods of patterns in a module's table, with the method if it is bound."""
    if isinstance(value, re.Pattern):
        yield value, None
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield value.__self__, value.__name__  # type: ignore[attr-defined]
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from find_patterns(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from find_patterns(one)
    elif not isinstance(value, type) and type(value).__module__.startswith("turnlog."):
        yield from find_patterns(list(getattr(value, "__dict__", {}).values()))


def methods_used(tree: ast.Module) -> dict[str, set[str]]:
    """Return which methods a module calls on each of its names."""
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
    return used


def inline_uses(tree: ast.Module) -> Iterator[Use]:
    """Find calls such as `re.sub("...", ...)` whose pattern is a literal."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in (*ANCHORED, *SCANNING)
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield Use(re.compile(node.args[0].value), node.func.attr in SCANNING)


def find_uses() -> dict[str, Use]:
    """Return every pattern of the package by a name that says where it is."""
    uses = {}
    for module in modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        used = methods_used(tree)
        for name, value in vars(module).items():
            for number, (pattern, bound) in enumerate(find_patterns(value)):
                methods = {bound} if bound else used.get(name, set()) & {*ANCHORED, *SCANNING}
                key = f"{module.__name__}.{name}" + (f"[{number}]" if number else "")
                uses[key] = Use(pattern, not methods or not methods.isdisjoint(SCANNING))
        for number, use in enumerate(inline_uses(tree)):
            uses[f"{module.__name__} inline {number}"] = use
    return uses
