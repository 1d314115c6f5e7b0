"""The case: what the events of a session make of it. Reducers in a table keyed by class; all values are JSON.

Where the source is silent or contradicts itself, this holds:
- `selected`, `declined`, `ineligible`, `withdrawn` and `complete` are ends. The one way out is that a case
  selected becomes complete, and no other case does. Facts are merged at any time; the status is guarded.
- A link and a hand-over begin a case, they never set it back. Eligibility decides until a lender has
  answered; what is said of it after that, or after an end, is not recorded.
- A submission sets `submitting` on every case that has not ended. If lenders have answered before, the rule
  that asks them says again how that stands, and asks no person twice.
- An acknowledgement of what was never shown records both at once: what is acknowledged was presented.
- A loan of another amount voids the quote, until lenders have answered it.
- A decision that names a counter-offer counts for that one alone. After a refusal, a decision that names none
  counts only when the guide's turn has ended: said twice, it does not decide on the next lender's offer, of
  which the customer has not been told.
- The first outcome counts, also on an open case, whose status it leaves as it is. An ended case takes none
  that contradicts its end.
- What is recorded again as it was keeps its first time, except a consent: that is replaced, time and all.
- An event that changes nothing does not touch `updatedAt` either: the state stays the very same object.
"""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypedDict

import msgspec

from turnlog.events import AgentEnd, Envelope, Payload, ProcessStart
from turnlog.state import Reducers
from turnlog_examples.broker import events as said
from turnlog_examples.broker.quote import Quote, exact, pence, quote

ENDS = frozenset({"selected", "declined", "ineligible", "withdrawn", "complete"})
REACHED = {status: (status,) for status in ENDS} | {"complete": ("selected", "completed")}  # outcomes
BEFORE_SUBMISSION = frozenset({"intake", "awaiting_customer", "customer_active", "quote_ready"})

Facts = dict[str, Any]  # the fields of a payload, by their names on the wire


class DisclosureRecord(TypedDict):
    id: str
    presentedAt: str
    acknowledgedAt: NotRequired[str]


class Consent(TypedDict):
    type: str
    granted: bool
    capturedAt: str


class Waterfall(TypedDict):
    requestedQuote: Quote
    steps: list[Facts]
    acceptedOffer: NotRequired[Facts]
    awaitingCounterDecision: bool
    exhausted: bool
    updatedAt: str


class Case(TypedDict):
    sessionId: NotRequired[str]
    retailerName: str
    status: str
    project: Facts
    contact: Facts
    personal: Facts
    financial: Facts
    eligibility: NotRequired[Facts]
    provisionalQuote: NotRequired[Quote]
    emailPreference: NotRequired[Facts]
    disclosures: list[DisclosureRecord]
    consents: list[Consent]
    waterfall: NotRequired[Waterfall]
    selectedOfferId: NotRequired[str]
    caseOutcome: NotRequired[Facts]
    decision: NotRequired[Facts]
    installerHandoffComplete: bool
    createdAt: NotRequired[str]
    updatedAt: NotRequired[str]
    refusalTurn: NotRequired[str | None]  # of a refusal that the guide has not answered yet
    page: NotRequired[Facts]  # of `buttons`: the question that the page shows


def new_case(retailer_name: str = "") -> Case:
    """A case of which nothing is known yet."""
    return {
        "retailerName": retailer_name,
        "status": "intake",
        "project": {},
        "contact": {},
        "personal": {},
        "financial": {},
        "disclosures": [],
        "consents": [],
        "installerHandoffComplete": False,
    }


def facts(payload: Payload) -> Facts:
    """What a payload says; what it leaves out is not there."""
    fields: Facts = msgspec.to_builtins(payload)
    return fields


def recorded(before: Mapping[str, Any] | None, now: Facts, at: str) -> Facts:
    """What was recorded, with its time; the first one if it is the same."""
    if before is not None and {**before, "capturedAt": at} == {**now, "capturedAt": at}:
        return dict(before)
    return {**now, "capturedAt": at}


def disclosure(case: Case, id: str) -> DisclosureRecord | None:
    """The record of a disclosure, if it was shown."""
    return next((record for record in case["disclosures"] if record["id"] == id), None)


