"""The lenders and the rules: which lender answers what, and which event starts which rule."""

from tests.support.tables import for_each_row
from tests.unit.examples.broker_desk import Desk, after
from turnlog.events import Payload, ProcessStart
from turnlog_examples.broker.case import Case, new_case
from turnlog_examples.broker.events import (
    AcknowledgeDisclosure,
    ApprovedAsRequested,
    ApprovedWithCounter,
    CaptureConsent,
    Declined,
    InstallerHandoffComplete,
    PresentDisclosure,
    RecordEligibility,
    RecordFinancialFacts,
    RecordPersonalFacts,
    RecordProjectFacts,
    RecordProvisionalQuote,
    RecordVulnerabilityIndicators,
    SubmitApplication,
    WaterfallStep,
)
from turnlog_examples.broker.panel import PANEL
from turnlog_examples.broker.waterfall import decide, walk

GRANTED = CaptureConsent(consent_type="credit_search", granted=True)
READ = AcknowledgeDisclosure(id="pre_contract_summary")


def eligible(homeowner: bool = True) -> RecordEligibility:
    return RecordEligibility(is_over_18=True, is_uk_resident=True, is_homeowner=homeowner, is_employed=True)


def money(income: float, outgoings: float = 900) -> RecordFinancialFacts:
    return RecordFinancialFacts(
        employment_status="Employed", annual_income=income, monthly_outgoings=outgoings
    )


def quoted(amount: float, months: int, income: float) -> Case:
    facts = RecordProjectFacts(project_value=amount, system_kwp=4), RecordProvisionalQuote(term_months=months)
    return after(new_case(), *facts, money(income))


def started(amount: float = 12_500, months: int = 120, income: float = 41_000) -> Desk:
    """A session up to the consent: an installer, then a customer who answers everything."""
    desk = Desk()
    desk.take(ProcessStart(process="server", pid=1), origin="system")
    project = RecordProjectFacts(project_value=amount, system_kwp=4)
    desk.take(project, InstallerHandoffComplete(), origin="model", phase="submit")
    service = PresentDisclosure(id="service_status"), AcknowledgeDisclosure(id="service_status")
    desk.take(*service, origin="model", phase="submit")
    desk.take(eligible())
    facts = RecordProvisionalQuote(term_months=months), RecordPersonalFacts(full_name="Ada"), money(income)
    desk.take(*facts, RecordVulnerabilityIndicators(indicators=()), origin="model", phase="submit")
    assert desk.fired == []
    return desk


def submitted(amount: float = 12_500, months: int = 120, income: float = 41_000) -> Desk:
    desk = started(amount, months, income)
    desk.take(GRANTED)
    desk.take(READ)
    desk.take(phase="submit")
    return desk


@for_each_row(
    ("case", "answers"),
    [
        (quoted(12_500, 120, 41_000), [ApprovedAsRequested, ApprovedWithCounter, ApprovedWithCounter]),
        (quoted(12_500, 24, 41_000), [ApprovedWithCounter] * 3),  # too short for the first
        (quoted(12_500, 36, 20_000), [ApprovedWithCounter] * 3),  # too much a month for that term
        (quoted(30_000, 120, 60_000), [Declined, ApprovedWithCounter, Declined]),  # too much for most
        (quoted(1_500, 36, 41_000), [Declined, ApprovedWithCounter, ApprovedWithCounter]),  # too little
        (quoted(12_500, 120, 10_900), [Declined, Declined, Declined]),  # hardly anything is left
        (quoted(60_000, 120, 200_000), [Declined, Declined, Declined]),
    ],
)
def test_what_lenders_answer_follows_from_the_case(case: Case, answers: list[type]) -> None:
    assert [type(decide(case, lender)) for lender in PANEL] == answers


def test_an_offer_keeps_the_amount_and_says_what_it_costs() -> None:
    case = quoted(12_500, 36, 20_000)
    for lender in PANEL:
        outcome = decide(case, lender)
        assert isinstance(outcome, ApprovedWithCounter)
        offer = outcome.offer
        assert offer.net_loan_amount == case["provisionalQuote"]["amount"]
        assert lender.terms[0] <= offer.term_months <= lender.terms[1]
        assert offer.term_months > 36
        assert offer.net_cost_per_month == round(offer.monthly_payment - 31.88, 2)
        assert offer.monthly_payment <= (20_000 / 12 - 900) * lender.share_pct / 100
        assert f"a term of {offer.term_months} months instead of 36" in outcome.reason


def test_who_states_no_income_is_declined_and_vulnerability_does_not_matter() -> None:
    case = quoted(12_500, 120, 41_000)
    vulnerable = after(case, RecordVulnerabilityIndicators(indicators=("income_change",)))
    assert walk(vulnerable) == walk(case)
    silent: Case = {**case, "financial": {}}
    assert all(isinstance(decide(silent, lender), Declined) for lender in PANEL)


def test_an_offer_without_a_system_of_known_size_saves_nothing() -> None:
    case = after(new_case(), RecordProjectFacts(project_value=9_000), RecordProvisionalQuote(term_months=60))
    outcome = decide(after(case, money(41_000)), PANEL[0])
    assert isinstance(outcome, ApprovedAsRequested)
    assert (outcome.offer.estimated_monthly_solar_savings, outcome.offer.net_cost_per_month) == (None, None)


def test_the_rules_of_the_consent_close_their_gaps_once() -> None:
    desk = started()
    said = desk.take(GRANTED)
    assert said == [
        AcknowledgeDisclosure(id="credit_search_consent"),
        PresentDisclosure(id="pre_contract_summary"),
    ]
    assert desk.fired == ["R1", "R2"]
    assert desk.take(GRANTED) == []
    assert desk.take(CaptureConsent(consent_type="marketing", granted=True)) == []


def test_a_refused_consent_moves_nothing() -> None:
    desk = started()
    assert (
        desk.take(CaptureConsent(consent_type="credit_search", granted=False), READ, SubmitApplication())
        == []
    )
    assert desk.case["status"] == "submitting"
    assert desk.take(phase="submit") == []
    desk.take(GRANTED)
    assert desk.case["status"] == "selected"


def test_submission_waits_for_the_models_turn_or_for_the_page() -> None:
    desk = started()
    assert desk.take(GRANTED, READ)[-1] == AcknowledgeDisclosure(id="credit_search_consent")
    assert "waterfall" not in desk.case
    assert desk.take(phase="submit")[0] == SubmitApplication()
    assert desk.fired[-3:] == ["R3", "lenders", "selection"]
    by_page = started()
    by_page.take(GRANTED, READ, SubmitApplication())
    assert "R3" not in by_page.fired
    assert by_page.case["waterfall"]["steps"] == desk.case["waterfall"]["steps"]


GATES: list[Payload] = [
    GRANTED,
    READ,
    RecordPersonalFacts(full_name="Ada"),
    money(41_000),
    RecordProjectFacts(project_value=12_500),
]


@for_each_row("missing", range(len(GATES)))
def test_no_lender_is_asked_before_everything_is_there(missing: int) -> None:
    desk = Desk()
    rest = [gate for number, gate in enumerate(GATES) if number != missing]
    desk.take(*rest, RecordProvisionalQuote(term_months=120), SubmitApplication(), phase="submit")
    assert (desk.case["status"], desk.kinds(WaterfallStep)) == ("submitting", [])
    desk.take(GATES[missing], RecordProvisionalQuote(term_months=120), phase="submit")
    assert desk.case["status"] == "selected"
