"""A scanner of one tag, chunk by chunk: where the tag ends, and its attributes."""

import re
from collections.abc import Callable
from typing import Any

MAX_TAG_CHARS = 1 << 16  # a larger payload is a file; it also bounds the text that a broken tag hides
MAX_ATTRIBUTES = 8  # a tag has three attributes; more of them make it malformed
NEED_MORE = -1  # instead of an index: the rest of the text waits for the next feed
TAG_START = "<agent-event"
WHITESPACE = " \t\r\n"
_ATTRIBUTE = re.compile(r"[ \t\r\n]*([A-Za-z_-]{1,32})[ \t\r\n]*=[ \t\r\n]*")


class TagScanner:
    """Finds the end of one tag and its quoted values. Reads each character once.

    A value that begins with `{` ends after the matching `}`, wherever braces and quotes are in JSON strings.
    Strings are quoted with `"`, with the `\\"` of the second dialect (where `\\\\\\"` is a quote inside), or
    with the smart quotes of the third.
    """

    def __init__(self) -> None:
        self.scanned_chars = len(TAG_START)
        self.end_token = ""  # `/>`, `>`, or the `<` or line break at which a broken tag ends
        self._values: list[tuple[int, int]] = []  # start and end of each quoted value in the tag
        self._simple_attributes: dict[str, str] | None = None
        self._state = "gap"  # a key of _STATE_SCANNERS
        self._quote = ""  # the quote of the open value; empty for JSON without quotes
        self._value_start = 0
        self._depth = 0  # open braces
        self._offset = 0  # from an index in the chunk to one in the tag

    def feed(self, text: str, at: int) -> int:
        """Scan from `at`. Return the index after the tag, or from which more text is needed."""
        self._offset = self.scanned_chars - at
        # Most tags match one pattern.
        match = _SIMPLE_TAG(text, at) if self.scanned_chars == len(TAG_START) else None
        if match is not None:
            self._simple_attributes = {"type": match[1], "data": match[2]}
            self.end_token = "/>"
            at = match.end()

        while not self.end_token:
            skip, fault, step = _STATE_SCANNERS[self._state]
            at = skip(text, at).end()
            if at == len(text):
                break
            if text[at] != fault:
                next_at = step(self, text, at)
                if next_at == NEED_MORE:
                    break
                at = next_at
            elif self._offset + at >= MAX_TAG_CHARS:
                self.end_token = fault
            else:
                at += 1

        self.scanned_chars = self._offset + at
        return at

    def parse_attributes(self, raw: str) -> tuple[dict[str, str], bool]:
        """Return the attributes of the tag, and whether the tag contains nothing else."""
        if self._simple_attributes:
            return self._simple_attributes, True
        attributes: dict[str, str] = {}
        at = len(TAG_START)
        for start, end in self._values:
            match = _ATTRIBUTE.fullmatch(raw, at, start - 1)
            if match is None or match[1] in attributes:
                return attributes, False
            attributes[match[1]] = raw[start:end]
            at = end + 1
        return attributes, raw[at:].strip(WHITESPACE) == "/>"

    # The _scan methods read the character at `at`. They return the next index, or NEED_MORE.

    def _scan_between_attributes(self, text: str, at: int) -> int:
        char = text[at]
        following = text[at + 1 : at + 2]
        if char == "/" and following == ">":
            self.end_token = "/>"
            return at + 2
        if char == "/":
            return at + 1 if following else NEED_MORE
        if char == ">":
            self.end_token = char
            return at + 1
        if char == "<":
            self.end_token = char
            return at

        # A quote, or a `{` without one: such JSON is scanned to its end, then refused.
        self._quote = char.strip("{")
        first = _FIRST_CHAR(text, at + len(self._quote))
        if not first[1]:
            return NEED_MORE
        self._value_start = self._offset + at + 1
        self._depth = 1
        if first[1] == "{":
            self._state = "json"
            return int(first.end())
        self._state = "value"
        return at + 1

    def _scan_value(self, text: str, at: int) -> int:
        if text[at] == self._quote:
            self._state = "gap"
            if len(self._values) < MAX_ATTRIBUTES and self._offset + at < MAX_TAG_CHARS:
                self._values.append((self._value_start, self._offset + at))
        return at + 1

    def _scan_json(self, text: str, at: int) -> int:
        char = text[at]
        following = text[at + 1 : at + 2]
        if char == "{":
            deeper: int = _DEEPER(text, at).end()
            self._depth += deeper - at
            return deeper
        if char == "\\" and following != '"':
            return at + 1 if following else NEED_MORE
        # The value's own quote cannot be in JSON outside a string: a brace is missing.
        if char == "'" and self._quote == "'":
            self._state = "value"
            return at

        if char == "}":
            self._depth -= 1
        if self._depth:
            self._state = _STRING_STATES.get(char, "json")
        else:
            self._state = "value" if self._quote else "gap"
        return at + 2 if char == "\\" else at + 1

    def _scan_string(self, text: str, at: int) -> int:
        is_escaped = text[at] == "\\"
        if is_escaped and text[at + 1 : at + 2] != '"':
            return NEED_MORE
        self._state = "json"
        return at + 2 if is_escaped else at + 1


_Match = Callable[..., Any]  # every pattern here also matches the empty string, so the result is never None
_FIRST_CHAR: _Match = re.compile(r"[ \t\r\n]{0,64}+([\s\S]?)").match
_DEEPER: _Match = re.compile(r"\{+").match
_STRING_STATES = {'"': "string", "\\": "escaped", "“": "smart", "”": "smart"}
_JSON = r"""(?:[^{}"“”\\'<]++|"(?:[^"\\\n]++|\\[\s\S])*+")*+"""  # anything but braces outside strings
_SIMPLE_TAG = re.compile(rf""" type="([\w.:-]+)" data='(\{{{_JSON}\}})' ?/>""").match
# By state: the pattern to skip, the character that valid JSON cannot have there (a tag over the limit ends at
# it), and the method for any other character.
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
