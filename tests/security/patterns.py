"""Every regular expression of the package, how it is used, and texts that make a bad one take for ever."""

import ast
import importlib
import itertools
import pkgutil
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import turnlog

ANCHORED = ("match", "fullmatch")
SCANNING = ("search", "sub", "subn", "split", "findall", "finditer")
SAMPLES = {
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_SPACE: "x",
}
MAX_CHARACTERS = 6
KNOWN = ('cookie:b"', "key-", '"\\"', " - at `")  # what once took a square of time


class Use(NamedTuple):
    """A pattern and whether it is tried at one place (`match`) or at every place (`search`)."""

    pattern: re.Pattern[Any]
    is_scanning: bool

    def run(self, text: str) -> None:
        data: Any = text.encode(errors="replace") if isinstance(self.pattern.pattern, bytes) else text
        if self.is_scanning:
            for _ in self.pattern.finditer(data):
                pass
        else:
            self.pattern.match(data)


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


def literals(tokens: Any) -> Iterator[str]:
    """Yield a character for every place of a pattern, and runs of literal characters."""
    run = ""
    for operator, value in tokens:
        if operator is sre.LITERAL:
            run += chr(value)
            yield chr(value)
            continue
        if len(run) > 1:
            yield run
        run = ""
        yield from inner_literals(operator, value)
    if len(run) > 1:
        yield run


def inner_literals(operator: Any, value: Any) -> Iterator[str]:
    if operator is sre.IN:
        yield from (sample(kind, what) for kind, what in value)
    elif operator is sre.NOT_LITERAL:
        yield "x"
    else:
        for part in value if isinstance(value, list | tuple) else ():
            if isinstance(part, sre_parser.SubPattern):
                yield from literals(part)
            elif isinstance(part, list):
                for branch in part:
                    yield from literals(branch)


def sample(kind: Any, value: Any) -> str:
    """Return a character of a class."""
    if kind is sre.RANGE:
        return chr(value[0])
    return chr(value) if kind is sre.LITERAL else SAMPLES.get(value, "x")


def pumped(use: Use, size: int) -> Iterator[str]:
    """Yield texts of about `size` characters that repeat what a pattern looks for, and end otherwise."""
    source = use.pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    found = list(
        dict.fromkeys([*literals(sre_parser.parse(text, use.pattern.flags & ~re.UNICODE)), "x", " "])
    )
    characters = [one for one in found if len(one) == 1][:MAX_CHARACTERS]
    runs = [one for one in found if len(one) > 1]
    pairs = ["".join(pair) for pair in itertools.product(characters, repeat=2)]
    mixed = [run + character for run in runs for character in characters]
    for unit in dict.fromkeys([*characters, *pairs, *runs, *mixed, *KNOWN]):
        yield unit * (size // len(unit)) + "\x01"
    for run in runs:
        for character in characters:
            yield run + character * size + "\x01"
