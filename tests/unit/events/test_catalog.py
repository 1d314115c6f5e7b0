"""Vocabularies and the catalog: names, classes, origins, and events that are valid when they are built."""

from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Meta, Raw

from tests.support.tables import for_each_row
from turnlog.errors import InvalidEvent, UnknownType
from turnlog.events import (
    CATALOG,
    CORE,
    Catalog,
    Envelope,
    Origin,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    UiMessage,
    UnknownPayload,
    Vocabulary,
    decode_envelope,
    strict_json,
)
from turnlog.team.events import TEAM


class RecordEligibility(Payload, frozen=True, kw_only=True, rename="camel"):
    is_over_18: bool
    deposit_pct: Annotated[float, Meta(ge=0)] = 0.0


class Old(Payload, frozen=True, kw_only=True):
    LEGACY: ClassVar = True


class Contacted(Payload, frozen=True, kw_only=True):
    channel: str


class Consent(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar[Any] = lambda payload: frozenset({"ui"} if payload.granted else {"ui", "model"})
    EXAMPLE: ClassVar = {"granted": True}

    granted: bool


class Undeclared(Payload, frozen=True, kw_only=True):
    pass


SHOP = Vocabulary("shop", [RecordEligibility, Old, Consent])
SHOPS = Catalog(CORE, TEAM, SHOP)


def envelope(name: str, payload: bytes) -> Envelope:
    return decode_envelope(
        b'{"type":"%s","id":"evt_1","seq":0,"ts":"2026-01-08T12:34:56.789Z","session_id":"sess_1",'
        b'"origin":"app","payload":%s}' % (name.encode(), payload)
    )


def test_names_come_from_the_vocabulary_and_the_class() -> None:
    assert list(SHOP.types) == ["shop.record_eligibility", "shop.old", "shop.consent"]
    assert [kind.tag for kind in SHOP] == ["record_eligibility", "old", "consent"]
    assert [kind.payload_class for kind in SHOP] == [RecordEligibility, Old, Consent]


def test_a_class_with_a_full_name_keeps_it() -> None:
    assert list(Vocabulary("anything", [ToolCall]).types) == ["tool.call"]


def test_tags_resolve_in_their_own_vocabulary_only() -> None:
    kind = SHOP.find_tag("consent")
    assert kind is not None
    assert kind.payload_class is Consent
    assert SHOP.find_tag("shop.consent") is None
    assert SHOP.find_tag("tool.call") is None
    assert TEAM.find_tag("consent") is None


def test_the_catalog_joins_vocabularies_in_order() -> None:
    assert list(SHOPS.types) == [*CORE.types, *TEAM.types, *SHOP.types]
    assert [kind.name for kind in SHOPS] == list(SHOPS.types)
    assert SHOPS.get_event_type("tool.call").payload_class is ToolCall
    assert SHOPS.get_type_name(Consent) == "shop.consent"


def test_the_same_vocabulary_twice_is_once() -> None:
    assert list(Catalog(SHOP, SHOP).types) == list(SHOP.types)


def test_a_name_for_two_classes_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"got shop\.old twice"):
        Catalog(SHOP, Vocabulary("shop", [Old]))
    with pytest.raises(InvalidEvent, match=r"got shop\.old twice"):
        Vocabulary("shop", [Old, Old])


def test_a_class_with_two_names_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"got shop\.old and store\.old of one"):
        Catalog(SHOP, Vocabulary("store", [Old]))


@for_each_row("name", ["", "Shop", "1shop", "shop.", ".shop", "a.b.c", "shop-1", "shöp", "shop\n", " shop"])
def test_a_name_that_no_tag_could_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidEvent, match="expected a name like"):
        Vocabulary(name, [])


def test_a_type_that_no_tag_could_carry_is_refused() -> None:
    class Dotted(Payload, frozen=True, kw_only=True):
        TYPE: ClassVar = "a.b.c"

    with pytest.raises(InvalidEvent, match="expected a name like"):
        Vocabulary("shop", [Dotted])


def test_only_payloads_are_declared() -> None:
    for not_a_payload in (dict, "Old", Consent(granted=True)):
        with pytest.raises(InvalidEvent, match="expected a subclass of Payload"):
            Vocabulary("shop", [not_a_payload])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["shop.nothing", "", "consent", "x" * 10_000])
def test_an_unknown_name_is_an_unknown_type(name: str) -> None:
    with pytest.raises(UnknownType, match="expected a declared type") as caught:
        SHOPS.build_event(name, {}, id="evt_1")
    assert len(str(caught.value)) < 150


def test_an_unknown_class_is_an_unknown_type() -> None:
    with pytest.raises(UnknownType, match="expected a declared class, got Undeclared"):
        SHOPS.build_event(Undeclared(), id="evt_1")


