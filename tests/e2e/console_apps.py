"""An application that has everything a console shows, from one agent that does what it is told.

team NAME     a scout is called, who calls an expert, who asks the page
dare NAME     the same, and the expert needs an approval too
form          a form that the agent refuses once, when the number is above a hundred
shred THING   a tool that needs an approval
long          a long text in markdown, slow enough to be stopped or reloaded in
hand over     another agent goes on
note TEXT     an event of the application, and the state
everything    a text, thinking, a tool with progress and a picture, a sub-agent, citations
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Model, ReplyBuilder, Request, Scripted, ToolContext, ToolUse
from turnlog.agents.models.scripted import Cite, Script, ScriptPart, Thinking
from turnlog.agents.tools import ImageContent
from turnlog.events import Citation, Envelope, Payload, View
from turnlog.events.view_nodes import Form, NumberField, TextField
from turnlog.state.history import Message
from turnlog_examples.assistant.chart import bars

SLOW_S = 0.01
PART = """## Part {0}

Some *words* about **part {0}**, with `code` and a [link](https://example.com/{0}).

- one
- two

| a | b |
|---|---|
| {0} | {0}{0} |

```python
print({0})
```"""
LONG = "\n\n".join(PART.format(number) for number in range(1, 40))
BOOK = "\n\n".join(PART.format(number) for number in range(1, 320))[:50_000]
BOOK_PIECES = 600


class Note(Payload, frozen=True, kw_only=True):
    """Somebody noted something."""

    ORIGINS: ClassVar = frozenset({"model"})
    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


def noted(state: dict[str, Any], note: Note, _: Envelope) -> dict[str, Any]:
    return {"notes": [*state["notes"], note.text]}


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool(approval=True, risk="It cannot be undone.")
def shred(what: str) -> str:
    """Shred something."""
    return f"{what} is gone"


@tool
def weigh(context: ToolContext, error: str = "", value: float = 0) -> str:
    """Ask for a weight."""
    fields: list[NumberField | TextField] = [
        NumberField("weight", "Weight", required=True, above=0, value=value or None, error=error or None),
        TextField("name", "Name", required=True, value="Ada" if error else None),
    ]
    context.show_view(View.of("weighing", Form("weight_form", fields, title="Weighing", submit="Save")))
    return "shown"


@tool
def draw(context: ToolContext) -> ImageContent:
    """Draw a chart."""
    context.progress("drawing the axes\n")
    context.progress("drawing the bars\n")
    return ImageContent(bars([2, 3, 9], 6), "image/png")


def words(messages: list[Message]) -> tuple[str, str, dict[str, Any]]:
    """What was said last: its first word, the rest, and the last part as it is."""
    last = messages[-1].content[-1]
    order, _, rest = str(last.get("text", "")).partition(" ")
    return order, rest, last


def acted(text: str) -> dict[str, Any] | None:
    """What a person entered, if the message says that somebody acted."""
    marker = "[The user acted: "
    return json.loads(text[len(marker) : -1])["action"]["values"] if text.startswith(marker) else None


def judged(values: dict[str, Any]) -> Iterator[ScriptPart]:
    """A weight is looked at."""
    if values["weight"] > 100:
        yield "That cannot be."
        yield ToolUse("weigh", {"error": "weight must be at most 100", "value": values["weight"]})
    else:
        yield f"Thank you, {values['name']}: {values['weight']}."


def everything(_: str) -> Iterator[ScriptPart]:
    yield Thinking("First the chart, then a scout.")
    yield "Here is **all of it**, with `code`."
    yield Cite(
        Citation(
            type="web_search_result_location",
            cited_text="Charts help.",
            url="https://example.com/a",
            title="On charts",
        )
    )
    yield ToolUse("draw", {})
    yield ToolUse("scout", {"prompt": "Bergen"})


ORDERS: dict[str, Callable[[str], Iterator[ScriptPart]]] = {
    "team": lambda rest: iter([f"I ask my scout about {rest}.", ToolUse("scout", {"prompt": f"ask {rest}"})]),
    "dare": lambda rest: iter([f"My scout dares {rest}.", ToolUse("scout", {"prompt": f"dare {rest}"})]),
    "form": lambda _: iter(["Please fill this in.", ToolUse("weigh", {})]),
    "shred": lambda rest: iter(["One moment.", ToolUse("shred", {"what": rest})]),
    "long": lambda _: iter([LONG]),
    "hand": lambda _: iter(["Somebody else knows.", ToolUse("handoff_to_closer", {"prompt": "Close."})]),
    "note": lambda rest: iter([f"Noted.\n<agent-event type=\"note\" data='{json.dumps({'text': rest})}' />"]),
    "everything": everything,
}


def lead(messages: list[Message]) -> Iterator[ScriptPart]:
    order, rest, last = words(messages)
    values = acted(str(last.get("text", "")))
    if values is not None:
        yield from judged(values)
    elif last["type"] == "tool_result":
        yield f"Done: {last['content']}" if isinstance(last["content"], str) else "Done."
    elif order in ORDERS:
        yield from ORDERS[order](rest)
    else:
        yield f"I heard: {last['text']}"


def scout(messages: list[Message]) -> Iterator[ScriptPart]:
    order, rest, last = words(messages)
    if last["type"] == "tool_result":
        yield f"The expert says {last['content']}."
    elif order == "ask":
        yield f"I am on my way to {rest}."
        yield ToolUse("expert", {"prompt": rest})
    elif order == "dare":
        yield ToolUse("expert", {"prompt": f"dare {rest}"})
    else:
        yield f"In {order}, see the harbour."


def expert(messages: list[Message]) -> Iterator[ScriptPart]:
    order, rest, last = words(messages)
    if last["type"] == "tool_result":
        yield f"{last['content']}, then"
    elif order == "dare":
        yield ToolUse("shred", {"what": rest})
        yield ToolUse("confirm", {"question": f"Is {rest} far?"})
    else:
        yield "I have to ask. "
        yield ToolUse("confirm", {"question": f"Is {last['text']} far?"})


def closer(_: list[Message]) -> Iterator[ScriptPart]:
    yield "I close this."


class Allowance:
    """What all models of this process may say: a piece for each byte that a test writes into a pipe."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Until one more may be said."""
        async with self._turn:
            await asyncio.to_thread(self._take)

    def _take(self) -> None:
        with self._path.open("rb", buffering=0) as pipe:
            pipe.read(1)


@dataclass(frozen=True, slots=True)
class Held:
    """A model that says no more than it is allowed to."""

    script: Script
    allowance: Allowance
    name: str = "held"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        async for batch in Scripted(self.script).stream(request, reply):
            await self.allowance.wait()
            yield batch


@dataclass(frozen=True, slots=True)
class Book:
    """A model that says 50 kB of markdown in 600 pieces, as fast as a fast model speaks."""

    pace_s: float = 0.005
    name: str = "book"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        reply.begin(self.name)
        size = len(BOOK) // BOOK_PIECES + 1
        for start in range(0, len(BOOK), size):
            await asyncio.sleep(self.pace_s)  # the pace of a model that writes
            yield reply.text(BOOK[start : start + size])
        yield reply.done("end_turn")


def make_app(speak: Callable[[Script], Model]) -> App:
    """The application; its models say what is written in the way that `speak` makes them."""
    experts = Agent("Expert", "Know.", speak(expert), tools=(confirm, shred))
    scouts = Agent("Scout", "Scout.", speak(scout), agents=(experts,))
    closers = Agent("Closer", "Close.", speak(closer))
    leads = Agent(
        "Lead",
        "Lead.",
        speak(lead),
        tools=(shred, weigh, draw),
        agents=(scouts,),
        handoffs=(closers,),
    )
    return App(
        "desk",
        leads,
        vocabulary=Vocabulary("desk", [Note]),
        reducers={Note: noted},
        initial_state=lambda: {"notes": []},
    )


app = make_app(lambda script: Scripted(script, SLOW_S))
fast = make_app(Scripted)
ALLOWED = Allowance(os.environ.get("CONSOLE_ALLOWANCE", ""))
held = make_app(lambda script: Held(script, ALLOWED))
book = App("desk", Agent("Author", "Write.", Book()))
