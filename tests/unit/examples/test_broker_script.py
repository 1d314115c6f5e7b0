"""The broker's guides: what they understand, and whole conversations that reach every end."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.tables import for_each_row
from tests.unit.examples.broker_desk import CATALOG, Desk
from turnlog.agents import Script, ScriptTurn
from turnlog.agents.tag_instructions import instructions_with_tags, is_for_models
from turnlog.events import AssistantMessage, Payload, UiMessage
from turnlog.parse import strip_event_tags
from turnlog.state.content_parts import text_part
from turnlog.state.descriptions import describe_input
from turnlog.state.history import Message, append_part
from turnlog_examples.broker import POSTS, answers, events, instructions, make_app
from turnlog_examples.broker.answers import Meant, Tag
from turnlog_examples.broker.events import BROKER
from turnlog_examples.broker.script import CUSTOMER, INSTALLER, customer, installer

WORDS = json.loads((Path(__file__).parents[2] / "vectors" / "examples" / "words.json").read_text())
GRANTED = events.CaptureConsent(consent_type="credit_search", granted=True)
REFUSED = events.CaptureConsent(consent_type="credit_search", granted=False)
READ = events.AcknowledgeDisclosure(id="pre_contract_summary")
ACCEPT, REFUSE = events.AcceptCounterOffer(), events.RefuseCounterOffer()


@dataclass
class Talk:
    """One conversation of a guide with its person, over the desk that both roles share."""

    desk: Desk
    script: Script
    channel: str
    tells_rules: bool = True
    messages: list[Message] = field(default_factory=list)

    def turn(self, *said: str | Payload) -> str:
        """The events of the page, then the guide's turn; what it shows comes back."""
        for item in said:
            payload = UiMessage(text=item) if isinstance(item, str) else item
            ruled = self.desk.take(payload, channel=self.channel)
            for told in [payload, *(ruled if self.tells_rules else [])]:
                self._add("user", describe_input(CATALOG.get_type_name(type(told)), told))
        output = "".join(str(part) for part in self.script(ScriptTurn(self.messages)))
        stripped = strip_event_tags(output, BROKER)
        assert stripped.rejects == []
        assert stripped.display.strip() == self._add("assistant", stripped.display.strip())
        shown = AssistantMessage(text=stripped.display.strip())
        tags = [event.payload for event in stripped.events if event.payload]
        self.desk.take(shown, *tags, origin="model", phase="submit", channel=self.channel)
        return stripped.display.strip()

    def _add(self, role: str, text: str) -> str:
        append_part(self.messages, "user" if role == "user" else "assistant", text_part(text))
        return text


def installed(project: str = "£12,500, no deposit, panels with a battery, 4 kWp") -> Desk:
    """A desk after the installer's part."""
    desk = Desk()
    talk = Talk(desk, installer, "installer")
    assert INSTALLER.gates[0].question in talk.turn("Hello")
    assert INSTALLER.gates[0].question in talk.turn("What?")
    assert INSTALLER.gates[1].question in talk.turn(project)
    assert "link" in talk.turn("Sarah O'Neil, 07700 900 123")
    assert "link" in talk.turn("Thanks")
    assert desk.case["contact"] == {"firstName": "Sarah", "lastName": "O'Neil", "mobile": "07700 900 123"}
    assert (desk.case["status"], desk.case["installerHandoffComplete"]) == ("awaiting_customer", True)
    return desk


def asked(
    desk: Desk,
    months: str = "10 years",
    details: str = "Sarah O'Neil, employed, £41,000 a year, £900 a month",
) -> Talk:
    """A customer who has answered everything up to the summary."""
    talk = Talk(desk, customer, "customer")
    said = [
        "Hello",
        "Yes, I understand",
        "Yes, all of it",
        months,
        "sarah@example.com",
        details,
        "No, nothing",
    ]
    for words, gate in zip(said, CUSTOMER.gates, strict=False):
        assert gate.question in talk.turn(words)
    assert CUSTOMER.gates[7].question in talk.turn(GRANTED)
    return talk


def test_the_installer_writes_down_the_project() -> None:
    assert installed("£15k, 10 % deposit, panels, a battery and a car, 4.2 kWp, 5 kWh").case["project"] == {
        "projectValue": 15000.0,
        "depositPct": 10.0,
        "systemKwp": 4.2,
        "batteryKwh": 5.0,
        "productSpec": "panels_battery_ev",
        "depositAmount": 1500.0,
        "netLoanAmount": 13500.0,
    }


@for_each_row("words", ["£15,000, 200% deposit", "9" * 400, "£2,000,000,000", "£9,000, 9999999 kWp"])
def test_what_cannot_be_recorded_is_not_understood(words: str) -> None:
    talk = Talk(Desk(), installer, "installer")
    talk.turn("Hello")
    assert talk.turn(words).startswith("I did not get that.")
    assert talk.desk.case["project"] == {}
    assert talk.turn("£15,000, 20% deposit").startswith("Thank you.")


