"""An application for guests: the reception of a hotel. Its inner work holds a word that no guest may see.

The first word of a message says what the agent does:

form       a form, refused once when there are more than six persons
table      a table to edit
book       a tool that needs an approval
walk       a question with yes and no
room       a question with choices
travel     a tool that asks for some fields
plan       thinking, a tool, a sub-agent and an event of the application before the answer
file       says which files the message has
tell       a text of some paragraphs
mark       a text in markdown
fail       the model fails
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tests.e2e.console_apps import Allowance, Held
from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Model, Scripted, ScriptTurn, ToolContext, ToolUse, WaitForInput
from turnlog.agents.models.scripted import Fail, ScriptPart, Thinking
from turnlog.app import Attachments, Roles
from turnlog.app.app import EVERYTHING
from turnlog.events import Envelope, Payload, View
from turnlog.events.payload import ANY_ORIGIN
from turnlog.events.view_nodes import (
    DatetimeField,
    Form,
    NumberField,
    Option,
    SelectField,
    TableEditor,
    TableRow,
    TextField,
)

SECRET = "hidden-from-guests"
PACE_S = 0.002
NO_ROLES = Roles()
STORY = """The ferry leaves at eight, and there is coffee on board.

- The first stop is a lighthouse.
- The second is a village that sells nothing but jam.

After that there is only the sea, and a bird."""
MARKDOWN = """### Two days in Bergen

It rains on **two days of three**, so the plan has a roof over each afternoon:

| day | morning | afternoon | cost |
|---|---|---|--:|
| Saturday | Bryggen, the old wharf | KODE, four museums | €14 |
| Sunday | Fløyen on foot | Fish market | €32 |

