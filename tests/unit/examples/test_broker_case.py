"""The case of the broker: every event once, twice and after a retry; idempotency; statuses; origins."""

import json
from itertools import pairwise

import msgspec
import pytest
from msgspec.json import encode as dump

from tests.support.tables import for_each_row
from tests.unit.examples.broker_desk import CATALOG, after
from turnlog.errors import InvalidEvent
from turnlog.events import Kind, Payload, ProcessStart
from turnlog_examples.broker.case import ENDS, REDUCERS, Case, new_case
from turnlog_examples.broker.events import (
    BROKER,
    TAXONOMY,
    AcceptCounterOffer,
    AcknowledgeDisclosure,
    CaptureConsent,
    CaseComplete,
    CaseOutcome,
    GenerateCustomerLink,
    InstallerHandoffComplete,
    PresentDisclosure,
    RecordEligibility,
    RecordEmailPreference,
    RecordFinancialFacts,
    RecordPersonalFacts,
    RecordProjectFacts,
    RecordProvisionalQuote,
    RecordVulnerabilityIndicators,
    RefuseCounterOffer,
    RequestDecision,
    SelectOffer,
    SubmitApplication,
    WaterfallEnd,
    WaterfallStep,
    Withdraw,
)
from turnlog_examples.broker.waterfall import walk

FIRST, LATER = "2026-01-08T12:34:56.789Z", "2026-01-08T12:34:57.789Z"
KINDS = [*BROKER]
TAGS = [kind.tag for kind in KINDS]

ELIGIBLE = RecordEligibility(is_over_18=True, is_uk_resident=True, is_homeowner=True, is_employed=True)
RENTING = RecordEligibility(is_over_18=True, is_uk_resident=True, is_homeowner=False, is_employed=True)
MONEY = RecordFinancialFacts(employment_status="Employed", annual_income=41_000, monthly_outgoings=900)
# 16,000 over 24 months is too short for the first lender, and it counters
QUOTED = after(
    new_case(),
    ProcessStart(process="server", pid=1),
    RecordProjectFacts(project_value=16_000),
    ELIGIBLE,
    RecordProvisionalQuote(term_months=24),
    MONEY,
)
SENT = after(QUOTED, SubmitApplication())
COUNTERED = after(SENT, *walk(SENT))
CLEAN = after(QUOTED, RecordProvisionalQuote(term_months=120), SubmitApplication())
APPROVED = after(CLEAN, *walk(CLEAN))
STAGES = {"new": new_case(), "quoted": QUOTED, "sent": SENT, "countered": COUNTERED, "approved": APPROVED}


def example(kind: Kind) -> Payload:
    return kind.decoder.decode(json.dumps(kind.payload.EXAMPLE))


def timeless(case: Case) -> bytes:
    """A case without the times of its consents and of its last update."""
    consents = [{**consent, "capturedAt": ""} for consent in case["consents"]]
    return msgspec.json.encode({**case, "consents": consents, "updatedAt": ""})


def test_the_stages_are_what_they_are_called() -> None:
    assert [case["status"] for case in STAGES.values()] == [
        "intake",
        "quote_ready",
        "submitting",
        "awaiting_counter_decision",
        "selected",
    ]


def test_every_type_has_its_reducer() -> None:
    assert {kind.payload for kind in BROKER} | {ProcessStart} == set(REDUCERS)
    assert len(TAXONOMY) == 21


@for_each_row("stage", STAGES)
@for_each_row("kind", KINDS, ids=TAGS)
def test_an_event_applied_twice_is_applied_once(kind: Kind, stage: str) -> None:
    once = after(STAGES[stage], example(kind), seq=10)
    twice = after(once, example(kind), seq=11)
    assert timeless(twice) == timeless(once)
    if kind.payload is not CaptureConsent:
        assert twice is once  # not even the time of the last update


@for_each_row("kind", KINDS, ids=TAGS)
def test_a_reducer_leaves_what_it_was_given(kind: Kind) -> None:
    for case in STAGES.values():
        before = dump(case)
        after(case, example(kind))
        assert dump(case) == before


