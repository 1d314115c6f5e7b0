"""What a queued turn reads of the application's events: when it begins, and after what was said before."""

from typing import ClassVar

import pytest

from tests.support.folds import root_messages
from tests.support.tables import for_each_row
from tests.support.written_logs import place
from turnlog.events import (
    CORE,
    AgentEnd,
    AgentStart,
    AssistantMessage,
    Catalog,
    Origin,
    Payload,
    Scope,
    UiAction,
    UiMessage,
    Vocabulary,
)
from turnlog.events.payload import ANY_ORIGIN
from turnlog.events.ui import ButtonClick
from turnlog.state.history import History


class Chosen(Payload, frozen=True, kw_only=True):
    """A page, or a rule, chose something."""

    ORIGINS: ClassVar = ANY_ORIGIN

    city: str


CATALOG = Catalog(CORE, Vocabulary("trip", [Chosen]))
MESSAGE = UiMessage(text="second")
ACTION = UiAction(action=ButtonClick(button_id="b1"), view_id="v1")
ANSWER = UiAction(action=ButtonClick(button_id="b1"), call_id="call_1")
CHOSEN = Chosen(city="Oslo")


class Writer:
    """Appends events to a history and reads it."""

    def __init__(self) -> None:
        self.history = History()
        self._seq = 0

    def append(self, payload: Payload, trace_id: str, origin: Origin, agent_id: str | None = None) -> None:
        scope = Scope(trace_id=trace_id, agent_id=agent_id, depth=0 if agent_id else None)
        event = CATALOG.build_event(payload, id=f"evt_{self._seq}", origin=origin, scope=scope)
        self.history.apply(*place(event, self._seq, CATALOG))
        self._seq += 1

    def start(self, trace_id: str, prompt: str) -> None:
        start = AgentStart(name="Guide", via="prompt", prompt=prompt)
        self.append(start, trace_id, "system", f"agt_{trace_id}")

    def finish(self, trace_id: str) -> None:
        self.append(AssistantMessage(text="answer"), trace_id, "model", f"agt_{trace_id}")
        self.append(AgentEnd(stop_reason="end_turn"), trace_id, "system", f"agt_{trace_id}")

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each message; an event is its city."""
        return [
            ["Oslo" if "Oslo" in part["text"] else part["text"] for part in message.content]
            for message in root_messages(self.history)
        ]


@pytest.mark.parametrize("opening", [MESSAGE, ACTION])
def test_events_that_follow_from_a_queued_opening_are_read_when_its_turn_begins(opening: Payload) -> None:
    writer = Writer()
    writer.start("tr_1", "first")
    writer.append(opening, "tr_2", "ui")
    writer.append(CHOSEN, "tr_2", "app")
    assert writer.texts == [["first"]]
    writer.finish("tr_1")
    assert writer.texts == [["first"], ["answer"]]
    writer.start("tr_2", "second")
    assert writer.texts == [["first"], ["answer"], ["Oslo", "second"]]


@for_each_row("trace_id", ["tr_1", "tr_2"])
def test_events_that_follow_from_the_answer_to_a_call_are_read_at_once(trace_id: str) -> None:
    writer = Writer()
    writer.start("tr_1", "first")
    writer.append(ANSWER, trace_id, "ui")
    writer.append(CHOSEN, trace_id, "app")
    assert writer.texts == [["first", "Oslo"]]


def test_events_of_a_turn_that_has_begun_are_read_at_once() -> None:
    writer = Writer()
    writer.append(ACTION, "tr_1", "ui")
    writer.start("tr_1", "first")
    writer.append(CHOSEN, "tr_1", "app")
    assert writer.texts == [["first", "Oslo"]]


def test_events_that_follow_from_a_queued_action_are_held_back() -> None:
    writer = Writer()
    writer.start("tr_1", "first")
    writer.append(ACTION, "tr_2", "ui")
    writer.append(CHOSEN, "tr_2", "app")
    assert writer.texts == [["first"]]
