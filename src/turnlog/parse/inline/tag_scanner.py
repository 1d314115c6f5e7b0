"""The walk through one tag, whatever the chunks: where it ends, and what its attributes say."""

import re
from collections.abc import Callable
from typing import Any

MAX_TAG_CHARS = 1 << 16  # a larger payload is a file; it also bounds what a broken tag can hide
MAX_ATTRIBUTES = 8  # a tag has three attributes; a surplus makes it malformed
TAG_START = "<agent-event"
WHITESPACE = " \t\r\n"
_ATTRIBUTE = re.compile(r"[ \t\r\n]*([A-Za-z_-]{1,32})[ \t\r\n]*=[ \t\r\n]*")


class TagScanner:
    """Finds the end of one tag and its quoted values; no character is looked at twice.

    A value that begins with `{` ends after the matching `}`; what JSON strings hold does not count. Strings
    are quoted with `"`, with the `\\"` of the second dialect (where `\\\\\\"` is a quote inside) or with the
    smart quotes of the third.
    """

    def __init__(self) -> None:
        self.scanned_chars = len(TAG_START)  # characters walked
        self.end_token = ""  # what ended the tag: `/>`, `>`, or the `<` or line break that shows it is broken
        self._values: list[tuple[int, int]] = []
        self._simple_attributes: dict[str, str] | None = None
        self._state, self._quote = "gap", ""
        self._value_start = self._depth = self._offset = 0

    def feed(self, text: str, at: int) -> int:
        """Walk on from `at`; the answer is where the tag ends, or from where more text is needed."""
        self._offset = self.scanned_chars - at
        if self.scanned_chars == len(TAG_START) and (match := _SIMPLE_TAG(text, at)):
            self._simple_attributes = {"type": match[1], "data": match[2]}
            self.end_token, at = "/>", match.end()
        while not self.end_token:
            skip, fault, step = _STATE_SCANNERS[self._state]
            at = skip(text, at).end()
            if at < len(text) and text[at] == fault:
                self.end_token, after = (fault, at) if self._offset + at >= MAX_TAG_CHARS else ("", at + 1)
            else:
                after = step(self, text, at) if at < len(text) else -1
            if after < 0:
                break
            at = after
        self.scanned_chars = self._offset + at
        return at

    def parse_attributes(self, raw: str) -> tuple[dict[str, str], bool]:
        """The attributes of the tag, and whether there is nothing else in it."""
        if self._simple_attributes:
            return self._simple_attributes, True
        found: dict[str, str] = {}
        at = len(TAG_START)
        for start, end in self._values:
            match = _ATTRIBUTE.fullmatch(raw, at, start - 1)
            if match is None or match[1] in found:
                return found, False
            found[match[1]] = raw[start:end]
            at = end + 1
        return found, raw[at:].strip(WHITESPACE) == "/>"

    def _scan_between_attributes(self, text: str, at: int) -> int:
        char, follows = text[at], text[at + 1 : at + 2]
        if char == "/":
            self.end_token = "/>" if follows == ">" else ""
            return at + 2 if self.end_token else at + 1 if follows else -1
        if char in "<>":
            self.end_token = char
            return at if char == "<" else at + 1
        self._quote = char.strip("{")  # JSON without quotes is walked, then refused
        first = _FIRST_CHAR(text, at + len(self._quote))
        if not first[1]:
            return -1
        self._value_start, self._depth = self._offset + at + 1, 1
        self._state = "json" if first[1] == "{" else "value"
        return int(first.end()) if first[1] == "{" else at + 1

    def _scan_value(self, text: str, at: int) -> int:
        if text[at] == self._quote:
            self._state = "gap"
            if len(self._values) < MAX_ATTRIBUTES and self._offset + at < MAX_TAG_CHARS:
                self._values.append((self._value_start, self._offset + at))
        return at + 1

    def _scan_json(self, text: str, at: int) -> int:
        char, follows = text[at], text[at + 1 : at + 2]
        if char == "{":
            deeper: int = _DEEPER(text, at).end()
            self._depth += deeper - at
            return deeper
        if char == "\\" and follows != '"':
            return at + 1 if follows else -1
        if char == "'" == self._quote:  # no JSON has it here: a brace is missing
            self._state = "value"
            return at
        self._depth -= char == "}"
        self._state = _STRING_STATES.get(char, "json") if self._depth else "value" if self._quote else "gap"
        return at + 2 if char == "\\" else at + 1

    def _scan_string(self, text: str, at: int) -> int:
        if text[at] == "\\" and text[at + 1 : at + 2] != '"':
            return -1
        self._state = "json"
        return at + 2 if text[at] == "\\" else at + 1


_Match = Callable[..., Any]  # every pattern here matches, if only nothing
_FIRST_CHAR: _Match = re.compile(r"[ \t\r\n]{0,64}+([\s\S]?)").match
_DEEPER: _Match = re.compile(r"\{+").match
_STRING_STATES = {'"': "string", "\\": "escaped", "“": "smart", "”": "smart"}
_JSON = r"""(?:[^{}"“”\\'<]++|"(?:[^"\\\n]++|\\[\s\S])*+")*+"""  # anything but braces outside strings
_SIMPLE_TAG = re.compile(
    rf""" type="([\w.:-]+)" data='(\{{{_JSON}\}})' ?/>"""
).match  # most tags, at one glance
# for each state: what to pass over, what no JSON has there (and a tag over the limit ends at), what to do
_STATE_SCANNERS: dict[str, tuple[_Match, str, Callable[[TagScanner, str, int], int]]] = {
    "gap": (re.compile("[^<>\"'{/]*+").match, "", TagScanner._scan_between_attributes),
    "value": (re.compile("[^\"'\n]*+").match, "\n", TagScanner._scan_value),
    "json": (re.compile(_JSON).match, "<", TagScanner._scan_json),
    "string": (re.compile(r'(?:[^"\\\n]++|\\[\s\S])*+').match, "\n", TagScanner._scan_string),
    "smart": (re.compile(r'(?:[^“”"\\\n]++|\\[\s\S])*+').match, "\n", TagScanner._scan_string),
    "escaped": (
        re.compile(r'(?:[^"\\\n]++|\\[^"\\]|\\\\(?:\\[\s\S]|[^\\]))*+').match,
        "\n",
        TagScanner._scan_string,
    ),
}
