"""What the console's screens show: the examples as they are, and a planner of trips that has what they lack.

The planner does what the first word says:

Plan     thinking, sources, a table and code, a picture, a scout that calls a guide
Ask      a scout calls a guide, who asks the page
Add      a tool that asks for some fields
Book     a tool that a person must allow
Look     a tool that tells how far it is and does not come to its end
Break    a tool that fails, and then the model
Tell     a text of some paragraphs, word by word
"""

import asyncio
from collections.abc import Callable, Iterator

from turnlog import Agent, App, tool
from turnlog.agents import RetryPolicy, Scripted, ScriptTurn, ToolContext, ToolError, ToolUse, WaitForInput
from turnlog.agents.models.scripted import Cite, Fail, ScriptPart, Thinking, UsageReport
from turnlog.agents.tools import ImageContent
from turnlog.events import Citation, Usage
from turnlog_examples import assistant, broker, pipeline, weights
from turnlog_examples.assistant.chart import bars

PACE_S = 0.01
NAME = "scripted:claude-sonnet-4-5"  # whose prices are counted
GUIDE = """Plan a few days somewhere. Somebody has to allow what costs money.

### What to watch
- The scout calls a guide: what they do stands inside the call.
- Nothing is booked before you say so."""
TRIES = ("Plan a weekend in Bergen", "Ask about the walk", "Book the hotel")
PLAN = """### Two days in Bergen

It rains on **two days of three**, so the plan has a roof over each afternoon:

| day | morning | afternoon | cost |
|---|---|---|--:|
| Saturday | Bryggen, the old wharf | KODE, four museums | €14 |
| Sunday | Fløyen on foot | Fish market | €32 |

Put it into your calendar:

```sh
curl -O https://example.org/bergen.ics
```"""
RAIN = "Rain falls on 231 days a year."
STORY = """The ferry leaves at eight, and there is coffee on board.

- The first stop is a lighthouse.
- The second is a village that sells nothing but jam.

After that there is only the sea, and a bird."""


@tool
def rain(context: ToolContext, place: str) -> list[object]:
    """How many millimetres of rain fall, month by month."""
    context.progress("12 months from the station\n")
    return [
        "190 mm in an average month",
        ImageContent(bars([19, 15, 17, 11, 10, 13, 15, 19, 28, 27], 20), "image/png"),
    ]


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool
def travellers(context: ToolContext) -> str:
    """Ask who comes along."""
    if context.values is None:
        raise WaitForInput(
            {
                "name": {"type": "field.text", "label": "Full name", "required": True},
                "age": {"type": "field.number", "label": "Age", "min": 0, "help": "Children sail for less."},
                "meal": {
                    "type": "field.select",
                    "label": "Meal",
                    "options": [{"value": "fish", "label": "Fish"}, {"value": "soup", "label": "Soup"}],
                },
            }
        )
    return str(context.values["name"])


@tool(approval=True, kind="write", risk="It costs money and cannot be undone.")
def book_hotel(name: str, nights: int, price_eur: float) -> str:
    """Book rooms."""
    return f"{nights} nights at {name}"


@tool
async def ferries(context: ToolContext, day: str) -> str:
    """Look for ferries; the harbour is slow."""
    context.progress("Asking the harbour\n3 of 8 lines have answered\n")
    await asyncio.Event().wait()
    return ""


@tool
def trains(day: str) -> str:
    """Look for trains."""
    raise ToolError("NO_TIMETABLE", f"there is no timetable for {day}")


def source(text: str) -> Cite:
    url = "https://example.org/bergen/climate"
    return Cite(
        Citation(type="web_search_result_location", cited_text=text, url=url, title="The climate of Bergen")
    )


def plan(_: str) -> Iterator[ScriptPart]:
    yield Thinking("A weekend: the weather first, then somebody who knows the town.", "signed")
    yield "Bergen is wet at any time, so I look at the rain first."
    yield source(RAIN)
    yield ToolUse("rain", {"place": "Bergen"})
    yield ToolUse("scout", {"prompt": "Bergen"})


def one(words: str, use: ToolUse) -> Callable[[str], Iterator[ScriptPart]]:
    return lambda _: iter([words, use])


ORDERS: dict[str, Callable[[str], Iterator[ScriptPart]]] = {
    "Plan": plan,
    "Ask": one("I ask somebody who was there.", ToolUse("scout", {"prompt": "Ask whether the walk is long"})),
    "Add": one("I need to know who comes along.", ToolUse("travellers", {})),
    "Book": one(
        "The Harbour Hotel has a room with a view.",
        ToolUse("book_hotel", {"name": "Harbour Hotel", "nights": 2, "price_eur": 214.5}),
    ),
    "Look": one("I look for ferries on Sunday.", ToolUse("ferries", {"day": "Sunday"})),
    "Break": one("I look for a train.", ToolUse("trains", {"day": "Sunday"})),
    "Tell": lambda _: iter([STORY]),
}


def planner(turn: ScriptTurn) -> Iterator[ScriptPart]:
    said, found = turn.text, turn.results
    order, _, rest = said.partition(" ")
    if found and order == "Plan":
        yield PLAN
    elif found and order == "Break":
        yield "There is no train. I try the bus, which"
        yield Fail("invalid_request_error", retriable=False, message="The model has no more words today.")
    elif found:
        yield f"Done: {found[-1].text}."
    else:
        yield from ORDERS[order](rest) if order in ORDERS else iter([f"I heard: {said}"])
    yield UsageReport(Usage(input_tokens=len(repr(turn)) // 4, output_tokens=90))


def scout(turn: ScriptTurn) -> Iterator[ScriptPart]:
    yield "I was there in May. " if turn.results else "I know somebody in the town."
    if turn.results:
        yield turn.results[-1].text
    else:
        yield ToolUse("guide", {"prompt": turn.text})
    yield UsageReport(Usage(input_tokens=420, output_tokens=40))


def guide(turn: ScriptTurn) -> Iterator[ScriptPart]:
    asked = turn.text.startswith("Ask")
    if asked and not turn.results:
        yield "That depends on how you walk."
        yield ToolUse("confirm", {"question": "Do you walk more than ten kilometres a day?"})
    else:
        yield "Start early: by ten the wharf is full. `Fløyen` is best on foot."
    yield UsageReport(Usage(input_tokens=260, output_tokens=30))


def make_trips() -> App:
    guides = Agent("Guide", "Guide.", Scripted(guide, PACE_S, NAME), tools=(confirm,))
    scouts = Agent("Scout", "Scout.", Scripted(scout, PACE_S, NAME), agents=(guides,))
    planners = Agent(
        "Planner",
        "Plan.",
        Scripted(planner, PACE_S, NAME),
        tools=(rain, travellers, book_hotel, ferries, trains),
        agents=(scouts,),
    )
    return App("trips", planners, title="Trips", guide=GUIDE, suggestions=TRIES)


briefing = assistant.make_app(PACE_S, patience=RetryPolicy(initial_delay_s=0.0))
checks = pipeline.make_app()
entries = weights.make_app()
loans = broker.make_app()
trips = make_trips()
