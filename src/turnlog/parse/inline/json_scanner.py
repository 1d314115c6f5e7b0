"""The walk through one JSON object in a text, piece by piece: where it ends, or where it stops being JSON.

Knows the order of tokens, not their values: a wrong number is found when the whole is decoded. No character
is looked at twice, and nothing is kept but the open brackets.
"""

import re
from collections.abc import Callable
from typing import Any

LEVELS = 64  # deeper than any payload may be; the rest is refused when it is decoded

_Match = Callable[..., Any]  # every pattern here matches, if only nothing
_WHITE: _Match = re.compile(r"[ \t\r\n]*+").match
_SCALAR: _Match = re.compile(r"[-+.0-9A-Za-z]*+").match
_STRING: _Match = re.compile(r'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+').match

# what may come in each state, by the first character of a token; a scalar is `0`
_VALUES = {'"': "after", "0": "after", "{": "first key", "[": "first item"}
_TOKENS = {
    "value": _VALUES,
    "first item": _VALUES | {"]": "after"},
    "first key": {'"': "colon", "}": "after"},
    "key": {'"': "colon"},
    "colon": {":": "value"},
    "after": {",": "", "}": "after", "]": "after"},
}
_PAIRS = {"}": "{", "]": "["}
_NEXT = {"{": "key", "[": "value"}


class JsonWalk:
    """Walks from the first `{` to its `}`. `over` and `broken` say how it ended, if it did."""

    def __init__(self) -> None:
        self.over = False
        self.broken = False
        self._open: list[str] = []
        self._state = "value"
        self._inside = ""  # what a token that goes on is: a string or a scalar

    def feed(self, text: str, at: int) -> int:
        """Walk on from `at`; the answer is the place after the object, the one that is wrong, or the end."""
        while at < len(text) and not (self.over or self.broken):
            at = self._token(text, at)
        return at

    def _token(self, text: str, at: int) -> int:
        if self._inside:
            return self._go_on(text, at)
        at = int(_WHITE(text, at).end())
        if at == len(text):
            return at
        mark = "0" if _SCALAR(text, at).end() > at else text[at]
        follows = _TOKENS[self._state].get(mark)
        if follows is None or not self._bracket(mark):
            self.broken = True
            return at
        self._state = follows or _NEXT[self._open[-1]]
        self._inside = mark if mark in '"0' else ""
        return at if mark == "0" else at + 1

    def _bracket(self, mark: str) -> bool:
        """Open or close a bracket; whether it may."""
        if mark in _NEXT:
            self._open.append(mark)
            return len(self._open) <= LEVELS
        if mark in _PAIRS:
            if self._open.pop() != _PAIRS[mark]:
                return False
            self.over = not self._open
        return True

    def _go_on(self, text: str, at: int) -> int:
        if self._inside == "0":
            at = int(_SCALAR(text, at).end())
            if at < len(text):
                self._inside = ""
            return at
        if self._inside == "\\":  # the character that a backslash at the end of a piece protects
            self._inside, self.broken = '"', text[at] < " "
            return at if self.broken else at + 1
        at = int(_STRING(text, at).end())
        if at == len(text):
            return at
        if text[at] == "\\":  # what it protects comes with the next piece, or is a control character
            self._inside, self.broken = "\\", at + 1 < len(text)
            return at + 1
        self._inside, self.broken = "", text[at] != '"'
        return at if self.broken else at + 1
