"""Texts that make a bad regular expression slow, and the verdict on what it did with them.

A text is a start, a unit repeated, and an end. Starts lead to each repeat of the pattern. Units are made of
one character for every class of characters that the pattern tells apart, their pairs, and its literal words.
For such texts the steps of a linear pattern are, but for a constant, a straight line over the rounds.
"""

import itertools
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.security.patterns import Use
from tests.security.regex_steps import MAX_CLIPPED, REPEATS, SINGLE, CountingMatcher, Token, TooManySteps

ROUNDS = (4, 8, 12)  # how often a unit is repeated
SLACK = 8  # steps by which a straight line may bend: a square bends by 16 at least
ENDS = ("\x01", "\n", "")  # a control character, white space, nothing


def find_slow_text(use: Use) -> str | None:
    """Return a text for which a pattern takes more than linear time; None if every text is linear."""
    matcher = CountingMatcher(use.pattern)
    if not may_be_slow(matcher.tokens, is_scanning=use.is_scanning):
        return None
    for start, unit, end in pumps(matcher, is_scanning=use.is_scanning):
        if is_slow(matcher, use, start, unit, end):
            return f"{start!r} + {unit!r} * n + {end!r}"
    return None


def is_slow(matcher: CountingMatcher, use: Use, start: str, unit: str, end: str) -> bool:
    counts = []
    for rounds in ROUNDS:
        matcher.steps = 0
        try:
            matcher.spans(start + unit * rounds + end, is_scanning=use.is_scanning)
        except TooManySteps:
            return True
        counts.append(matcher.steps)
    few, more, most = counts
    return (most - more) - (more - few) > SLACK


def walk(tokens: Any) -> Iterator[Token]:
    """Yield every token of a pattern, also those inside other tokens."""
    for token in tokens:
        yield token
        for inner in inner_sequences(token):
            yield from walk(inner)


def inner_sequences(token: Token) -> list[Any]:
    operator, value = token
    if operator is sre.BRANCH:
        return list(value[1])
    if operator is sre.ATOMIC_GROUP:
        return [value]
    parts = value if isinstance(value, tuple) else ()
    return [part for part in parts if isinstance(part, sre_parser.SubPattern)]


def is_unbounded(token: Token) -> bool:
    return token[0] in REPEATS and token[1][1] > MAX_CLIPPED


def may_be_slow(tokens: Any, *, is_scanning: bool) -> bool:
    """Say whether a pattern may take more than linear time at all.

    From one place, a pattern whose only repeat without a bound repeats one character takes linear time.
    From every place, only a pattern without such a repeat is sure to.
    """
    bodies = [token[1][2] for token in walk(tokens) if is_unbounded(token)]
    is_one_run = len(bodies) == 1 and [token[0] in SINGLE for token in bodies[0]] == [True]
    return bool(bodies) and (is_scanning or not is_one_run)


def pumps(matcher: CountingMatcher, *, is_scanning: bool) -> Iterator[tuple[str, str, str]]:
    """Yield start, unit and end of each text, without repetition."""
    words = dict.fromkeys(literal_words(matcher.tokens))
    characters = representatives(matcher)
    beside = [two for word in words for one in characters for two in (word + one, one + word)]
    found = [("", unit) for unit in [*characters, *pairs(characters), *words, *beside]]
    for start, repeat in repeats_with_start(matcher, characters, matcher.tokens, ""):
        # what a repeat does not take ends it: only what it takes can be taken in two ways
        inside = [one for one in characters if any(map(partial(accepts, matcher, one), walk(repeat)))]
        found += [(start, unit) for unit in [*inside, *pairs(inside)]]
        if is_scanning:  # the search begins again in what the repeat has taken
            found += [("", start + one) for one in characters]
    for (start, unit), end in itertools.product(dict.fromkeys(found), ENDS):
        yield start, unit, end


def pairs(characters: list[str]) -> list[str]:
    return ["".join(pair) for pair in itertools.permutations(characters, 2)]


def accepts(matcher: CountingMatcher, character: str, token: Token) -> bool:
    return token[0] in SINGLE and matcher.accepts(token, character)


def literal_words(tokens: Any) -> Iterator[str]:
    """Yield runs of at least two literal characters."""
    for is_literal, run in itertools.groupby(tokens, key=lambda token: token[0] is sre.LITERAL):
        group = list(run)
        if is_literal and len(group) > 1:
            yield "".join(chr(value) for _, value in group)
        for token in () if is_literal else group:
            for inner in inner_sequences(token):
                yield from literal_words(inner)


def single_tokens(tokens: Any) -> Iterator[Token]:
    """Yield the tokens for one character; of a literal word only the first."""
    before = None
    for token in tokens:
        if token[0] in SINGLE and not (token[0] is sre.LITERAL is before):
            yield token
        before = token[0]
        for inner in inner_sequences(token):
            yield from single_tokens(inner)


def representatives(matcher: CountingMatcher) -> list[str]:
    """Return one character for each class of characters that the tokens of a pattern tell apart."""
    tokens = list(single_tokens(matcher.tokens))
    tokens += [(sre.LITERAL, ord("\n")), (sre.IN, [(sre.CATEGORY, sre.CATEGORY_WORD)])]  # for ^, $ and \b
    named = {chr(value) for operator, value in walk(matcher.tokens) if operator is sre.LITERAL}
    known = [*"ax0 \n", *sorted(named), *map(chr, range(256)), "\u0130", "\u2003", "\ud800", "\U0001f600"]
    classes: dict[tuple[bool, ...], str] = {}
    for character in known:
        classes.setdefault(tuple(matcher.accepts(token, character) for token in tokens), character)
    return list(classes.values())


def repeats_with_start(
    matcher: CountingMatcher, characters: list[str], tokens: Any, start: str
) -> Iterator[tuple[str, Any]]:
    """Yield what each repeat without a bound repeats, and a text that leads to it."""
    for token in tokens:
        if is_unbounded(token):
            yield start, token[1][2]
        for inner in inner_sequences(token):
            yield from repeats_with_start(matcher, characters, inner, start)
        start += shortest(matcher, characters, [token])


def shortest(matcher: CountingMatcher, characters: list[str], tokens: Any) -> str:
    """Return a short text that the tokens take; what they look at beside it is left out."""
    text = ""
    for token in tokens:
        operator, value = token
        inner = inner_sequences(token)
        if operator in SINGLE:
            literal = [chr(value)] if operator is sre.LITERAL else []
            text += next((one for one in [*literal, *characters] if matcher.accepts(token, one)), "")
        elif operator in REPEATS:
            text += shortest(matcher, characters, inner[0]) * min(value[0], 3)
        elif inner and operator not in (sre.ASSERT, sre.ASSERT_NOT):
            text += shortest(matcher, characters, inner[0])
    return text
