"""The shelves that the researchers search, and what the fact checker knows: data, and two questions to it."""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Claim(NamedTuple):
    """A claim of a source; `correction` is empty if it is true."""

    text: str
    correction: str = ""


Archive = Mapping[str, tuple[Claim, ...]]  # by subject

ARCHIVE: Archive = {
    "bees": (
        Claim("Bees dance to tell each other where the flowers are."),
        Claim("A bumblebee is too heavy to fly.", "Its wings whirl the air and carry it well."),
    ),
    "goldfish": (
        Claim("A goldfish forgets everything after three seconds.", "It remembers for months."),
        Claim("Goldfish can be taught to push a lever for food."),
    ),
    "honey": (Claim("Honey that is kept dry does not spoil for centuries."),),
    "lightning": (
        Claim("Lightning is hotter than the surface of the Sun."),
        Claim("Lightning never strikes the same place twice.", "Tall towers are struck many times a year."),
    ),
    "the Great Wall": (
        Claim("The Great Wall can be seen from the Moon.", "No building can be seen from so far away."),
    ),
    "the Moon": (
        Claim("The Moon moves away from the Earth, some four centimetres a year."),
        Claim("The far side of the Moon is always dark.", "The Sun shines on it half of the time."),
    ),
}


def plain(subject: str) -> str:
    """A subject as it is compared: without its article, in lower case."""
    return re.sub(r"^(the|a|an)\s+", "", subject.strip().casefold())


def claims_about(archive: Archive, subject: str) -> list[str]:
    """What was written about a subject."""
    return [claim.text for name in archive if plain(name) == plain(subject) for claim in archive[name]]


def verdict_on(archive: Archive, text: str) -> str:
    """Whether a claim is true, as far as anybody knows."""
    for claim in (claim for claims in archive.values() for claim in claims):
        if claim.text == text:
            return f"false: {claim.correction}" if claim.correction else "true"
    return "unknown"
