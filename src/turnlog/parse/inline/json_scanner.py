"""The walk through one JSON object in a text, piece by piece: where it ends, or where it stops being JSON.

Knows the order of tokens, not their values: a wrong number is found when the whole is decoded. No character
is looked at twice, and nothing is kept but the open brackets.
"""

import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 64  # deeper than any payload may be; the rest is refused when it is decoded

_Match = Callable[..., Any]  # every pattern here matches, if only nothing
_WHITESPACE: _Match = re.compile(r"[ \t\r\n]*+").match
_SCALAR: _Match = re.compile(r"[-+.0-9A-Za-z]*+").match
_STRING: _Match = re.compile(r'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+').match

# what may come in each state, by the first character of a token; a scalar is `0`
_VALUE_TRANSITIONS = {'"': "after", "0": "after", "{": "first key", "[": "first item"}
_TRANSITIONS = {
    "value": _VALUE_TRANSITIONS,
    "first item": _VALUE_TRANSITIONS | {"]": "after"},
    "first key": {'"': "colon", "}": "after"},
    "key": {'"': "colon"},
    "colon": {":": "value"},
    "after": {",": "", "}": "after", "]": "after"},
}
_OPENING_BRACKETS = {"}": "{", "]": "["}
_STATE_AFTER_COMMA = {"{": "key", "[": "value"}


class JsonObjectScanner:
    """Walks from the first `{` to its `}`. `over` and `broken` say how it ended, if it did."""

    def __init__(self) -> None:
        self.is_complete = False
        self.is_invalid = False
        self._open: list[str] = []
        self._state = "value"
        self._open_token = ""  # what a token that goes on is: a string or a scalar

    def feed(self, text: str, at: int) -> int:
        """Walk on from `at`; the answer is the place after the object, the one that is wrong, or the end."""
        while at < len(text) and not (self.is_complete or self.is_invalid):
            at = self._scan_token(text, at)
        return at

    def _scan_token(self, text: str, at: int) -> int:
        if self._open_token:
            return self._continue_token(text, at)
        at = int(_WHITESPACE(text, at).end())
        if at == len(text):
            return at
        mark = "0" if _SCALAR(text, at).end() > at else text[at]
        follows = _TRANSITIONS[self._state].get(mark)
        if follows is None or not self._match_bracket(mark):
            self.is_invalid = True
            return at
        self._state = follows or _STATE_AFTER_COMMA[self._open[-1]]
        self._open_token = mark if mark in '"0' else ""
        return at if mark == "0" else at + 1

    def _match_bracket(self, mark: str) -> bool:
        """Open or close a bracket; whether it may."""
        if mark in _STATE_AFTER_COMMA:
            self._open.append(mark)
            return len(self._open) <= MAX_DEPTH
        if mark in _OPENING_BRACKETS:
            if self._open.pop() != _OPENING_BRACKETS[mark]:
                return False
            self.is_complete = not self._open
        return True

    def _continue_token(self, text: str, at: int) -> int:
        if self._open_token == "0":
            at = int(_SCALAR(text, at).end())
            if at < len(text):
                self._open_token = ""
            return at
        if self._open_token == "\\":  # the character that a backslash at the end of a piece protects
            self._open_token, self.is_invalid = '"', text[at] < " "
            return at if self.is_invalid else at + 1
        at = int(_STRING(text, at).end())
        if at == len(text):
            return at
        if text[at] == "\\":  # what it protects comes with the next piece, or is a control character
            self._open_token, self.is_invalid = "\\", at + 1 < len(text)
            return at + 1
        self._open_token, self.is_invalid = "", text[at] != '"'
        return at if self.is_invalid else at + 1
