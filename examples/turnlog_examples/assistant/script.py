"""The answers of the assistant without a paid model: it briefs a balloon pilot.

Everything follows from the conversation: the place that was named, what the tools found there, what the user
answered. The model is also as unreliable as real ones: each briefing begins with a sentence that breaks off
and has to be asked for again. Prices are those of the model in its name.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnlog.agents import (
    Cite,
    Fail,
    Files,
    ProviderCall,
    Script,
    ScriptPart,
    ScriptResult,
    ScriptTurn,
    Thinking,
    ToolUse,
    UsageReport,
)
from turnlog.events import Citation, File, Usage
from turnlog_examples.assistant.tools import FIELDS, LIMIT_KNOTS, forecast
from turnlog_examples.greetings import is_greeting

HANDBOOK = ("https://example.org/balloons/handbook", "The balloon pilot's handbook")
RULE = "No launch when the wind near the ground is above ten knots."
MORNING = "The air is calmest in the hours after sunrise."
INSTEAD = "Göreme"  # the field that is offered where the register knows none


@dataclass(frozen=True, slots=True)
class Unreliable:
    """A script whose first words in a turn break off once; asked again, it goes through."""

    script: Script
    _failed: set[int] = field(default_factory=set)

    def __call__(self, turn: ScriptTurn) -> Iterable[ScriptPart]:
        conversation = hash(repr(turn))
        greets = is_greeting(turn.text)
        if greets or turn.results or conversation in self._failed:
            self._failed.discard(conversation)
            return self.script(turn)
        self._failed.add(conversation)
        return [
            Thinking("A flight, then."),
            "Before a flight I look at the",
            Fail(message="Too busy just now."),
        ]


def place_of(text: str) -> str:
    """The place in a question: what follows "from", "at", "in" or "over", or all of it."""
    named = re.search(r"\b(?:from|at|in|over)\s+(.+)", text)
    return (named[1] if named else text).strip(" .?!")


def spent(turn: ScriptTurn, output_tokens: int) -> UsageReport:
    """What a message of so many tokens costs: the conversation is read again each time."""
    return UsageReport(Usage(input_tokens=len(repr(turn)) // 4, output_tokens=output_tokens))


def pilot(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """What the assistant says: look, ask, write."""
    place = place_of(turn.text)
    found = {result.tool: result for result in turn.results}
    if is_greeting(turn.text):
        yield from greet()
    elif "wind" not in found:
        yield from look(place)
    elif "confirm" not in found:
        yield from judge(place, found)
    else:
        yield from finish(place, found)
    yield spent(turn, 120)


def greet() -> Iterator[ScriptPart]:
    """Say what to ask for."""
    fields = ", ".join(name.title() for name in FIELDS)
    yield "Hello! I brief balloon pilots. Name a place, and I look at its wind, sky, field and tower. "
    yield f"The register knows these fields: {fields}."


def look(place: str) -> Iterator[ScriptPart]:
    """Read the rules, then look at everything at once."""
    yield Thinking(f"A launch at {place}: the rules, then wind, sky, field and tower.", "scripted")
    yield "Before a flight I look at the rules."
    url, title = HANDBOOK
    found = [{"type": "web_search_result", "url": url, "title": title, "page_age": None}]
    yield ProviderCall("web_search", {"query": "balloon launch wind limit"}, found)
    yield "Above ten knots nobody launches, and the early hours are best."
    for text in (RULE, MORNING):
        yield Cite(Citation(type="web_search_result_location", cited_text=text, url=url, title=title))
    for tool in ("wind", "camera", "register"):
        yield ToolUse(tool, {"place": place})
    yield ToolUse("tower", {"prompt": place})


def judge(place: str, found: dict[str, ScriptResult]) -> Iterator[ScriptPart]:
    """Too much wind ends it; else the user decides."""
    strongest = json.loads(found["wind"].text)["strongest"]
    sky, field_, tower = found["camera"], found["register"], found["tower"]
    yield f"The wind over {place} reaches {strongest} knots, the sky is {sky.text}. "
    yield f"The field is {field_.text}. " if field_.ok else "The register does not know the field. "
    yield tower.text if tower.ok else "Nobody answers in the tower."
    if strongest > LIMIT_KNOTS:
        yield f"\n\nThat is above {LIMIT_KNOTS} knots: no flight today."
    elif field_.ok:
        yield ToolUse("confirm", {"question": f"Shall I write the flight plan for {place}?"})
    else:
        question = (
            f"There is no launch field at {place}. Shall I write the flight plan for {INSTEAD} instead?"
        )
        yield ToolUse("confirm", {"question": question})


def finish(place: str, found: dict[str, ScriptResult]) -> Iterator[ScriptPart]:
    """Write the plan, if it is wanted."""
    if found["confirm"].text != "true":
        yield "As you like. The balloon stays in its bag."
        return
    site = place if found["register"].ok else INSTEAD
    knots = forecast(site)
    hour = min(knots, key=lambda hour: knots[hour])
    line = f"Launch at {site}, {hour:02}:00."
    yield Thinking(f"The calmest hour is {hour:02}:00.", "scripted")
    ran = {
        "type": "code_execution_result",
        "stdout": f"{line}\n",
        "stderr": "",
        "return_code": 0,
        "content": [],
    }
    yield ProviderCall("code_execution", {"code": f"write('flight-plan.txt', {line!r})"}, ran)
    yield f"The plan is written: launch at {hour:02}:00, when it is calmest."
    yield Cite(
        Citation(
            type="char_location",
            cited_text=line,
            document_index=0,
            document_title="flight-plan.txt",
            start_char_index=0,
            end_char_index=len(line),
        )
    )
    name = "flight-plan.txt"
    yield Files((File(file_id="file_plan", filename=name, storage_location="provider:file_plan"),))


def tower(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """The tower knows its own field; where there is none, its line is dead."""
    place = turn.text
    if place.casefold() not in FIELDS:
        yield Fail("not_found_error", retriable=False, message=f"There is no tower at {place}.")
    yield f"{place} tower: free to launch until noon."
    yield spent(turn, 20)
