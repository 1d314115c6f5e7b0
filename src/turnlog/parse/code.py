"""Where a tag would be code: fenced code, code spans, quoted lines and HTML comments of model text.

Follows CommonMark line by line, as far as it matters here: only a fence or a comment outlives its line. Any
cutting of the text gives the same answer.
"""

import re
from collections.abc import Callable

RUN_CHARS = 64  # a longer run of backticks counts as this long, so that an unfinished one can be kept


class Code:
    """Whether a tag would be code: CommonMark, line by line; only a fence or a comment outlives its line."""

    def __init__(self) -> None:
        self.mode = "prose"
        self.pending = "\n"  # a shown token that may still grow; a message begins at the start of a line
        self._mark, self._size = "", 0  # the run that opened the span or the fence

    def inside(self) -> bool:
        """Whether a `<` that comes next stands in code."""
        if self.pending.strip(" \n"):
            self.feed("<")  # ends the run that was waiting
            self.pending = ""
        return self.mode != "prose"

    def feed(self, text: str) -> None:
        """Take the text that comes next, tags left out."""
        text, self.pending = self.pending + text, ""
        at = max(text.rfind("\n"), 0)
        if at and (self.mode != "prose" or _FENCE(text) or _TILDES(text) or _COMMENT(text)):
            at = 0  # not only the last line matters
        while (match := _TOKENS[self.mode](text, at)) is not None:
            at = match.end()
            if at == len(text):
                self.pending = match[0][: RUN_CHARS + 4]
                break
            self._step(match, match[0].strip(" \n"))

    def _step(self, match: re.Match[str], token: str) -> None:
        mode, mark, size = self.mode, token[:1], min(len(token), RUN_CHARS)
        if mode == "prose":
            self._mark, self._size = mark, size
            self.mode = (_LONG_MARKS if size >= 3 and match[0][0] == "\n" else _MARKS).get(mark, "prose")
        elif mode in _SPANS:
            self.mode = _SPANS[mode] if not token else "prose" if size == self._size else "span"
        elif mode == "fence" and mark == self._mark and size >= self._size:
            self.mode = "closing"
        elif mode == "closing":
            self.mode = "prose" if match.string[match.end()] == "\n" else "fence"
        elif mode == "quote" or token.endswith("-->"):
            self.mode = "prose"


_MARKS = {"`": "span", ">": "quote", "<": "comment"}
_LONG_MARKS = {"`": "head", "~": "fence"}  # three or more at the start of a line
_SPANS = {"span": "prose", "head": "fence"}  # and what they are when the line ends: a head opens a fence
SEALED = frozenset({"head", "fence", "comment"})  # where no tag can follow, whatever white space comes first
_FENCE, _TILDES, _COMMENT = (re.compile(mark).search for mark in ("```", "~~~", "<!--"))
_TOKENS: dict[str, Callable[[str, int], re.Match[str] | None]] = {
    # `\n {0,3}(`+|~+|>)|`+|<!--|\\[`\\]` and their beginnings; led by one set, which makes the search a scan
    "prose": re.compile(
        r"[\n`<\\](?:(?<=\n) {0,3}(?:`+|~+|>|\Z)|(?<=`)`*|(?<=<)(?:!--|!?-?\Z)|(?<=\\)[`\\]?)"
    ).search,
    "span": re.compile(r"`+|(?=\n)").search,
    "head": re.compile(r"`+|(?=\n)").search,
    "fence": re.compile(r"\n {0,3}(?:`+|~+|\Z)").search,
    "closing": re.compile(r"(?=[^ \t\r])").search,
    "quote": re.compile(r"(?=\n)").search,
    "comment": re.compile(r"-+>?").search,
}
