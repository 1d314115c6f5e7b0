"""Statements of document 000 (statements.md) on chats, reconciliation and the taxonomy: the broker."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner

from tests.statements.room import body, tag, talk
from tests.support.written_logs import place, vector_event
from tests.unit.examples.test_broker_case import STAGES
from tests.unit.examples.test_broker_session import (
    ACCEPT,
    GRANTED,
    QUOTED,
    READ,
    REFUSE,
    SUBMIT,
    Facts,
    opened,
    play,
)
from turnlog import Agent, App, Catalog, tool
from turnlog.agents import ReplyBuilder, Request, Scripted, ToolUse
from turnlog.agents.tag_instructions import is_for_models
from turnlog.app import ClientEvent
from turnlog.app.messages import Chat
from turnlog.cli import main
from turnlog.errors import InvalidEvent
from turnlog.events import CORE, Envelope, Payload, ToolResult, UiMessage, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.ids import new_id
from turnlog.state.fold import fold
from turnlog.state.history import Message
from turnlog.state.rules import Rule
from turnlog_examples.broker import RULES, make_agents, script, start
from turnlog_examples.broker.case import ENDS, REDUCERS, Case
from turnlog_examples.broker.events import (
    BROKER,
    GROUPS,
    RecordEligibility,
    RecordProvisionalQuote,
    SubmitApplication,
)
from turnlog_examples.broker.quote import exact

SUBMITTED = vector_event({"type": "broker.submit_application", "payload": {}}, 9)
ELIGIBLE = {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True}


def direct(*events: tuple[str, Facts]) -> list[ClientEvent]:
    return [ClientEvent(f"broker.{name}", data, new_id("evt_")) for name, data in events]


def test_the_taxonomy_has_five_groups() -> None:
    tags = {kind.payload_class: kind.tag for kind in BROKER}
    assert {name: [tags[payload] for payload in group] for name, group in GROUPS.items()} == {
        "Project & contact": [
            "record_project_facts",
            "record_customer_contact",
            "generate_customer_link",
            "installer_handoff_complete",
        ],
        "Customer journey": [
            "record_eligibility",
            "record_provisional_quote",
            "record_email_preference",
            "record_personal_facts",
            "record_financial_facts",
            "record_vulnerability_indicators",
        ],
        "Disclosures and consents": ["present_disclosure", "acknowledge_disclosure", "capture_consent"],
        "Application": [
            "submit_application",
            "accept_counter_offer",
            "refuse_counter_offer",
            "select_offer",
        ],
        "Lifecycle": ["withdraw", "case_outcome", "case_complete"],
    }


def test_a_reference_lists_the_payload_of_every_event() -> None:
    printed = CliRunner().invoke(main, ["schema", "--app", "turnlog_examples.broker:app"])
    payloads = json.loads(printed.output)["payloads"]
    for kind in BROKER:
        shape = payloads[kind.name]["$defs"][kind.payload_class.__name__]
        assert list(shape["properties"]) == list(kind.payload_class.__struct_encode_fields__)
    alone = json.loads(CliRunner().invoke(main, ["schema"]).output)["payloads"]
    assert not [name for name in alone if name.startswith("broker.")]


def test_the_brokers_events_are_tags_and_not_calls() -> None:
    for agent in make_agents().values():
        assert (agent.tools, agent.tool_specs) == ((), ())

    async def run() -> None:
        async with opened(script.customer) as session:
            await session.say("Hello")
            assert [one.origin for one in await session.events("present_disclosure")] == ["model"]
            assert await session.events("tool.call") == []

    play(run)


def test_what_the_model_may_emit_stands_under_the_available_events_of_its_prompt() -> None:
    asked: list[str] = []

    @dataclass
    class Reading:
        name: str = "reading"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            asked.append(request.instructions)
            yield [*reply.text("Hi."), *reply.done("end_turn")]

    talk(App("broker", Agent("Broker", "Be kind.", Reading()), vocabulary=BROKER), "Hello")
    instructions, listed = asked[0].split("\n\n## Available events\n")
    assert instructions == "Be kind."
    told = re.findall(r"<agent-event type=\"(\w+)\" data='(.*)' />", listed)
    by_model = [kind for kind in BROKER if is_for_models(kind)]
    assert [(name, json.loads(data)) for name, data in told] == [
        (kind.tag, kind.payload_class.EXAMPLE) for kind in by_model
    ]
    assert "submit_application" not in listed


@pytest.mark.parametrize("stage", STAGES)
def test_a_submission_sets_submitting_until_the_case_has_ended(stage: str) -> None:
    case = STAGES[stage]
    after = REDUCERS[SubmitApplication](case, SubmitApplication(), place(SUBMITTED, 9, Catalog(BROKER))[0])
    assert after["status"] == (case["status"] if case["status"] in ENDS else "submitting")


@pytest.mark.parametrize("decision", [REFUSE, ACCEPT])
def test_a_second_decision_without_an_offer_changes_nothing_until_the_guide_has_spoken(
    decision: tuple[str, Facts],
) -> None:
    """A refusal makes the next lender offer at once: the same click again must not decide on that offer."""

    async def run() -> None:
        async with opened() as session:
            for event in (*QUOTED, GRANTED, READ, SUBMIT):
                await session.post(event)
            await session.post(REFUSE)
            before = await session.case()
            assert len(before["waterfall"]["steps"]) == 2
            assert before["waterfall"]["awaitingCounterDecision"], "the next lender has made an offer"
            await session.post(decision)
            assert await session.case() == before
            await session.say("Here is another offer.")
            await session.post(decision)
            decided = await session.case()
            assert decided != before
            await session.post(decision)
            assert await session.case() == decided

    play(run)


def test_a_page_that_names_no_offer_refuses_each_offer_once_by_chats() -> None:
    async def run() -> None:
        async with opened() as session:
            await session.sessions.chat(
                session.seat, Chat("customer", direct(*QUOTED, GRANTED, READ, SUBMIT))
            )
            steps = []
            while (case := await session.case())["status"] == "awaiting_counter_decision":
                steps.append(len(case["waterfall"]["steps"]))
                await session.sessions.chat(session.seat, Chat("customer", direct(REFUSE, REFUSE)))
            assert steps == [1, 2, 3], "two refusals of one request are one"
            assert (case["status"], case["caseOutcome"]["kind"]) == ("declined", "declined")

    play(run)


@pytest.mark.parametrize("decision", ["refuse_counter_offer", "accept_counter_offer"])
def test_a_second_decision_that_names_its_offer_changes_nothing(decision: str) -> None:
    async def run() -> None:
        async with opened() as session:
            for event in (*QUOTED, GRANTED, READ, SUBMIT, REFUSE):
                await session.post(event)
            before = await session.case()
            assert before["waterfall"]["awaitingCounterDecision"], "the next lender has made an offer"
            await session.post((decision, {"offerId": "offer_1"}))
            assert await session.case() == before
            await session.post((decision, {"offerId": "offer_2"}))
            assert await session.case() != before

    play(run)


def test_select_offer_is_kept_and_selects_an_approved_offer() -> None:
    """The flow with parallel offers is gone: a page may still send it, and a rule does after an approval."""

    async def run() -> None:
        async with opened() as session:
            for event in (*QUOTED, ("record_provisional_quote", {"termMonths": 120}), GRANTED, READ, SUBMIT):
                await session.post(event)
            case = await session.case()
            assert (case["status"], case["selectedOfferId"]) == ("selected", "offer_1")
            await session.post(("select_offer", {"offerId": "offer_1"}))
            assert [one.origin for one in await session.events("select_offer")] == ["app", "ui"]
            assert await session.case() == case

    play(run)


@tool
def record_eligibility(over_18: bool, resident: bool, homeowner: bool, employed: bool) -> dict[str, bool]:
    """The customer answered the four questions."""
    return dict(zip(ELIGIBLE, (over_18, resident, homeowner, employed), strict=True))


def by_call(case: Case, result: ToolResult, at: Envelope) -> Any:
    """What a tool has answered, as the event that says the same."""
    return REDUCERS[RecordEligibility](case, msgspec.convert(result.result, RecordEligibility), at)


def test_the_same_change_could_be_carried_by_a_call() -> None:
    def calling(messages: list[Message]) -> Sequence[str | ToolUse]:
        if len(messages) > 1:
            return ["Done."]
        return [
            ToolUse(
                "record_eligibility", dict.fromkeys(("over_18", "resident", "homeowner", "employed"), True)
            )
        ]

    def telling(messages: list[Message]) -> Sequence[str | ToolUse]:
        return [f"Done. {tag('record_eligibility', ELIGIBLE)}"]

    cases = []
    for model in (calling, telling):
        guide = Agent("Guide", "", Scripted(model), tools=[record_eligibility])
        app = App(
            "broker",
            guide,
            vocabulary=BROKER,
            reducers={**REDUCERS, ToolResult: by_call},
            initial_state=start,
        )
        happened = [(one, app.catalog.decode_payload(one)) for one in talk(app, "Yes, all four")]
        case = fold(app.reducers, happened, app.initial_state())
        cases.append((case["status"], {name: case["eligibility"][name] for name in ELIGIBLE}))
    assert cases == [("quote_ready", ELIGIBLE)] * 2


@dataclass
class Watching:
    """A model that looks at the state and at what it reads when it is asked."""

    name: str = "watching"
    session: Any = None
    seen: list[Any] = field(default_factory=list)

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        _, state = await self.session.sessions.state(self.session.seat)
        last = request.messages[-1]
        self.seen.append((state["status"], last.role, [part["text"] for part in last.content]))
        yield [*reply.text("Thank you."), *reply.done("end_turn")]


def test_a_chat_applies_its_direct_events_before_the_model_is_asked() -> None:
    async def run() -> None:
        model = Watching()
        async with opened(model=model) as model.session:
            words = UiMessage(text="That is me", channel="customer")
            await model.session.sessions.chat(
                model.session.seat, Chat("customer", direct(("record_eligibility", ELIGIBLE)), words)
            )
            told = '[The user acted: {"type":"record_eligibility","data":' + json.dumps(ELIGIBLE).replace(
                " ", ""
            )
            assert model.seen == [("quote_ready", "user", [told + "}]", "That is me"])]
            assert [one.origin for one in await model.session.events("record_eligibility")] == ["ui"]

    play(run)


def test_after_direct_events_the_model_says_in_words_what_happened() -> None:
    async def run() -> None:
        async with opened(script.customer) as session:
            await session.say("Hello")
            await session.sessions.chat(session.seat, Chat("customer", direct(*QUOTED, GRANTED)))
            sent = await session.sessions.chat(session.seat, Chat("customer", direct(READ, SUBMIT)))
            turn = [one for one in await session.events() if one.trace_id == sent.turn]
            [said] = [body(one)["text"] for one in turn if one.type == "assistant.message"]
            assert "Your application is submitted." in said
            assert "Northgate Bank: £" in said
            decided = ("acknowledge_disclosure", "submit_application", "waterfall_step")
            who = [one.origin for one in turn if one.type.removeprefix("broker.") in decided]
            assert who == ["ui", "ui", "app"], "what the page did the model does not say again in a tag"

    play(run)


def test_reconciliation_runs_after_the_events_and_makes_up_for_a_lost_one() -> None:
    """The model's tag for the summary is broken; when the customer consents, a rule shows it all the same."""

    async def run() -> None:
        async with opened() as session:
            for event in QUOTED:
                await session.post(event)
            lost = tag("present_disclosure", {"id": "pre_contract_summary"}).replace("{", "{{")
            await session.say(f"Your loan in short. {lost}")
            assert (await session.case())["disclosures"] == []
            await session.post(GRANTED)
            made = await session.events("capture_consent", "acknowledge_disclosure", "present_disclosure")
            assert [(one.origin, one.actor) for one in made] == [
                ("ui", "local"),
                ("app", "R1"),
                ("app", "R2"),
            ]
            assert [one.seq - made[0].seq for one in made] == [0, 1, 2]
            assert [one["id"] for one in (await session.case())["disclosures"]] == [
                "credit_search_consent",
                "pre_contract_summary",
            ]
            await session.post(READ)
            assert await session.events("submit_application") == [], "the page has forgotten it"
            await session.say("Well then.")
            [submitted] = await session.events("submit_application")
            assert (submitted.origin, submitted.actor) == ("app", "R3")
            assert (await session.case())["status"] == "awaiting_counter_decision"

    play(run)


