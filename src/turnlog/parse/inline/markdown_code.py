"""Where a tag in model text would be code: in fences, code spans, quoted lines and HTML comments.

The tracker follows CommonMark line by line: only a fence or a comment continues on the next line. A run of
backticks opens a code span only if a run of the same length follows on its line (`LineLookahead`). The text
after the marker of a list item begins a line too. After a list a fence may have any indent, because the depth
of the items is not counted. Invariant: however the text is cut, the answer is the same.
"""

import re
from collections.abc import Callable

MAX_RUN_CHARS = 64  # a longer run of backticks counts as this long, to bound the pending token
MAX_LEAD_CHARS = 72  # before a mark at the start of a line: 32 of indent and two list markers


class CodeTracker:
    """Tracks whether the end of the text so far is in code. `mode` is a key of `_TOKENS`."""

    def __init__(self) -> None:
        self.mode = "prose"
        self.pending = "\n"  # a token that may grow with the next text; a message begins at a line start
        self.open_runs: list[int] = []  # lengths of the runs on this line that may open a span, in order
        self.closed_count = 0  # fences and comments that have ended, or turned out to be none
        self._fence_mark = ""  # the character and the length of the run that opened the fence
        self._fence_size = 0
        self._has_list = False
        self._max_end_indent = 0  # of the line that ends the fence

    def next_is_code(self) -> bool:
        """Return True if an element that begins here is in code.

        Ends a pending run of backticks: call it only if a `<` or `[` follows.
        """
        if self.pending.strip(" \t\n"):
            self.feed("<")
            self.pending = ""
        return self.mode != "prose"

    def cancel_span(self) -> None:
        self.mode = "prose"
        self.open_runs = []

    def feed(self, text: str) -> None:
        text = self.pending + text
        self.pending = ""
        # Only the last line matters if no line before it can open a fence or a comment.
        at = max(text.rfind("\n"), 0)
        if at and (self.mode != "prose" or "```" in text or "<!--" in text or may_open_block(text)):
            at = 0
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
        token = start.lstrip(_LEAD)
        mark = token[:1]
        size = min(len(token), MAX_RUN_CHARS)
        lead = start[1 : len(start) - len(token)].expandtabs(4)
        if self.mode != "prose":
            can_close = mark == self._fence_mark and size >= self._fence_size
            if can_close and len(lead) <= self._max_end_indent:
                self.mode = "closing"
            return

        self._has_list = self._has_list or bool(lead.strip())
        self._max_end_indent = len(lead) + 3 if self._has_list else 3
        if len(lead) > self._max_end_indent:
            modes = _MARKS
        elif size >= 3:
            modes = _LONG_MARKS
        else:
            modes = _LINE_MARKS
        self.mode = modes.get(mark, "prose")
        self.open_runs = [size] if mark == "`" else []
        self._fence_mark = mark
        self._fence_size = size

    def _apply_token(self, match: re.Match[str], token: str) -> None:
        mode = self.mode
        size = min(len(token), MAX_RUN_CHARS)
        if mode == "prose":
            mark = token[:1]
            self.mode = _MARKS.get(mark, "prose")
            self.open_runs = [size] if mark == "`" else []
            self._fence_mark = mark
            self._fence_size = size
        elif mode in _SPANS and token:
            self._match_backticks(size)
        elif mode in _SPANS:  # the end of the line
            self.mode = _SPANS[mode]
            self.open_runs = []
        elif mode == "closing":
            if match.string[match.end()] == "\n":
                self.mode = "prose"
                self.closed_count += 1
            else:
                self.mode = "fence"
        elif mode == "quote":
            self.mode = "prose"
        elif token.endswith("-->"):
            self.mode = "prose"
            self.closed_count += mode == "comment"

    def _match_backticks(self, size: int) -> None:
        """Close the first open run of this length and all after it. Without one, the run may open a span."""
        # A line with another backtick is not the head of a fence.
        if self.mode == "head":
            self.closed_count += 1
        if size in self.open_runs:
            del self.open_runs[self.open_runs.index(size) :]
        else:
            self.open_runs.append(size)
        self.mode = "span" if self.open_runs else "prose"


