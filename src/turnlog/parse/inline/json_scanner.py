"""A scanner of one JSON object in a text, piece by piece: where it ends, or where it stops being JSON.

It checks the order of tokens, not their values: a wrong number is found when the object is decoded. It reads
each character once and stores only the open brackets.
"""

import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 64  # deeper than any payload may be; decoding applies the real limit

_Match = Callable[..., Any]  # every pattern here matches, if only nothing
_WHITESPACE: _Match = re.compile(r"[ \t\r\n]*+").match
_SCALAR: _Match = re.compile(r"[-+.0-9A-Za-z]*+").match
_STRING: _Match = re.compile(r'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+').match

# The next state, by state and first character of a token; `0` stands for a scalar, "" for after a comma.
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
    """Scans from the first `{` to its `}`. `is_complete` or `is_invalid` is True at its end."""

    def __init__(self) -> None:
        self.is_complete = False
        self.is_invalid = False
        self._open_brackets: list[str] = []
        self._state = "value"
        # A token that the last piece did not finish: `"` in a string, `\\` after a backslash in it, `0` in a
        # scalar.
        self._open_token = ""

    def feed(self, text: str, at: int) -> int:
        """Scan from `at`. Return the index after the object, of the first wrong character, or of the end."""
        while at < len(text) and not (self.is_complete or self.is_invalid):
            at = self._scan_token(text, at)
        return at

    def _scan_token(self, text: str, at: int) -> int:
        if self._open_token:
            return self._continue_token(text, at)
        at = int(_WHITESPACE(text, at).end())
        if at == len(text):
            return at

        token = "0" if _SCALAR(text, at).end() > at else text[at]
        next_state = _TRANSITIONS[self._state].get(token)
        if next_state is None or not self._match_bracket(token):
            self.is_invalid = True
            return at
        self._state = next_state or _STATE_AFTER_COMMA[self._open_brackets[-1]]
        self._open_token = token if token in '"0' else ""
        return at if token == "0" else at + 1

    def _match_bracket(self, token: str) -> bool:
        if token in _STATE_AFTER_COMMA:
            self._open_brackets.append(token)
            return len(self._open_brackets) <= MAX_DEPTH
        if token in _OPENING_BRACKETS:
            if self._open_brackets.pop() != _OPENING_BRACKETS[token]:
                return False
            self.is_complete = not self._open_brackets
        return True

    def _continue_token(self, text: str, at: int) -> int:
        if self._open_token == "0":
            at = int(_SCALAR(text, at).end())
            if at < len(text):
                self._open_token = ""
            return at

        # The character after a backslash that was the last of its piece.
        if self._open_token == "\\":
            self._open_token = '"'
            self.is_invalid = text[at] < " "
            return at if self.is_invalid else at + 1

        at = int(_STRING(text, at).end())
        if at == len(text):
            return at
        # The escaped character comes with the next piece. If there is one here, it is a control character.
        if text[at] == "\\":
            self._open_token = "\\"
            self.is_invalid = at + 1 < len(text)
            return at + 1
        self._open_token = ""
        self.is_invalid = text[at] != '"'
        return at if self.is_invalid else at + 1
