"""Applications that are attacked: an agent that does what it is told, for one person and for two channels."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Scripted, ToolContext, ToolUse
from turnlog.agents.tools import ImageContent
from turnlog.app import Roles
from turnlog.events import Payload, View
from turnlog.events.payload import ANY_ORIGIN, Name
from turnlog.events.view_nodes import Form, TextField
from turnlog.state.history import Message

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


class Note(Payload, frozen=True, kw_only=True):
    """Somebody wrote something down."""

    ORIGINS: ClassVar = ANY_ORIGIN

    EXAMPLE: ClassVar = {"text": "milk"}

    text: str


class Offer(Payload, frozen=True, kw_only=True):
    """A seller names a price."""

    ORIGINS: ClassVar = ANY_ORIGIN

    EXAMPLE: ClassVar = {"price": 3}

    price: int


class Verdict(Payload, frozen=True, kw_only=True):
    """The case is decided; only the application says so."""

    ORIGINS: ClassVar = frozenset({"app", "system"})
    EXAMPLE: ClassVar = {"outcome": "granted"}

    outcome: Name


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool(executor="remote")
def weigh(what: str) -> str:
    """Another process does it."""
    raise NotImplementedError


@tool
def picture() -> ImageContent:
    """Draw."""
    return ImageContent(PNG, "image/png")


@tool
def recall(text: str) -> str:
    """What a document says."""
    return text


@tool
def ask_name(context: ToolContext) -> str:
    """Show a form."""
    context.show_view(View.of("who", Form("person", [TextField("name", "Name", required=True)])))
    return "shown"


class Shredder:
    """A tool that must not run without a person's word, and what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tool(self, expires_s: float = 60.0) -> Any:
        @tool(kind="write", approval=True, roles=("owner",), risk="gone", expires_s=expires_s)
        def shred(what: str) -> str:
            """Shred something."""
            self.done.append(what)
            return f"{what} is gone"

        return shred


class Clinging:
    """A tool that goes on when it is cancelled, until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    def tool(self) -> Any:
        @tool
        async def cling() -> str:
            """Ignore the stop."""
            self.begun.set()
            while not self.let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await self.let_go.wait()
            return "gone"

        return cling


ORDERS: dict[str, Callable[[str], ToolUse]] = {
    "confirm": lambda rest: ToolUse("confirm", {"question": rest}),
    "weigh": lambda rest: ToolUse("weigh", {"what": rest}),
    "picture": lambda _: ToolUse("picture", {}),
    "recall": lambda rest: ToolUse("recall", {"text": rest}),
    "form": lambda _: ToolUse("ask_name", {}),
    "shred": lambda rest: ToolUse("shred", {"what": rest}),
    "cling": lambda _: ToolUse("cling", {}),
}


def obey(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Calls the tool that the first word names, repeats what follows `say`, or says that it heard."""
    last = messages[-1].content[-1]
    order, _, rest = str(last.get("text", "")).partition(" ")
    if last["type"] == "tool_result":
        yield "Done."
    elif order == "say":
        yield rest
    elif order in ORDERS:
        yield ORDERS[order](rest)
    else:
        yield f"I heard {last.get('text', last['type'])}"


def drone(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Talks for long."""
    yield "word " * 5000


VOCABULARY = Vocabulary("case", [Note, Offer, Verdict])
TOOLS = (confirm, weigh, picture, recall, ask_name)


def make(
    name: str = "plain",
    roles: Roles = Roles(),  # noqa: B008
    tools: tuple[Any, ...] = (),
    channels: tuple[str, ...] = (),
) -> App:
    """An application whose agent obeys; with channels, one agent in each."""
    agent = Agent("Clerk", "Obey.", Scripted(obey), tools=(*TOOLS, *tools))
    agents = dict.fromkeys(channels, agent) if channels else agent
    return App(name, agents, vocabulary=VOCABULARY, roles=roles)


plain = make()
POSTS: dict[str, list[type[Payload]]] = {"buyer": [Note], "seller": [Note, Offer]}
counter = make("counter", Roles(postable_events=POSTS), channels=("buyer", "seller"))
endless = App("endless", Agent("Drone", "Talk.", Scripted(drone, word_delay_s=0.01)), vocabulary=VOCABULARY)
