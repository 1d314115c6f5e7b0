"""The customer's buttons, for pages that know nothing of broking: a view that follows from the case.

A model cannot bind the customer: that takes an event of a page, or a rule. A page of the broker's own posts
these events itself. On any other page a rule shows what is to be decided as a view, whose buttons emit the
events. When nothing is to be decided any more, the rule takes the view away, and a late click is refused.
"""

from typing import Any, NamedTuple

from turnlog import View
from turnlog.events import AssistantView, Envelope, Payload
from turnlog.events.view_nodes import Button, Section, Text
from turnlog.state import Reducers, Rule
from turnlog_examples.broker import case as cases
from turnlog_examples.broker.case import ENDS, Case, awaited, consented, disclosure
from turnlog_examples.broker.disclosures import DISCLOSURES
from turnlog_examples.broker.events import (
    AcceptCounterOffer,
    AcknowledgeDisclosure,
    CaptureConsent,
    RefuseCounterOffer,
    SubmitApplication,
    Withdraw,
)
from turnlog_examples.broker.rules import acknowledged

VIEW = "decision"


class Question(NamedTuple):
    """What the customer has to decide now; another key is another question."""

    key: str
    title: str
    text: str
    buttons: tuple[Button, ...]


AGREE = CaptureConsent(consent_type="credit_search", granted=True)
DISAGREE = CaptureConsent(consent_type="credit_search", granted=False)
READ = AcknowledgeDisclosure(id="pre_contract_summary")
GRANT = Button("grant", "I agree", style="primary", emits=[AGREE])
LEAVE = Button("leave", "Withdraw", emits=[Withdraw(reason="The customer left by the button.")])
CONSENT = Question(
    "consent",
    DISCLOSURES["credit_search_consent"].title,
    "No lender is asked before you agree.",
    (GRANT, Button("refuse", "I do not agree", emits=[DISAGREE])),
)
AGAIN = Question(
    "again",
    "You did not agree to a credit search",
    "You may still agree, or leave.",
    (GRANT, LEAVE),
)
SUMMARY = Question(  # a rule presents it, and the guide speaks after that: it is read here
    "summary",
    DISCLOSURES["pre_contract_summary"].title,
    DISCLOSURES["pre_contract_summary"].body,
    (
        Button(
            "confirm", "I have read it, ask the lenders", style="primary", emits=[READ, SubmitApplication()]
        ),
        LEAVE,
    ),
)


def question(case: Case) -> Question | None:
    """What the customer has to decide now."""
    if case["status"] in ENDS:
        return None
    if fall := awaited(case):
        return on_offer(fall["steps"][-1]["outcome"]["offer"])
    if not consented(case):
        asked = disclosure(case, "credit_search_consent") is not None
        refused = any(consent["type"] == "credit_search" for consent in case["consents"])
        return (AGAIN if refused else CONSENT) if asked else None
    shown = disclosure(case, "pre_contract_summary") is not None
    return SUMMARY if shown and not acknowledged(case, "pre_contract_summary") else None


def on_offer(offer: dict[str, Any]) -> Question:
    """What to do with a counter-offer; a button says of which, so a second click is none on the next."""
    terms = "£{monthlyPayment:.2f} a month for {termMonths} months at {aprPct} %, £{totalPayable:.2f} in all"
    offer_id = offer["id"]
    accept = AcceptCounterOffer(offer_id=offer_id)
    refuse = RefuseCounterOffer(offer_id=offer_id)
    return Question(
        offer_id,
        f"{offer['lender']} has another offer",
        terms.format(**offer),
        (
            Button(f"accept_{offer_id}", "Accept", style="primary", emits=[accept]),
            Button(f"refuse_{offer_id}", "Refuse, ask the next lender", emits=[refuse]),
        ),
    )


def view(asked: Question | None) -> View:
    """A question as a page shows it; an empty view takes the last question away."""
    if asked is None:
        return View(kind="a2ui.v1", view_id=VIEW, tree={})
    return View.of(VIEW, Section([Text(asked.text), *asked.buttons], title=asked.title))


def current_key(case: Case) -> str | None:
    """The question that the page should show."""
    asked = question(case)
    return asked.key if asked else None


def shown(case: Case, payload: AssistantView, _: Envelope) -> Case:
    """Only the rule shows this view, and it shows what is asked."""
    return {**case, "page": {"shows": current_key(case)}} if payload.view.view_id == VIEW else case


def to_show(case: Case) -> bool:
    return current_key(case) != case.get("page", {}).get("shows")


def show(case: Case) -> list[Payload]:
    return [AssistantView(view=view(question(case)))]


REDUCERS: Reducers = {**cases.REDUCERS, AssistantView: shown}
RULES = (Rule("buttons", "apply", to_show, show),)
