"""What only the customer may decide, as buttons: what each emits, and when there are none."""

from tests.unit.examples.broker_desk import after
from turnlog.events.view_nodes import ButtonEvent
from turnlog_examples.broker.buttons import AGAIN, CONSENT, on_offer, question, to_show, view
from turnlog_examples.broker.case import Case, new_case
from turnlog_examples.broker.events import CaptureConsent, PresentDisclosure, RefuseCounterOffer


def asked() -> Case:
    """A case whose customer is asked about the credit search, on a page that shows it."""
    case = after(new_case(), PresentDisclosure(id="credit_search_consent"))
    return {**case, "page": {"shows": CONSENT.key}}


def test_button_of_consent_emits_the_consent() -> None:
    emitted = {button.id: list(button.emits) for button in CONSENT.buttons}
    for name, granted in (("grant", True), ("refuse", False)):
        consent = {"consentType": "credit_search", "granted": granted}
        assert emitted[name] == [ButtonEvent("capture_consent", consent)]


def test_question_that_something_else_has_answered_is_taken_away() -> None:
    case = asked()
    assert not to_show(case)
    ended: Case = {**case, "status": "withdrawn"}
    assert question(ended) is None
    assert to_show(ended)
    assert view(None).tree == {}


def test_another_consent_does_not_count_as_a_refusal() -> None:
    marketing = CaptureConsent(consent_type="marketing", granted=True)
    assert question(after(asked(), marketing)) is CONSENT
    refused = CaptureConsent(consent_type="credit_search", granted=False)
    assert question(after(asked(), refused)) is AGAIN


def test_a_second_click_on_an_offer_is_none_on_the_next_one() -> None:
    terms = {"monthlyPayment": 1.0, "termMonths": 24, "aprPct": 9.9, "totalPayable": 24.0, "lender": "A Bank"}
    first, second = (on_offer({"id": offer, **terms}).buttons for offer in ("offer_1", "offer_2"))
    assert {button.id for button in first}.isdisjoint(button.id for button in second)
    assert first[1].id == "refuse_offer_1"
    assert list(first[1].emits) == [ButtonEvent.of(RefuseCounterOffer(offer_id="offer_1"))]
