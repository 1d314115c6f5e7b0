"""Buttons that emit events of the application: once, by members who may post them, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from tests.unit.app.desk import ADA, BOB, Desk, bodies, desk, play
from turnlog import Agent, App, View, tool
from turnlog.agents import Scripted, ScriptTurn, ToolContext, ToolUse
from turnlog.app import ClientEvent, Membership, Roles
from turnlog.errors import Conflict, InvalidEvent
from turnlog.events import AssistantView, Envelope, Payload, Vocabulary
from turnlog.events.view_nodes import Button, ButtonEvent
from turnlog.ids import new_id
from turnlog.state import Rule


class Agree(Payload, frozen=True, kw_only=True, rename="camel"):
    ORIGINS: ClassVar = frozenset({"ui"})
    EXAMPLE: ClassVar = {"toTerms": "v1"}

    to_terms: str


class Confirm(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"app"})


TERMS = Vocabulary("terms", [Agree, Confirm])
AGREE = Button("agree", "I agree", emits=[Agree(to_terms="v1"), Agree(to_terms="v2")])


def agreed(state: dict[str, Any], payload: Agree, _: Envelope) -> dict[str, Any]:
    return {**state, "agreed": [*state["agreed"], payload.to_terms]}


def confirmed(state: dict[str, Any], _: Confirm, __: Envelope) -> dict[str, Any]:
    return {**state, "confirmed": True}


def is_unconfirmed(state: dict[str, Any]) -> bool:
    return len(state["agreed"]) >= 2 and not state["confirmed"]


def make_app(button: Button, *, roles: Roles = Roles(), with_rules: bool = False) -> App:  # noqa: B008
    @tool
    def show(context: ToolContext) -> str:
        """Show the button."""
        context.show_view(View.of("v", button))
        return "shown"

    def script(turn: ScriptTurn) -> list[str | ToolUse]:
        return ["Please click."] if turn.results or turn.action else [ToolUse("show")]

    return App(
        "terms",
        Agent("Clerk", "", Scripted(script), tools=[show]),
        vocabulary=TERMS,
        reducers={Agree: agreed, Confirm: confirmed},
        rules=[Rule("confirm", "apply", is_unconfirmed, lambda state: [Confirm()])] if with_rules else (),
        initial_state=lambda: {"agreed": [], "confirmed": False},
        roles=roles,
    )


@asynccontextmanager
async def shown(app: App) -> AsyncIterator[tuple[Desk, Membership]]:
    """A session of ADA with the view."""
    async with desk(app) as at:
        membership = await at.sessions.create(ADA)
        turn = await at.say(membership, "show it")
        await at.until(membership, "agent.end", trace_id=turn)
        yield at, membership


def click(event_id: str | None = None, more: Any = {}) -> ClientEvent:  # noqa: B006
    action = {"kind": "button.click", "button_id": "agree", **more}
    return ClientEvent("ui.action", {"view_id": "v", "action": action}, event_id or new_id("evt_"))


async def events_of_app(at: Desk, membership: Membership) -> list[Envelope]:
    envelopes = await at.told(membership)
    return [envelope for envelope in envelopes if envelope.type.startswith("terms.")]


def test_click_emits_the_events_of_its_button_behind_the_action_in_one_turn() -> None:
    async def run() -> None:
        async with shown(make_app(AGREE)) as (at, membership):
            [seq] = await at.sessions.post(membership, [click()])
            [action] = await at.told(membership, "ui.action")
            emitted = await events_of_app(at, membership)
            assert [msgspec.json.decode(one.payload) for one in emitted] == [
                {"toTerms": "v1"},
                {"toTerms": "v2"},
            ]
            assert [one.seq for one in emitted] == [seq + 1, seq + 2]
            for one in emitted:
                assert (one.origin, one.actor) == ("ui", "ada")
                assert (one.trace_id, one.channel) == (action.trace_id, action.channel)
            _, state = await at.sessions.state(membership)
            assert state["agreed"] == ["v1", "v2"]

    play(run)


def test_rules_follow_what_a_click_emits_in_the_same_batch() -> None:
    async def run() -> None:
        async with shown(make_app(AGREE, with_rules=True)) as (at, membership):
            [seq] = await at.sessions.post(membership, [click()])
            types = [(one.type, one.seq - seq) for one in await events_of_app(at, membership)]
            assert types == [("terms.agree", 1), ("terms.agree", 2), ("terms.confirm", 3)]

    play(run)


def test_click_from_a_second_tab_emits_nothing() -> None:
    async def run() -> None:
        async with shown(make_app(AGREE)) as (at, membership):
            await at.sessions.post(membership, [click()])
            with pytest.raises(Conflict, match="agree has been clicked already"):
                await at.sessions.post(membership, [click()])
            assert len(await events_of_app(at, membership)) == 2

    play(run)


def test_the_same_click_again_emits_nothing_and_returns_its_seq() -> None:
    async def run() -> None:
        async with shown(make_app(AGREE, with_rules=True)) as (at, membership):
            again = click("evt_click")
            first = await at.sessions.post(membership, [again])
            assert await at.sessions.post(membership, [again]) == first
            assert len(await events_of_app(at, membership)) == 3

    play(run)


def test_click_on_a_button_with_repeat_emits_each_time() -> None:
    async def run() -> None:
        button = msgspec.structs.replace(AGREE, repeat=True)
        async with shown(make_app(button)) as (at, membership):
            seqs = await at.sessions.post(membership, [click(), click()])
            assert seqs[1] - seqs[0] == 3
            assert len(await events_of_app(at, membership)) == 4

    play(run)


def test_click_of_a_role_that_may_not_post_the_event_is_refused_whole() -> None:
    async def run() -> None:
        roles = Roles(creator=("customer",), postable_events={"customer": (Agree,)})
        async with shown(make_app(AGREE, roles=roles)) as (at, membership):
            helper = await at.member(membership, BOB, "guest")
            with pytest.raises(InvalidEvent, match=r"your role may not post terms\.agree"):
                await at.sessions.post(helper, [click()])
            assert await events_of_app(at, membership) == []
            assert await at.told(membership, "ui.action") == []
            await at.sessions.post(membership, [click()])  # the button is not used up
            assert len(await events_of_app(at, membership)) == 2

    play(run)


@pytest.mark.parametrize("field", ["emits", "data"])
def test_events_that_a_page_adds_to_a_click_are_dropped(field: str) -> None:
    async def run() -> None:
        async with shown(make_app(Button("agree", "I agree"))) as (at, membership):
            events = [{"type": "agree", "data": {"toTerms": "x"}}]
            await at.sessions.post(membership, [click(more={field: events})])
            assert await events_of_app(at, membership) == []
            assert "emits" not in bodies(await at.told(membership, "ui.action"))[0]["action"]

    play(run)


def view_of(*events: ButtonEvent) -> AssistantView:
    return AssistantView(view=View.of("v", Button("agree", "I agree", emits=events)))


REFUSED = {
    "unknown": (
        ButtonEvent("agreee", {"toTerms": "x"}),
        "expected an event of the application, got 'agreee'",
    ),
    "of Turnlog": (ButtonEvent("title", {"title": "x"}), "expected an event of the application, got 'title'"),
    "not from a page": (ButtonEvent("confirm"), r"terms\.confirm may not come from ui"),
    "misspelt field": (ButtonEvent("agree", {"to_terms": "x"}), r"terms\.agree has no field 'to_terms'"),
    "missing field": (ButtonEvent("agree"), "missing required field toTerms"),
}


@pytest.mark.parametrize(("event", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_view_with_an_event_that_no_click_may_emit_is_refused_at_append(
    event: ButtonEvent, problem: str
) -> None:
    with pytest.raises(InvalidEvent, match=problem) as refused:
        make_app(AGREE).catalog.build_event(view_of(*AGREE.emits, event), id="evt_1", origin="tool")
    assert refused.value.path == "$.payload.view.tree.emits[2]"


def test_view_of_a_model_may_not_emit() -> None:
    catalog = make_app(AGREE).catalog
    with pytest.raises(InvalidEvent, match="a model may not show a button that emits events"):
        catalog.build_event(view_of(*AGREE.emits), id="evt_1", origin="model")
    catalog.build_event(view_of(), id="evt_1", origin="model")


def test_tool_that_shows_an_unknown_event_fails() -> None:
    async def run() -> None:
        async with shown(make_app(Button("agree", "I agree", emits=[ButtonEvent("other")]))) as (
            at,
            membership,
        ):
            [result] = bodies(await at.told(membership, "tool.result"))
            assert result["ok"] is False
            assert await at.told(membership, "assistant.view") == []

    play(run)


def test_button_refuses_an_event_of_turnlog() -> None:
    with pytest.raises(ValueError, match=r"Expected an event of the application, got assistant\.view"):
        Button("agree", "I agree", emits=[view_of()])
