"""Applications that are hostile themselves: titles, guides, tries, and a model that says every payload
at once, a few characters at a time. `mild` has few payloads of its own, for pages that have no defence.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.security.console_payloads import CALM, SHARP, Attacks
from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import ReplyBuilder, Request, ToolContext
from turnlog.events import CORE, Catalog, Envelope, Payload
from turnlog.events.agent import Usage
from turnlog.events.payload import ANY_ORIGIN
from turnlog.team.events import TEAM

ARGUMENTS = 10  # drawings of arguments
STEP_S = 0.018  # more than a frame: each is drawn
PROGRESS_S = 0.3


class Noted(Payload, frozen=True, kw_only=True):
    """Somebody noted something."""

    ORIGINS: ClassVar = ANY_ORIGIN

    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


def noted(state: dict[str, Any], note: Noted, _: Envelope) -> dict[str, Any]:
    return {**state, note.text: note.text, "notes": [*state["notes"], note.text]}


def pieces(text: str, most: int) -> list[str]:
    """A text in so many pieces, or fewer."""
    size = -(-len(text) // most)
    return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass(frozen=True, slots=True)
class Spiteful:
    """Says payloads side by side, each in a block of its own, then calls a tool with all of them."""

    attacks: Attacks
    steps: int
    name: str = "spiteful"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        reply.begin(self.name)
        if request.messages[-1].content[-1]["type"] != "tool_result":
            async for batch in self._rant(reply):
                yield batch
        yield reply.done(
            "tool_use" if reply.has_deferred_calls else "end_turn", Usage(input_tokens=0, output_tokens=0)
        )

    async def _rant(self, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        blocks = [(reply.open_text(), pieces(text, self.steps)) for text in self.attacks.by("live")]
        for step in range(self.steps):
            await asyncio.sleep(STEP_S)  # the page draws each piece
            for block, said in blocks:
                if block is not None and step < len(said):
                    yield block.feed(said[step])
        for block, _ in blocks:
            if block is not None:
                yield reply.close(block)
        yield reply.start_call("grind")
        for piece in pieces(json.dumps({"text": "\n".join(self.attacks.by("given"))}), ARGUMENTS):
            await asyncio.sleep(STEP_S)  # the page draws each piece
            yield reply.arguments(piece)


def made(name: str, title: str, attacks: Attacks, steps: int) -> App:
    """An application that is hostile wherever it can be."""

    @tool
    async def grind(context: ToolContext, text: str) -> str:
        """Say all payloads, line by line, and give a text back."""
        for line in attacks.by("progress"):
            context.progress(f"{line}\n")
            await asyncio.sleep(PROGRESS_S / len(attacks.all))  # the page draws each line
        return text

    return App(
        name,
        Agent("Spiteful", "Attack.", Spiteful(attacks, steps), tools=(grind,)),
        vocabulary=VOCABULARY,
        reducers={Noted: noted},
        initial_state=lambda: {"notes": []},
        title=title,
        guide="\n\n".join(attacks.by("guide")),
        suggestions=attacks.by("try"),
    )


VOCABULARY = Vocabulary("hostile", [Noted])
CATALOG = Catalog(CORE, TEAM, VOCABULARY)
NAMES = SHARP.names("app")

hostile = made("hostile", NAMES[0], CALM, steps=60)  # most payloads grow by one or two characters
mild = made("mild", NAMES[1], SHARP, steps=20)
