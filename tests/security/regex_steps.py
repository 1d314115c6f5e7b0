"""A backtracking matcher for parsed regular expressions that counts its steps.

In: a compiled pattern. Out: the spans that the pattern finds in a text, and how many
characters the matcher compared on the way. The matcher tries alternatives in the order of `re`, without the
shortcuts of `re`, so its count is an upper bound of the work. `clip` lowers the bounds of counted repeats:
`{0,256}` is a constant factor, and with the bound 3 a short text shows the growth of a long one.
"""

import itertools
import re
import re._compiler as sre_compiler  # type: ignore[import-not-found]
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from typing import Any

MAX_STEPS = 50_000  # a linear pattern needs a few thousand for the texts here
MAX_CLIPPED = 512  # a repeat with a higher bound counts as unbounded
CLIP = 3
UNBOUNDED = sre.MAXREPEAT
SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
PLACES = (sre.AT, sre.ASSERT, sre.ASSERT_NOT)
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)

Token = tuple[Any, Any]


class TooManySteps(Exception):
    """The matcher compared more than `MAX_STEPS` characters."""


def parse(pattern: re.Pattern[Any]) -> tuple[list[Token], int]:
    """Return the tokens of a pattern, and the flags for the characters. Bytes are read as Latin-1."""
    source = pattern.pattern
    flags = pattern.flags & ~re.UNICODE
    if isinstance(source, bytes):
        source, flags = source.decode("latin-1"), flags | re.ASCII
    return list(sre_parser.parse(source, flags)), flags


class CountingMatcher:
    """Matches one pattern; `steps` is the number of comparisons since the matcher was made."""

    def __init__(self, pattern: re.Pattern[Any], *, clip: bool = True) -> None:
        self.tokens, self._flags = parse(pattern)
        self._clip = clip
        # by the id of a token, since tokens hold lists; the token is stored so that its id stays its own
        self._compiled: dict[int, tuple[Token, re.Pattern[str]]] = {}
        self._accepted: dict[tuple[int, str], bool] = {}
        self.steps = 0

    def spans(self, text: str, *, is_scanning: bool) -> list[tuple[int, int]]:
        """Return what `finditer` finds, or what `match` finds at the start."""
        found: list[tuple[int, int]] = []
        at = 0
        while at <= len(text):
            ends = self._sequence(self.tokens, 0, text, at)
            end = next(ends, None)
            if end is not None:
                found.append((at, end))
            if not is_scanning:
                break
            if end == at:  # `re` looks there again for a match that is not empty
                end = next((longer for longer in ends if longer > at), None)
                if end is not None:
                    found.append((at, end))
            at = at + 1 if end is None else end
        return found

    def accepts(self, token: Token, character: str) -> bool:
        """Say whether a token for one character takes this character."""
        try:
            return self._accepted[id(token), character]
        except KeyError:
            answer = self._compile(token).fullmatch(character) is not None
            self._accepted[id(token), character] = answer
            return answer

    def _compile(self, token: Token) -> re.Pattern[str]:
        """Let `re` itself judge a character or a place."""
        if id(token) not in self._compiled:
            state = sre_parser.State()
            state.flags, state.str = self._flags, ""
            single = sre_parser.SubPattern(state, [token])
            self._compiled[id(token)] = token, sre_compiler.compile(single, self._flags)
        return self._compiled[id(token)][1]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooManySteps

    def _sequence(self, tokens: Any, number: int, text: str, at: int) -> Iterator[int]:
        """Yield the ends of all ways to match `tokens[number:]` at `at`."""
        tokens = getattr(tokens, "data", tokens)
        while number < len(tokens):
            token = tokens[number]
            if token[0] in SINGLE:
                self.steps += 1
                if at == len(text) or not self.accepts(token, text[at]):
                    return
                at += 1
            elif token[0] in PLACES:
                if not self._is_at(token, text, at):
                    return
            else:
                for end in self._choices(token, text, at):
                    yield from self._sequence(tokens, number + 1, text, end)
                return
            number += 1
        yield at

    def _is_at(self, token: Token, text: str, at: int) -> bool:
        self._count()
        operator, value = token
        if operator is sre.AT:
            return self._compile(token).match(text, at) is not None
        direction, tokens = value
        start = at if direction > 0 else at - tokens.getwidth()[0]
        is_there = start >= 0 and next(self._sequence(tokens, 0, text, start), None) is not None
        return is_there is (operator is sre.ASSERT)

    def _choices(self, token: Token, text: str, at: int) -> Iterator[int]:
        operator, value = token
        if operator in REPEATS:
            yield from self._repeat(operator, value, text, at)
        elif operator is sre.SUBPATTERN:
            yield from self._sequence(value[-1], 0, text, at)
        elif operator is sre.BRANCH:
            for branch in value[1]:
                yield from self._sequence(branch, 0, text, at)
        else:
            assert operator is sre.ATOMIC_GROUP, f"no rule for {operator}"
            yield from itertools.islice(self._sequence(value, 0, text, at), 1)

    def _bounds(self, low: int, high: int) -> tuple[int, int]:
        if not self._clip:
            return low, high
        return min(low, CLIP), UNBOUNDED if high > MAX_CLIPPED else min(high, CLIP)

    def _repeat(self, operator: Any, value: Any, text: str, at: int) -> Iterator[int]:
        low, high = self._bounds(*value[:2])
        body = value[2]
        if len(body) == 1 and body[0][0] in SINGLE:
            ends = self._run(body[0], low, high, text, at)
        else:
            ends = self._rounds(operator is not sre.MIN_REPEAT, (body, low, high), text, at, 0)
        if operator is sre.POSSESSIVE_REPEAT:
            yield from itertools.islice(ends, 1)
        elif operator is sre.MIN_REPEAT and len(body) == 1 and body[0][0] in SINGLE:
            yield from reversed(list(ends))
        else:
            yield from ends

    def _run(self, single: Token, low: int, high: int, text: str, at: int) -> Iterator[int]:
        """Yield the ends of a repeated single character, the longest first."""
        end = at
        while end < len(text) and end - at < high:
            self._count()
            if not self.accepts(single, text[end]):
                break
            end += 1
        for place in range(end, at + low - 1, -1):
            self._count()
            yield place

    def _rounds(self, greedy: bool, repeat: Any, text: str, at: int, number: int) -> Iterator[int]:
        body, low, high = repeat
        self._count()
        if not greedy and number >= low:
            yield at
        if number < high:
            for end in self._sequence(body, 0, text, at):
                if end > at or number < low:  # a round that takes nothing is not repeated
                    yield from self._rounds(greedy, repeat, text, end, number + 1)
        if greedy and number >= low:
            yield at
