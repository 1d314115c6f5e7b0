"""The payloads of `tests/vectors/console`, as they stand in some place of a log.

Each knows its own name: a script that runs says `id/way`, and what is loaded comes from a host called like
the payload, so that whatever gets through names itself. A way is the place in the log that it came by.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent.parent / "vectors" / "console" / "payloads.json"
DOMAIN = "evil.test"
MARK = re.compile(rf"([a-z0-9-]+)(?:\.{re.escape(DOMAIN)}/|/)([a-z-]+)")  # `id/way`, or the address of one
NAME_BYTES = 128  # of names in events
LABEL_CHARS = 200  # of labels in views

Hit = tuple[str, str]  # a payload, and the way it came by


class Attack(NamedTuple):
    """Something hostile. `seen` is what a page without defences is seen to do with it."""

    id: str
    text: str
    seen: frozenset[str] = frozenset()
    rude: bool = False

    @property
    def host(self) -> str:
        return f"{self.id}.{DOMAIN}"

    def by(self, way: str) -> str:
        """As it stands in one place."""
        marks = {
            "@RUN@": f"pwned('{self.id}/{way}')",
            "@URL@": f"http://{self.host}/{way}",
            "@HOST@": self.host,
            "@ID@": f"{self.id}/{way}",
            "@WAY@": way,
        }
        text = self.text
        for mark, value in marks.items():
            text = text.replace(mark, value)
        return text


def read_attacks(name: str) -> list[Attack]:
    """The attacks of one list of the file."""
    return [
        Attack(one["id"], one["text"] * one.get("times", 1), frozenset(one["seen"]), one.get("rude", False))
        for one in json.loads(FILE.read_text())[name]
    ]


PAYLOADS = read_attacks("payloads")
COLOURS = read_attacks("colours")
SOURCES = read_attacks("sources")
KEYS = read_attacks("keys")
CANARY = Attack("canary", "@URL@")  # is let through, to see that what is let through is seen
EVERY = (*PAYLOADS, *COLOURS, *SOURCES, *KEYS)


def is_name(text: str) -> bool:
    """Whether a name in an event may be called so."""
    return text.isprintable() and len(text.encode()) <= NAME_BYTES


def is_label(text: str) -> bool:
    """Whether a label in a view may say so."""
    return len(text) <= LABEL_CHARS


def as_name(attack: Attack, way: str) -> str:
    """An attack as a name, or a plain name where it is too long for one."""
    return text if is_name(text := attack.by(way)) else attack.id


@dataclass(frozen=True)
class Attacks:
    """Attacks, in all places that can hold them."""

    all: Sequence[Attack]

    def by(self, way: str) -> list[str]:
        return [attack.by(way) for attack in self.all]

    def names(self, way: str) -> list[str]:
        return [text for text in self.by(way) if is_name(text)]

    def labels(self, way: str) -> list[str]:
        return [text for text in self.by(way) if is_label(text)]


CALM = Attacks([attack for attack in PAYLOADS if not attack.rude])
BREAKING = Attacks([attack for attack in PAYLOADS if attack.id == "clobber-document"])
RUDE = Attacks([attack for attack in PAYLOADS if attack.rude and attack not in BREAKING.all])
SHARP = Attacks([attack for attack in PAYLOADS if attack.id in ("onerror-slash", "html-img")])


def hits(text: str) -> set[Hit]:
    """The payloads that a text tells of, each with its way."""
    known = {attack.id for attack in EVERY}
    return {(payload, way) for payload, way in MARK.findall(text) if payload in known}


def payloads_of(found: set[Hit]) -> set[str]:
    """The payloads, whatever way they came by."""
    return {payload for payload, _ in found}