@for_each_row("stage", STAGES)
def test_a_case_is_json_and_goes_on_from_a_snapshot(stage: str) -> None:
    case = STAGES[stage]
    assert msgspec.json.decode(dump(case), type=Case) == case
    for kind in KINDS:
        loaded = after(msgspec.json.decode(dump(case), type=Case), example(kind), seq=10)
        assert dump(loaded) == dump(after(case, example(kind), seq=10))


# Seed 000, "Idempotency", sentence by sentence.


def test_a_disclosure_is_presented_once_and_the_first_time_stays() -> None:
    case = after(new_case(), *[PresentDisclosure(id="service_status")] * 2)
    assert case["disclosures"] == [{"id": "service_status", "presentedAt": FIRST}]


def test_an_acknowledgement_is_set_only_when_it_is_not_yet_set() -> None:
    shown, read = PresentDisclosure(id="service_status"), AcknowledgeDisclosure(id="service_status")
    record = {"id": "service_status", "presentedAt": FIRST, "acknowledgedAt": LATER}
    assert after(new_case(), shown, read)["disclosures"] == [record]
    assert after(new_case(), shown, read, read)["disclosures"] == [record]


def test_the_latest_consent_of_a_type_replaces_the_earlier_ones() -> None:
    granted = CaptureConsent(consent_type="credit_search", granted=True)
    refused = CaptureConsent(consent_type="credit_search", granted=False)
    other = CaptureConsent(consent_type="marketing", granted=True)
    now = {"type": "credit_search", "granted": False, "capturedAt": LATER}
    assert after(new_case(), granted, refused)["consents"] == [now]
    duplicate = after(new_case(), granted, granted)["consents"]
    assert duplicate == [{"type": "credit_search", "granted": True, "capturedAt": LATER}]
    assert [one["type"] for one in after(new_case(), granted, other)["consents"]] == [
        "credit_search",
        "marketing",
    ]


@for_each_row(
    ("first", "second", "section", "merged"),
    [
        (
            RecordProjectFacts(retailer_name="Sunny"),
            RecordProjectFacts(battery_kwh=5),
            "project",
            {"retailerName": "Sunny", "batteryKwh": 5.0},
        ),
        (
            RecordPersonalFacts(full_name="Ada", town="Hull"),
            RecordPersonalFacts(town="York"),
            "personal",
            {"fullName": "Ada", "town": "York"},
        ),
        (
            RecordFinancialFacts(annual_income=1),
            RecordFinancialFacts(employment_status="Retired"),
            "financial",
            {"annualIncome": 1.0, "employmentStatus": "Retired"},
        ),
    ],
)
def test_facts_are_merged_and_said_again_change_nothing(
    first: Payload, second: Payload, section: str, merged: dict[str, object]
) -> None:
    case = after(new_case(), first, second)
    assert case[section] == merged  # type: ignore[literal-required]
    assert after(case, second) is case


def test_the_first_outcome_of_a_case_stays() -> None:
    ended = after(new_case(), RENTING)
    first = after(ended, CaseOutcome(kind="ineligible", reason="A tenant"))
    assert first["caseOutcome"] == {"kind": "ineligible", "reason": "A tenant", "recordedAt": FIRST}
    assert after(first, CaseOutcome(kind="ineligible", reason="Another")) is first


def test_a_submission_always_sets_submitting_and_runs_no_waterfall_itself() -> None:
    for stage in ("new", "quoted", "countered"):
        case = after(STAGES[stage], SubmitApplication())
        assert case["status"] == "submitting"
        assert case.get("waterfall") == STAGES[stage].get("waterfall")


def test_a_waterfall_that_is_there_is_not_run_again() -> None:
    again = after(COUNTERED, SubmitApplication())
    assert walk(again) == [WaterfallEnd(exhausted=False)]
    assert after(again, *walk(again))["status"] == "awaiting_counter_decision"


