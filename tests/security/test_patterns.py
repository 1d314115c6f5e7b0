"""Row 17: no regular expression takes more than linear time, whatever it is given. Steps are counted."""

import itertools
import re

import pytest

from tests.security.patterns import Use, find_uses
from tests.security.pumping import find_slow_text, pumps
from tests.security.regex_steps import CountingMatcher, TooManySteps

USES = find_uses()
DISTINCT = {use: name for name, use in reversed(USES.items())}
SQUARES = {
    "a repeat before what is missing": r"[a-z]+\s*=",
    "white space before what is missing": r"\s*\S+\s*",
    "a secret, as it was": r"(?i)(?<![a-z])(key|token|bearer)[-_ :=]+(?=[\w.-]*\d)[\w.-]{6,}",
    "a string, as it was": r'"[^"\\]*+(?:\\.[^"\\]*+)*+"',
    "a place in a message, as it was": r"(?s)(.*) - at `(.*?)`$",
    "an attribute, as it was": r"""(?i)([a-z]+)\s*=\s*(?:"([^"]*+)"|'([^']*+)')""",
    "only behind a word": r"\bname=\w*\d*!",
    "only where no letter is before": r"(?<![a-z])\d+x",
    "only for two characters in turn": r"(?:\d-)+=",
}
EXPONENTIAL = {
    "a repeat of a repeat": r"(?:a+)+b",
    "two alternatives for one character": r"(?:\w|\dx?)*!",
    "alternatives of two lengths": r"(?:a|b|ab)*c",
    "only behind a word": r"id: (?:[a-z]+-?)*;",
}


@pytest.mark.parametrize("use", DISTINCT, ids=DISTINCT.values())
def test_pattern_with_pumped_text_takes_linear_steps(use: Use) -> None:
    assert find_slow_text(use) is None


def test_patterns_of_the_package_are_found() -> None:
    names = {name.removeprefix("turnlog.").partition(".")[0] for name in USES}
    assert {"events", "parse", "wire", "log", "agents", "server", "cli"} <= names


@pytest.mark.parametrize("name", SQUARES)
def test_control_square_pattern_is_noticed(name: str) -> None:
    assert find_slow_text(Use(re.compile(SQUARES[name]), is_scanning=True))


@pytest.mark.parametrize("name", EXPONENTIAL)
def test_control_exponential_pattern_is_noticed(name: str) -> None:
    assert find_slow_text(Use(re.compile(EXPONENTIAL[name]), is_scanning=False))


def test_counting_matcher_finds_what_re_finds() -> None:
    patterns = [re.compile(source) for source in [*SQUARES.values(), *EXPONENTIAL.values()]]
    uses = {Use(pattern, is_scanning=True) for pattern in patterns} | {*DISTINCT}
    compared = 0
    for pattern, is_scanning in uses:
        matcher = CountingMatcher(pattern, clip=False)
        for start, unit, end in itertools.islice(pumps(matcher, is_scanning=is_scanning), 0, None, 29):
            text = start + unit * 3 + start + end
            data = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
            first = pattern.match(data)
            expected = (
                [one.span() for one in pattern.finditer(data)] if is_scanning else first and [first.span()]
            )
            matcher.steps = 0
            assert matcher.spans(text, is_scanning=is_scanning) == (expected or []), (pattern, text)
            compared += 1
    assert compared > 500


def test_counting_matcher_that_takes_too_many_steps_stops() -> None:
    with pytest.raises(TooManySteps):
        CountingMatcher(re.compile("(?:a+)+b")).spans("a" * 40, is_scanning=False)
