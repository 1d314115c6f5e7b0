"""The broker's audit: timeline, figures and disclosures asked for again, from the log alone."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from tests.support.tables import for_each_row
from tests.unit.examples.broker_desk import Desk
from tests.unit.examples.test_broker_waterfall import GRANTED, started, submitted
from turnlog import open_log
from turnlog.events import AssistantMessage, ProcessStart, UiMessage
from turnlog.state.history import Message
from turnlog_examples.broker import make_agents
from turnlog_examples.broker.__main__ import main
from turnlog_examples.broker.audit import (
    accounted,
    asking,
    compliance,
    histories,
    judged,
    passes,
    replayed,
    timeline,
)
from turnlog_examples.broker.disclosures import DISCLOSURES
from turnlog_examples.broker.events import (
    AcceptCounterOffer,
    CaptureConsent,
    CaseComplete,
    PresentDisclosure,
    RecordEmailPreference,
    RefuseCounterOffer,
    Withdraw,
)

SERVICE = DISCLOSURES["service_status"]
TAG = """<agent-event type="present_disclosure" data='{"id":"service_status"}' />"""


def test_the_timeline_of_a_clean_approval() -> None:
    desk = submitted()
    desk.take(UiMessage(text="Thank you"))
    desk.take(CaseComplete(), origin="model")
    lines = timeline(desk.items)
    assert [line["kind"] for line in lines] == [
        "case_created",
        "disclosure_presented",
        "disclosure_acknowledged",
        "eligibility_recorded",
        "quote_recorded",
        "personal_facts_recorded",
        "financial_facts_recorded",
        "vulnerability_recorded",
        "consent_recorded",
        "disclosure_acknowledged",
        "disclosure_presented",
        "disclosure_acknowledged",
        "submission",
        "waterfall_step",
        "selected",
        "message",
        "completed",
    ]
    assert lines[13]["summary"] == "Northgate Bank (Prime Priority 1): approved as requested"
    assert lines[8]["payload"] == {"consentType": "credit_search", "granted": True}
    assert [line["ts"] for line in lines] == sorted(line["ts"] for line in lines)


def test_the_timeline_counts_every_event_and_says_which_changed_nothing() -> None:
    desk = submitted(months=24)
    desk.take(ProcessStart(process="server", pid=2), origin="system")
    desk.take(RecordEmailPreference(wants_email_copy=False), GRANTED)
    desk.take(RefuseCounterOffer(), AcceptCounterOffer(), Withdraw(), Withdraw(reason="Too dear"))
    desk.take(AssistantMessage(text="Goodbye."), origin="model")
    last = [(line["kind"], line["summary"]) for line in timeline(desk.items)][-7:]
    assert last == [
        ("email_preference_recorded", "No copy by e-mail"),
        ("consent_recorded", "Consent credit_search granted"),
        ("counter_decision", "Counter-offer refused"),
        ("counter_decision", "Counter-offer accepted (changed nothing)"),
        ("withdrawn", "Withdrawn"),
        ("withdrawn", "Too dear (changed nothing)"),
        ("message", "assistant: Goodbye."),
    ]
    assert [line["kind"] for line in timeline(desk.items)].count("case_created") == 1


def test_the_figures_of_a_case() -> None:
    desk = submitted()
    seqs = {type(payload).__name__: envelope.seq for envelope, payload in desk.items}
    assert compliance(desk.case, desk.items) == {
        "disclosuresPresentedCount": 3,
        "disclosuresAcknowledgedCount": 3,
        "allDisclosuresAcknowledged": True,
        "consentsCount": 1,
        "explicitConsents": ["credit_search"],
        "vulnerabilityProbed": True,
        "vulnerabilityIndicatorsCount": 0,
        "waterfallSteps": 1,
        "finalOutcome": None,
        "durations": {
            "sessionMs": 1000 * (len(desk.items) - 1),
            "fromConsentToSubmissionMs": 1000 * (seqs["SubmitApplication"] - seqs["CaptureConsent"]),
        },
    }


def test_the_figures_of_a_case_that_has_hardly_begun() -> None:
    empty, desk = compliance(Desk().case, []), started()
    assert empty["durations"] == {"sessionMs": 0, "fromConsentToSubmissionMs": None}
    assert (empty["waterfallSteps"], empty["allDisclosuresAcknowledged"]) == (0, False)
    desk.take(CaptureConsent(consent_type="marketing", granted=False))
    desk.take(CaptureConsent(consent_type="data_sharing", granted=True), origin="app")
    desk.take(Withdraw(reason="Too dear"))
    figures = compliance(desk.case, desk.items)
    assert (figures["consentsCount"], figures["explicitConsents"]) == (2, [])
    assert (figures["finalOutcome"], figures["durations"]["fromConsentToSubmissionMs"]) == ("withdrawn", None)


def said(messages: list[Message]) -> list[tuple[str, list[str]]]:
    return [(message.role, [part["text"] for part in message.content]) for message in messages]


def test_a_disclosure_is_asked_for_with_the_conversation_before_it() -> None:
    desk = Desk()
    desk.take(UiMessage(text="A project"), channel="installer")
    desk.take(UiMessage(text="Hello"), UiMessage(text="Anyone?"), channel="customer")
    shown = AssistantMessage(text="We are a broker."), PresentDisclosure(id="service_status")
    desk.take(*shown, origin="model", channel="customer")
    desk.take(PresentDisclosure(id="service_status"), origin="model")
    desk.take(UiMessage(text="Fine"), GRANTED, channel="customer")
    asked = histories(desk.items)
    assert list(asked) == ["service_status", "pre_contract_summary"]
    line = "Please show me now: Who we are and how we work."
    assert said(asked["service_status"]) == [("user", ["Hello", "Anyone?", line])]
    assert said(asked["pre_contract_summary"])[:2] == [
        ("user", ["Hello", "Anyone?"]),
        ("assistant", ["We are a broker."]),
    ]


@for_each_row(
    ("output", "passed"),
    [
        (TAG, True),
        ("who WE ARE and so on", True),
        ("I would rather not.", False),
        (TAG.replace("service_status", "pre_contract_summary"), False),
        ("", False),
    ],
)
def test_a_model_passes_by_the_event_or_by_the_title(output: str, passed: bool) -> None:
    assert passes(SERVICE, output) is passed


def test_what_came_of_asking_is_counted() -> None:
    assert judged(SERVICE, [TAG, "No.", SERVICE.title, TAG]) == {
        "disclosureId": "service_status",
        "runs": 4,
        "passed": 3,
        "failed": 1,
        "passRate": 0.75,
        "failures": [{"runIndex": 1, "snippet": "No."}],
    }


@for_each_row(("runs", "asked"), [(5, 5), (99, 20), (0, 1)])
def test_every_presented_disclosure_is_asked_for_so_often(runs: int, asked: int) -> None:
    lines: list[str] = []

    async def ask(messages: list[Message]) -> str:
        lines.append(messages[-1].content[-1]["text"])
        return lines[-1]

    results = asyncio.run(replayed(submitted().items, ask, runs))
    assert [(result["disclosureId"], result["passed"]) for result in results] == [
        (name, asked) for name in ("service_status", "credit_search_consent", "pre_contract_summary")[::2]
    ]
    assert len(lines) == 2 * asked
    assert asyncio.run(replayed(Desk().items, ask)) == []


def test_a_case_is_accounted_for_from_its_events_alone() -> None:
    desk = submitted()
    told = accounted(desk.items)
    assert told["status"] == desk.case["status"] == "selected"
    assert told["timeline"] == timeline(desk.items)
    assert told["compliance"] == compliance(desk.case, desk.items)


def test_the_guide_is_asked_with_what_the_page_did_before() -> None:
    desk = Desk()
    desk.take(UiMessage(text="Hello"), channel="customer")
    shown = AssistantMessage(text="Do you understand how we work?"), PresentDisclosure(id="service_status")
    desk.take(*shown, origin="model", channel="customer")
    desk.take(RecordEmailPreference(wants_email_copy=False), channel="customer")
    desk.take(GRANTED, channel="customer")
    asked = histories(desk.items)["pre_contract_summary"]
    lines = [part["text"] for part in asked[-1].content]
    assert lines[0].startswith('[The user acted: {"type":"record_email_preference"')
    assert lines[1].startswith('[The user acted: {"type":"capture_consent"')
    results = asyncio.run(replayed(desk.items, asking(make_agents()["customer"]), 2))
    assert [(result["disclosureId"], result["passRate"]) for result in results] == [
        ("service_status", 1.0),
        ("pre_contract_summary", 0.0),
    ]
    assert [failure["runIndex"] for failure in results[1]["failures"]] == [0, 1], "the guide keeps its order"


def test_the_command_refuses_what_it_cannot_account_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"

    async def made() -> str:
        log = await open_log(url)
        session = await log.create("tour")
        await log.close()
        return session

    session = asyncio.run(made())
    refused = CliRunner().invoke(main, ["audit", session, "--log", url])
    assert (refused.exit_code, refused.output) == (1, f"Error: {session} is not a session of a broker\n")
    model = CliRunner().invoke(main, ["replay", session, "--log", url, "--runs", "21"])
    assert (model.exit_code, "1<=x<=20" in model.output) == (2, True)
