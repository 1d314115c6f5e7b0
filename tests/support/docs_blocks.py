"""What stands in a document: its fenced blocks, its headings and links, and the commands and paths it names.

Pure reading of Markdown as these documents use it; what is checked of it is in `docs_run` and `docs_names`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])

FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} (.+?) *$", re.MULTILINE)
LINK = re.compile(r"\[[^\[\]]*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class Block(NamedTuple):
    """A fenced block: where it stands, its language, the words beside that, its text."""

    path: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def value(self, key: str) -> str:
        """What a word like `title=app.py` says; empty if there is none."""
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{key}=")), "")

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    text = path.read_text()
    return [block_of(path, text, found) for found in FENCE.finditer(text)]


def block_of(path: Path, text: str, found: re.Match[str]) -> Block:
    language, *words = found[3].split() or [""]
    inside = re.sub(f"^{found[1]}", "", found[4], flags=re.MULTILINE)
    return Block(path, text.count("\n", 0, found.start()) + 1, language, tuple(words), inside)


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return FENCE.sub("", path.read_text())


def codes(path: Path) -> Iterator[str]:
    """What stands in backticks, each on one line."""
    for found in CODE.finditer(prose(path)):
        yield re.sub(r"\s+", " ", found[2]).strip()


def links(path: Path) -> list[str]:
    """Where the links of a document lead."""
    return LINK.findall(CODE.sub("code", prose(path)))


def anchors(path: Path) -> set[str]:
    """The anchors that a page of this document has: one for each heading, numbered where they are alike."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(prose(path)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
        if found[anchor]:
            found[f"{anchor}-{found[anchor]}"] = 0
    return set(found)
