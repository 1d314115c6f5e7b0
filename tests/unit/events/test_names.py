"""The bound of names in bytes holds wherever a payload holds one, however its class was written."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, inspect

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent
from turnlog.events import CORE, Catalog, Payload, Record, Scope, UnknownPayload, Vocabulary
from turnlog.events.envelope import Envelope
from turnlog.events.names import build_name_check, check_names
from turnlog.events.payload import Count, Name, OpaqueId
from turnlog.parse import strip_event_tags
from turnlog.vocabularies import FULL_CATALOG

FITS, TOO_LONG = "€" * 42, "€" * 43  # 126 and 129 bytes


class Part(Record, frozen=True, kw_only=True, tag="part"):
    name: Name


class Other(Record, frozen=True, kw_only=True, tag="other"):
    text: str = ""


class Branch(Record, frozen=True, kw_only=True):
    name: Name = "a"
    inner: tuple[Branch, ...] = ()


class Nameless(Record, frozen=True, kw_only=True):
    inner: tuple[Nameless, ...] = ()


class Whole(Payload, frozen=True, kw_only=True):
    name: Name = "a"
    described: Annotated[Name | None, Meta(description="A name with a description.")] = None
    names: tuple[Name, ...] = ()
    parts: tuple[Part, ...] = ()
    either: Part | Other | None = None
    several: tuple[Name, ...] | str | None = None
    by_key: dict[str, Name] | None = None
    branch: Branch | None = None
    nameless: Nameless | None = None
    key: OpaqueId = "k"
    text: str = ""


class Wider(Whole, frozen=True, kw_only=True):
    more: Name | None = None


SHOP = Vocabulary("shop", [Wider])
CATALOG_OF_SHOP = Catalog(CORE, SHOP)
PLACES: list[tuple[str, Any]] = [
    ("$.payload.name", lambda name: {"name": name}),
    ("$.payload.described", lambda name: {"described": name}),
    ("$.payload.names[1]", lambda name: {"names": ["a", name]}),
    ("$.payload.parts[0].name", lambda name: {"parts": [{"type": "part", "name": name}]}),
    ("$.payload.either.name", lambda name: {"either": {"type": "part", "name": name}}),
    ("$.payload.several[0]", lambda name: {"several": [name]}),
    ("$.payload.by_key.x", lambda name: {"by_key": {"x": name}}),
    ("$.payload.branch.inner[0].name", lambda name: {"branch": {"inner": [{"name": name}]}}),
    ("$.payload.more", lambda name: {"more": name}),
]
OTHERS: list[dict[str, Any]] = [
    {"text": TOO_LONG},
    {"several": TOO_LONG},
    {"either": {"type": "other", "text": TOO_LONG}},
    {"nameless": {"inner": [{}]}},
]


def event(fields: dict[str, Any]) -> Any:
    return CATALOG_OF_SHOP.build_event("shop.wider", fields, id="evt_1")


@for_each_row(("path", "place"), PLACES)
def test_event_with_a_name_of_128_bytes_or_less_is_taken(path: str, place: Any) -> None:
    assert isinstance(event(place(FITS)).payload, Wider)


@for_each_row("fields", OTHERS)
def test_event_with_a_long_text_that_is_no_name_is_taken(fields: dict[str, Any]) -> None:
    assert isinstance(event(fields).payload, Wider)


@for_each_row(("path", "place"), PLACES)
def test_event_with_a_name_of_more_bytes_is_refused_with_its_path(path: str, place: Any) -> None:
    with pytest.raises(InvalidEvent, match="to be a name of at most 128 bytes") as refused:
        event(place(TOO_LONG))
    assert refused.value.path == path


def test_payload_of_any_form_can_be_constructed() -> None:
    assert Wider(name=TOO_LONG).name == TOO_LONG


def test_payload_that_is_stored_with_a_long_name_is_unknown_with_the_problem() -> None:
    envelope = Envelope(
        type="shop.wider",
        id="evt_1",
        seq=0,
        ts="2026-01-08T12:34:56.789Z",
        session_id="sess_1",
        origin="app",
        payload=msgspec.Raw(msgspec.json.encode({"name": TOO_LONG})),
    )
    payload = CATALOG_OF_SHOP.decode_payload(envelope)
    assert isinstance(payload, UnknownPayload)
    assert payload.problem == "expected name to be a name of at most 128 bytes (at $.name)"


def test_tag_with_a_long_name_is_refused_as_a_bad_payload() -> None:
    found = strip_event_tags(f'<agent-event type="wider" data=\'{{"name": "{TOO_LONG}"}}\' />', SHOP, "app")
    assert [reject.reason for reject in found.rejects] == ["bad_payload"]


def test_scope_with_a_long_name_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="expected agent_name to be a name of at most 128 bytes"):
        CATALOG_OF_SHOP.build_event("shop.wider", {}, id="evt_1", scope=Scope(agent_name=TOO_LONG))


def test_names_with_lone_surrogates_are_measured() -> None:
    check_names(Part, Part(name="\ud800" * 128))
    with pytest.raises(InvalidEvent):
        check_names(Part, Part(name="\ud800" * 129))


@for_each_row("kind", [Count, OpaqueId, Nameless, Other, int])
def test_types_without_names_cost_nothing_or_accept(kind: Any) -> None:
    check = build_name_check(kind)
    assert check is None or kind is Nameless


def has_name(shape: inspect.Type) -> bool:
    """Whether a name is anywhere in a type that does not contain itself."""
    match shape:
        case inspect.StructType():
            return any(has_name(field.type) for field in shape.fields)
        case inspect.UnionType():
            return any(map(has_name, shape.types))
        case inspect.VarTupleType():
            return has_name(shape.item_type)
        case inspect.Metadata():
            return has_name(shape.type)
    return shape == inspect.type_info(Name)


@for_each_row(
    "kind", [kind for kind in FULL_CATALOG if kind.name != "assistant.view"], ids=lambda kind: kind.name
)
def test_every_class_of_the_vocabulary_with_a_name_is_checked(kind: Any) -> None:
    payload_class = kind.payload_class
    assert (build_name_check(payload_class) is not None) == has_name(inspect.type_info(payload_class))