def test_a_counter_offer_is_accepted_once() -> None:
    assert after(QUOTED, AcceptCounterOffer()) is QUOTED
    case = after(COUNTERED, AcceptCounterOffer())
    fall = case["waterfall"]
    assert (case["status"], case["selectedOfferId"], fall["awaitingCounterDecision"]) == (
        "selected",
        "offer_1",
        False,
    )
    assert fall["acceptedOffer"] == fall["steps"][-1]["outcome"]["offer"]
    assert after(case, AcceptCounterOffer()) is case
    assert after(case, RefuseCounterOffer()) is case


def test_a_counter_offer_is_refused_once() -> None:
    assert after(QUOTED, RefuseCounterOffer()) is QUOTED
    case = after(COUNTERED, RefuseCounterOffer())
    assert (case["status"], case["waterfall"]["awaitingCounterDecision"]) == ("waterfall_running", False)
    assert after(case, RefuseCounterOffer()) is case
    assert after(case, AcceptCounterOffer()) is case


# The decisions at the head of the module.

TERMINAL = {
    "selected": APPROVED,
    "declined": after(COUNTERED, RefuseCounterOffer(), WaterfallEnd(exhausted=True)),
    "ineligible": after(new_case(), RENTING),
    "withdrawn": after(new_case(), Withdraw()),
    "complete": after(APPROVED, CaseComplete()),
}


@for_each_row("status", TERMINAL)
@for_each_row("kind", KINDS, ids=TAGS)
def test_nothing_leads_out_of_an_end_but_completion_of_a_selected_case(kind: Kind, status: str) -> None:
    assert set(TERMINAL) == ENDS
    case = TERMINAL[status]
    assert case["status"] == status
    to = "complete" if (status, kind.payload) == ("selected", CaseComplete) else status
    assert after(case, example(kind), seq=20)["status"] == to


@for_each_row("stage", ["new", "quoted", "sent", "countered"])
def test_only_a_selected_case_is_completed_and_only_what_happened_is_an_outcome(stage: str) -> None:
    case = STAGES[stage]
    assert after(case, CaseComplete()) is case
    for kind in ("selected", "declined", "ineligible", "withdrawn", "completed"):
        assert after(case, CaseOutcome(kind=kind)) is case


def test_completion_keeps_an_outcome_that_is_there() -> None:
    assert TERMINAL["complete"]["caseOutcome"]["kind"] == "completed"
    told = after(APPROVED, CaseOutcome(kind="selected"), CaseComplete())
    assert (told["status"], told["caseOutcome"]["kind"]) == ("complete", "selected")


def test_eligibility_decides_until_a_lender_has_answered() -> None:
    assert after(new_case(), ELIGIBLE)["status"] == "quote_ready"
    changed = after(new_case(), ELIGIBLE, RENTING)
    assert (changed["status"], changed["eligibility"]["isHomeowner"]) == ("ineligible", False)
    early = after(new_case(), SubmitApplication())
    assert after(early, RENTING)["status"] == "ineligible", "no lender is asked for who may not borrow"
    told = after(early, ELIGIBLE)
    assert (told["status"], told["eligibility"]["isHomeowner"]) == ("submitting", True)
    for case in (COUNTERED, changed):
        assert after(case, ELIGIBLE) is case
        assert after(case, RENTING) is case


def test_link_and_hand_over_begin_a_case_and_never_set_it_back() -> None:
    case = after(new_case(), GenerateCustomerLink())
    assert (case["status"], case["installerHandoffComplete"]) == ("awaiting_customer", False)
    case = after(case, InstallerHandoffComplete())
    assert (case["status"], case["installerHandoffComplete"]) == ("awaiting_customer", True)
    assert after(QUOTED, GenerateCustomerLink()) is QUOTED
    assert after(QUOTED, InstallerHandoffComplete())["status"] == "quote_ready"


@for_each_row("facts", [RecordPersonalFacts(full_name="Ada"), MONEY])
def test_facts_make_a_customer_who_was_awaited_active(facts: Payload) -> None:
    assert after(new_case(), GenerateCustomerLink(), facts)["status"] == "customer_active"
    assert after(new_case(), facts)["status"] == "intake"


