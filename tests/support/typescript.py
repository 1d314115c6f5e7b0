"""The interfaces of a document, read from its TypeScript, and whether a JSON value is exactly of one.

Exactly: every field that is not optional is there, and no field that the interface does not have.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

TOKEN = re.compile(r'"[^"]*"|\w+|[{}<>|:;,?\[\]]')
PLAIN: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "any": lambda value: True,
}
Matches = Callable[[Any], bool]


class Field(NamedTuple):
    matches: Matches
    optional: bool


class Shape(NamedTuple):
    """The fields of an object."""

    fields: dict[str, Field]

    def matches(self, value: Any) -> bool:
        if not isinstance(value, dict) or not value.keys() <= self.fields.keys():
            return False
        return all(
            field.matches(value[name]) if name in value else field.optional
            for name, field in self.fields.items()
        )


class Reader:
    """Reads types, one token after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = TOKEN.findall(re.sub(r"//[^\n]*", "", text))

    def take(self, wanted: str = "") -> str:
        token = self.tokens.pop(0)
        assert wanted in ("", token), f"expected {wanted}, got {token}"
        return str(token)

    def shape(self) -> Shape:
        """What stands between braces."""
        fields: dict[str, Field] = {}
        self.take("{")
        while self.tokens[0] != "}":
            name = self.take()
            optional = self.tokens[0] == "?" and bool(self.take())
            self.take(":")
            fields[name] = Field(self.union(), optional)
            self.take(";")
        self.take("}")
        return Shape(fields)

    def union(self) -> Matches:
        """Alternatives; a first bar may stand before them."""
        kinds: list[Matches] = []
        while not kinds or self.tokens[0] == "|":
            if self.tokens[0] == "|":
                self.take()
            kinds.append(self.single())
        return lambda value: any(kind(value) for kind in kinds)

    def single(self) -> Matches:
        if self.tokens[0] == "{":
            return self.shape().matches
        name = self.take()
        if name == "Array":
            return listed(self.arguments()[0])
        if name == "Record":
            key, item = self.arguments()
            return lambda value: isinstance(value, dict) and all(key(k) and item(v) for k, v in value.items())
        if name.startswith('"'):
            return lambda value: value == name.strip('"')
        kind = PLAIN[name]
        if self.tokens[0] != "[":
            return kind
        self.take("["), self.take("]")
        return listed(kind)

    def arguments(self) -> list[Matches]:
        self.take("<")
        found = [self.union()]
        while self.tokens[0] == ",":
            self.take()
            found.append(self.union())
        self.take(">")
        return found


def listed(item: Matches) -> Matches:
    return lambda value: isinstance(value, list) and all(map(item, value))


HEAD = re.compile(r"^interface (\w+)(?: extends (\w+))? (?=\{)", re.MULTILINE)


def interfaces(text: str, base: str) -> dict[str, Shape]:
    """The interfaces of a document that extend a base, by name, with the fields of the base."""
    own = {head[1]: (head[2], Reader(text[head.end() :]).shape().fields) for head in HEAD.finditer(text)}
    return {name: Shape(own[base][1] | fields) for name, (over, fields) in own.items() if over == base}


def declared(text: str) -> dict[str, list[str]]:
    """The interfaces of a document, each as its tokens."""
    found: dict[str, list[str]] = {}
    for head in HEAD.finditer(text):
        reader = Reader(text[head.end() :])
        tokens = list(reader.tokens)
        reader.shape()
        found[head[1]] = [head[2] or "", *tokens[: len(tokens) - len(reader.tokens)]]
    return found