def test_an_event_from_a_payload() -> None:
    scope = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Ada", depth=0)
    event = CATALOG.build_event(UiMessage(text="hi"), id="evt_1", origin="ui", scope=scope)
    assert (event.type, event.id, event.origin, event.scope) == ("ui.message", "evt_1", "ui", scope)
    assert (event.payload, event.body, event.live) == (UiMessage(text="hi"), b'{"text":"hi"}', False)


def test_an_event_by_name_is_the_same_event() -> None:
    by_name = CATALOG.build_event("ui.message", {"text": "hi", "speaker": None}, id="evt_1", origin="ui")
    assert by_name == CATALOG.build_event(UiMessage(text="hi"), id="evt_1", origin="ui")


def test_the_class_decides_the_order_and_the_form() -> None:
    data = {"depositPct": 0, "unknown": 1, "isOver18": True}
    assert (
        SHOPS.build_event("shop.record_eligibility", data, id="evt_1").body
        == b'{"isOver18":true,"depositPct":0.0}'
    )


def test_no_data_is_an_empty_payload() -> None:
    assert CATALOG.build_event("context.compact", id="evt_1", origin="system").body == b"{}"


def test_live_types_make_live_events() -> None:
    assert CATALOG.build_event("block.delta", {"block_id": "b", "text": ""}, id="evt_1", origin="model").live


def test_typed_construction_is_validated_too() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidEvent, match=r"ui\.message: expected str, got int \(at \$\.payload\.text\)"):
        CATALOG.build_event(UiMessage(text=wrong), id="evt_1", origin="ui")