def test_what_is_acknowledged_was_presented() -> None:
    record = {"id": "service_status", "presentedAt": FIRST, "acknowledgedAt": FIRST}
    assert after(new_case(), AcknowledgeDisclosure(id="service_status"))["disclosures"] == [record]


@for_each_row(
    ("facts", "loan"),
    [
        ([RecordProjectFacts(project_value=15_000, deposit_pct=10)], (1500.0, 10.0, 13500.0)),
        ([RecordProjectFacts(project_value=15_000, deposit_amount=1_000)], (1000.0, 6.67, 14000.0)),
        ([RecordProjectFacts(project_value=15_000)], (0.0, 0.0, 15000.0)),
        (
            [RecordProjectFacts(deposit_pct=10), RecordProjectFacts(project_value=15_000)],
            (1500.0, 10.0, 13500.0),
        ),
        (
            [RecordProjectFacts(deposit_amount=99.5), RecordProjectFacts(project_value=199)],
            (99.5, 50.0, 99.5),
        ),
        (
            [
                RecordProjectFacts(project_value=15_000, deposit_pct=10),
                RecordProjectFacts(project_value=20_000),
            ],
            (1500.0, 7.5, 18500.0),
        ),
        (
            [RecordProjectFacts(project_value=100, deposit_amount=10), RecordProjectFacts(deposit_pct=50)],
            (50.0, 50.0, 50.0),
        ),
        ([RecordProjectFacts(project_value=100, deposit_amount=500)], (100.0, 100.0, 0.0)),
        ([RecordProjectFacts(project_value=0, deposit_amount=500)], (0.0, 0.0, 0.0)),
    ],
)
def test_deposit_and_loan_follow_from_each_other(
    facts: list[Payload], loan: tuple[float, float, float]
) -> None:
    project = after(new_case(), *facts)["project"]
    assert (project["depositAmount"], project["depositPct"], project["netLoanAmount"]) == loan


def test_a_quote_needs_a_loan_and_is_void_with_another_one() -> None:
    assert "provisionalQuote" not in after(new_case(), RecordProvisionalQuote(term_months=24))
    assert "provisionalQuote" not in after(QUOTED, RecordProjectFacts(deposit_amount=1_000))
    assert after(QUOTED, RecordProjectFacts(project_value=16_000)) is QUOTED
    assert "provisionalQuote" in after(COUNTERED, RecordProjectFacts(deposit_amount=1_000))
    assert after(COUNTERED, RecordProvisionalQuote(term_months=36)) is COUNTERED


def test_what_is_recorded_again_as_it_was_keeps_its_first_time() -> None:
    asked = RecordVulnerabilityIndicators(indicators=("income_change",), note="Slowly, please.")
    payloads = [ELIGIBLE, RecordEmailPreference(wants_email_copy=False), asked]
    case = after(new_case(), *payloads)
    assert after(case, *payloads, seq=10) is case
    assert case["financial"]["vulnerabilityIndicators"] == ["income_change"]
    nothing = after(case, RecordVulnerabilityIndicators(indicators=()))
    assert nothing["financial"] == {"vulnerabilityIndicators": [], "vulnerabilityCapturedAt": FIRST}


def test_only_the_approved_offer_is_selected() -> None:
    assert after(APPROVED, SelectOffer(offer_id="offer_1"))["selectedOfferId"] == "offer_1"
    assert after(APPROVED, SelectOffer(offer_id="offer_2")) is APPROVED
    assert after(COUNTERED, SelectOffer(offer_id="offer_1")) is COUNTERED
    assert after(new_case(), SelectOffer(offer_id="offer_1"))["status"] == "intake"


def test_a_lender_answers_in_its_place_and_only_while_somebody_asks() -> None:
    [step, *_] = walk(SENT)
    assert isinstance(step, WaterfallStep)
    assert after(COUNTERED, step) is COUNTERED
    assert after(new_case(), step)["status"] == "intake"
    assert after(TERMINAL["withdrawn"], step) is TERMINAL["withdrawn"]
    assert after(QUOTED, WaterfallEnd(exhausted=True)) is QUOTED


