"""What Julian says and does: a message in, a turn out. Pure, and only as clever as an example has to be.

A turn is a generator. It yields messages, each a list of blocks; what its calls brought is sent back into it,
in their order. Julian knows what is in his `Mind`, which the process keeps between turns: another message, or
another past, gives another answer. What stands before a message says what it is (`OPENINGS`); in all others
words are looked for (`WISHES`). Messages that begin with `/` make something go wrong (`mishaps`).
"""

import json
import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple
from xml.etree import ElementTree

from msgspec import Struct, field

from turnlog_examples.demo_office.people import (
    CANDIDATES,
    Person,
    marker,
    named,
    page,
    registered,
    slug,
    status,
)
from turnlog_examples.office.instructions import SCREEN

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "full": 8}
ASSISTANTS = 3  # come if the message has no number


class Think(NamedTuple):
    """What Julian thinks."""

    text: str


class Say(NamedTuple):
    """What Julian says, markers and all."""

    text: str


class Use(NamedTuple):
    """A tool."""

    tool: str
    args: dict[str, Any]


class Send(NamedTuple):
    """A helper: what it is called, what it is told, and what it does."""

    kind: str
    prompt: str
    turn: "Turn"


class Hang(NamedTuple):
    """Send nothing more until the host interrupts."""


class Raw(NamedTuple):
    """Bytes on stdout, whatever they are."""

    data: bytes


class Aside(NamedTuple):
    """A line of its own between the blocks."""

    type: str
    fields: dict[str, Any]


class Stumble(NamedTuple):
    """The provider fails in the middle of this text; Julian has to say it again."""

    text: str


class Fail(NamedTuple):
    """The turn ends with a fault."""

    code: str
    message: str


class Die(NamedTuple):
    """The process ends in the middle of this text; a negative code is a signal."""

    text: str
    code: int


class Brought(NamedTuple):
    """What a call brought."""

    text: str
    ok: bool


Block = Think | Say | Use | Send | Hang | Raw | Aside | Stumble | Fail | Die
Turn = Generator[list[Block], list[Brought], None]


class Mind(Struct):
    """What Julian knows: how many turns he had, who is in the team, how many should come, what he wrote."""

    turns: int = 0
    team: dict[int, Person] = field(default_factory=dict)
    wanted: int = ASSISTANTS
    written: list[str] = field(default_factory=list)

    def people(self) -> list[Person]:
        """The team in the order of the seats."""
        return [person for _, person in sorted(self.team.items())]


def screen(command: str) -> Use:
    """A command to the screen."""
    return Use("Bash", {"command": f"curl -s -X POST {SCREEN} -d '{command}'"})


# what stands before a message


def summon(mind: Mind, _: str) -> Turn:
    """Helpers choose who they are; each that wrote down a soul joins."""
    coming = [person for person in CANDIDATES if person.seat not in mind.team][: mind.wanted]
    if not coming:
        yield [Say("Every seat is taken.\n" + status(mind.people()))]
        return
    helpers = [
        Send("newcomer", f"Choose who you are. Your seat is {one.seat}.", being(one)) for one in coming
    ]
    intro = f"I will ask {len(coming)} to come."
    brought = yield [Think(f"{len(coming)} seats to fill."), Say(intro), *helpers]
    joined = [person for person, result in zip(coming, brought, strict=True) if result.ok]
    mind.team |= {person.seat: person for person in joined}
    lines = "\n".join(map(registered, joined))
    yield [Say(f"They are here.\n{lines}\nWelcome, {names(joined)}.")]


def being(person: Person) -> Turn:
    """A newcomer writes down who it is."""
    path = f"memory/souls/{person.seat}-{slug(person.name)}.html"
    yield [Use("Write", {"file_path": path, "content": page(person.name, person.soul, "identity")})]
    yield [Say(f"I am {person.name}. {person.soul}")]


def wake(mind: Mind, text: str) -> Turn:
    """Members with a soul come back, members without one are born; the others stay asleep."""
    try:
        told = ElementTree.fromstring(text.strip() or "<agent-payloads/>")
        sleepers = [sleeper(agent) for agent in told.iter("agent")]
    except (ElementTree.ParseError, ValueError):
        yield [Say("I cannot read whom I should wake.")]
        return
    back = [person for person in sleepers if person.soul]
    lost = [person for person in sleepers if not person.soul]
    mind.team |= {person.seat: person for person in back}
    lines = [registered(person) for person in back] + [status(mind.people())]
    report = f"{names(back)} woke up." if back else "Nobody woke up."
    report += f" {names(lost)} did not answer." if lost else ""
    yield [Think("I read what they left behind."), screen("FACE happy" if back else "FACE sad")]
    yield [Say("\n".join([report, *lines]))]


def sleeper(agent: ElementTree.Element) -> Person:
    """A member who should wake up, with the soul it left or gets now."""
    new = "I am new here." if agent.get("type") == "birth" else ""
    return Person(
        name=agent.get("name", ""),
        seat=int(agent.get("position", "")),
        color=agent.get("color", ""),
        color_name=agent.get("colorName", ""),
        soul=agent.findtext("soul") or new,
    )


def offer(mind: Mind, text: str) -> Turn:
    """Offer work to a member; of several of one name the first gets it."""
    name, _, listing = text.partition("]")
    jobs = [line.strip("- ") for line in listing.strip().split("\n") if line.strip("- ")]
    found = named(mind.people(), name)
    if not found or not jobs:
        yield [Say(f"There is nobody called {name.strip()}." if jobs else "There is no work in this offer.")]
        return
    told = marker("AGENT_WORK_OFFERED", {"agentName": found[0].name, "jobNames": jobs})
    yield [Say(f"I asked {found[0].name} about {' and '.join(jobs)}.\n{told}")]