1. Buy the **day ticket** at the station.
2. Ask for *the early boat*: [timetable](https://example.org/ferries).

```sh
curl -O https://example.org/bergen.ics
```"""


class Remark(Payload, frozen=True, kw_only=True):
    """The reception notes something about a guest."""

    ORIGINS: ClassVar = ANY_ORIGIN
    EXAMPLE: ClassVar = {"text": "late"}

    text: str


def note_remark(state: dict[str, Any], remark: Remark, _: Envelope) -> dict[str, Any]:
    return {"remarks": [*state["remarks"], remark.text]}


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the guest."""
    raise NotImplementedError


@tool(executor="frontend")
def choose_room(question: str, options: list[str]) -> str:
    """Let the guest choose."""
    raise NotImplementedError


@tool(approval=True, kind="write", risk="It costs money and cannot be undone.")
def book_hotel(name: str, nights: int, price_eur: float) -> str:
    """Book rooms."""
    return f"{nights} nights at {name}"


@tool
def look_up(context: ToolContext, key: str) -> str:
    """Look a guest up in the files of the hotel."""
    context.progress(f"{SECRET} progress\n")
    return f"{SECRET} result of {key}"


@tool
def travellers(context: ToolContext) -> str:
    """Ask who comes along."""
    if context.values is None:
        raise WaitForInput(
            {
                "name": {"type": "field.text", "label": "Full name", "required": True},
                "age": {"type": "field.number", "label": "Age", "min": 0},
            }
        )
    return str(context.values["name"])


@tool
def ask_booking(context: ToolContext, error: str = "") -> str:
    """Show a form."""
    meals = [Option("fish", "Fish"), Option("soup", "Soup")]
    fields: list[Any] = [
        TextField("name", "Name", required=True, value="Ada" if error else None),
        NumberField("persons", "Persons", required=True, min=1, max=20, error=error or None),
        DatetimeField("day", "First day", picks="date"),
        SelectField("meal", "Meal", options=meals),
    ]
    form = Form("booking", fields, title="Your stay", submit="Book")
    context.show_view(View.of("stay", form))
    return "shown"


@tool
def show_table(context: ToolContext) -> str:
    """Show a table."""
    columns: list[Any] = [TextField("what", "What", required=True), NumberField("count", "Count", min=0)]
    rows = [TableRow("r1", {"what": "Towels", "count": 4})]
    context.show_view(
        View.of(
            "list", TableEditor("wishes", columns, rows=rows, title="Wishes", can_add=True, can_delete=True)
        )
    )
    return "shown"


def plan(_: str) -> Iterator[ScriptPart]:
    yield Thinking(f"{SECRET} thinking")
    yield "One moment, I look into this."
    yield ToolUse("look_up", {"key": f"{SECRET} argument"})
    yield ToolUse("scout", {"prompt": f"{SECRET} prompt"})
    yield f'\n<agent-event type="remark" data=\'{{"text": "{SECRET} remark"}}\' />'


def use(words: str, *uses: ToolUse) -> Callable[[str], Iterator[ScriptPart]]:
    return lambda _: iter([words, *uses])


ORDERS: dict[str, Callable[[str], Iterator[ScriptPart]]] = {
    "form": use("Please fill this in.", ToolUse("ask_booking", {})),
    "table": use("This is what we bring.", ToolUse("show_table", {})),
    "book": use(
        "The Harbour Hotel has a room with a view.",
        ToolUse("book_hotel", {"name": "Harbour Hotel", "nights": 2, "price_eur": 214.5}),
    ),
    "walk": use(
        "That depends on you.",
        ToolUse("confirm", {"question": "Do you walk more than ten kilometres a day?"}),
    ),
    "room": use(
        "There are three.",
        ToolUse(
            "choose_room", {"question": "Which room do you like?", "options": ["Sea", "Garden", "Tower"]}
        ),
    ),
    "travel": use("I need to know who comes along.", ToolUse("travellers", {})),
    "plan": plan,
    "tell": lambda _: iter([STORY]),
    "mark": lambda _: iter([MARKDOWN]),
    "fail": lambda _: iter(
        ["I am about to", Fail("invalid_request_error", retriable=False, message="No more words today.")]
    ),
}


def receive(turn: ScriptTurn) -> Iterator[ScriptPart]:
    text = turn.text
    order, _, rest = text.partition(" ")
    if turn.results:
        found = turn.results[-1].text
        yield "All is arranged." if SECRET in found or found == "shown" else f"Done: {found}."
    elif text.startswith("[The user acted: "):
        yield from judge(text)
    elif order in ORDERS:
        yield from ORDERS[order](rest)
    else:
        yield f"I heard: {text}"


def judge(text: str) -> Iterator[ScriptPart]:
    if '"persons":9' in text:
        yield "That is too many for one room."
        yield ToolUse("ask_booking", {"error": "persons must be <= 6"})
    else:
        yield "Thank you, that is noted."


def scout(_: ScriptTurn) -> Iterator[ScriptPart]:
    yield f"{SECRET} report"


def make_app(
    speak: Callable[[Callable[[ScriptTurn], Iterator[ScriptPart]]], Model], roles: Roles = NO_ROLES
) -> App:
    scouts = Agent("Scout", "Scout.", speak(scout))
    reception = Agent(
        "Reception",
        f"{SECRET} instructions",
        speak(receive),
        tools=(confirm, choose_room, book_hotel, look_up, travellers, ask_booking, show_table),
        agents=(scouts,),
    )
    return App(
        "hotel",
        reception,
        title="Hotel",
        vocabulary=Vocabulary("hotel", [Remark]),
        reducers={Remark: note_remark},
        initial_state=lambda: {"remarks": [f"{SECRET} state"]},
        roles=roles,
        attachments=Attachments(max_bytes=2_000_000, max_text_bytes=2000, max_count=3),
    )


app = make_app(lambda script: Scripted(script, PACE_S))
shown = make_app(lambda script: Scripted(script, PACE_S), Roles(event_views={"guest": EVERYTHING}))
ALLOWED = Allowance(os.environ.get("CONSOLE_ALLOWANCE", ""))
held = make_app(lambda script: Held(script, ALLOWED))
