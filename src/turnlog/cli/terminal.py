"""What a person sees: text from a log made harmless, colours, and a bar when it takes long.

Text from events passes `escape` before it is shown: an escape sequence or a change of writing direction in
a log must not reach the terminal. Data that goes to a file or a pipe is never changed.
"""

import io
import re
import sys
import time
from collections.abc import Callable
from typing import IO, Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

BAR_DELAY_S = 1.0  # what is done sooner needs no bar
BAR_REFRESH_S = 0.1

Clock = Callable[[], float]

# C0 and C1 controls; line separators; marks that turn or hide text; lone surrogates; invisible tags.
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escape_controls(text: str) -> str:
    """Text that cannot control a terminal: `\\n`, `\\x1b`, `\\u202e` as one can read them."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_json(line: bytes) -> bytes:
    """The same JSON without a character that could control a terminal."""
    return CONTROL_CHARACTERS.sub(escape_json_character, line.decode(errors="replace")).encode()


def escape_json_character(found: re.Match[str]) -> str:
    """A character as JSON can write it, in one `\\u` or two."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def write_json(output: BinaryIO, line: bytes) -> None:
    """A line of JSON as it is; for a terminal, made harmless."""
    output.write((escape_json(line) if output.isatty() else line) + b"\n")


def make_console() -> Console:
    """Where readable text goes: coloured on a terminal unless NO_COLOR, plain elsewhere."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an old terminal must not end the command
    return Console(highlight=False, markup=False, emoji=False)


def format_count(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class ProgressBar:
    """A progress bar on stderr, once it has taken a while; none where it would mix with the data."""

    def __init__(
        self, doing: str, total: int | None, output: IO[Any] | None = None, clock: Clock = time.monotonic
    ) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        screen = Console(stderr=True)
        self._bar = Progress(
            *columns, console=screen, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._bar.add_task(doing, total=total)
        self._is_visible = screen.is_terminal and not (output and output.isatty())
        self._clock = clock
        self._due = clock() + BAR_DELAY_S
        self._done = 0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.live.is_started:  # a bar that was never shown would still leave an empty line
            self._bar.stop()

    def advance(self, amount: int) -> None:
        """So much more is done."""
        self._done += amount
        if self._is_visible and self._clock() >= self._due:
            self._due = self._clock() + BAR_REFRESH_S
            self._bar.start()
            self._bar.update(self._task, completed=self._done)