def job_help(_: Mind, text: str) -> Turn:
    """What is missing in the form of a job."""
    try:
        form = json.loads(text)
        known = {name: str(value) for name, value in form.items() if value}
    except (ValueError, AttributeError):
        yield [Say("I cannot read this form.")]
        return
    topic = known.get("name") or known.get("description", "helper").split(".")[0]
    ideas = {
        "name": topic.title(),
        "description": f"Looks after everything that has to do with {topic.lower()}.",
        "skills": ["patience", f"{topic.lower()} basics"],
    }
    missing = {name: idea for name, idea in ideas.items() if name not in known}
    words = f"I would fill in {', '.join(missing)}." if missing else "This form is complete."
    yield [Say(f"{words}\n{marker('JOB_HELP', {'suggestions': missing})}")]


def route(mind: Mind, text: str) -> Turn:
    """A member of the team gets a message and answers."""
    name, _, words = text.partition("]")
    found = named(mind.people(), name)
    if found:
        yield [Say(f"{found[0].name} here. You said: {words.strip()}")]
    else:
        yield [Say(f"{name.strip()} is not here.")]


def hello(mind: Mind, _: str) -> Turn:
    """A day begins: who is there is the first thing to say."""
    yield [Think("Where were we?"), screen("FACE talking")]
    words = "I am back." if mind.turns > 1 else "Good morning. I am Julian."
    yield [Say(f"{words}\n{status(mind.people())}")]


# what is wished in other messages


def tell_status(mind: Mind, text: str) -> Turn:
    people = mind.people()
    yield [Say(f"{names(people)} and I are here." if people else "I am alone."), Say(status(people))]


def let_go(mind: Mind, text: str) -> Turn:
    """Let a member leave; all of them if the message names none."""
    leaving = named(mind.people(), text) or mind.people()
    for person in leaving:
        person.status = "shutdown"
    said = status(mind.people())
    mind.team = {seat: one for seat, one in mind.team.items() if one.status != "shutdown"}
    yield [Say(f"{names(leaving) or 'Nobody'} left.\n{said}")]


def write(mind: Mind, text: str) -> Turn:
    """A page about something, in the memory folder; a draft goes elsewhere and is no artifact."""
    topic = after(text, "about") or "the day"
    folder = "drafts" if "draft" in text.lower() else "memory/notes"
    path = f"{folder}/{slug(topic)}.html"
    content = page(f"Notes about {topic}", f"{len(mind.people())} of us know about it.", "knowledge", "1")
    [result] = yield [Think(f"A page about {topic}."), Use("Write", {"file_path": path, "content": content})]
    again = path in mind.written
    mind.written += [] if again or not result.ok else [path]
    yield [Say(f"I wrote {path}{' again' if again else ''}." if result.ok else f"I could not: {result.text}")]


def read(mind: Mind, text: str) -> Turn:
    """What is in a page, in all its length."""
    path = mind.written[-1] if mind.written else "memory/index.html"
    [result] = yield [Use("Read", {"file_path": path})]
    yield [Say(f"{path} has {len(result.text)} characters." if result.ok else f"There is no {path}.")]


def look(_: Mind, text: str) -> Turn:
    """A face, or something else on the screen."""
    face = re.search(r"look (\w+)", text.lower())
    [result] = yield [screen(f"FACE {face[1]}" if face else f"BG {after(text, 'background') or 'night'}")]
    yield [Say("How is that?" if result.ok else f"The screen says: {result.text}")]


def tidy(mind: Mind, _: str) -> Turn:
    """Deleting needs a yes."""
    path = mind.written[-1] if mind.written else "memory/old.html"
    [result] = yield [Say(f"I would like to delete {path}."), Use("Bash", {"command": f"rm {path}"})]
    mind.written = [other for other in mind.written if other != path or not result.ok]
    yield [Say(f"{path} is gone." if result.ok else f"I left {path} alone: {result.text}")]


def plan(mind: Mind, text: str) -> Turn:
    """How many should come when they are summoned."""
    words = re.findall(r"\w+", text.lower())
    counts = [NUMBERS.get(word) or int(word) for word in words if word in NUMBERS or word.isdecimal()]
    mind.wanted = min(counts[0], len(CANDIDATES)) if counts else ASSISTANTS
    yield [Say(f"Then I will ask for {mind.wanted} when you summon them.")]


def chat(mind: Mind, text: str) -> Turn:
    yield [
        Think("Nothing to do but to answer."),
        Say(f"You said: {text.strip()} This is our turn {mind.turns}."),
    ]


def after(text: str, word: str) -> str:
    """What stands behind a word."""
    return text.lower().partition(word)[2].strip(" .!?\n")


def names(people: list[Person]) -> str:
    """Some people in a sentence."""
    words = [person.name for person in people]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


Part = Callable[[Mind, str], Turn]

OPENINGS: dict[str, Part] = {
    "[SUMMON AGENTS]": summon,
    "[WAKE AGENTS]": wake,
    "[OFFER WORK TO AGENT:": offer,
    "[JOB HELP]": job_help,
    "[ROUTE TO AGENT:": route,
}
WISHES: dict[str, Part] = {
    "good morning": hello,
    "team of": plan,
    "who is": tell_status,
    "status": tell_status,
    "may go": let_go,
    "write": write,
    "draft": write,
    "read": read,
    "look ": look,
    "background": look,
    "delete": tidy,
}


def answer(mind: Mind, text: str) -> Turn:
    """The turn that a message makes."""
    for opening, part in OPENINGS.items():
        if text.startswith(opening):
            return part(mind, text.removeprefix(opening))
    wished = [part for words, part in WISHES.items() if words in text.lower()]
    return (wished or [chat])[0](mind, text)
