"""What the model of a queued turn reads: the same as if the turn before had been over when it was opened."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.unit.app.desk import ADA, CASES, CloseCase, Desk, NoteFact, desk, play
from turnlog import Agent, App, View
from turnlog.agents.models import Request
from turnlog.app import ClientEvent, Membership
from turnlog.app.messages import Chat
from turnlog.events import AssistantView, Envelope, Payload, UiAction, UiMessage, Usage
from turnlog.events.view_nodes import Button, Screen
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message
from turnlog.state.rules import Rule

VIEW = View.of("decision", Screen([Button("go", "Go")]))
CLOSED = View(kind="a2ui.v1", view_id="decision", tree={})
CLICK = {"view_id": "decision", "action": {"kind": "button.click", "button_id": "go"}}
Open = Callable[[Desk, Membership], Coroutine[Any, Any, None]]


class HeldModel:
    """A model that stores what it reads, speaks, and finishes when the gate is open."""

    name = "held"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.conversations: list[list[Message]] = []

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        reply.begin(self.name)
        self.conversations.append(request.messages)
        yield reply.text(f"answer {len(self.conversations)}")
        await self.gate.wait()
        yield reply.done("end_turn", Usage(input_tokens=0, output_tokens=0))


def count_opening(state: dict[str, int], payload: Payload, __: Envelope) -> dict[str, int]:
    clicks = state["clicks"] + isinstance(payload, UiAction)
    return {**state, "openings": state["openings"] + 1, "clicks": clicks}


def count_note(state: dict[str, int], _: NoteFact, __: Envelope) -> dict[str, int]:
    return {**state, "notes": state["notes"] + 1}


def count_view(state: dict[str, int], _: AssistantView, __: Envelope) -> dict[str, int]:
    return {**state, "views": state["views"] + 1}


NOTE = Rule(
    "note",
    "apply",
    lambda state: state["notes"] < state["openings"],
    lambda state: [NoteFact(text=f"note {state['notes'] + 1}")],
)
SHOW = Rule("show", "apply", lambda state: state["views"] == 0, lambda _: [AssistantView(view=VIEW)])


def make_rule_after_click(view: View) -> Rule:
    """A rule that puts a view in the place of the one that was clicked."""
    return Rule(
        "after click",
        "apply",
        lambda state: state["views"] == state["clicks"] == 1,
        lambda _: [AssistantView(view=view)],
    )


def make_counting_app(model: HeldModel, *rules: Rule) -> App:
    """An application whose rule emits a numbered note for every message, action and closed case."""
    return App(
        "counting",
        Agent("Clerk", "", model),
        vocabulary=CASES,
        reducers={
            UiMessage: count_opening,
            UiAction: count_opening,
            CloseCase: count_opening,
            NoteFact: count_note,
            AssistantView: count_view,
        },
        rules=[SHOW, NOTE, *rules],
        initial_state=lambda: {"openings": 0, "clicks": 0, "notes": 0, "views": 0},
    )


async def open_by_message(at: Desk, seat: Membership) -> None:
    await at.say(seat, "second")


async def open_by_action(at: Desk, seat: Membership) -> None:
    await at.post(seat, "ui.action", CLICK)


async def open_by_page_event(at: Desk, seat: Membership) -> None:
    await at.sessions.chat(seat, Chat(None, [ClientEvent("case.close_case", {}, "evt_close")]))


async def read_in_second_turn(
    open_turn: Open, *rules: Rule, while_first_runs: bool
) -> list[tuple[str, list[str]]]:
    """Return roles and texts of the conversation that the model reads in its second turn."""
    model = HeldModel()
    async with desk(make_counting_app(model, *rules)) as at:
        seat = await at.sessions.create(ADA)
        first = await at.say(seat, "first")
        await at.until(seat, "block.start", trace_id=first)
        if not while_first_runs:
            model.gate.set()
            await at.until(seat, "agent.end", trace_id=first)

        async with asyncio.TaskGroup() as group:  # a chat returns when its turn is over
            group.create_task(open_turn(at, seat))
            await at.until(seat, "case.note_fact", text="note 2")
            model.gate.set()
        [second] = {one.trace_id for one in await at.told(seat, "case.note_fact")} - {first}
        ended = await at.until(seat, "agent.end", trace_id=second)
        assert ended["stop_reason"] == "end_turn"
    return [(message.role, [part["text"] for part in message.content]) for message in model.conversations[1]]


@pytest.mark.parametrize("open_turn", [open_by_message, open_by_action, open_by_page_event])
def test_queued_turn_opened_while_another_runs_reads_what_followed_after_the_answer(open_turn: Open) -> None:
    async def run() -> None:
        conversation = await read_in_second_turn(open_turn, while_first_runs=True)
        assert [role for role, _ in conversation] == ["user", "assistant", "user"]
        notes = [["note 2" in text for text in texts].count(True) for _, texts in conversation]
        assert notes == [0, 0, 1]

    play(run)


@pytest.mark.parametrize("open_turn", [open_by_message, open_by_action, open_by_page_event])
def test_queued_turn_opened_while_another_runs_reads_the_same_as_one_opened_later(open_turn: Open) -> None:
    async def run() -> None:
        queued = await read_in_second_turn(open_turn, while_first_runs=True)
        assert queued == await read_in_second_turn(open_turn, while_first_runs=False)

    play(run)


@pytest.mark.parametrize("view", [VIEW, CLOSED], ids=["shown again", "closed"])
def test_queued_action_whose_own_rules_change_its_view_has_its_turn(view: View) -> None:
    async def run() -> None:
        conversation = await read_in_second_turn(
            open_by_action, make_rule_after_click(view), while_first_runs=True
        )
        assert "button.click" in conversation[-1][1][-1]

    play(run)
