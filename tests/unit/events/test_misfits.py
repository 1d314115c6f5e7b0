"""Stored events that no longer fit the class of their type are named, not passed over in silence."""

from msgspec import Raw

from turnlog.events import CORE, Catalog, Payload, UnknownPayload, Vocabulary
from turnlog.events.catalog import Misfit


class RecordOrder(Payload, frozen=True, kw_only=True):
    count: str  # an integer when the events below were stored


CATALOG = Catalog(CORE, Vocabulary("shop", [RecordOrder]))
STORED = [
    ("shop.record_order", b'{"count":1}'),
    ("shop.record_order", b'{"count":"two"}'),
    ("shop.record_order", b'{"count":3}'),
    ("shop.gone", b"{}"),
    ("ui.message", b'{"text":"hi"}'),
    ("ui.message", b"{"),
]


def test_misfits_name_the_types_whose_stored_events_do_not_decode() -> None:
    order, message = CATALOG.find_misfits(STORED)
    assert order == Misfit("shop.record_order", 2, "expected str, got int (at $.count)")
    assert (message.type, message.count) == ("ui.message", 1)


def test_read_of_an_undeclared_type_has_no_problem() -> None:
    assert CATALOG.decode_or_unknown("shop.gone", Raw(b"{}")) == UnknownPayload(Raw(b"{}"))


def test_read_of_a_retyped_field_says_what_does_not_fit() -> None:
    payload = CATALOG.decode_or_unknown("shop.record_order", Raw(b'{"count":1}'))
    assert payload == UnknownPayload(Raw(b'{"count":1}'), "expected str, got int (at $.count)")