@pytest.mark.parametrize(
    ("name", "data", "path"),
    [
        ("shop.record_eligibility", {}, "$.payload"),
        ("shop.record_eligibility", {"isOver18": "yes"}, "$.payload.isOver18"),
        ("shop.record_eligibility", {"isOver18": True, "depositPct": -1}, "$.payload.depositPct"),
        ("agent.end", {"stop_reason": "end_turn", "usage": {"input_tokens": 1}}, "$.payload.usage"),
        ("tool.await", {"calls": [{"call_id": "a", "tool": "b", "args": 1}]}, "$.payload.calls[0].args"),
    ],
)
def test_a_wrong_payload_names_the_path_in_the_event(name: str, data: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        SHOPS.build_event(name, data, id="evt_1", origin="system" if name == "agent.end" else "app")
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{name}: ")


def circle() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["again"] = data
    return data


@for_each_row(
    "value",
    [float("nan"), float("inf"), float("-inf"), "\ud800", object(), circle(), {(1, 2): 3}, 10**5000],
    ids=["nan", "inf", "-inf", "surrogate", "object", "circle", "tuple key", "5,001 digits"],
)
def test_what_json_cannot_say_is_refused(value: object) -> None:
    data = {"call_id": "a", "tool": "b", "args": {"value": value}}
    with pytest.raises(InvalidEvent, match=r"tool\.call cannot be written as JSON") as caught:
        CATALOG.build_event("tool.call", data, id="evt_1", origin="model")
    assert caught.value.path == "$.payload"
    with pytest.raises(InvalidEvent, match=r"tool\.call cannot be written as JSON"):
        CATALOG.build_event(
            ToolCall(call_id="a", tool="b", args={"value": value}), id="evt_1", origin="model"
        )


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels > 1 else {}


def test_what_nests_too_deep_to_be_read_back_anywhere_is_refused() -> None:
    fits = CATALOG.build_event(ToolCall(call_id="a", tool="b", args=deep(63)), id="evt_1")
    assert strict_json.exceeds_depth(fits.body, 63)
    for levels in (64, 500):
        call = ToolCall(call_id="a", tool="b", args=deep(levels))
        with pytest.raises(InvalidEvent, match="expected at most 64 levels") as caught:
            CATALOG.build_event(call, id="evt_1")
        assert caught.value.path == "$.payload"
    text = ToolCall(call_id="a", tool="b", args={"text": "[{" * 500, "rows": [{}] * 500})
    assert CATALOG.build_event(text, id="evt_1").payload == text


def test_null_itself_can_be_said() -> None:
    args = {"nothing": None, "word": "null"}
    event = CATALOG.build_event(
        "tool.call", {"call_id": "a", "tool": "b", "args": args}, id="evt_1", origin="model"
    )
    assert event.payload == ToolCall(call_id="a", tool="b", args=args)


def test_a_legacy_type_is_read_but_not_written() -> None:
    with pytest.raises(InvalidEvent, match="legacy type") as caught:
        SHOPS.build_event("shop.old", {}, id="evt_1")
    assert caught.value.path == "$.type"
    assert SHOPS.decode_payload(envelope("shop.old", b"{}")) == Old()


@for_each_row(
    ("name", "data", "origin", "admitted"),
    [
        ("ui.message", {"text": ""}, "ui", True),
        ("ui.message", {"text": ""}, "model", False),
        ("agent.handoff", {"to": "a", "to_agent_id": "agt_1"}, "app", False),
        ("shop.record_eligibility", {"isOver18": True}, "app", True),
        ("shop.consent", {"granted": True}, "ui", True),
        ("shop.consent", {"granted": True}, "model", False),
        ("shop.consent", {"granted": False}, "model", True),
        ("shop.consent", {"granted": False}, "tool", False),
    ],
)
def test_origins_are_a_set_or_a_function_of_the_payload(
    name: str, data: dict[str, Any], origin: Origin, admitted: bool
) -> None:
    kind = SHOPS.get_event_type(name)
    if admitted:
        assert kind.allows_origin(SHOPS.build_event(name, data, id="evt_1", origin=origin).payload, origin)  # type: ignore[arg-type]
    else:
        with pytest.raises(InvalidEvent, match=f"{name} may not come from {origin}") as caught:
            SHOPS.build_event(name, data, id="evt_1", origin=origin)
        assert caught.value.path == "$.origin"


@for_each_row("id_", ["", "1", "evt_", "evt_1\n", "tr_1", "evt_" + "x" * 65])
def test_what_is_no_event_id_is_refused(id_: str) -> None:
    with pytest.raises(InvalidEvent, match="expected `evt_`") as caught:
        CATALOG.build_event("ui.message", {"text": ""}, id=id_)
    assert caught.value.path == "$.id"


@pytest.mark.parametrize(
    "scope",
    [
        {"trace_id": "evt_1"},
        {"agent_id": "agt 1"},
        {"agent_name": "a\n"},
        {"agent_name": "€" * 43},
        {"depth": -1},
    ],
)
def test_what_could_not_be_read_back_is_no_scope(scope: dict[str, Any]) -> None:
    with pytest.raises((InvalidEvent, ValueError)):
        CATALOG.build_event("ui.message", {"text": ""}, id="evt_1", scope=Scope(**scope))


def test_a_stored_payload_is_typed() -> None:
    assert CATALOG.decode_payload(envelope("ui.message", b'{"text":"hi","later":1}')) == UiMessage(text="hi")
    answer = CATALOG.decode_payload(
        envelope("tool.result", b'{"call_id":"a","tool":"b","ok":true,"result":1}')
    )
    assert answer == ToolResult(call_id="a", tool="b", ok=True, result=1)


@for_each_row(
    ("name", "payload"),
    [
        ("later.type", b'{"a":  1}'),
        ("ui.message", b"{}"),
        ("ui.message", b'{"text":1}'),
        ("ui.message", b"null"),
        ("ui.message", b'{"text":"\xff"}'),
        ("ui.message", b'{"text":"","later":1e999}'),
        ("ui.action", b'{"action":{"kind":"later.action"}}'),
    ],
)
def test_what_this_version_cannot_read_is_kept(name: str, payload: bytes) -> None:
    stored = Envelope(
        type=name,
        id="evt_1",
        seq=0,
        ts="2026-01-08T12:34:56.789Z",
        session_id="sess_1",
        origin="app",
        payload=Raw(payload),
    )
    kept = CATALOG.decode_payload(stored)
    if isinstance(kept, UnknownPayload):
        assert bytes(kept.data) == payload
    else:
        assert kept == UiMessage(text="")


def test_a_payload_that_names_a_channel_puts_its_event_there() -> None:
    message = UiMessage(text="hello", channel="customer")
    assert CATALOG.build_event(message, id="evt_1", origin="ui").scope == Scope(channel="customer")
    within = Scope(trace_id="tr_1", channel="installer")
    assert CATALOG.build_event(message, id="evt_1", origin="ui", scope=within).scope.channel == "customer"
    plain = UiMessage(text="hello")
    assert CATALOG.build_event(plain, id="evt_1", origin="ui", scope=within).scope.channel == "installer"
    with pytest.raises(InvalidEvent, match="channel"):
        CATALOG.build_event(UiMessage(text="hello", channel="For All"), id="evt_1", origin="ui")


@pytest.mark.parametrize("channel", ["customer", "By E-Mail"])
def test_a_channel_of_the_application_is_its_own_matter(channel: str) -> None:
    catalog = Catalog(CORE, Vocabulary("shop", [Contacted]))
    within = Scope(trace_id="tr_1", channel="installer")
    event = catalog.build_event(Contacted(channel=channel), id="evt_1", origin="model", scope=within)
    assert (event.scope, event.payload) == (within, Contacted(channel=channel))
