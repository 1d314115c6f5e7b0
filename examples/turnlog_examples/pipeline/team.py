"""The team: a planner, researchers at once, a fact checker below them, and a writer who takes over.

    Planner ── calls ──► Researcher, one for each subject, all at once      depth 1
       │                     └── calls ──► Fact checker, one for each claim     depth 2
       └── hands over to ──► Writer                                          depth 0

The words are scripted: what each of them says follows from its conversation alone. Everything else is real,
and so are the instructions: with a model of your own the same team works in its own words.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from turnlog import Agent, App, tool
from turnlog.agents import Model, Script, Scripted, ScriptPart, ScriptTurn, Tool, ToolContext, ToolUse
from turnlog_examples.greetings import is_greeting
from turnlog_examples.pipeline.archive import ARCHIVE, Archive, claims_about, verdict_on

GUIDE = Path(__file__).with_name("guide.md")
TRIES = ("honey, lightning and the Moon", "goldfish and the Great Wall", "quantum soup")
NOTHING = "Nothing about"
TRUE, FALSE, UNKNOWN = "Confirmed:", "Refuted:", "Nobody knows:"


def subjects_of(topic: str) -> list[str]:
    """The subjects of a topic: "honey, bees and the Moon" are three."""
    parts = re.split(r"\s*(?:,|;|\band\b|&)\s*", topic.strip(" .?!"))
    return list(dict.fromkeys(part for part in parts if part)) or [topic]


def planner(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """Send a researcher for each subject, then hand what they found to the writer."""
    topic = " ".join(turn.text.split())
    found = [result for result in turn.results if result.ok]
    if is_greeting(topic):
        yield "Hello! Name one or more subjects, and I have them researched, checked and written up."
    elif not turn.results:
        subjects = subjects_of(topic)
        yield f"I send a researcher for each of these: {', '.join(subjects)}."
        for subject in subjects:
            yield ToolUse("researcher", {"prompt": subject})
    elif all(result.text.startswith(NOTHING) for result in found):
        yield f"Nobody found anything about {topic}, so there is nothing to write."
    else:
        yield "The findings are here. The writer takes over."
        findings = "\n".join(result.text for result in found)
        yield ToolUse("handoff_to_writer", {"prompt": f"{topic}\n{findings}"})


def researcher(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """Search the shelves, and have every claim checked."""
    subject, found = turn.text, turn.results
    claims: list[str] = json.loads(found[0].text) if found and found[0].ok else []
    if not found:
        yield ToolUse("search", {"subject": subject})
    elif not claims:
        yield f"{NOTHING} {subject}."
    elif len(found) == 1:
        yield f"{len(claims)} to check."
        for claim in claims:
            yield ToolUse("fact_checker", {"prompt": claim})
    else:
        yield "\n".join(result.text for result in found[1:] if result.ok)


def fact_checker(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """Say whether one claim is true."""
    claim, found = turn.text, turn.results
    if not found:
        yield ToolUse("look_up", {"claim": claim})
        return
    verdict, _, correction = found[0].text.partition(": ")
    yield {"true": f"{TRUE} {claim}", "false": f"{FALSE} {claim} {correction}"}.get(
        verdict, f"{UNKNOWN} {claim}"
    )


def writer(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """Turn the findings into a text that tells what holds from what does not."""
    topic, *lines = turn.text.split("\n")
    sure = [line.removeprefix(TRUE).strip() for line in lines if line.startswith(TRUE)]
    wrong = [line.removeprefix(FALSE).strip() for line in lines if line.startswith(FALSE)]
    open_ = [line for line in lines if line.startswith((NOTHING, UNKNOWN))]
    yield f"# On {topic}\n\n"
    yield "".join(f"- {line}\n" for line in sure)
    yield "".join(f"- You may have read this: {line}\n" for line in wrong)
    yield "".join(f"- {line}\n" for line in open_)
    yield f"\nOf {len(sure) + len(wrong)} claims, {len(sure)} held."


def make_tools(archive: Archive) -> tuple[Tool, Tool]:
    """What the researchers and the fact checker use."""

    @tool
    def search(subject: str, context: ToolContext) -> list[str]:
        """Find what was written about a subject.

        Args:
            subject: One subject, as "honey" or "the Moon".
        """
        context.progress(f"searching {len(archive)} shelves")
        return claims_about(archive, subject)

    @tool
    def look_up(claim: str) -> str:
        """Look up whether a claim is true.

        Args:
            claim: The claim, word for word.
        """
        return verdict_on(archive, claim)

    return search, look_up


def make_team(pace_s: float = 0.0, archive: Archive = ARCHIVE, model: Model | str | None = None) -> Agent:
    """The planner and everyone it can reach. A pace makes the words come as from a model."""

    def mind(script: Script) -> Model | str:
        return model or Scripted(script, pace_s)

    search, look_up = make_tools(archive)
    checking = Agent(
        "Fact checker",
        f"Look up the claim and answer in one line: '{TRUE}' and the claim, '{FALSE}' with a correction, or "
        f"'{UNKNOWN}'.",
        mind(fact_checker),
        tools=(look_up,),
        description="Checks one claim, given word for word.",
    )
    researching = Agent(
        "Researcher",
        "Search for your subject and have the fact checker check every claim, all in one step. Answer with "
        f"the fact checker's lines. If there is nothing, say '{NOTHING}' and the subject.",
        mind(researcher),
        tools=(search,),
        agents=(checking,),
        description="Finds out what is known about one subject.",
    )
    writing = Agent(
        "Writer",
        "Write a short text from the findings. Keep what is true, and say what is false and why.",
        mind(writer),
        description="Takes over with the topic and all findings, and writes the text.",
    )
    return Agent(
        "Planner",
        "Split the topic into subjects and send a researcher for each, all in one step. Then hand over to "
        "the writer with the topic and every line they found. If they found nothing, say so and stop.",
        mind(planner),
        agents=(researching,),
        handoffs=(writing,),
    )


def make_app(pace_s: float = 0.0, archive: Archive = ARCHIVE, model: Model | str | None = None) -> App:
    """The team behind a server: `turnlog serve turnlog_examples.pipeline:app`."""
    team = make_team(pace_s, archive, model)
    return App("pipeline", team, title="Research team", guide=GUIDE, suggestions=TRIES)
