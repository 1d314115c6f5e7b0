"""What is held back of a text: exactly what some continuation would take out, or show otherwise."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.coverage_pause import without_coverage
from tests.support.examples import examples
from tests.support.held_back import CLOSER, MARKER, TAG, Scanner, find_misfit
from turnlog.parse import AgentStreamParser, ParsedText
from turnlog.team.markers import MarkerParser, TagAndMarkerParser


class Case(NamedTuple):
    """A scanner, the elements it takes out, and pieces of texts that lead to all of its states."""

    scanner: Scanner
    elements: Sequence[str]
    pieces: Sequence[str]


CODE = ["x", " ", "\n", "`", "```", "> ", "<!--", "-->", "\\"]
TAGS = ["<", "<agent", "<agent-event", "/>", ">", CLOSER]
MARKERS = ["[", "[JOB_", "[JOB_HELP]", "{", '{"suggestions": {}}']
MORE = ["-", "- ", "1. ", "    ", "\t", "\r", "~~~", '"', "'", "}", "]", ' type="t"', "\ud83d"]
CASES = {
    "tags": Case(AgentStreamParser, [TAG], [*CODE, *TAGS]),
    "markers": Case(MarkerParser, [MARKER], [*CODE, *MARKERS]),
    "tags and markers": Case(TagAndMarkerParser, [TAG, MARKER], [*CODE, *TAGS, *MARKERS]),
}


@pytest.mark.parametrize("name", ["tags", "markers"])
@without_coverage()
def test_scanner_after_every_short_text_holds_back_only_what_is_open(name: str) -> None:
    scanner, elements, pieces = CASES[name]
    for count in (1, 2, 3):
        for text in itertools.product(pieces, repeat=count):
            assert find_misfit(scanner, elements, text) is None, text


@pytest.mark.parametrize("name", CASES)
@without_coverage()
def test_scanner_after_any_text_holds_back_only_what_is_open(name: str) -> None:
    scanner, elements, pieces = CASES[name]

    @given(st.lists(st.sampled_from([*pieces, *MORE]), min_size=1, max_size=10))
    @examples(150)
    def check(text: list[str]) -> None:
        assert find_misfit(scanner, elements, text) is None
        assert find_misfit(scanner, elements, ["".join(text)]) is None

    check()


class Late(AgentStreamParser):
    """Shows each piece with the next one."""

    last = ""

    def feed(self, chunk: str) -> ParsedText:
        now, self.last = self.last, chunk
        return super().feed(now)

    def flush(self) -> ParsedText:
        last = super().feed(self.last)
        end = super().flush()
        return ParsedText(last.display_text + end.display_text, last.events + end.events, [])


class WholeLines(Late):
    """Holds back a whole line of text that has a `<` in it."""

    def feed(self, chunk: str) -> ParsedText:
        self.last += chunk
        if "<" in self.last and "\n" not in self.last:
            return ParsedText("", [], [])
        now, self.last = self.last, ""
        return AgentStreamParser.feed(self, now)


@pytest.mark.parametrize(("scanner", "text"), [(Late, "G"), (WholeLines, "a <b")])
def test_oracle_with_a_scanner_that_is_late_finds_it(scanner: Scanner, text: str) -> None:
    assert find_misfit(scanner, [TAG], [text])
    assert find_misfit(AgentStreamParser, [TAG], [text]) is None