def dear(case: Case) -> bool:
    """A loan that is half of the income or more, over too short a time."""
    quoted = case.get("provisionalQuote")
    return bool(quoted and quoted["termMonths"] < 36 and exact(quoted["amount"]) > 10_000)


def test_a_follow_on_effect_is_added_as_a_rule() -> None:
    longer = Rule("longer", "apply", dear, lambda _: [RecordProvisionalQuote(term_months=36)])

    async def run() -> None:
        async with opened(rules=[longer, *RULES]) as session:
            for event in QUOTED:
                await session.post(event)
            assert (await session.case())["provisionalQuote"]["termMonths"] == 36
            quotes = await session.events("record_provisional_quote")
            assert [(one.origin, one.actor) for one in quotes] == [("ui", "local"), ("app", "longer")]

    play(run)


class NoteCost(Payload, frozen=True, kw_only=True):
    """A price in pounds and pence, as it was once written."""

    ORIGINS: ClassVar = ANY_ORIGIN

    LEGACY: ClassVar = True

    cost: str


class NotePrice(Payload, frozen=True, kw_only=True):
    """A price in pence: the sibling, with a name of its own."""

    ORIGINS: ClassVar = ANY_ORIGIN

    pence: int


def test_an_old_type_leads_to_its_sibling() -> None:
    """The way is the reducer of the old type: it makes the new one of it, so old logs have a new state."""

    def priced(state: list[int], payload: NotePrice, at: Envelope) -> list[int]:
        return [*state, payload.pence]

    def cost(state: list[int], payload: NoteCost, at: Envelope) -> list[int]:
        return priced(state, NotePrice(pence=round(float(payload.cost) * 100)), at)

    catalog = Catalog(CORE, Vocabulary("shop", [NoteCost, NotePrice]))
    new = catalog.build_event("shop.note_price", {"pence": 1}, id="evt_1")
    old = vector_event({"type": "shop.note_cost", "payload": {"cost": "12.50"}}, 0)
    items = [place(old, 0, catalog), place(new, 1, catalog)]
    assert fold({NotePrice: priced, NoteCost: cost}, items, []) == [1250, 1]
    with pytest.raises(InvalidEvent):
        catalog.build_event("shop.note_cost", {"cost": "12.50"}, id="evt_2")
