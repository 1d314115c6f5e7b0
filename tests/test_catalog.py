"""The declarations of every event, and the snapshot that forbids to remove or retype any."""

import json
import re
from collections.abc import Iterator
from inspect import Parameter, signature
from types import ModuleType
from typing import Any, get_args

import pytest
from msgspec import inspect

from tests.generate_docs import Facts, gained, lost, recorded, records, snapshot
from tests.support.tables import for_each_row
from turnlog import events, team
from turnlog.errors import InvalidEvent
from turnlog.events import CORE, Catalog, Envelope, EventType, Origin
from turnlog.events.server import SERVER
from turnlog.team.events import TEAM
from turnlog.wire.durable_streams.events import STREAM
from turnlog_examples.broker.events import BROKER

KINDS = [*CORE, *TEAM, *STREAM, *SERVER, *BROKER]
EVERYTHING = Catalog(CORE, TEAM, STREAM, SERVER, BROKER)
FREE_FORM = {"args", "result", "values", "rows", "form", "details", "tree", "suggestions", "data", "extra"}
FREE_FORM.add("parameters")  # the schema of a client's tool
FREE_FORM.add("messages")  # what a client appends to its stream
REMOVED = "removed or retyped: add a new type instead"
NEW = "new: run `make docs` to record it"

each_kind = for_each_row("kind", KINDS, ids=lambda kind: kind.name)


def words(name: str) -> list[str]:
    """The words of a name, whichever way they are joined."""
    return re.findall(r"[a-z0-9]+", re.sub(r"[A-Z]", lambda hump: " " + hump[0].lower(), name))


def shapes(kind: EventType) -> Iterator[inspect.Field]:
    """Every field of a payload and of the records in it."""
    for record in records(inspect.type_info(kind.payload_class)):
        shape = inspect.type_info(record)
        assert isinstance(shape, inspect.StructType)
        yield from shape.fields


def is_free(shape: inspect.Type) -> bool:
    """Whether a type lets anything through."""
    match shape:
        case inspect.AnyType() | inspect.RawType() | inspect.DictType():
            return True
        case inspect.UnionType():
            return any(is_free(part) for part in shape.types)
        case inspect.VarTupleType():
            return is_free(shape.item_type)
        case inspect.Metadata():
            return is_free(shape.type)
    return False


@each_kind
def test_a_class_is_frozen_and_keyword_only(kind: EventType) -> None:
    for record in records(inspect.type_info(kind.payload_class)):
        assert record.__struct_config__.frozen, record
        parameters = signature(record).parameters.values()
        assert {parameter.kind for parameter in parameters} <= {Parameter.KEYWORD_ONLY}, record


@each_kind
def test_a_class_says_what_it_is(kind: EventType) -> None:
    assert (kind.payload_class.__doc__ or "").strip().endswith(".")


@each_kind
def test_wire_name_and_class_name_are_the_same_words(kind: EventType) -> None:
    assert words(kind.name.removeprefix("broker.")) == words(kind.payload_class.__name__)


@each_kind
def test_the_example_can_be_built_by_each_of_its_origins_only(kind: EventType) -> None:
    assert kind.payload_class.EXAMPLE or not kind.payload_class.__struct_fields__
    payload = kind.decoder.decode(json.dumps(kind.payload_class.EXAMPLE))
    admitted = [origin for origin in get_args(Origin) if kind.allows_origin(payload, origin)]
    assert admitted
    for origin in get_args(Origin):
        if origin in admitted and not kind.payload_class.LEGACY:
            event = EVERYTHING.build_event(kind.name, kind.payload_class.EXAMPLE, id="evt_1", origin=origin)
            assert event.payload == payload
        else:
            with pytest.raises(InvalidEvent):
                EVERYTHING.build_event(kind.name, kind.payload_class.EXAMPLE, id="evt_1", origin=origin)


@each_kind
def test_only_what_has_no_form_is_untyped(kind: EventType) -> None:
    assert {field.name for field in shapes(kind) if is_free(field.type)} <= FREE_FORM


def test_names_are_unique() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len({kind.payload_class.__name__ for kind in KINDS}) == len(KINDS)


def test_every_payload_is_exported() -> None:
    for vocabulary, package in ((CORE, events), (TEAM, team)):
        for kind in vocabulary:
            assert kind.payload_class.__name__ in package.__all__
            assert getattr(package, kind.payload_class.__name__) is kind.payload_class


@for_each_row("package", [events, team])
def test_every_exported_name_is_there(package: ModuleType) -> None:
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


def test_nothing_is_removed_or_retyped() -> None:
    assert lost(recorded(), snapshot()) == [], REMOVED


def test_everything_new_is_recorded() -> None:
    assert gained(recorded(), snapshot()) == [], NEW


def test_the_snapshot_holds_every_type_and_field() -> None:
    facts = recorded()
    for kind in (*CORE, *TEAM):
        assert facts[kind.name] == {"live": kind.payload_class.LIVE, "legacy": kind.payload_class.LEGACY}
        assert all(f"{kind.name}:{field}" in facts for field in kind.payload_class.__struct_fields__)
    assert all(f"Envelope:{field}" in facts for field in Envelope.__struct_fields__)


def changed(name: str, **fact: Any) -> Facts:
    """The snapshot as it would be with one fact changed."""
    return {**snapshot(), name: {**snapshot()[name], **fact}}


def without(*names: str) -> Facts:
    return {name: fact for name, fact in snapshot().items() if name not in names}


@for_each_row(
    ("now", "gone"),
    [
        (without("tool.call"), ["tool.call"]),
        (without("tool.call:args"), ["tool.call:args"]),
        (without("Usage:input_tokens"), ["Usage:input_tokens"]),
        (without("Envelope:depth"), ["Envelope:depth"]),
        (changed("tool.call:args", schema={"type": "string"}), ["tool.call:args"]),
        (changed("tool.call:args", required=False), ["tool.call:args"]),
        (changed("tool.call", live=True), ["tool.call"]),
        (
            changed("tool.call:executor", schema={"enum": ["backend"], "default": "backend"}),
            ["tool.call:executor"],
        ),
        (changed("tool.call:executor", required=True), ["tool.call:executor"]),
        (changed("tool.call:tool", schema={"enum": ["a"]}), ["tool.call:tool"]),
    ],
)
def test_the_snapshot_sees_what_it_forbids(now: Facts, gone: list[str]) -> None:
    assert lost(snapshot(), now) == gone


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        (without("tool.call:args"), snapshot(), ["tool.call:args"]),
        (without("ErrorInfo:code", "job.suggest"), snapshot(), ["job.suggest", "ErrorInfo:code"]),
        (snapshot(), changed("tool.call", legacy=True), ["tool.call"]),
        (
            changed("tool.call:executor", schema={"enum": ["backend", "remote"], "default": "backend"}),
            snapshot(),
            ["tool.call:executor"],
        ),
    ],
)
def test_growth_and_legacy_marks_may_be_recorded(before: Facts, now: Facts, added: list[str]) -> None:
    assert lost(before, now) == []
    assert gained(before, now) == added


def test_a_legacy_mark_stays() -> None:
    assert lost(changed("tool.call", legacy=True), snapshot()) == ["tool.call"]
