"""Output on a terminal: escaped text, colours and a progress bar.

Text of events passes `escape_controls` before it is printed: an escape sequence or a change of writing
direction in a log must not reach the terminal. Data for a file or a pipe is never changed.
"""

import io
import re
import sys
import time
from collections.abc import Callable
from typing import IO, Any, BinaryIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

BAR_DELAY_S = 1.0  # shorter work needs no bar
BAR_REFRESH_S = 0.1

Clock = Callable[[], float]

# C0 and C1 controls; line separators; marks that turn or hide text; lone surrogates; invisible tags.
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escape_controls(text: str) -> str:
    """Return text that cannot control a terminal: controls become readable, as `\\n`, `\\x1b`, `\\u202e`."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_json(line: bytes) -> bytes:
    return CONTROL_CHARACTERS.sub(escape_json_character, line.decode(errors="replace")).encode()


def escape_json_character(match: re.Match[str]) -> str:
    # JSON escapes are UTF-16 units: a character outside the BMP needs two.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def write_json(output: BinaryIO, line: bytes) -> None:
    output.write((escape_json(line) if output.isatty() else line) + b"\n")


def make_console() -> Console:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without Unicode must not raise
    return Console(highlight=False, markup=False, emoji=False)


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class ProgressBar:
    """A progress bar on stderr, shown after a delay, and not if the output is a terminal, too."""

    def __init__(
        self,
        description: str,
        total: int | None,
        output: IO[Any] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        screen = Console(stderr=True)
        self._bar = Progress(
            *columns, console=screen, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._bar.add_task(description, total=total)
        self._is_visible = screen.is_terminal and not (output and output.isatty())
        self._clock = clock
        self._due = clock() + BAR_DELAY_S
        self._done = 0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.live.is_started:  # stopping a bar that was never shown prints an empty line
            self._bar.stop()

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._is_visible and self._clock() >= self._due:
            self._due = self._clock() + BAR_REFRESH_S
            self._bar.start()
            self._bar.update(self._task, completed=self._done)
