"""Every field of the source documents has a typed home; `vectors/seeds/fields.json` says which.

A path is `type:attribute.attribute`. It goes through lists as if they were their items, and names the class
of a member where there are several: `ui.action:action.FormSubmit.values`.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec import inspect, structs

from tests.support.tables import for_each_row
from turnlog.events import CORE, Catalog, Envelope
from turnlog.team.events import TEAM
from turnlog_examples.broker.events import BROKER, TAXONOMY

SEEDS = Path(__file__).parent / "vectors" / "seeds"
FIELDS: list[dict[str, str]] = json.loads((SEEDS / "fields.json").read_text())
NAMES: dict[str, list[str]] = json.loads((SEEDS / "names.json").read_text())

CATALOG = Catalog(CORE, TEAM, BROKER)
FREE_FORM = {"args", "result", "values", "rows", "form", "details", "tree", "suggestions"}
COUNTS = {"000": 64, "002": 26, "003": 56, "004": 104}  # counted in the documents, containers included
SHARED = {"000": {"agent-event"}, "002": {"envelope"}, "003": {"base"}, "004": {"ServerEvent"}}


def bare(shape: inspect.Type) -> inspect.Type:
    """A type without its description, its list and its null."""
    match shape:
        case inspect.Metadata():
            return bare(shape.type)
        case inspect.VarTupleType():
            return bare(shape.item_type)
        case inspect.UnionType():
            parts = tuple(part for part in shape.types if not isinstance(part, inspect.NoneType))
            return bare(parts[0]) if len(parts) == 1 else inspect.UnionType(parts)
    return shape


def step(shape: inspect.Type, word: str) -> inspect.Type:
    """The type one word further."""
    found: list[inspect.Type] = []
    match shape:
        case inspect.UnionType():
            found = [
                part
                for part in shape.types
                if isinstance(part, inspect.StructType) and part.cls.__name__ == word
            ]
        case inspect.StructType(tag_field=str(tag)) if tag == word:
            found = [inspect.LiteralType((shape.tag,))]
        case inspect.StructType():
            found = [field.type for field in shape.fields if field.name == word]
    assert len(found) == 1, f"no {word} in {shape}"
    return bare(found[0])


def resolve(path: str) -> inspect.Type:
    """The type of an attribute."""
    owner, _, words = path.partition(":")
    shape = inspect.type_info(
        Envelope if owner == "envelope" else CATALOG.get_event_type(owner).payload_class
    )
    for word in words.split("."):
        shape = step(shape, word)
    return shape


def shapes(seed: str) -> list[str]:
    return list(dict.fromkeys(entry["shape"] for entry in FIELDS if entry["seed"] == seed))


def interface_name(name: str) -> str:
    """The interface of an event of document 004: `session_start` is `SessionStartEvent`."""
    return name.title().replace("_", "") + "Event"


def held(seed: str, shape: str) -> dict[str, str]:
    return {
        entry["field"]: entry.get("held_by", "")
        for entry in FIELDS
        if (entry["seed"], entry["shape"]) == (seed, shape)
    }


@for_each_row("entry", FIELDS, ids=lambda entry: f"{entry['seed']} {entry['shape']} {entry['field']}")
def test_a_field_has_a_typed_home_or_is_computed(entry: dict[str, str]) -> None:
    assert set(entry) in ({"seed", "shape", "field", "held_by"}, {"seed", "shape", "field", "computed"})
    if "computed" in entry:
        assert entry["computed"]
    else:
        free = isinstance(resolve(entry["held_by"]), inspect.AnyType | inspect.DictType)
        assert not free or re.split(r"[.:]", entry["held_by"])[-1] in FREE_FORM


@for_each_row(
    "path", ["ui.message:txt", "ui.action:action.values", "agent.end:usage.tokens", "envelope:id.x"]
)
def test_a_path_that_leads_nowhere_is_seen(path: str) -> None:
    with pytest.raises(AssertionError, match="no "):
        resolve(path)


def test_no_field_is_named_twice() -> None:
    named = Counter((entry["seed"], entry["shape"], entry["field"]) for entry in FIELDS)
    assert [field for field, times in named.items() if times > 1] == []


def test_no_shape_is_left_out() -> None:
    own = {seed: set(shapes(seed)) - shared for seed, shared in SHARED.items()}
    assert {seed: len(names) for seed, names in own.items()} == {"000": 21, "002": 6, "003": 13, "004": 22}
    assert all(shared <= set(shapes(seed)) for seed, shared in SHARED.items())
    assert [own[seed] for seed in ("000", "002", "003")] == [
        set(NAMES[seed]) for seed in ("000", "002", "003")
    ]
    assert {interface_name(name) for name in NAMES["004"]} == own["004"]


def test_no_field_is_left_out() -> None:
    assert Counter(entry["seed"] for entry in FIELDS) == COUNTS


# A page may name the offer that its person saw.
ADDED = {("accept_counter_offer", "offerId"), ("refuse_counter_offer", "offerId")}


def test_the_broker_speaks_the_names_of_document_000() -> None:
    spoken = [kind for kind in BROKER if kind.payload_class in TAXONOMY]
    assert {kind.tag for kind in spoken} == set(NAMES["000"])
    for kind in spoken:
        fields = {
            field.encode_name: f"{kind.name}:{field.name}" for field in structs.fields(kind.payload_class)
        }
        told = {name: place for name, place in fields.items() if (kind.tag, name) not in ADDED}
        assert held("000", kind.tag) == {"type": "envelope:type", **told}