def consented(case: Case, type: str = "credit_search") -> bool:
    """Whether a consent is granted."""
    return any(consent["granted"] for consent in case["consents"] if consent["type"] == type)


def begun(case: Case, _: ProcessStart, at: Envelope) -> Case:
    return case if "createdAt" in case else {**case, "sessionId": at.session_id, "createdAt": at.ts}


def project_facts(case: Case, payload: said.RecordProjectFacts, at: Envelope) -> Case:
    project = loan({**case["project"], **facts(payload)}, payload)
    after: Case = {
        **case,
        "project": project,
        "retailerName": project.get("retailerName", case["retailerName"]),
    }
    if "waterfall" not in case and project.get("netLoanAmount") != case["project"].get("netLoanAmount"):
        after.pop("provisionalQuote", None)
    return after


def loan(project: Facts, payload: said.RecordProjectFacts) -> Facts:
    """The deposit both ways and what is left to borrow; what this payload says of the deposit decides."""
    if "projectValue" not in project:
        return project
    by_share = payload.deposit_amount is None and (
        payload.deposit_pct is not None or "depositAmount" not in project
    )
    value, share = exact(project["projectValue"]), exact(project.get("depositPct", 0))
    amount = value * share / 100 if by_share else exact(project["depositAmount"])
    deposit = min(pence(amount), value)
    return {
        **project,
        "depositAmount": float(deposit),
        "depositPct": float(share if by_share or not value else pence(deposit * 100 / value)),
        "netLoanAmount": float(pence(value - deposit)),
    }


def contact(case: Case, payload: said.RecordCustomerContact, at: Envelope) -> Case:
    return {**case, "contact": {**case["contact"], **facts(payload)}}


def link(case: Case, _: said.GenerateCustomerLink, at: Envelope) -> Case:
    return moved(case, "awaiting_customer", frozenset({"intake"}))


def handed_over(case: Case, _: said.InstallerHandoffComplete, at: Envelope) -> Case:
    after = moved(case, "awaiting_customer", frozenset({"intake"}))
    return {**after, "installerHandoffComplete": True}


def moved(case: Case, status: str, places: frozenset[str]) -> Case:
    """The case with another status, if it has one of these."""
    return {**case, "status": status} if case["status"] in places else case


def eligibility(case: Case, payload: said.RecordEligibility, at: Envelope) -> Case:
    if case["status"] in ENDS or "waterfall" in case:
        return case
    answers = facts(payload)
    after: Case = {**case, "eligibility": recorded(case.get("eligibility"), answers, at.ts)}
    return (
        moved(after, "quote_ready", BEFORE_SUBMISSION)
        if all(answers.values())
        else {**after, "status": "ineligible"}
    )


def provisional_quote(case: Case, payload: said.RecordProvisionalQuote, at: Envelope) -> Case:
    """A quote needs a loan; once lenders have answered, theirs counts."""
    if not case["project"].get("netLoanAmount") or "waterfall" in case:
        return case
    now, before = quote(case["project"], payload.term_months, at.ts), case.get("provisionalQuote")
    same = before is not None and {**before, "capturedAt": at.ts} == now
    return case if same else {**case, "provisionalQuote": now}


def email_preference(case: Case, payload: said.RecordEmailPreference, at: Envelope) -> Case:
    wanted = recorded(case.get("emailPreference"), facts(payload), at.ts)
    return {**case, "emailPreference": wanted}


def personal_facts(case: Case, payload: said.RecordPersonalFacts, at: Envelope) -> Case:
    after: Case = {**case, "personal": {**case["personal"], **facts(payload)}}
    return moved(after, "customer_active", frozenset({"awaiting_customer"}))


def financial_facts(case: Case, payload: said.RecordFinancialFacts, at: Envelope) -> Case:
    after: Case = {**case, "financial": {**case["financial"], **facts(payload)}}
    return moved(after, "customer_active", frozenset({"awaiting_customer"}))


