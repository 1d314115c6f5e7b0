"""The oracle for what a scanner of model text may hold back, by brute force.

After each feed, a scanner has shown the longest text with which every continuation begins. Continuations are
a finite list: the end, a letter, an element, the rest of a begun element, backticks that close a span. A list
that is too short makes the oracle's text too long, so it can only fail a scanner that is right. That the
scanner takes nothing back is another law: every cutting of a text gives the same.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from turnlog.parse import AgentStreamParser
from turnlog.parse.inline.tag_scanner import WHITESPACE

TAG = '<agent-event type="t" />'
MARKER = '[JOB_HELP] {"suggestions": {}}'
CLOSER = "</agent-event>"
AFTER = ("", "z", "\n\n\nz", "`z")
# Behind a backtick an element waits for the end of its line. What is shown in place of the element may begin
# like the element itself, or with the white space before it; the scanner holds back both.
WAITING = re.compile(r"`[^\n]*(?:<agent-event|\[JOB_HELP\])")

Scanner = Callable[[], AgentStreamParser]


def continuations(text: str, elements: Sequence[str]) -> Iterator[str]:
    """Yield continuations of a text, those first that most texts are told apart by."""
    yield from ("", "z")
    for element in elements:
        for after in AFTER:
            yield element + after
            yield "\n" + element + after
    for ticks in closing_ticks(text):
        yield ticks
        for element in elements:
            yield ticks + "z" + element
            yield ticks + "\n" + element + "z"
    for whole in (*elements, CLOSER):
        for at in range(len(whole)):
            yield from (whole[at:] + after for after in AFTER)
    for end in ("-->", "\n```\n", "\n~~~\n"):
        yield from (end + element + "z" for element in elements)


def closing_ticks(text: str) -> Iterator[str]:
    """Yield runs of backticks that may close a span; a backslash takes one from the run that opened it."""
    at_end = len(text) - len(text.rstrip("`"))
    for run in sorted(set(re.findall("`+", text))):
        for length in {len(run), len(run) - 1}:
            yield from ("`" * length, "z" + "`" * length, "`" * max(length - at_end, 0))


def show_whole(scanner: Scanner, text: str) -> str:
    parser = scanner()
    return parser.feed(text).display_text + parser.flush().display_text


def common_start(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    at = next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
    return one[:at]


def find_misfit(scanner: Scanner, elements: Sequence[str], pieces: Sequence[str]) -> tuple[str, str] | None:
    """Return what a scanner has shown after these pieces and what it could have; None if they are equal."""
    text, parser = "".join(pieces), scanner()
    shown = "".join(parser.feed(piece).display_text for piece in pieces)
    certain = show_whole(scanner, text)
    for rest in continuations(text, elements):
        certain = common_start(certain, show_whole(scanner, text + rest))
        if certain == shown:
            return None
    surplus = certain.removeprefix(shown).lstrip(WHITESPACE) if certain.startswith(shown) else "?"
    if WAITING.search(text) and any(element.startswith(surplus) for element in elements):
        return None
    return shown, certain
