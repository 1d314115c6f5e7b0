"""The customer's buttons, for pages that know nothing of broking: a view that follows from the case.

What binds the customer no guide can say: it takes an event of a page, or a rule. A page of the broker's own
posts these events itself. On any other page the rules show what is to be decided as a view, and a click there
means the events of its button. A click on what is not asked any more means nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnlog import View
from turnlog.events import AssistantView, Envelope, Payload, UiAction
from turnlog.events.ui import ButtonClick
from turnlog.events.view_nodes import Button, Section, Text
from turnlog.state.fold import Reducers
from turnlog.state.rules import Rule
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


class Choice(NamedTuple):
    """A button, and the events that it means."""

    label: str
    means: Sequence[Payload]


class Question(NamedTuple):
    """What the customer has to decide now; another key is another question."""

    key: str
    title: str
    text: str
    choices: dict[str, Choice]


CHANNEL = "customer"  # where a click counts
GRANT = Choice("I agree", [CaptureConsent(consent_type="credit_search", granted=True)])
REFUSE = Choice("I do not agree", [CaptureConsent(consent_type="credit_search", granted=False)])
LEAVE = Choice("Withdraw", [Withdraw(reason="The customer left by the button.")])
READ = AcknowledgeDisclosure(id="pre_contract_summary")
CONSENT = Question(
    "consent",
    DISCLOSURES["credit_search_consent"].title,
    "No lender is asked before you agree.",
    {"grant": GRANT, "refuse": REFUSE},
)
AGAIN = Question(
    "again",
    "You did not agree to a credit search",
    "You may still agree, or leave.",
    {"grant": GRANT, "leave": LEAVE},
)
SUMMARY = Question(  # a rule presents it, and the guide speaks after that: it is read here
    "summary",
    DISCLOSURES["pre_contract_summary"].title,
    DISCLOSURES["pre_contract_summary"].body,
    {"confirm": Choice("I have read it, ask the lenders", [READ, SubmitApplication()]), "leave": LEAVE},
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
    return Question(
        offer["id"],
        f"{offer['lender']} has another offer",
        terms.format(**offer),
        {
            f"accept_{offer['id']}": Choice("Accept", [AcceptCounterOffer(offer_id=offer["id"])]),
            f"refuse_{offer['id']}": Choice(
                "Refuse, ask the next lender", [RefuseCounterOffer(offer_id=offer["id"])]
            ),
        },
    )


def view(asked: Question) -> View:
    """A question as a page shows it."""
    first = next(iter(asked.choices))
    buttons = [
        Button(name, choice.label, style="primary" if name == first else "secondary")
        for name, choice in asked.choices.items()
    ]
    return View.of(VIEW, Section([Text(asked.text), *buttons], title=asked.title))


def shown(case: Case, payload: AssistantView, _: Envelope) -> Case:
    """The rule alone shows this view, and it shows what is asked."""
    asked = question(case)
    ours = asked is not None and payload.view.view_id == VIEW
    return {**case, "page": {"shows": asked.key}} if asked and ours else case


def clicked(case: Case, payload: UiAction, at: Envelope) -> Case:
    """A click on what is asked now waits for its rule. It is the customer's to make."""
    asked, action = question(case), payload.action
    if payload.view_id != VIEW or not isinstance(action, ButtonClick) or asked is None:
        return case
    if at.channel != CHANNEL:
        return case
    known = action.button_id in asked.choices and asked.key == showing(case)
    return {**case, "page": {"shows": asked.key, "clicked": action.button_id}} if known else case


def showing(case: Case) -> str | None:
    """The question that the page shows."""
    return case.get("page", {}).get("shows")


def released(reduce: Callable[[Case, Any, Envelope], Case]) -> Callable[[Case, Any, Envelope], Case]:
    """The same step; the click that led to it is done with."""

    def apply(case: Case, payload: Any, at: Envelope) -> Case:
        after = reduce(case, payload, at)
        return (
            {**after, "page": {"shows": after["page"]["shows"]}}
            if "clicked" in after.get("page", {})
            else after
        )

    return apply


def to_show(case: Case) -> bool:
    asked = question(case)
    return asked is not None and asked.key != showing(case)


def show(case: Case) -> list[Payload]:
    asked = question(case)
    return [AssistantView(view=view(asked))] if asked else []


def to_mean(case: Case) -> bool:
    """What came with the click may have answered the question already."""
    asked = question(case)
    return asked is not None and asked.key == showing(case) and case["page"].get("clicked") in asked.choices


def mean(case: Case) -> list[Payload]:
    asked = question(case)
    return list(asked.choices[case["page"]["clicked"]].means) if asked else []


MEANT = (CaptureConsent, AcknowledgeDisclosure, AcceptCounterOffer, RefuseCounterOffer, Withdraw)
REDUCERS: Reducers = {
    **cases.REDUCERS,
    **{payload: released(cases.REDUCERS[payload]) for payload in MEANT},
    AssistantView: shown,
    UiAction: clicked,
}  # of everything in a session that counts, on the broker's own pages and on others
RULES = (Rule("click", "apply", to_mean, mean), Rule("buttons", "apply", to_show, show))
