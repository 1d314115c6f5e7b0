"""The broker in the session runner: every event once, again after a retry, and twice (document 000)."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.limits import HANG_S
from tests.support.tables import for_each_row
from tests.unit.examples.test_broker_case import timeless
from turnlog import Agent, App
from turnlog.agents import Model, RetryPolicy, Scripted
from turnlog.agents.models import Fail, ScriptPart
from turnlog.app import LOCAL, ClientEvent, Membership, Sessions
from turnlog.app.messages import Chat
from turnlog.events import Envelope, EventType, UiMessage
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore
from turnlog.state.fold import fold
from turnlog.state.history import Message
from turnlog.state.rules import Rule
from turnlog_examples.broker import EMITS, ROLES, RULES, start
from turnlog_examples.broker.case import REDUCERS, Case
from turnlog_examples.broker.events import BROKER

Facts = dict[str, Any]

GRANTED = ("capture_consent", {"consentType": "credit_search", "granted": True})
READ = ("acknowledge_disclosure", {"id": "pre_contract_summary"})
SUBMIT: tuple[str, Facts] = ("submit_application", {})
ACCEPT: tuple[str, Facts] = ("accept_counter_offer", {})
REFUSE: tuple[str, Facts] = ("refuse_counter_offer", {})
QUOTED: list[tuple[str, Facts]] = [
    ("record_project_facts", {"projectValue": 16_000}),
    (
        "record_eligibility",
        {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True},
    ),
    ("record_provisional_quote", {"termMonths": 24}),
    ("record_personal_facts", {"fullName": "Sarah O'Neil"}),
    ("record_financial_facts", {"employmentStatus": "Employed", "annualIncome": 41_000}),
]
COUNTERED = [*QUOTED, GRANTED, READ, SUBMIT]
STAGES: dict[str, list[tuple[str, Facts]]] = {
    "intake": [],
    "quote_ready": QUOTED,
    "submitting": [*QUOTED, SUBMIT],
    "awaiting_counter_decision": COUNTERED,
    "selected": [*COUNTERED, ACCEPT],
    "withdrawn": [*QUOTED, ("withdraw", {})],
}
BY_PAGE = [
    kind
    for kind in BROKER
    if not kind.payload_class.LEGACY
    and kind.allows_origin(kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE)), "ui")
]
BY_MODEL = [
    kind
    for kind in BROKER
    if kind.payload_class in EMITS["customer"]
    and kind.allows_origin(kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE)), "model")
]


def tag(name: str, data: object) -> str:
    return f"<agent-event type=\"{name}\" data='{json.dumps(data)}' />"


def repeated(messages: list[Message]) -> list[str]:
    """A model that says what it is told."""
    return [messages[-1].content[-1]["text"]]


@dataclass
class Session:
    """One case in the runner."""

    log: Log
    sessions: Sessions
    seat: Membership

    async def post(self, *events: tuple[str, Facts], id: str | None = None) -> None:
        posted = [ClientEvent(f"broker.{name}", data, id or new_id("evt_")) for name, data in events]
        await self.sessions.post(self.seat, posted)

    async def say(self, text: str) -> None:
        """A turn of the model, which says this."""
        await self.sessions.chat(self.seat, Chat("customer", (), UiMessage(text=text, channel="customer")))

    async def case(self) -> Case:
        """The case now, which is what the log alone makes of it."""
        _, state = await self.sessions.state(self.seat)
        events = await self.events()
        case: Case = fold(
            REDUCERS, [(one, self.seat.app.catalog.decode_payload(one)) for one in events], start()
        )
        assert case == state
        return case

    async def events(self, *names: str) -> list[Envelope]:
        page = await self.log.read(self.seat.session_id, -1, max_bytes=1 << 20, replay_from=-1)
        return [one for one in page.envelopes() if not names or one.type.removeprefix("broker.") in names]


@asynccontextmanager
async def opened(
    script: Callable[[list[Message]], Any] = repeated,
    model: Model | None = None,
    rules: Sequence[Rule] = RULES,
) -> AsyncIterator[Session]:
    guide = Agent("Customer guide", "", model or Scripted(script), retry=RetryPolicy(initial_delay_s=0.0))
    app = App(
        "broker",
        {"customer": guide},
        vocabulary=BROKER,
        reducers=REDUCERS,
        rules=rules,
        initial_state=start,
        roles=ROLES,
    )
    log = Log(MemoryStore())
    sessions = Sessions(log, [app], 1)
    made = await sessions.create(LOCAL)
    try:
        yield Session(log, sessions, made)
    finally:
        await sessions.close()
        await log.close()


def play(run: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await run()

    asyncio.run(bounded())


@pytest.mark.parametrize("stage", STAGES)
@for_each_row("kind", BY_PAGE, ids=lambda kind: kind.tag)
def test_an_event_of_the_page_once_again_after_a_retry_and_twice(kind: EventType, stage: str) -> None:
    """A retry has the same id and leaves no trace; a second event is in the log and changes nothing."""

    async def run() -> None:
        async with opened() as session:
            for event in STAGES[stage]:
                await session.post(event)
            assert (await session.case())["status"] == stage
            event = kind.tag, dict(kind.payload_class.EXAMPLE)
            await session.post(event, id="evt_page")
            once, log = await session.case(), await session.events()
            await session.post(event, id="evt_page")
            assert (await session.case(), await session.events()) == (once, log)
            await session.post(event)
            assert timeless(await session.case()) == timeless(once)
            same = [one for one in await session.events(kind.tag) if one.origin == "ui"]
            before = [one for one in log if one.type == kind.name and one.origin == "ui"]
            assert len(same) == len(before) + 1, "the log counts every event"

    play(run)


@for_each_row("kind", BY_MODEL, ids=lambda kind: kind.tag)
def test_an_event_that_the_model_says_again_in_a_later_turn_is_invisible(kind: EventType) -> None:
    async def run() -> None:
        async with opened() as session:
            for event in QUOTED:
                await session.post(event)
            said = f"So it is. {tag(kind.tag, kind.payload_class.EXAMPLE)}"
            await session.say(said)
            once = await session.case()
            await session.say("Let us go on.")
            await session.say(said)
            assert await session.case() == once
            assert len([one for one in await session.events(kind.tag) if one.origin == "model"]) == 2
            panels = await session.sessions.load_read_models(session.seat)
            shown = [
                bubble.text for bubble in panels.transcript.entries.values() if bubble.who == "assistant"
            ]
            assert shown == ["So it is.", "Let us go on.", "So it is."]

    play(run)


def test_a_reply_that_broke_off_and_comes_again_says_its_events_once() -> None:
    attempts = iter([True, False])

    def script(_: list[Message]) -> Iterator[ScriptPart]:
        yield f"Noted. {tag('record_personal_facts', {'fullName': 'Sarah'})} Thank you."
        if next(attempts):
            yield Fail()

    async def run() -> None:
        async with opened(script) as session:
            await session.say("I am Sarah")
            assert (await session.case())["personal"] == {"fullName": "Sarah"}
            assert len(await session.events("record_personal_facts")) == 1
            panels = await session.sessions.load_read_models(session.seat)
            assert [bubble.text for bubble in panels.transcript.entries.values()] == [
                "I am Sarah",
                "Noted. Thank you.",
            ]

    play(run)


def test_a_second_submission_asks_no_lender_again() -> None:
    async def run() -> None:
        async with opened() as session:
            for event in COUNTERED:
                await session.post(event)
            before = await session.case()
            await session.post(SUBMIT)
            after = await session.case()
            assert after["waterfall"] == before["waterfall"]
            assert after["status"] == "awaiting_counter_decision"
            assert len(await session.events("waterfall_step")) == 1

    play(run)


@for_each_row(("decision", "status"), [(ACCEPT, "selected"), (REFUSE, "awaiting_counter_decision")])
def test_a_decision_means_something_only_while_an_offer_waits(
    decision: tuple[str, Facts], status: str
) -> None:
    async def run() -> None:
        async with opened() as session:
            for event in QUOTED:
                await session.post(event)
            early = await session.case()
            await session.post(decision)
            assert await session.case() == early, "nobody has offered anything"
            for event in (GRANTED, READ, SUBMIT):
                await session.post(event)
            await session.post(decision, decision)
            case = await session.case()
            assert (case["status"], len(case["waterfall"]["steps"])) == (status, 1 + (decision is REFUSE))

    play(run)