class LineLookahead:
    """Decides whether an index in a line is in code, from the text after it, piece by piece.

    The index is after runs of backticks that may open a span, or in what may be the head of a fence. It is in
    a span if a run of one of these lengths follows on the line. It is in the head of a fence if no backtick
    follows. `code_end` is where the code ends.
    """

    def __init__(self, code: CodeTracker) -> None:
        self.code_end = 0
        self._lengths = frozenset(code.open_runs)
        self._may_be_fence_head = code.mode == "head"
        self._run_length = 0  # length of a run at the end of a piece; the next piece may continue it

    def feed(self, text: str, at: int, end: int) -> bool | None:
        """Scan the text from `at` to `end`. Return whether the index is in code, or None if that is open."""
        if self._run_length:
            start = at
            at = _BACKTICKS(text, at, end).end()
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
        self.code_end = size
        if self._may_be_fence_head and not self._run_length:
            return True
        return min(self._run_length, MAX_RUN_CHARS) in self._lengths

    def _decide_open_run(self, end: int) -> bool | None:
        """Decide on a run at the end of a piece. It may grow, but beyond 64 its length does not matter."""
        self.code_end = end
        if self._run_length >= MAX_RUN_CHARS and MAX_RUN_CHARS in self._lengths:
            return True
        return None

    def _closes_span(self, run: int, end: int) -> bool:
        self._may_be_fence_head = False
        self.code_end = end
        return min(run, MAX_RUN_CHARS) in self._lengths


_LEAD = " \t\n-*+.)0123456789"
_MARKS = {"`": "span", "<": "comment"}
_LINE_MARKS = _MARKS | {">": "quote"}  # at the start of a line, but not after four spaces without a list
_LONG_MARKS = {"`": "head", "~": "fence"}  # a run of three or more at the start of a line
_SPANS = {"span": "prose", "head": "fence"}  # the mode after the end of the line: a head opens a fence
_BACKTICKS: Callable[..., re.Match[str]] = re.compile("`*").match  # type: ignore[assignment]
_LINE_TOKENS = re.compile("`+|\n").finditer
MULTILINE_MODES = frozenset({"head", "fence", "comment"})  # no element can follow, even after white space
may_open_block = re.compile(r"\n[ \t]*+[-*+0-9>~]").search  # a line that may be an item, a quote or a fence
_RUN = r"`+|~+|>"  # a mark
_HALF = r"(?:[-*+]|[0-9]{1,9}[.)]?)"  # the beginning of a list item's marker
_ITEMS = rf"(?:(?:[-*+]|[0-9]{{1,9}}[.)])[ \t]{{1,8}}){{1,2}}(?:{_RUN}|{_HALF}\Z)?"
_START = rf"[ \t]{{0,32}}(?:{_RUN}|{_HALF}?\Z|{_ITEMS})"
_TOKENS: dict[str, Callable[[str, int], re.Match[str] | None]] = {
    # The start of a line, a run of backticks, `<!--`, an escape, and their beginnings. One character set in
    # front makes the search a scan.
    "prose": re.compile(rf"[\n`<\\](?:(?<=\n){_START}|(?<=`)`*|(?<=<)(?:!--|!?-?\Z)|(?<=\\)[`\\]?)").search,
    "span": re.compile(r"`+|(?=\n)").search,
    "head": re.compile(r"`+|(?=\n)").search,
    "fence": re.compile(rf"\n[ \t]{{0,{MAX_LEAD_CHARS}}}(?:`+|~+|\Z)").search,
    "closing": re.compile(r"(?=[^ \t\r])").search,
    "quote": re.compile(r"(?=\n)").search,
    "comment": re.compile(r"-+>?").search,
}
