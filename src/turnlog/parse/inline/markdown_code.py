"""Where a tag would be code: fenced code, code spans, quoted lines and HTML comments of model text.

Follows CommonMark line by line, as far as it matters here: only a fence or a comment outlives its line. A run
of backticks opens a code span only if a run of the same length follows on its line; whether one does,
`LineAhead` finds out. What follows the marker of a list item begins a line too, and once there was a list a
fence may have any indent, for nobody counts how deep the items go. Any cutting of the text gives the same
answer.
"""

import re
from collections.abc import Callable

MAX_RUN_CHARS = 64  # a longer run of backticks counts as this long, so that an unfinished one can be kept
MAX_LEAD_CHARS = (
    72  # what stands before a mark at the start of a line, at most: 32 of indent, two list markers
)


class CodeTracker:
    """Whether a tag would be code: CommonMark, line by line; only a fence or a comment outlives its line."""

    def __init__(self) -> None:
        self.mode = "prose"
        self.pending = "\n"  # a shown token that may still grow; a message begins at the start of a line
        self.open_runs: list[
            int
        ] = []  # lengths of the runs on this line that may still open a span, in order
        self.closed_count = 0  # how many fences and comments have ended, or were none
        self._fence_mark, self._fence_size = "", 0  # the run that opened the fence
        self._has_list = False
        self._max_end_indent = 0  # the most that the end of the fence may have

    def next_is_code(self) -> bool:
        """Whether a `<` that comes next stands in code."""
        if self.pending.strip(" \t\n"):
            self.feed("<")  # ends the run that was waiting
            self.pending = ""
        return self.mode != "prose"

    def cancel_span(self) -> None:
        """The runs of backticks on this line open no span: nothing closes it."""
        self.mode, self.open_runs = "prose", []

    def feed(self, text: str) -> None:
        """Take the text that comes next, tags left out."""
        text, self.pending = self.pending + text, ""
        at = max(text.rfind("\n"), 0)
        if at and (self.mode != "prose" or "```" in text or "<!--" in text or may_open_block(text)):
            at = 0  # not only the last line matters
        while (match := _TOKENS[self.mode](text, at)) is not None:
            at = match.end()
            if at == len(text):
                self.pending = match[0][: 1 + MAX_LEAD_CHARS + MAX_RUN_CHARS]
                break
            if match[0][:1] == "\n":
                self._start_line(match[0])
            else:
                self._apply_token(match, match[0])

    def _start_line(self, start: str) -> None:
        """A line begins with a mark, with the marker of a list item, or with both."""
        token = start.lstrip(_LEAD)
        mark, size = token[:1], min(len(token), MAX_RUN_CHARS)
        lead = start[1 : len(start) - len(token)].expandtabs(4)
        if self.mode == "prose":
            self._has_list = self._has_list or bool(lead.strip())
            self._fence_mark, self._fence_size = mark, size
            self.open_runs = [size] if mark == "`" else []
            self._max_end_indent = len(lead) + 3 if self._has_list else 3
            deep = len(lead) > self._max_end_indent
            self.mode = (_MARKS if deep else _LONG_MARKS if size >= 3 else _LINE_MARKS).get(mark, "prose")
        elif mark == self._fence_mark and size >= self._fence_size and len(lead) <= self._max_end_indent:
            self.mode = "closing"

    def _apply_token(self, match: re.Match[str], token: str) -> None:
        mode, mark, size = self.mode, token[:1], min(len(token), MAX_RUN_CHARS)
        if mode == "prose":
            self._fence_mark, self._fence_size = mark, size
            self.open_runs = [size] if mark == "`" else []
            self.mode = _MARKS.get(mark, mode)
        elif mode in _SPANS:
            self._match_backticks(size) if token else self._end_line()
        elif mode == "closing":
            self.mode = "prose" if match.string[match.end()] == "\n" else "fence"
            self.closed_count += self.mode == "prose"
        elif mode == "quote" or token.endswith("-->"):
            self.mode = "prose"
            self.closed_count += mode == "comment"

    def _match_backticks(self, size: int) -> None:
        """A run closes the first run of its length, and what was open in between; else it may open a span."""
        self.closed_count += self.mode == "head"  # the head of a fence has no backtick in it
        if size in self.open_runs:
            del self.open_runs[self.open_runs.index(size) :]
        else:
            self.open_runs.append(size)
        self.mode = "span" if self.open_runs else "prose"

    def _end_line(self) -> None:
        self.mode, self.open_runs = _SPANS[self.mode], []