def test_a_withdrawal_is_an_outcome_with_its_reason() -> None:
    case = after(COUNTERED, Withdraw(reason="Too dear"))
    assert case["caseOutcome"] == {"kind": "withdrawn", "reason": "Too dear", "recordedAt": FIRST}
    assert after(case, Withdraw(reason="Another")) is case
    assert after(case, AcceptCounterOffer()) is case


def test_a_case_knows_its_session_its_retailer_and_its_times() -> None:
    start = new_case("Brightside")
    case = after(start, ProcessStart(process="server", pid=1), RecordProjectFacts(retailer_name="Sunny"))
    assert (start["retailerName"], case["retailerName"]) == ("Brightside", "Sunny")
    assert (case["sessionId"], case["createdAt"], case["updatedAt"]) == ("sess_1", FIRST, LATER)
    assert after(case, ProcessStart(process="server", pid=2)) is case


def test_the_legacy_request_is_read_and_not_written() -> None:
    assert after(new_case(), RequestDecision())["decision"] == {"requestedAt": FIRST}
    with pytest.raises(InvalidEvent):
        CATALOG.event(RequestDecision(), id="evt_1")


# Who may say what.

BOTH, PAGE, CLOSING, APP = {"model", "ui", "app"}, {"ui", "app"}, {"model", "app"}, {"app"}
SAID_BY: dict[type[Payload], set[str]] = {
    **dict.fromkeys(
        (CaptureConsent, SubmitApplication, AcceptCounterOffer, RefuseCounterOffer, SelectOffer), PAGE
    ),
    **dict.fromkeys((CaseOutcome, CaseComplete), CLOSING),
    **dict.fromkeys((WaterfallStep, WaterfallEnd), APP),
}


@for_each_row("kind", KINDS, ids=TAGS)
def test_who_may_say_what(kind: Kind) -> None:
    who = {
        origin for origin in ("model", "ui", "tool", "app", "system") if kind.admits(example(kind), origin)
    }
    assert who == SAID_BY.get(kind.payload, BOTH)


@for_each_row("id", ["credit_search_consent", "pre_contract_summary"])
def test_the_model_acknowledges_the_service_status_only(id: str) -> None:
    CATALOG.event("broker.acknowledge_disclosure", {"id": id}, id="evt_1", origin="ui")
    with pytest.raises(InvalidEvent):
        CATALOG.event("broker.acknowledge_disclosure", {"id": id}, id="evt_1", origin="model")
    CATALOG.event("broker.acknowledge_disclosure", {"id": "service_status"}, id="evt_1", origin="model")


@for_each_row(
    ("name", "data"),
    [
        ("record_provisional_quote", {"termMonths": 0}),
        ("record_provisional_quote", {"termMonths": 10**9}),
        ("record_project_facts", {"projectValue": -1}),
        ("record_project_facts", {"projectValue": 1e300}),
        ("record_project_facts", {"depositPct": 101}),
        ("present_disclosure", {"id": "another"}),
    ],
)
def test_sums_that_no_fold_could_take_are_refused_at_the_door(name: str, data: dict[str, object]) -> None:
    with pytest.raises(InvalidEvent):
        CATALOG.event(f"broker.{name}", data, id="evt_1", origin="ui")


def test_the_largest_and_smallest_sums_have_a_quote() -> None:
    for value, months in ((1e9, 600), (0.01, 1), (0.01, 600), (1e9, 1)):
        case = after(
            new_case(), RecordProjectFacts(project_value=value), RecordProvisionalQuote(term_months=months)
        )
        assert case["provisionalQuote"]["amount"] == value


def test_times_only_grow() -> None:
    cases = [new_case()]
    for number, kind in enumerate(KINDS):
        cases.append(after(cases[-1], example(kind), seq=number))
    times = [case.get("updatedAt", "") for case in cases]
    assert all(before <= now for before, now in pairwise(times))
