"""What is shown of a text when things are taken out of it: tags, markers.

Between prose and prose what was taken out leaves one white space, of those that stood around it the one with
the most line breaks (of equals the last; a space before a letter if there was none); elsewhere none. White
space at the end of what came is held back, up to 64 characters: something may follow that is taken out.
"""

from turnlog.parse.inline.markdown_code import SEALED, Code
from turnlog.parse.inline.tag_scanner import WHITE

WHITE_CHARS = 64  # a longer run of white space is prose: nobody separates paragraphs with it


def separator(before: str | None, after: str) -> str:
    """Of the white space around what was taken out the one with more line breaks; of equals the later."""
    if not before or (after and after.count("\n") >= before.count("\n")):
        return after
    return before


class Prose:
    """Takes text and gives out what is decided; `code` says whether something would be code here."""

    def __init__(self) -> None:
        self.code = Code()
        self.white = ""  # may stand before something that is taken out
        self.shown = False
        self.gap: str | None = None  # the white space around what was taken out just before
        self._said: list[str] = []

    def show(self, text: str) -> None:
        """Give out text, except white space at its end."""
        self.code.feed(text)
        text = self.white + text
        shown = text if self.code.mode in SEALED else text.rstrip(WHITE)
        if len(text) - len(shown) > WHITE_CHARS:
            shown = text[:-WHITE_CHARS]
        self.white = text[len(shown) :]
        if shown:
            self._emit(shown)

    def take_out(self) -> None:
        """Something that is not shown stood here."""
        self.gap, self.white = separator(self.gap, self.white), ""

    def end(self) -> None:
        """No more text: white space after the last thing that was taken out goes with it."""
        if self.gap is None:
            self._emit(self.white)

    def said(self) -> str:
        """What was given out since the last time."""
        text, self._said = "".join(self._said), []
        return text

    def _emit(self, text: str) -> None:
        gap, self.gap = self.gap, None
        if gap is not None:
            body = text.lstrip(WHITE)
            white = text[: len(text) - len(body)]
            if body and len(white) <= WHITE_CHARS:
                gap, text = separator(gap, white) or " " * body[0].isalnum(), body
            text = gap + text if self.shown else text
        self.shown = True
        self._said.append(text)