class LineLookahead:
    """Whether a place in a line is in code, from the text that follows it, piece by piece.

    The place is behind runs of backticks that may open a span, or in what may be the head of a fence. It is
    in a span if a run of one of these lengths follows on the line, else it is not; it is in the head of a
    fence if no backtick follows. `end` is where the code ends that it is in.
    """

    def __init__(self, code: CodeTracker) -> None:
        self.code_end = 0
        self._lengths = frozenset(code.open_runs)
        self._may_be_fence_head = code.mode == "head"
        self._run_length = 0  # length of a run at the end of a piece: it may go on

    def feed(self, text: str, at: int, end: int) -> bool | None:
        """Take the text from `at` to `end`; return whether it is code, None if that is not decided."""
        if self._run_length:
            start, at = at, _BACKTICKS(text, at, end).end()
            self._run_length += at - start
            if at == end:
                return self._decide_open_run(end)
            if self._closes_span(self._run_length, at):
                return True
            self._run_length = 0
        for match in _LINE_TOKENS(text, at, end):
            if match[0] == "\n":
                self.code_end = match.start()
                return self._may_be_fence_head
            if match.end() == end:
                self._run_length = len(match[0])
                return self._decide_open_run(end)
            if self._closes_span(len(match[0]), match.end()):
                return True
        return None

    def flush(self, size: int) -> bool:
        """Return whether it is code if the text ends here, after this many characters."""
        self.code_end = size
        return (self._may_be_fence_head and not self._run_length) or min(
            self._run_length, MAX_RUN_CHARS
        ) in self._lengths

    def _decide_open_run(self, end: int) -> bool | None:
        """A run at the end of a piece may go on; one of 64 is as long as any."""
        self.code_end = end
        return True if self._run_length >= MAX_RUN_CHARS and MAX_RUN_CHARS in self._lengths else None

    def _closes_span(self, run: int, end: int) -> bool:
        self._may_be_fence_head, self.code_end = False, end
        return min(run, MAX_RUN_CHARS) in self._lengths


_LEAD = " \t\n-*+.)0123456789"
_MARKS = {"`": "span", "<": "comment"}
_LINE_MARKS = _MARKS | {">": "quote"}  # at the start of a line, but not after four spaces without a list
_LONG_MARKS = {"`": "head", "~": "fence"}  # three or more there
_SPANS = {"span": "prose", "head": "fence"}  # and what they are when the line ends: a head opens a fence
_BACKTICKS: Callable[..., re.Match[str]] = re.compile("`*").match  # type: ignore[assignment]
_LINE_TOKENS = re.compile("`+|\n").finditer
MULTILINE_MODES = frozenset(
    {"head", "fence", "comment"}
)  # where no tag can follow, whatever white space comes first
may_open_block = re.compile(r"\n[ \t]*+[-*+0-9>~]").search  # a line that may be an item, a quote or a fence
_RUN, _HALF = r"`+|~+|>", r"(?:[-*+]|[0-9]{1,9}[.)]?)"  # a mark, and what may become the marker of an item
_ITEMS = rf"(?:(?:[-*+]|[0-9]{{1,9}}[.)])[ \t]{{1,8}}){{1,2}}(?:{_RUN}|{_HALF}\Z)?"
_START = rf"[ \t]{{0,32}}(?:{_RUN}|{_HALF}?\Z|{_ITEMS})"
_TOKENS: dict[str, Callable[[str, int], re.Match[str] | None]] = {
    # the start of a line, a run of backticks, `<!--`, an escape, and their beginnings; led by one set, which
    # makes the search a scan
    "prose": re.compile(rf"[\n`<\\](?:(?<=\n){_START}|(?<=`)`*|(?<=<)(?:!--|!?-?\Z)|(?<=\\)[`\\]?)").search,
    "span": re.compile(r"`+|(?=\n)").search,
    "head": re.compile(r"`+|(?=\n)").search,
    "fence": re.compile(rf"\n[ \t]{{0,{MAX_LEAD_CHARS}}}(?:`+|~+|\Z)").search,
    "closing": re.compile(r"(?=[^ \t\r])").search,
    "quote": re.compile(r"(?=\n)").search,
    "comment": re.compile(r"-+>?").search,
}
