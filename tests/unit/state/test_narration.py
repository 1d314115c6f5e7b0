"""How an event is told, and to whom."""

from typing import Any, ClassVar

from tests.support.written_logs import entry, place
from turnlog.events import CORE, Catalog, Payload, Scope, ToolResult, UiAction, UiMessage, Vocabulary
from turnlog.events.payload import ANY_ORIGIN
from turnlog.events.ui import ButtonClick
from turnlog.state.channels import visible_channel
from turnlog.state.descriptions import describe_input, is_page_event


class RecordEligibility(Payload, frozen=True, kw_only=True, rename="camel"):
    ORIGINS: ClassVar = ANY_ORIGIN
    is_homeowner: bool
    note: str | None = None


CATALOG = Catalog(CORE, Vocabulary("broker", [RecordEligibility]))
ELIGIBLE = RecordEligibility(is_homeowner=True)
CLICK = UiAction(action=ButtonClick(button_id="b1"), view_id="v1")


def test_a_message_is_told_as_it_is() -> None:
    assert describe_input("ui.message", UiMessage(text=" As it is. ")) == " As it is. "


def test_an_action_is_told_with_its_view() -> None:
    told = '[The user acted: {"action":{"kind":"button.click","button_id":"b1"},"view_id":"v1"}]'
    assert describe_input("ui.action", CLICK) == told


def test_a_direct_event_reads_like_the_tag_of_a_model() -> None:
    told = '[The user acted: {"type":"record_eligibility","data":{"isHomeowner":true}}]'
    assert describe_input("broker.record_eligibility", ELIGIBLE) == told


def test_direct_is_what_a_page_sends_of_the_applications_own() -> None:
    def origin(payload: Payload, origin: Any) -> bool:
        event = CATALOG.build_event(payload, id="evt_1", origin=origin)
        return is_page_event(*place(event, 0, CATALOG))

    assert origin(ELIGIBLE, "ui")
    assert not origin(ELIGIBLE, "model")
    assert not origin(ELIGIBLE, "app")
    assert not origin(UiMessage(text="hi"), "ui")
    assert not origin(ToolResult(call_id="c1", tool="t", ok=True), "ui")
    unknown = CATALOG.build_event(ELIGIBLE, id="evt_1", origin="ui")
    assert not is_page_event(*place(unknown, 0))  # of a vocabulary that this reader does not have


def test_a_channel_stands_in_the_envelope_and_in_older_events_in_the_payload() -> None:
    assert visible_channel(*entry(UiMessage(text="hi"))) is None
    assert visible_channel(*entry(UiMessage(text="hi"), Scope(channel="customer"))) == "customer"
    assert visible_channel(entry(CLICK)[0], CLICK) is None
    assert visible_channel(entry(CLICK)[0], UiMessage(text="hi", channel="customer")) == "customer"
