"""What an application refuses where it is declared, and what its roles allow pages and models."""

from typing import Any, ClassVar

import pytest

from tests.unit.app.desk import ADA, BOB, bodies, desk, play
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Attachments, Roles, RoleView
from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import Payload, Vocabulary
from turnlog.state.rules import Rule

ANY_PHASE: Any = "aply"


class RecordFact(Payload, frozen=True, kw_only=True, rename="camel"):
    """A fact became known."""

    ORIGINS: ClassVar = frozenset({"model", "ui"})

    full_name: str | None = None
    monthly_income: int | None = None


class CloseCase(Payload, frozen=True, kw_only=True):
    """The case is closed."""

    ORIGINS: ClassVar = frozenset({"model"})


class Stranger(Payload, frozen=True, kw_only=True):
    """Not in the vocabulary."""


VOCABULARY = Vocabulary("case", [RecordFact, CloseCase])
CLOSING = """Done. <agent-event type="close_case" data='{}' />"""


def agent(name: str) -> Agent:
    return Agent(name, "", Scripted(lambda messages: [CLOSING]))


def make_app(**more: Any) -> App:
    agents = {"buyer": agent("Buyer's guide"), "seller": agent("Seller's guide")}
    return App("case", agents, vocabulary=VOCABULARY, **more)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            {"reducers": {Stranger: lambda state, *_: state}},
            "declared events, got one of Stranger",
        ),
        (
            {"rules": [Rule("r", ANY_PHASE, bool, list)]},
            "rule r: .* apply or submit, got 'aply'",
        ),
        (
            {"roles": Roles(postable_events={"buyer": [Stranger]})},
            "postable_events of buyer: .* Stranger",
        ),
        ({"roles": Roles(emits={"buyer": [Stranger]})}, "emits of buyer: .* got Stranger"),
        ({"roles": Roles(emits={"byer": [CloseCase]})}, "expected roles of the application, got byer"),
        (
            {"roles": Roles(event_views={"buyer": RoleView(events=[Stranger])})},
            "event_views of buyer: .* got Stranger",
        ),
        ({"attachments": Attachments(media_types=["text/html"])}, "attachments: .* got text/html"),
    ],
)
def test_app_declaration_that_would_have_no_effect_is_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(CallerError, match=problem):
        make_app(**more)


def test_model_of_a_channel_emits_only_what_its_role_may() -> None:
    app = make_app(roles=Roles(creator=("buyer",), emits={"seller": [RecordFact], "buyer": [CloseCase]}))

    async def run() -> None:
        async with desk(app) as at:
            buyer = await at.sessions.create(ADA)
            seller = await at.member(buyer, BOB, "seller")
            await at.say(seller, "Close it.")
            await at.until(buyer, "agent.end", channel="seller")
            assert await at.told(buyer, "case.close_case") == []
            [reject] = bodies(await at.told(buyer, "parse.reject"))
            assert reject["reason"] == "unknown_type"
            await at.say(buyer, "Close it.")
            await at.until(buyer, "agent.end", channel="buyer")
            assert [one.channel for one in await at.told(buyer, "case.close_case")] == ["buyer"]

    play(run)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"fullNmae": "Ada"}, r"no field 'fullNmae'; did you mean fullName\?"),
        ({"x": 1}, "no field 'x'; it has fullName, monthlyIncome"),
    ],
)
def test_direct_event_with_an_unknown_field_is_refused(payload: dict[str, Any], problem: str) -> None:
    async def run() -> None:
        async with desk(make_app()) as at:
            seat = await at.sessions.create(ADA)
            with pytest.raises(InvalidEvent, match=problem):
                await at.post(seat, "case.record_fact", payload)
            assert await at.told(seat, "case.record_fact") == []

    play(run)
