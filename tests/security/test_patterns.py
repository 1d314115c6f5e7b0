"""Row 17: no regular expression takes more than linear time, whatever it is given."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.security.patterns import Use, find_uses, pumped

SIZE = 100_000  # characters: a linear pattern takes a millisecond, a square one more than ten seconds
GUARD_S = 5  # of CPU time: thousands of times what a linear pattern needs
USES = find_uses()


class Hang(Exception):
    """A pattern did not come to an end."""


@contextmanager
def guarded() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, GUARD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def find_hang(use: Use) -> str | None:
    """Return the beginning of a text that a pattern does not get through."""
    for text in pumped(use, SIZE):
        try:
            with guarded():
                use.run(text)
        except Hang:
            return text[:40]
    return None


def test_patterns_of_the_package_are_found() -> None:
    names = {name.removeprefix("turnlog.").partition(".")[0] for name in USES}
    assert {"events", "parse", "wire", "log", "agents", "server", "cli"} <= names


@pytest.mark.parametrize("name", USES)
def test_pattern_with_pumped_text_comes_to_an_end(name: str) -> None:
    assert find_hang(USES[name]) is None


def test_control_square_pattern_is_noticed() -> None:
    assert find_hang(Use(re.compile(r"[a-z]+\s*="), is_scanning=True))
