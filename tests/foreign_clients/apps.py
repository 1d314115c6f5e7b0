"""An application whose model does what it is told, for clients of other projects."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.models import ModelError, Request
from turnlog.agents.models.script_turn import ScriptTurn
from turnlog.agents.models.scripted import Cite, Emit, Fail, Thinking, UsageReport
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.tool_context import ToolContext, WaitForInput
from turnlog.agents.tools import ImageContent
from turnlog.events import Citation, Envelope, Payload, Usage, View
from turnlog.events.view_nodes import Screen, Text
from turnlog.parse.reply import ReplyBuilder

GATE_VARIABLE = "TURNLOG_TEST_GATE"  # the file that an agent waits for
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)


class NoteAdded(Payload, frozen=True, kw_only=True):
    """The model noted something."""

    ORIGINS: ClassVar = frozenset({"model"})
    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


def add_note(state: dict[str, Any], payload: NoteAdded, _: Envelope) -> dict[str, Any]:
    return {**state, "notes": [*state["notes"], payload.text]}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def break_down() -> str:
    """Fail."""
    raise RuntimeError("a secret of the server")


@tool(approval=True)
def delete_file(name: str) -> str:
    """Delete a file."""
    return f"{name} is deleted"


@tool
def order(context: ToolContext, item: str) -> str:
    """Order something; asks for the size."""
    if context.values is None:
        raise WaitForInput({"question": "Which size?"})
    return f"{item} in {context.values['value']}"


@tool
def draw(context: ToolContext) -> list[Any]:
    """Draw a dot."""
    context.progress("half")
    context.show_view(View.of("dot", Screen(children=(Text(text="A dot"),))))
    return ["a dot", ImageContent(PIXEL, "image/png")]


def answer(turn: ScriptTurn) -> Iterator[Any]:
    """Do what the last message says; after results, say them."""
    if turn.results:
        yield "Got " + " and ".join(result.text for result in turn.results) + "."
        yield UsageReport(Usage(input_tokens=10, output_tokens=5, cache_read_tokens=3))
        return
    word, _, rest = turn.text.partition(" ")
    if word == "think":
        yield Thinking("Let me see what this is.", signature="c2ln")
        yield "I have thought."
    elif word == "add":
        yield "Adding."
        yield ToolUse("add", {"a": 1, "b": 2})
    elif word == "parallel":
        yield ToolUse("add", {"a": 1, "b": 2})
        yield ToolUse("add", {"a": 3, "b": 4})
    elif word == "both":
        yield ToolUse("delete_file", {"name": "a.txt"})
        yield ToolUse("delete_file", {"name": "b.txt"})
    elif word == "cite":
        yield "Grass is green."
        source = "https://example.org/grass"
        yield Cite(Citation(type="web_search_result_location", cited_text="green", url=source))
    elif word == "note":
        yield "Noted."
        yield Emit(NoteAdded(text=rest))
    elif word == "fail":
        yield "Before the failure "
        yield Fail("overloaded_error", retriable=False, message="The model is away.")
    elif word == "call":
        name, _, argument = rest.partition(" ")
        yield ToolUse(name, arguments_of(name, argument))
    else:
        yield f"You said {turn.text}."
        yield UsageReport(Usage(input_tokens=7, output_tokens=4))


def arguments_of(tool_name: str, argument: str) -> dict[str, Any]:
    names = {"delete_file": "name", "order": "item", "helper": "prompt", "set_color": "color"}
    return {names[tool_name]: argument} if tool_name in names else {}


def wait_for_gate() -> None:
    gate = Path(os.environ[GATE_VARIABLE])
    while not gate.exists():
        time.sleep(0.02)  # a file cannot be waited for otherwise


class Gated:
    """The scripted model, and two answers that no script has: one that waits, one that fails halfway once."""

    name = "scripted"

    def __init__(self) -> None:
        self._scripted = Scripted(answer)
        self._failed: set[str] = set()

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        text = ScriptTurn(request.messages).text
        if text == "wait":
            yield reply.begin(self.name)
            yield reply.text("One two ")
            yield reply.text("three ")
            await asyncio.to_thread(wait_for_gate)
            yield reply.text("four.")
            yield reply.done("end_turn", Usage(input_tokens=1, output_tokens=1))
            return
        if text.startswith("retry") and text not in self._failed:
            self._failed.add(text)
            yield reply.begin(self.name)
            yield reply.think("Hm.")
            yield reply.text("Wrong words ")
            yield reply.end()
            raise ModelError("overloaded_error", "The model is busy.", retriable=True)
        async for batch in self._scripted.stream(request, reply):
            yield batch


TOOLS = (add, break_down, delete_file, order, draw)
helper = Agent("Helper", "Help.", Scripted(answer), tools=TOOLS, description="Helps.")
writer = Agent("Writer", "Write.", Scripted(answer))
lead = Agent(
    "Lead",
    "Lead.",
    Gated(),
    tools=TOOLS,
    agents=(helper,),
    handoffs=(writer,),
    retry=RetryPolicy(max_attempts=3, initial_delay_s=0.0),
)
app = App(
    "desk",
    lead,
    vocabulary=Vocabulary("desk", [NoteAdded]),
    reducers={NoteAdded: add_note},
    initial_state=lambda: {"notes": []},
)