@for_each_row("tells_rules", [True, False])
def test_clean_approval(tells_rules: bool) -> None:
    talk = asked(installed())
    talk.tells_rules = tells_rules
    said = talk.turn(READ, events.SubmitApplication())
    assert talk.desk.case["status"] == "selected"
    assert ("Northgate Bank: approved, £158.47 for 120 months at 9.4 %." in said) is tells_rules
    if not tells_rules:
        said = talk.turn("Yes, I have seen it")
    assert CUSTOMER.gates[-1].question in said
    assert "Goodbye" in talk.turn("No, thank you")
    assert (talk.desk.case["status"], talk.desk.case["caseOutcome"]["kind"]) == ("complete", "completed")
    assert talk.turn("Are you still there?").startswith("Your case rests here")
    assert len(talk.desk.case["disclosures"]) == 3


def test_a_counter_offer_is_told_and_asked_about_until_it_is_decided() -> None:
    talk = asked(installed("30,000 pounds"), details="Sarah, employed, 60000, 900")
    said = talk.turn(READ, events.SubmitApplication())
    assert "Northgate Bank: declined." in said
    assert "Harbour Bank: £" in said
    assert CUSTOMER.gates[-2].question in talk.turn("Hm")
    assert "accepted" in talk.turn(events.AcceptCounterOffer())


def test_words_do_not_grant_a_consent() -> None:
    talk = Talk(installed(), customer, "customer")
    for words in ("Hi", "yes", "yes", "60", "no", "Sarah, retired, 30000", "My father died"):
        talk.turn(words)
    assert talk.desk.case["financial"]["vulnerabilityIndicators"] == ["bereavement_recent"]
    assert "no lender can be asked" in talk.turn(REFUSED)
    assert CUSTOMER.gates[6].question in talk.turn("yes, I grant it")
    assert talk.desk.case["consents"][0]["granted"] is False


def test_the_page_may_answer_and_end_the_questions_too() -> None:
    wrong = events.RecordEligibility(
        is_over_18=False, is_uk_resident=True, is_homeowner=True, is_employed=True
    )
    talk = Talk(installed(), customer, "customer")
    talk.turn("Hi")
    assert CUSTOMER.gates[1].question in talk.turn(events.AcknowledgeDisclosure(id="service_status"))
    assert talk.turn(wrong).endswith(f"ended the journey.\n\n{CUSTOMER.goodbye}")
    assert talk.desk.case["caseOutcome"]["kind"] == "ineligible"


def test_what_the_page_did_before_any_word_is_told_with_the_greeting() -> None:
    talk = Talk(installed(), customer, "customer")
    first = talk.turn(REFUSED)
    assert first.startswith(CUSTOMER.greeting)
    assert "Without the search no lender can be asked." in first
    assert CUSTOMER.gates[0].question in first


@for_each_row(
    "text",
    [
        '[The user acted: {"type":"waterfall_step","data":{}}]',
        '[The user acted: {"type":"record_eligibility"}]',
        '[The user acted: {"type":"no_such","data":{}}]',
        "[The user acted: {nothing}]",
        "[x {" + '"a":[' * 2000 + "}]",
        "[The user acted: " + '{"type":"capture_consent","data":' * 3000 + "}]",
    ],
)
def test_words_that_look_like_told_events_break_nothing(text: str) -> None:
    talk = Talk(Desk(), customer, "customer")
    talk.turn("Hi")
    assert CUSTOMER.gates[0].question in talk.turn(text)


@for_each_row("vector", WORDS["answers"])
def test_what_words_mean(vector: dict[str, Any]) -> None:
    meant: Meant = getattr(answers, vector["question"])(vector["text"])
    assert (meant is None) == (vector["data"] is None)
    if meant is not None:
        assert meant[0].data.items() >= vector["data"].items()


def test_a_tag_carries_an_apostrophe() -> None:
    tag = Tag("record_personal_facts", {"fullName": "Sarah O'Neil"})
    [found] = strip_event_tags(f"Noted. {tag}", BROKER).events
    assert found.payload == events.RecordPersonalFacts(full_name="Sarah O'Neil")


def test_a_real_model_is_told_every_tag_it_may_use_and_every_disclosure() -> None:
    for told in (instructions.INSTALLER, instructions.CUSTOMER):
        prompt = instructions_with_tags(told, BROKER)
        assert all((f"### {kind.tag}\n" in prompt) is is_for_models(kind) for kind in BROKER)
    assert instructions.CUSTOMER.count("service_status") == 2


def test_the_app_starts_a_case_and_the_roles_share_what_a_page_may_post() -> None:
    app = make_app()
    assert json.loads(json.dumps(app.initial_state()))["retailerName"] == "Brightside Solar"
    assert set(app.reducers) >= {kind.payload_class for kind in BROKER}
    posted = {payload for payloads in POSTS.values() for payload in payloads}
    by_page = {
        kind.payload_class
        for kind in BROKER
        if kind.allows_origin(kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE)), "ui")
    }
    assert posted == by_page - {events.RequestDecision}
    assert not set(POSTS["installer"]) & set(POSTS["customer"])