def vulnerability(case: Case, payload: said.RecordVulnerabilityIndicators, at: Envelope) -> Case:
    now = {"vulnerabilityIndicators": list(payload.indicators), "vulnerabilityNote": payload.note}
    money = case["financial"]
    if "vulnerabilityCapturedAt" in money and now == {name: money.get(name) for name in now}:
        return case
    told = {name: value for name, value in now.items() if value is not None}
    kept = {name: value for name, value in money.items() if name not in now}
    return {**case, "financial": {**kept, **told, "vulnerabilityCapturedAt": at.ts}}


def presented(case: Case, payload: said.PresentDisclosure, at: Envelope) -> Case:
    if disclosure(case, payload.id):
        return case
    shown: DisclosureRecord = {"id": payload.id, "presentedAt": at.ts}
    return {**case, "disclosures": [*case["disclosures"], shown]}


def acknowledged(case: Case, payload: said.AcknowledgeDisclosure, at: Envelope) -> Case:
    shown = presented(case, said.PresentDisclosure(id=payload.id), at)
    records: list[DisclosureRecord] = [
        {**record, "acknowledgedAt": record.get("acknowledgedAt", at.ts)}
        if record["id"] == payload.id
        else record
        for record in shown["disclosures"]
    ]
    return {**case, "disclosures": records}


def consent(case: Case, payload: said.CaptureConsent, at: Envelope) -> Case:
    others = [consent for consent in case["consents"] if consent["type"] != payload.consent_type]
    now: Consent = {"type": payload.consent_type, "granted": payload.granted, "capturedAt": at.ts}
    return {**case, "consents": [*others, now]}


def submitted(case: Case, _: said.SubmitApplication, at: Envelope) -> Case:
    return case if case["status"] in ENDS else {**case, "status": "submitting"}


def stepped(case: Case, payload: said.WaterfallStep, at: Envelope) -> Case:
    """A lender answers in its place on the panel, once."""
    fall, asked = case.get("waterfall"), case.get("provisionalQuote")
    if case["status"] in ENDS or asked is None or payload.index != len(fall["steps"] if fall else ()):
        return case
    step = {name: value for name, value in facts(payload).items() if name != "index"}
    after: Waterfall = {
        "requestedQuote": fall["requestedQuote"] if fall else asked,
        "steps": [*(fall["steps"] if fall else ()), step],
        "awaitingCounterDecision": isinstance(payload.outcome, said.ApprovedWithCounter),
        "exhausted": False,
        "updatedAt": at.ts,
    }
    if isinstance(payload.outcome, said.ApprovedAsRequested):
        after["acceptedOffer"] = step["outcome"]["offer"]
    return {**case, "status": "waterfall_running", "waterfall": after}


def walked(case: Case, payload: said.WaterfallEnd, at: Envelope) -> Case:
    """The walk along the panel stops: the status says where."""
    fall = case.get("waterfall")
    if case["status"] in ENDS or fall is None:
        return case
    after: Waterfall = {**fall, "exhausted": payload.exhausted}
    return {**case, "status": standing(after), "waterfall": after}


def standing(fall: Waterfall) -> str:
    """The status that the lenders' answers give a case."""
    if "acceptedOffer" in fall:
        return "selected"
    if fall["awaitingCounterDecision"]:
        return "awaiting_counter_decision"
    return "declined" if fall["exhausted"] else "waterfall_running"


def awaited(case: Case, offer_id: str | None = None) -> Waterfall | None:
    """The lenders' answers, if the last one is an offer to decide on: this one, or any."""
    fall = case.get("waterfall")
    if not fall or not fall["awaitingCounterDecision"] or case["status"] in ENDS:
        return None
    return fall if offer_id in (None, fall["steps"][-1]["outcome"]["offer"]["id"]) else None


def decided(case: Case, offer_id: str | None) -> Waterfall | None:
    """The lenders' answers, if a decision on this offer counts; without an id it is the one last told."""
    if offer_id is None and "refusalTurn" in case:
        return None
    return awaited(case, offer_id)


