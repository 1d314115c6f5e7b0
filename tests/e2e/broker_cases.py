"""Cases of the example `broker`: what its people do, and what comes of it."""

import json
from typing import Any

from tests.e2e.broker_desk import Step

Event = tuple[str, dict[str, Any]]
End = tuple[str, str | None, str | None, int]  # status, outcome, offer, how many lenders were asked
Journey = tuple[list[Step], list[Step], End]

GRANTED: Event = ("capture_consent", {"consentType": "credit_search", "granted": True})
REFUSED: Event = ("capture_consent", {"consentType": "credit_search", "granted": False})
READ: Event = ("acknowledge_disclosure", {"id": "pre_contract_summary"})
SUBMIT: Event = ("submit_application", {})
ACCEPT: Event = ("accept_counter_offer", {})
REFUSE: Event = ("refuse_counter_offer", {})
ELIGIBLE = {"isOver18": True, "isUkResident": True, "isHomeowner": True, "isEmployed": True}

CHEAP = "£12,500, no deposit, panels with a battery, 4 kWp"
SARAH = "Sarah O'Neil, employed, £41,000 a year, £900 a month"
OPENED = ["Hello", "Yes, I understand"]


def project(price: str = CHEAP) -> list[Step]:
    """The installer's part."""
    return [Step(words=words) for words in ("Hello", price, "Sarah O'Neil, 07700 900 123")]


def asked(months: str = "10 years", details: str = SARAH) -> list[Step]:
    """The customer's part up to the consent, which is a button."""
    words = [*OPENED, "Yes, all of it", months, "sarah@example.com", details, "No, nothing"]
    return [*[Step(words=one) for one in words], Step([GRANTED])]


# What the installer and the customer do, with the guides as they are.
JOURNEYS: dict[str, Journey] = {
    "clean approval": (
        project(),
        [*asked(), Step([READ, SUBMIT]), Step(words="No, thank you")],
        ("complete", "completed", "offer_1", 1),
    ),
    "counter accepted": (
        project("30,000 pounds"),
        [
            *asked(details="Sarah, employed, 60000, 900"),
            Step([READ, SUBMIT]),
            Step([ACCEPT]),
            Step(words="No, thank you"),
        ],
        ("complete", "completed", "offer_2", 2),
    ),
    "all counters refused": (
        project(),
        [*asked(months="24 months"), Step([READ, SUBMIT]), *[Step([REFUSE])] * 3],
        ("declined", "declined", None, 3),
    ),
    "declined, submitted by the model's own turn": (
        project(),
        [*asked(details="Sarah, self-employed, 10900, 900"), Step([READ])],
        ("declined", "declined", None, 3),
    ),
    "ineligible": (
        project(),
        [
            *[Step(words=one) for one in OPENED],
            Step(words="I am over 18 and a resident, but I rent and I work"),
        ],
        ("ineligible", "ineligible", None, 0),
    ),
    "ineligible by the form": (
        project(),
        [Step(words="Hello"), Step([("record_eligibility", ELIGIBLE | {"isEmployed": False})])],
        ("ineligible", "ineligible", None, 0),
    ),
    "withdrawn": (
        project(),
        [*asked()[:-1], Step([REFUSED]), Step(words="I withdraw")],
        ("withdrawn", "withdrawn", None, 0),
    ),
}


def tag(name: str, data: object) -> str:
    """An event as a model says it."""
    return f"<agent-event type=\"{name}\" data='{json.dumps(data)}' />"


def told(price: int, months: int, income: int, homeowner: bool = True) -> list[Step]:
    """Both parts up to the consent, in words of the model alone: the installer's, then the customer's."""
    link: list[Event] = [("generate_customer_link", {}), ("installer_handoff_complete", {})]
    facts: list[Event] = [
        ("record_eligibility", ELIGIBLE | {"isHomeowner": homeowner}),
        ("record_provisional_quote", {"termMonths": months}),
        ("record_personal_facts", {"fullName": "Sarah"}),
        ("record_financial_facts", {"employmentStatus": "Employed", "annualIncome": income}),
    ]
    said = [[("record_project_facts", {"projectValue": price}), *link], facts]
    return [Step(words="Noted.\n" + "\n".join(tag(*event) for event in events)) for events in said]


# What two models say, one after the other, then what the customer does.
DONE = Step(words=f"Goodbye. {tag('case_complete', {})}")
BROUGHT: dict[str, Journey] = {
    "clean approval": (
        told(12_500, 120, 41_000),
        [Step([GRANTED, READ], "Thank you."), DONE],
        ("complete", "completed", "offer_1", 1),
    ),
    "counter accepted": (
        told(30_000, 120, 60_000),
        [Step([GRANTED], "Thank you."), Step([READ, SUBMIT]), Step([ACCEPT], "Fine."), DONE],
        ("complete", "completed", "offer_2", 2),
    ),
    "all counters refused": (
        told(12_500, 24, 41_000),
        [Step([GRANTED, READ, SUBMIT], "Thank you."), *[Step([REFUSE], "Next.")] * 3],
        ("declined", "declined", None, 3),
    ),
    "declined": (
        told(12_500, 120, 100),
        [Step([GRANTED, READ], "Thank you.")],
        ("declined", "declined", None, 3),
    ),
    "ineligible": (told(12_500, 120, 41_000, False), [DONE], ("ineligible", "ineligible", None, 0)),
    "withdrawn": (
        told(12_500, 120, 41_000),
        [Step([REFUSED], "A pity."), Step([GRANTED, READ], tag("withdraw", {"reason": "Too dear"})), DONE],
        ("withdrawn", "withdrawn", None, 0),
    ),
}
