"""Applications that are hostile themselves: titles, guides, tries, and a model that says every payload
at once, a few characters at a time. `mild` has few payloads of its own, for pages that have no defence.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.security.console_payloads import CALM, SHARP
from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Context, Reply, Request
from turnlog.events import CORE, TEAM, Catalog, Envelope, Payload
from turnlog.events.agent import Usage

STEPS = 60  # drawings of a text that grows: most payloads grow by one or two characters
ARGUMENTS = 10  # drawings of arguments
STEP_S = 0.018  # more than a frame: each is drawn
LINE_S = 0.003


class Noted(Payload, frozen=True, kw_only=True):
    """Somebody noted something."""

    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


def noted(state: dict[str, Any], note: Noted, _: Envelope) -> dict[str, Any]:
    return {**state, note.text: note.text, "notes": [*state["notes"], note.text]}


def pieces(text: str, most: int) -> list[str]:
    """A text in so many pieces, or fewer."""
    size = -(-len(text) // most)
    return [text[start : start + size] for start in range(0, len(text), size)]


@tool
async def grind(context: Context, text: str) -> str:
    """Say a text, line by line, and give it back."""
    for line in CALM.by("progress"):
        context.progress(f"{line}\n")
        await asyncio.sleep(LINE_S)
    return text


@dataclass(frozen=True, slots=True)
class Spiteful:
    """Says all payloads side by side, each in a block of its own, then calls a tool with all of them."""

    name: str = "spiteful"

    async def stream(self, request: Request, reply: Reply) -> AsyncIterator[list[Payload]]:
        reply.begin(self.name)
        if request.messages[-1].content[-1]["type"] != "tool_result":
            async for batch in rant(reply):
                yield batch
        yield reply.done("tool_use" if reply.calling else "end_turn", Usage(input_tokens=0, output_tokens=0))


async def rant(reply: Reply) -> AsyncIterator[list[Payload]]:
    """All payloads, then a call whose arguments are written as slowly."""
    blocks = [(reply.open_text(), pieces(text, STEPS)) for text in CALM.by("live")]
    for step in range(STEPS):
        await asyncio.sleep(STEP_S)
        for block, said in blocks:
            if block is not None and step < len(said):
                yield block.feed(said[step])
    for block, _ in blocks:
        if block is not None:
            yield reply.close(block)
    yield reply.start_call("grind")
    for piece in pieces(json.dumps({"text": "\n".join(CALM.by("given"))}), ARGUMENTS):
        await asyncio.sleep(STEP_S)
        yield reply.arguments(piece)


VOCABULARY = Vocabulary("hostile", [Noted])
CATALOG = Catalog(CORE, TEAM, VOCABULARY)
NAMES = SHARP.names("app")

app = App(
    "hostile",
    Agent("Spiteful", "Attack.", Spiteful(), tools=(grind,)),
    vocabulary=VOCABULARY,
    reducers={Noted: noted},
    start=lambda: {"notes": []},
    title=NAMES[0],
    guide="\n\n".join(CALM.by("guide")),
    tries=CALM.by("try"),
)
mild = App(
    "mild",
    Agent("Mild", "Do.", Spiteful()),
    vocabulary=VOCABULARY,
    reducers={Noted: noted},
    start=lambda: {"notes": []},
    title=NAMES[1],
    guide="\n\n".join(SHARP.by("guide")),
    tries=SHARP.by("try"),
)
