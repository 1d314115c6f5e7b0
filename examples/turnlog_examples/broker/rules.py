"""What follows by itself: gaps that the model left are closed, and the lenders are asked.

R1 and R2 hold at once; R3 submits only where the phase allows it, after the model has spoken. A submission
waits for what R3 asks for, whichever side made it: no lender is asked without consent and quote.
"""

from typing import Literal

from turnlog.events import Payload
from turnlog.state import Rule
from turnlog_examples.broker.case import BEFORE_SUBMISSION, Case, consented, disclosure
from turnlog_examples.broker.events import (
    AcknowledgeDisclosure,
    CaseOutcome,
    PresentDisclosure,
    SelectOffer,
    SubmitApplication,
)
from turnlog_examples.broker.waterfall import walk

REASONS: dict[Literal["declined", "ineligible"], str] = {
    "declined": "No lender of the panel approved, or every offer was refused.",
    "ineligible": "An answer to the questions of eligibility ended the journey.",
}


def acknowledged(case: Case, id: str) -> bool:
    record = disclosure(case, id)
    return record is not None and "acknowledgedAt" in record


def ready(case: Case) -> bool:
    """Whether everything is there that lenders want."""
    return bool(
        consented(case)
        and acknowledged(case, "pre_contract_summary")
        and case["personal"].get("fullName")
        and case["financial"].get("employmentStatus")
        and "provisionalQuote" in case
    )


def unacknowledged_search(case: Case) -> bool:
    return consented(case) and not acknowledged(case, "credit_search_consent")


def unseen_summary(case: Case) -> bool:
    return consented(case) and disclosure(case, "pre_contract_summary") is None


def to_submit(case: Case) -> bool:
    return case["status"] in BEFORE_SUBMISSION and "waterfall" not in case and ready(case)


def to_ask(case: Case) -> bool:
    return case["status"] in ("submitting", "waterfall_running") and ready(case)


def to_select(case: Case) -> bool:
    fall = case.get("waterfall")
    return case["status"] == "selected" and fall is not None and "selectedOfferId" not in case


def to_close(case: Case) -> bool:
    return case["status"] in REASONS and "caseOutcome" not in case


def selection(case: Case) -> list[Payload]:
    return [SelectOffer(offer_id=case["waterfall"]["acceptedOffer"]["id"])]


def closing(case: Case) -> list[Payload]:
    return [
        CaseOutcome(kind=kind, reason=reason) for kind, reason in REASONS.items() if kind == case["status"]
    ]


RULES = (
    Rule("R1", "apply", unacknowledged_search, lambda _: [AcknowledgeDisclosure(id="credit_search_consent")]),
    Rule("R2", "apply", unseen_summary, lambda _: [PresentDisclosure(id="pre_contract_summary")]),
    Rule("R3", "submit", to_submit, lambda _: [SubmitApplication()]),
    Rule("lenders", "apply", to_ask, walk),
    Rule("selection", "apply", to_select, selection),
    Rule("closing", "apply", to_close, closing),
)
