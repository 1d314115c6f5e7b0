"""Who can join Julian's team, and the markers in which Julian speaks of them."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct


class Person(Struct, kw_only=True):
    """A member of the team; `seat` is the place on the grid, which tells those of one name apart."""

    name: str
    seat: int
    color: str = ""
    color_name: str = ""
    gender: str = "man"
    eyes: str = "default"
    mouth: str = "default"
    soul: str = ""
    status: str = "alive"


def born(name: str, seat: int, looks: str, soul: str) -> Person:
    """One of those who come when they are summoned; `looks` are colour, its name, gender, eyes, mouth."""
    color, color_name, gender, eyes, mouth = looks.split()
    return Person(
        name=name,
        seat=seat,
        color=color,
        color_name=color_name,
        gender=gender,
        eyes=eyes,
        mouth=mouth,
        soul=soul,
    )


CANDIDATES = (
    born("Lyra", 0, "#c9b1ff lavender woman round smile", "I listen first, and then I sort."),
    born("Orin", 1, "#7fb2e5 sky man narrow line", "I measure twice. I like small, exact tools."),
    born("Wren", 2, "#8fce8f leaf woman wide grin", "I ask the question nobody has asked yet."),
    born("Sable", 3, "#3d3a4b ink man sleepy line", "I read what others skip."),
    born("Vesper", 5, "#ffb199 coral woman wide smile", "I paint what we mean before we build it."),
    born("Tam", 6, "#e5c07f amber man round grin", "I keep the lists, and I keep them short."),
    born("Juno", 7, "#f28fb1 rose woman narrow line", "I say what could go wrong."),
    born("Pell", 8, "#9aa5b1 slate man default default", "I come last and turn off the lights."),
)


def marker(name: str, body: Any) -> str:
    """A marker as it stands in Julian's text, on a line of its own."""
    return f"[{name}] {json.dumps(body)}"


def registered(person: Person) -> str:
    """Build the marker of a member who joins."""
    body = {
        "name": person.name,
        "color": person.color,
        "colorName": person.color_name,
        "gender": person.gender,
        "faceVariant": {"eyes": person.eyes, "mouth": person.mouth},
        "gridPosition": person.seat,
        "individuationArtifact": person.soul,
    }
    return marker("AGENT_REGISTERED", body)


def status(people: Iterable[Person]) -> str:
    """Who is there."""
    listed = [{"name": one.name, "status": one.status, "gridPosition": one.seat} for one in people]
    return marker("AGENT_STATUS", {"agents": listed})


def page(title: str, body: str, category: str, chapter: str = "") -> str:
    """A page for the memory folder, with the tags by which it is catalogued."""
    tags = {"description": title, "category": category, "chapter": chapter}
    metas = "".join(
        f'<meta name="artifact-{name}" content="{text}">\n' for name, text in tags.items() if text
    )
    return f"<html><head>\n{metas}</head><body><h1>{title}</h1>\n<p>{body}</p></body></html>\n"


def slug(text: str) -> str:
    """A text as a file name."""
    return re.sub(r"\W+", "-", text.lower()).strip("-")[:40] or "page"


def named(people: Sequence[Person], text: str) -> list[Person]:
    """Those whose names stand in a text."""
    words = set(re.findall(r"\w+", text.lower()))
    return [person for person in people if person.name.lower() in words]
