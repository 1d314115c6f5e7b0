"""Weigh-ins in what people write: "Weigh-in 187.6 today", "187.6 lbs on 2026-01-08, after breakfast"."""

import re
from typing import Any

LBS_PER_KG = 2.2046226218

_DAY = r"\d{4}-\d\d-\d\d|today|yesterday"
_WEIGHT = r"(?P<weight>-?\d+(?:\.\d+)?)(?![\d-])\s*(?P<unit>kgs?|lbs?|pounds?)?\b"
_THEN = rf"(?:\s*(?:on|:)?\s*(?P<day>{_DAY})\b)?"
_FIRST = re.compile(rf"(?<![\d-]){_WEIGHT}{_THEN}", re.IGNORECASE)
_NEXT = re.compile(rf"\s*(?:(?:on\s+)?(?:{_DAY})\b\W*)?{_WEIGHT}{_THEN}", re.IGNORECASE)
_NAMED = re.compile(rf"\b(?:{_DAY})\b", re.IGNORECASE)

Json = dict[str, Any]


def entries_in(text: str) -> list[Json]:
    """The weigh-ins that a message names, as drafts; what is said after one becomes its notes.

    The first may stand anywhere; another one begins its part of the sentence, with a unit, a day or nothing
    behind it, so that "after 2 coffees" is none.
    """
    entries: list[Json] = []
    for part in re.split(r"[,;\n]|\band\b", text):
        found = _NEXT.match(part) if entries else _FIRST.search(part)
        day = day_of(found, part) if found else None
        if found and (not entries or found["unit"] or day or found.end() == len(part)):
            entries.append(draft(found["weight"], found["unit"], day))
            part = part[found.end() :]
        if entries:
            entries[-1]["notes"] = ", ".join(filter(None, (entries[-1]["notes"], part.strip(" .!?"))))
    return entries


def day_of(found: re.Match[str], part: str) -> str | None:
    """The day that is named behind a weight, or else before it."""
    before = _NAMED.search(part, 0, found.start("weight"))
    return found["day"] or (before[0] if before else None)


def draft(weight: str, unit: str | None, day: str | None) -> Json:
    """One weigh-in in pounds; a day that is not named is today."""
    metric = (unit or "").lower().startswith("kg")
    pounds = round(float(weight) * LBS_PER_KG, 1) if metric else float(weight)
    return {"measured_at": (day or "today").lower(), "weight_lbs": pounds, "notes": ""}
