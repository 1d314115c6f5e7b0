"""The text that remains when tags and markers are removed from it.

A removed element between two texts is replaced by one separator: the adjacent run of white space with more
line breaks (the later one on a tie), or one space if there is none and a letter or digit follows. At the
start and the end of the text nothing is inserted. White space at the end of the input is held back, up to 64
characters: an element may follow.
"""

from turnlog.parse.inline.markdown_code import MULTILINE_MODES, CodeTracker
from turnlog.parse.inline.tag_scanner import WHITESPACE

MAX_HELD_SPACE_CHARS = 64  # a longer run of white space is no separator, but content


def choose_separator(before: str | None, after: str) -> str:
    if not before or (after and after.count("\n") >= before.count("\n")):
        return after
    return before


class DisplayText:
    """Collects the text to show. `code` tracks whether an element here would be code."""

    def __init__(self) -> None:
        self.code = CodeTracker()
        self.held_space = ""  # white space at the end of the input
        self.has_output = False
        self.removed_gap: str | None = None  # the separator for an element that was removed just before
        self._output: list[str] = []

    def write(self, text: str) -> None:
        self.code.feed(text)
        text = self.held_space + text
        # In a fence or a comment no element can follow.
        body = text if self.code.mode in MULTILINE_MODES else text.rstrip(WHITESPACE)
        if len(text) - len(body) > MAX_HELD_SPACE_CHARS:
            body = text[:-MAX_HELD_SPACE_CHARS]
        self.held_space = text[len(body) :]
        if body:
            self._emit(body)

    def mark_removed(self) -> None:
        self.removed_gap = choose_separator(self.removed_gap, self.held_space)
        self.held_space = ""

    def end(self) -> None:
        if self.removed_gap is None:
            self._emit(self.held_space)

    def drain(self) -> str:
        text = "".join(self._output)
        self._output = []
        return text

    def _emit(self, text: str) -> None:
        gap = self.removed_gap
        self.removed_gap = None
        if gap is not None:
            body = text.lstrip(WHITESPACE)
            space = text[: len(text) - len(body)]
            if body and len(space) <= MAX_HELD_SPACE_CHARS:
                gap = choose_separator(gap, space)
                if not gap and body[0].isalnum():
                    gap = " "
                text = body
            if self.has_output:
                text = gap + text
        self.has_output = True
        self._output.append(text)
