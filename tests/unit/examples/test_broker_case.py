"""The case of the broker: every event once, twice and after a retry; idempotency; statuses; origins."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.json import encode as dump

from tests.support.tables import for_each_row
from tests.unit.examples.broker_desk import CATALOG, after, entered
from turnlog.errors import InvalidEvent
from turnlog.events import AgentEnd, EventType, Payload, ProcessStart, Scope
from turnlog_examples.broker.case import ENDS, REDUCERS, Case, new_case
from turnlog_examples.broker.events import (
    BROKER,
    TAXONOMY,
    AcceptCounterOffer,
    CaptureConsent,
    CaseComplete,
    CaseOutcome,
    RecordEligibility,
    RecordFinancialFacts,
    RecordProjectFacts,
    RecordProvisionalQuote,
    RefuseCounterOffer,
    RequestDecision,
    SelectOffer,
    SubmitApplication,
    WaterfallEnd,
    WaterfallStep,
    Withdraw,
)
from turnlog_examples.broker.waterfall import walk

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "broker" / "case.json").read_text())["vectors"]
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


def example(kind: EventType) -> Payload:
    return kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE))


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
    assert {kind.payload_class for kind in BROKER} | {ProcessStart, AgentEnd} == set(REDUCERS)
    assert len(TAXONOMY) == 21


@for_each_row("stage", STAGES)
@for_each_row("kind", KINDS, ids=TAGS)
def test_an_event_applied_twice_is_applied_once(kind: EventType, stage: str) -> None:
    once = after(STAGES[stage], example(kind), seq=10)
    twice = after(once, example(kind), seq=11)
    assert timeless(twice) == timeless(once)
    if kind.payload_class is not CaptureConsent:
        assert twice is once  # not even the time of the last update


@for_each_row("kind", KINDS, ids=TAGS)
def test_a_reducer_leaves_what_it_was_given(kind: EventType) -> None:
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


TERMINAL = {
    "selected": APPROVED,
    "declined": after(COUNTERED, RefuseCounterOffer(), WaterfallEnd(exhausted=True)),
    "ineligible": after(new_case(), RENTING),
    "withdrawn": after(new_case(), Withdraw()),
    "complete": after(APPROVED, CaseComplete()),
}


def field_of(case: Case, path: str) -> object:
    value: object = case
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def payload_of(event: tuple[str, object]) -> Payload:
    [kind] = [kind for kind in KINDS if kind.tag == event[0]]
    payload: Payload = kind.decoder.decode(json.dumps(event[1]))
    return payload


@for_each_row("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_vector(vector: dict[str, Any]) -> None:
    before = (STAGES | TERMINAL)[vector["start"]]
    case = after(before, *map(payload_of, vector["events"]))
    expected = vector.get("expected", {})
    assert {path: field_of(case, path) for path in expected} == expected
    assert [field_of(case, path) for path in vector.get("same", [])] == [
        field_of(before, path) for path in vector.get("same", [])
    ]
    for event in vector.get("then_unchanged", []):
        assert after(case, payload_of(event)) is case, event


def test_an_accepted_offer_is_that_of_the_last_lender() -> None:
    fall = after(COUNTERED, AcceptCounterOffer())["waterfall"]
    assert fall["acceptedOffer"] == fall["steps"][-1]["outcome"]["offer"]


def test_a_waterfall_that_is_there_is_not_run_again() -> None:
    again = after(COUNTERED, SubmitApplication())
    assert walk(again) == [WaterfallEnd(exhausted=False)]
    assert after(again, *walk(again))["status"] == "awaiting_counter_decision"


@for_each_row("status", TERMINAL)
@for_each_row("kind", KINDS, ids=TAGS)
def test_nothing_leads_out_of_an_end_but_completion_of_a_selected_case(kind: EventType, status: str) -> None:
    assert set(TERMINAL) == ENDS
    case = TERMINAL[status]
    assert case["status"] == status
    to = "complete" if (status, kind.payload_class) == ("selected", CaseComplete) else status
    assert after(case, example(kind), seq=20)["status"] == to


@for_each_row("stage", ["new", "quoted", "sent", "countered"])
def test_only_a_selected_case_is_completed_and_an_open_one_takes_its_first_outcome(stage: str) -> None:
    case = STAGES[stage]
    assert after(case, CaseComplete()) is case
    for kind in ("selected", "declined", "ineligible", "withdrawn", "completed"):
        closed = after(case, CaseOutcome(kind=kind))
        assert (closed["caseOutcome"]["kind"], closed["status"]) == (kind, case["status"])
        assert after(closed, CaseOutcome(kind="selected", reason="Another")) is closed


@for_each_row(
    ("refused_in", "scope", "answers"),
    [
        ("tr_2", Scope(trace_id="tr_2", channel="customer"), True),
        ("tr_2", Scope(trace_id="tr_1", channel="customer"), False),  # it began before the refusal
        (None, Scope(trace_id="tr_3", channel="customer"), True),
        (None, Scope(trace_id="tr_3", channel="installer"), False),
    ],
)
def test_a_refusal_is_answered_by_the_guides_turn_on_it(
    refused_in: str | None, scope: Scope, answers: bool
) -> None:
    refusal = RefuseCounterOffer()
    case = REDUCERS[RefuseCounterOffer](
        COUNTERED, refusal, entered(refusal, 10, "ui", Scope(trace_id=refused_in))
    )
    end = AgentEnd(stop_reason="end_turn", steps=1)
    after_turn = REDUCERS[AgentEnd](case, end, entered(end, 11, "system", scope))
    assert ("refusalTurn" not in after_turn) is answers


def test_a_lender_answers_in_its_place_and_only_while_somebody_asks() -> None:
    [step, *_] = walk(SENT)
    assert isinstance(step, WaterfallStep)
    assert after(COUNTERED, step) is COUNTERED
    assert after(new_case(), step)["status"] == "intake"
    assert after(TERMINAL["withdrawn"], step) is TERMINAL["withdrawn"]
    assert after(QUOTED, WaterfallEnd(exhausted=True)) is QUOTED


def test_a_case_knows_its_session_its_retailer_and_its_times() -> None:
    start = new_case("Brightside")
    case = after(start, ProcessStart(process="server", pid=1), RecordProjectFacts(retailer_name="Sunny"))
    assert (start["retailerName"], case["retailerName"]) == ("Brightside", "Sunny")
    assert (case["sessionId"], case["createdAt"], case["updatedAt"]) == ("sess_1", FIRST, LATER)
    assert after(case, ProcessStart(process="server", pid=2)) is case


def test_the_legacy_request_is_read_and_not_written() -> None:
    assert after(new_case(), RequestDecision())["decision"] == {"requestedAt": FIRST}
    with pytest.raises(InvalidEvent):
        CATALOG.build_event(RequestDecision(), id="evt_1")


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
def test_who_may_say_what(kind: EventType) -> None:
    who = {
        origin
        for origin in ("model", "ui", "tool", "app", "system")
        if kind.allows_origin(example(kind), origin)
    }
    assert who == SAID_BY.get(kind.payload_class, BOTH)


@for_each_row("id", ["credit_search_consent", "pre_contract_summary"])
def test_the_model_acknowledges_the_service_status_only(id: str) -> None:
    CATALOG.build_event("broker.acknowledge_disclosure", {"id": id}, id="evt_1", origin="ui")
    with pytest.raises(InvalidEvent):
        CATALOG.build_event("broker.acknowledge_disclosure", {"id": id}, id="evt_1", origin="model")
    CATALOG.build_event("broker.acknowledge_disclosure", {"id": "service_status"}, id="evt_1", origin="model")


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
        CATALOG.build_event(f"broker.{name}", data, id="evt_1", origin="ui")


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
