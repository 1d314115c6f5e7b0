"""Parse a docstring in Google's style: what the function does, and what its arguments mean. Pure.

The section `Args:` (or `Arguments:`, `Parameters:`) ends at the next line that is not indented. An entry is
`name: text` or `name (type): text`; deeper indented lines continue it. Everything else is the description.
"""

import re

SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
BLANK_LINES = re.compile(r"\n{3,}")


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    lines = doc.split("\n")
    start = next((index for index, line in enumerate(lines) if SECTION.fullmatch(line)), None)
    if start is None:
        return doc.strip(), {}

    end = start + 1
    while end < len(lines) and (not lines[end].strip() or indent_width(lines[end])):
        end += 1
    description = "\n".join([*lines[:start], *lines[end:]])
    return BLANK_LINES.sub("\n\n", description).strip(), parse_entries(lines[start + 1 : end])


def parse_entries(lines: list[str]) -> dict[str, str]:
    text_lines = [line for line in lines if line.strip()]
    entries: dict[str, str] = {}
    name = ""
    for line in text_lines:
        text = line.strip()
        is_outer = indent_width(line) == indent_width(text_lines[0])
        entry = ENTRY.fullmatch(text) if is_outer else None
        if entry is not None:
            name, text = entry.groups()
        entries[name] = f"{entries.get(name, '')} {text}".strip()
    entries.pop("", None)
    return entries


def indent_width(line: str) -> int:
    return len(line) - len(line.lstrip())
