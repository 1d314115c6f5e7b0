"""Whether what a document names is there: links and anchors, commands with their options, files, modules.

Each check gives a list of faults, empty if all is well, so that the controls of the tests can look at them.
"""

import importlib.util
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from tests.support.docs_blocks import ROOT, anchors, blocks, codes, links
from turnlog.cli import main

OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<"}
PATH = re.compile(r"(?:\.github|bench|deploy|docs|examples|src|tests|web)/[\w./*-]*[\w*]")
ASSIGNMENT = re.compile(r"\w+=")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_:]*|\.\.\.")
MAKE = re.compile(r"^\.PHONY: (.*)$", re.MULTILINE)
LANGUAGES = ("sh", "")


def link_faults(path: Path) -> list[str]:
    """Links inside the repository that lead nowhere, and anchors that no heading has."""
    faults = []
    for target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            faults.append(f"{path.name}: no file {target}")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
            faults.append(f"{path.name}: no heading {target}")
    return faults


def path_faults(path: Path) -> list[str]:
    """Files of the repository that are named and not there."""
    named = {found for code in codes(path) for found in PATH.findall(code.partition("::")[0])}
    return [f"{path.name}: no file {name}" for name in sorted(named) if not any(ROOT.glob(name))]


def command_faults(path: Path) -> list[str]:
    """Commands that do not exist, or not with these options; in backticks and in blocks of a shell."""
    lines = [(whole(code), path.name) for code in codes(path)]
    for block in blocks(path):
        if block.language in LANGUAGES:
            lines += [(line, str(block)) for line in shell_lines(block.text)]
    return [f"{where}: {fault}" for line, where in lines for fault in line_faults(line)]


def whole(code: str) -> str:
    """A command of a sentence, which may name an option without its value."""
    return f"{code} VALUE" if re.search(r" --[\w-]+$", code) and list(line_faults(code)) else code


def shell_lines(text: str) -> Iterator[str]:
    """The lines of a shell, those that go on joined."""
    for line in text.replace("\\\n", " ").split("\n"):
        yield line.removeprefix("$ ")


def line_faults(line: str) -> Iterator[str]:
    """What is wrong with the commands of one line."""
    for command in commands(line):
        name = Path(command[0]).name
        if name == "turnlog":
            yield from turnlog_faults(command[1:])
        elif name == "make":
            yield from (f"no target {word}" for word in command[1:] if word not in targets())
        elif command[1:2] == ["-m"] and name.startswith("python") and not is_module(command[2]):
            yield f"no module {command[2]}"


def is_module(name: str) -> bool:
    """Whether a module is installed here."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a line of a shell, without what is assigned before them."""
    try:
        words = shlex.split(re.sub(r"(?<!\S)#.*", "", line).replace("$(", "; ").replace(")", " "))
    except ValueError:  # an apostrophe in a sentence: no line of a shell
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if word in OPERATORS:
            if command:
                yield command
            command = []
        elif command or not ASSIGNMENT.match(word):
            command.append(word)


def targets() -> list[str]:
    found = MAKE.search((ROOT / "Makefile").read_text())
    return found[1].split() if found else []


def turnlog_faults(words: list[str]) -> list[str]:
    """What is wrong with the words after `turnlog`."""
    if not words or words[0] in ("--version", "--help", "-h"):
        return []
    command = main.commands.get(words[0])
    if command is None:
        return [f"no command turnlog {words[0]}"]
    context = click.Context(command, info_name=words[0])
    try:
        values, rest, _ = command.make_parser(context).parse_args(words[1:])
    except click.UsageError as error:
        return [f"turnlog {words[0]}: {error.format_message()}"]
    if rest:
        return [f"turnlog {words[0]} takes no {' '.join(rest)}"]
    return [fault for one in command.params if one.name for fault in value_faults(one, values.get(one.name))]


def value_faults(parameter: click.Parameter, value: object) -> Iterator[str]:
    """A choice that there is not; `[a|b]` names several, and capitals stand for any."""
    kind = parameter.type
    if not isinstance(kind, click.Choice) or value is None:
        return
    for text in [value] if isinstance(value, str) else value if isinstance(value, Iterable) else []:
        for name in str(text).strip("[]").split("|"):
            if name not in kind.choices and not PLACEHOLDER.fullmatch(name):
                yield f"no {name} for {parameter.human_readable_name}"
