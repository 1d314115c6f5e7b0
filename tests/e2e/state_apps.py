"""An application with two channels, rules and a state of which each role sees a part, for the tests."""

from collections.abc import Iterator
from typing import Any, ClassVar

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.app import Roles, RoleView
from turnlog.events import Envelope, Payload, Vocabulary
from turnlog.state.history import Message
from turnlog.state.rules import Rule

State = dict[str, Any]
LONG = {"long": 400, "longer": 10_000}


class Note(Payload, frozen=True, kw_only=True):
    """Something was noted; what is private is for the front only."""

    ORIGINS: ClassVar[Any] = frozenset({"ui", "model"})

    text: str


class Tally(Payload, frozen=True, kw_only=True):
    """Ten more notes were there."""

    ORIGINS: ClassVar[Any] = frozenset({"app"})

    notes: int


def noted(state: State, note: Note, at: Envelope) -> State:
    return {**state, "notes": state["notes"] + 1, "last": note.text, "at": at.ts}


def tallied(state: State, tally: Tally, at: Envelope) -> State:
    return {**state, "tally": tally.notes}


def tens(state: State) -> bool:
    return bool(state["notes"] // 10 > state["tally"] // 10)


def loops(state: State) -> bool:
    return bool(state["last"] == "loop")


def breaks(state: State) -> bool:
    return bool(state["last"] == "break" and 1 / 0)


def tally(state: State) -> list[Payload]:
    return [Tally(notes=state["notes"])]


@tool(executor="frontend")
def confirm(what: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


def script(messages: list[Message]) -> Iterator[str | ToolUse]:
    """A model that does what it is told: asks the page, says nothing, talks long, or answers."""
    last = messages[-1].content[-1]
    word = str(last.get("text", ""))
    if last["type"] == "tool_result":
        yield f"You said {last['content']}."
    elif word == "ask":
        yield "One moment. "
        yield ToolUse("confirm", {"what": "all"})
    elif word in LONG:
        yield "word " * LONG[word]
    elif word.startswith("quiet"):
        yield f'<agent-event type="note" data=\'{{"text": "{word}"}}\' />'
    else:
        yield f"I read {len(messages[-1].content)} parts."


def clerk(name: str) -> Agent:
    return Agent(name, "", Scripted(script, word_delay_s=0.002), tools=(confirm,))


app = App(
    "desk",
    {"front": clerk("Front"), "back": clerk("Back")},
    vocabulary=Vocabulary("desk", [Note, Tally]),
    reducers={Note: noted, Tally: tallied},
    rules=[
        Rule("tens", "apply", tens, tally),
        Rule("loops", "apply", loops, tally),
        Rule("breaks", "apply", breaks, tally),
    ],
    initial_state=lambda: {"notes": 0, "tally": 0, "last": "", "at": ""},
    roles=Roles(
        state_views={"back": lambda state: {"tally": state["tally"]}},
        event_views={"back": RoleView(events=None, internals=True)},
    ),
)
