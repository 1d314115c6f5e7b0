"""A docstring in Google's style, taken apart: what the function does, and what its arguments mean. Pure.

The section `Args:` (or `Arguments:`, `Parameters:`) ends at the next line that is not indented. An entry is
`name: words` or `name (type): words`; its next lines are joined to it. Everything else is the description.
"""

import re

SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
BLANKS = re.compile(r"\n{3,}")


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The description, and the words about each argument by its name."""
    lines = doc.split("\n")
    start = next((place for place, line in enumerate(lines) if SECTION.fullmatch(line)), None)
    if start is None:
        return doc.strip(), {}
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or indent_width(lines[end])):
        end += 1
    rest = "\n".join([*lines[:start], *lines[end:]])
    return BLANKS.sub("\n\n", rest).strip(), parse_entries(lines[start + 1 : end])


def parse_entries(lines: list[str]) -> dict[str, str]:
    """The entries of a section; what is indented deeper than the first one goes on with the entry above."""
    filled = [line for line in lines if line.strip()]
    found: dict[str, str] = {}
    name = ""
    for line in filled:
        entry = ENTRY.fullmatch(line.strip()) if indent_width(line) == indent_width(filled[0]) else None
        if entry:
            name, words = entry.groups()
        else:
            words = line.strip()
        found[name] = f"{found.get(name, '')} {words}".strip()
    found.pop("", None)
    return found


def indent_width(line: str) -> int:
    """How far a line is indented."""
    return len(line) - len(line.lstrip())