def answered(case: Case, _: AgentEnd, at: Envelope) -> Case:
    """The guide's turn after a refusal is over, so the customer has been told of the next offer."""
    if "refusalTurn" not in case or at.channel != "customer":
        return case
    if case["refusalTurn"] not in (None, at.trace_id):
        return case  # a turn that began before the refusal
    after: Case = {**case}
    del after["refusalTurn"]
    return after


def accepted(case: Case, payload: said.AcceptCounterOffer, at: Envelope) -> Case:
    if not (fall := decided(case, payload.offer_id)):
        return case
    offer = fall["steps"][-1]["outcome"]["offer"]
    after: Waterfall = {**fall, "acceptedOffer": offer, "awaitingCounterDecision": False, "updatedAt": at.ts}
    return {**case, "status": "selected", "waterfall": after, "selectedOfferId": offer["id"]}


def refused(case: Case, payload: said.RefuseCounterOffer, at: Envelope) -> Case:
    if not (fall := decided(case, payload.offer_id)):
        return case
    after: Waterfall = {**fall, "awaitingCounterDecision": False, "updatedAt": at.ts}
    return {**case, "status": "waterfall_running", "waterfall": after, "refusalTurn": at.trace_id}


def selected(case: Case, payload: said.SelectOffer, at: Envelope) -> Case:
    """Only the offer that was approved can be selected."""
    offer = case["waterfall"].get("acceptedOffer", {}) if "waterfall" in case else {}
    if offer.get("id") != payload.offer_id or case["status"] in ENDS - {"selected"}:
        return case
    return {**case, "status": "selected", "selectedOfferId": payload.offer_id}


def withdrawn(case: Case, payload: said.Withdraw, at: Envelope) -> Case:
    if case["status"] in ENDS:
        return case
    outcome = {"kind": "withdrawn", **facts(payload), "recordedAt": at.ts}
    return {**case, "status": "withdrawn", "caseOutcome": outcome}


def outcome(case: Case, payload: said.CaseOutcome, at: Envelope) -> Case:
    contradicts = case["status"] in ENDS and payload.kind not in REACHED[case["status"]]
    if "caseOutcome" in case or contradicts:
        return case
    return {**case, "caseOutcome": {**facts(payload), "recordedAt": at.ts}}


def completed(case: Case, _: said.CaseComplete, at: Envelope) -> Case:
    if case["status"] != "selected":
        return case
    outcome = case.get("caseOutcome", {"kind": "completed", "recordedAt": at.ts})
    return {**case, "status": "complete", "caseOutcome": outcome}


def decision(case: Case, _: said.RequestDecision, at: Envelope) -> Case:
    return case if "decision" in case else {**case, "decision": {"requestedAt": at.ts}}


Step = Callable[[Case, Any, Envelope], Case]

STEPS: dict[type[Payload], Step] = {
    ProcessStart: begun,
    said.RecordProjectFacts: project_facts,
    said.RecordCustomerContact: contact,
    said.GenerateCustomerLink: link,
    said.InstallerHandoffComplete: handed_over,
    said.RecordEligibility: eligibility,
    said.RecordProvisionalQuote: provisional_quote,
    said.RecordEmailPreference: email_preference,
    said.RecordPersonalFacts: personal_facts,
    said.RecordFinancialFacts: financial_facts,
    said.RecordVulnerabilityIndicators: vulnerability,
    said.PresentDisclosure: presented,
    said.AcknowledgeDisclosure: acknowledged,
    said.CaptureConsent: consent,
    said.SubmitApplication: submitted,
    said.WaterfallStep: stepped,
    said.WaterfallEnd: walked,
    said.AcceptCounterOffer: accepted,
    said.RefuseCounterOffer: refused,
    said.SelectOffer: selected,
    said.Withdraw: withdrawn,
    said.CaseOutcome: outcome,
    said.CaseComplete: completed,
    said.RequestDecision: decision,
    AgentEnd: answered,
}


def touching(step: Step) -> Step:
    """The same step; what changes the case is also its last update."""

    def apply(case: Case, payload: Any, at: Envelope) -> Case:
        after = step(case, payload, at)
        return case if after == case else {**after, "updatedAt": at.ts}

    return apply


REDUCERS: Reducers = {payload: touching(step) for payload, step in STEPS.items()}
