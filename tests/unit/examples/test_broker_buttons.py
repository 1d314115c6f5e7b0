"""What only the customer may decide, as buttons: whose click counts, and what it means."""

from tests.unit.examples.broker_desk import after, entered
from turnlog.events import Scope, UiAction
from turnlog.events.ui import ButtonClick
from turnlog_examples.broker.buttons import AGAIN, CONSENT, REDUCERS, VIEW, mean, on_offer, question, to_mean
from turnlog_examples.broker.case import Case, new_case
from turnlog_examples.broker.events import CaptureConsent, PresentDisclosure, RefuseCounterOffer


def asked() -> Case:
    """A case whose customer is asked about the credit search, on a page that shows it."""
    case = after(new_case(), PresentDisclosure(id="credit_search_consent"))
    return {**case, "page": {"shows": CONSENT.key}}


def clicked(case: Case, channel: str, button: str = "grant") -> Case:
    action = UiAction(action=ButtonClick(button_id=button), view_id=VIEW)
    after_it: Case = REDUCERS[UiAction](case, action, entered(action, 9, "ui", Scope(channel=channel)))
    return after_it


def test_a_click_of_the_customer_means_what_its_button_says() -> None:
    case = clicked(asked(), "customer")
    assert to_mean(case)
    assert mean(case) == [CaptureConsent(consent_type="credit_search", granted=True)]


def test_a_click_in_the_channel_of_the_installer_means_nothing() -> None:
    case = clicked(asked(), "installer")
    assert case == asked()
    assert not to_mean(case)


def test_a_click_that_something_else_has_answered_means_nothing_more() -> None:
    case = clicked(asked(), "customer")
    assert not to_mean({**case, "status": "withdrawn"})


def test_another_consent_does_not_count_as_a_refusal() -> None:
    marketing = CaptureConsent(consent_type="marketing", granted=True)
    assert question(after(asked(), marketing)) is CONSENT
    refused = CaptureConsent(consent_type="credit_search", granted=False)
    assert question(after(asked(), refused)) is AGAIN


def test_a_second_click_on_an_offer_is_none_on_the_next_one() -> None:
    terms = {"monthlyPayment": 1.0, "termMonths": 24, "aprPct": 9.9, "totalPayable": 24.0, "lender": "A Bank"}
    first, second = (on_offer({"id": offer, **terms}).choices for offer in ("offer_1", "offer_2"))
    assert set(first).isdisjoint(second)
    assert first["refuse_offer_1"].means == [RefuseCounterOffer(offer_id="offer_1")]
