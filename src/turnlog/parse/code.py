"""Where a tag would be code: fenced code, code spans, quoted lines and HTML comments of model text.

Follows CommonMark line by line, as far as it matters here: only a fence or a comment outlives its line. What
follows the marker of a list item begins a line too, and once there was a list a fence may have any indent,
for nobody counts how deep the items go. Any cutting of the text gives the same answer.
"""

import re
from collections.abc import Callable

RUN_CHARS = 64  # a longer run of backticks counts as this long, so that an unfinished one can be kept
LEAD_CHARS = 72  # what stands before a mark at the start of a line, at most: 32 of indent, two list markers


class Code:
    """Whether a tag would be code: CommonMark, line by line; only a fence or a comment outlives its line."""

    def __init__(self) -> None:
        self.mode = "prose"
        self.pending = "\n"  # a shown token that may still grow; a message begins at the start of a line
        self._mark, self._size = "", 0  # the run that opened the span or the fence
        self._listed = False
        self._indent = 0  # the most that the end of the fence may have

    def inside(self) -> bool:
        """Whether a `<` that comes next stands in code."""
        if self.pending.strip(" \t\n"):
            self.feed("<")  # ends the run that was waiting
            self.pending = ""
        return self.mode != "prose"

    def feed(self, text: str) -> None:
        """Take the text that comes next, tags left out."""
        text, self.pending = self.pending + text, ""
        at = max(text.rfind("\n"), 0)
        if at and (self.mode != "prose" or "```" in text or "<!--" in text or MARKED(text)):
            at = 0  # not only the last line matters
        while (match := _TOKENS[self.mode](text, at)) is not None:
            at = match.end()
            if at == len(text):
                self.pending = match[0][: 1 + LEAD_CHARS + RUN_CHARS]
                break
            if match[0][:1] == "\n":
                self._line(match[0])
            else:
                self._step(match, match[0])

    def _line(self, start: str) -> None:
        """A line begins with a mark, with the marker of a list item, or with both."""
        token = start.lstrip(_LEAD)
        mark, size = token[:1], min(len(token), RUN_CHARS)
        lead = start[1 : len(start) - len(token)].expandtabs(4)
        if self.mode == "prose":
            self._listed = self._listed or bool(lead.strip())
            self._mark, self._size = mark, size
            self._indent = len(lead) + 3 if self._listed else 3
            deep = len(lead) > self._indent
            self.mode = (_MARKS if deep else _LONG_MARKS if size >= 3 else _LINE_MARKS).get(mark, "prose")
        elif mark == self._mark and size >= self._size and len(lead) <= self._indent:
            self.mode = "closing"

    def _step(self, match: re.Match[str], token: str) -> None:
        mode, mark, size = self.mode, token[:1], min(len(token), RUN_CHARS)
        if mode == "prose":
            self._mark, self._size = mark, size
            self.mode = _MARKS.get(mark, mode)
        elif mode in _SPANS:
            self.mode = _SPANS[mode] if not token else "prose" if size == self._size else "span"
        elif mode == "closing":
            self.mode = "prose" if match.string[match.end()] == "\n" else "fence"
        elif mode == "quote" or token.endswith("-->"):
            self.mode = "prose"


_LEAD = " \t\n-*+.)0123456789"
_MARKS = {"`": "span", "<": "comment"}
_LINE_MARKS = _MARKS | {">": "quote"}  # at the start of a line, but not after four spaces without a list
_LONG_MARKS = {"`": "head", "~": "fence"}  # three or more there
_SPANS = {"span": "prose", "head": "fence"}  # and what they are when the line ends: a head opens a fence
SEALED = frozenset({"head", "fence", "comment"})  # where no tag can follow, whatever white space comes first
MARKED = re.compile(r"\n[ \t]*+[-*+0-9>~]").search  # a line that may be an item, a quote or a fence
_RUN, _HALF = r"`+|~+|>", r"(?:[-*+]|[0-9]{1,9}[.)]?)"  # a mark, and what may become the marker of an item
_ITEMS = rf"(?:(?:[-*+]|[0-9]{{1,9}}[.)])[ \t]{{1,8}}){{1,2}}(?:{_RUN}|{_HALF}\Z)?"
_START = rf"[ \t]{{0,32}}(?:{_RUN}|{_HALF}?\Z|{_ITEMS})"
_TOKENS: dict[str, Callable[[str, int], re.Match[str] | None]] = {
    # the start of a line, a run of backticks, `<!--`, an escape, and their beginnings; led by one set, which
    # makes the search a scan
    "prose": re.compile(rf"[\n`<\\](?:(?<=\n){_START}|(?<=`)`*|(?<=<)(?:!--|!?-?\Z)|(?<=\\)[`\\]?)").search,
    "span": re.compile(r"`+|(?=\n)").search,
    "head": re.compile(r"`+|(?=\n)").search,
    "fence": re.compile(rf"\n[ \t]{{0,{LEAD_CHARS}}}(?:`+|~+|\Z)").search,
    "closing": re.compile(r"(?=[^ \t\r])").search,
    "quote": re.compile(r"(?=\n)").search,
    "comment": re.compile(r"-+>?").search,
}
