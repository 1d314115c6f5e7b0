"""What is shown of a text when things are taken out of it: tags, markers.

Between prose and prose what was taken out leaves one white space, of those that stood around it the one with
the most line breaks (of equals the last; a space before a letter if there was none); elsewhere none. White
space at the end of what came is held back, up to 64 characters: something may follow that is taken out.
"""

from turnlog.parse.inline.markdown_code import MULTILINE_MODES, CodeTracker
from turnlog.parse.inline.tag_scanner import WHITESPACE

MAX_HELD_SPACE_CHARS = 64  # a longer run of white space is prose: nobody separates paragraphs with it


def choose_separator(before: str | None, after: str) -> str:
    """Of the white space around what was taken out the one with more line breaks; of equals the later."""
    if not before or (after and after.count("\n") >= before.count("\n")):
        return after
    return before


class DisplayText:
    """Takes text and gives out what is decided; `code` says whether something would be code here."""

    def __init__(self) -> None:
        self.code = CodeTracker()
        self.held_space = ""  # may stand before something that is taken out
        self.has_output = False
        self.removed_gap: str | None = None  # the white space around what was taken out just before
        self._output: list[str] = []

    def write(self, text: str) -> None:
        """Give out text, except white space at its end."""
        self.code.feed(text)
        text = self.held_space + text
        shown = text if self.code.mode in MULTILINE_MODES else text.rstrip(WHITESPACE)
        if len(text) - len(shown) > MAX_HELD_SPACE_CHARS:
            shown = text[:-MAX_HELD_SPACE_CHARS]
        self.held_space = text[len(shown) :]
        if shown:
            self._emit(shown)

    def mark_removed(self) -> None:
        """Something that is not shown stood here."""
        self.removed_gap, self.held_space = choose_separator(self.removed_gap, self.held_space), ""

    def end(self) -> None:
        """No more text: white space after the last thing that was taken out goes with it."""
        if self.removed_gap is None:
            self._emit(self.held_space)

    def drain(self) -> str:
        """What was given out since the last time."""
        text, self._output = "".join(self._output), []
        return text

    def _emit(self, text: str) -> None:
        gap, self.removed_gap = self.removed_gap, None
        if gap is not None:
            body = text.lstrip(WHITESPACE)
            white = text[: len(text) - len(body)]
            if body and len(white) <= MAX_HELD_SPACE_CHARS:
                gap, text = choose_separator(gap, white) or " " * body[0].isalnum(), body
            text = gap + text if self.has_output else text
        self.has_output = True
        self._output.append(text)
