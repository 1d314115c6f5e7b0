"""The work of a scanner of model text, in characters; and a scanner that is not linear, as a control."""

import sys
from types import FrameType

from turnlog.parse import AgentStreamParser, ParsedText

FILES = ("/parse/inline/tags.py", "/parse/inline/marker_scanner.py", "/parse/inline/json_scanner.py")


def count_characters(parser: AgentStreamParser, text: str, chunk: int) -> int:
    """Return how many characters the functions of a parser hand to each other, or walk over."""
    count = 0
    starts: list[int | None] = []

    def watch(frame: FrameType, event: str, result: object) -> None:
        nonlocal count
        if event not in ("call", "return") or not frame.f_code.co_filename.endswith(FILES):
            return
        values = frame.f_locals
        if event == "call":
            starts.append(values.get("at"))
            count += len(values["text"]) if "text" in values and "at" not in values else 1
        elif (start := starts.pop()) is not None and isinstance(result, int):
            count += max(result - start, 0)

    chunks = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    sys.setprofile(watch)
    try:
        for piece in chunks:
            parser.feed(piece)
        parser.flush()
    finally:
        sys.setprofile(None)
    return count


def rescanning(scanner: type[AgentStreamParser]) -> AgentStreamParser:
    """Return a scanner that reads everything again with each chunk."""

    class Rescanning(scanner):  # type: ignore[valid-type, misc]
        text = ""

        def feed(self, chunk: str) -> ParsedText:
            self.text += chunk
            return scanner().feed(self.text)

    return Rescanning()
