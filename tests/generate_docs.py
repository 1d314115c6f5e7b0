"""Writes what is generated from the catalog: `docs/events.md` and the snapshot `tests/vectors/catalog.json`.

`make docs` runs it. The snapshot only grows: whatever is gone or has another schema stops the run. To become
legacy counts as growth, because a legacy type is still read. So does a new value of a field that had a list
of values or of classes, and any text in place of a list: what was written stays readable, and an older reader
keeps an event that it cannot read as unknown.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from turnlog.events import Envelope, EventType, Scope, encode_envelope
from turnlog.events import payload as base
from turnlog.vocabularies import FULL_CATALOG

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "events.md"
SNAPSHOT = ROOT / "tests" / "vectors" / "catalog.json"

HEAD = """# Events

Generated from the classes in `src/turnlog/events` by `make docs`; not edited by hand. What an event means
among others is in [protocol.md](protocol.md), sections 2 and 3. `turnlog schema [TYPE]` prints JSON Schema.

An optional field is left out when it has nothing to say; its default, if it has one, stands for it. Fields
that a reader does not know are ignored. Events are kept for good and may be written, unless their type is
marked *live* or *legacy*.

| word | means |
|---|---|
"""
FORMS: list[tuple[Any, str, str]] = [
    (base.Name, "name", "1 to 128 bytes of UTF-8 without control characters"),
    (base.OpaqueId, "key", "1 to 128 visible ASCII characters"),
    (base.EventId, "event id", "`evt_` and 1 to 64 of `A-Z a-z 0-9 _ -`; the other ids have the same form"),
    (base.SessionId, "session id", "`sess_...`"),
    (base.TraceId, "trace id", "`tr_...`"),
    (base.AgentId, "agent id", "`agt_...`"),
    (base.InviteId, "invite id", "`inv_...`"),
    (base.Timestamp, "time", "UTC with milliseconds, like `2026-01-08T12:34:56.789Z`"),
    (base.Count, "count", "a whole number from 0"),
    (base.Amount, "amount", "a number from 0"),
]
PLAIN: dict[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.FloatType: "number",
    inspect.BoolType: "true or false",
    inspect.BytesType: "bytes as base64",
    inspect.DictType: "object",
    inspect.AnyType: "any JSON",
    inspect.RawType: "object, as the type says",
}
ORIGINS = ("model", "ui", "tool", "app", "system")


def any_of(words: Iterable[str]) -> str:
    """Words as in a sentence: a, b or c."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def words(shape: inspect.Type) -> str:
    """A type in plain words."""
    named = [name for form, name, _ in FORMS if inspect.type_info(form) == shape]
    if named:
        return named[0]
    match shape:
        case inspect.Metadata():
            return words(shape.type)
        case inspect.UnionType():
            return any_of(words(part) for part in shape.types if not isinstance(part, inspect.NoneType))
        case inspect.LiteralType():
            return any_of(f"`{value}`" for value in shape.values)
        case inspect.StructType():
            return f"[`{shape.cls.__name__}`](#{shape.cls.__name__.lower()})"
        case inspect.VarTupleType():
            item = words(shape.item_type)
            return f"list of {item}s" if item.isalpha() else f"list of {item}"
        case inspect.IntType(ge=int(low), le=int(high)):
            return f"whole number, {low} to {high}"
        case inspect.IntType():
            return "whole number"
    return PLAIN[type(shape)]


def presence(field: inspect.Field) -> str:
    """Whether a field must be there, and what stands for one that is not."""
    if field.required:
        return "required"
    if field.default_factory is base.explicit_null:
        return "always written, may be null"
    if field.default in (NODEFAULT, None, (), "") or isinstance(field.default, msgspec.Struct):
        return "optional"
    return f"optional, default `{msgspec.json.encode(field.default).decode()}`"


def says(shape: inspect.Type) -> str:
    """The description of a field, if its declaration has one."""
    extra = shape.extra_json_schema if isinstance(shape, inspect.Metadata) else None
    return str((extra or {}).get("description", ""))


def table(cls: type[Any]) -> str:
    """The fields of a struct; the column of notes is there if there is a note."""
    shape = inspect.type_info(cls)
    assert isinstance(shape, inspect.StructType)
    rows = [
        (f"`{field.encode_name}`", words(field.type), presence(field), says(field.type))
        for field in shape.fields
    ]
    if shape.tag_field:
        rows.insert(0, (f"`{shape.tag_field}`", f"`{shape.tag}`", "required", ""))
    width = 4 if any(note for *_, note in rows) else 3
    lines = [row[:width] for row in [("field", "type", "presence", "note"), ("---",) * 4, *rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else "No fields.\n"


def example(value: object) -> str:
    """A value as a block of JSON, on one line if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    text = line if len(line) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
    return f"```json\n{text}\n```\n"


def emitters(kind: EventType) -> str:
    """Who may emit a type, and how long it matters."""
    origins = kind.payload_class.ORIGINS
    if callable(origins):
        who = "It depends on the payload who may emit it."
    elif origins == base.ANY_ORIGIN:
        who = "Anyone may emit it."
    else:
        who = f"Origin: {any_of(f'`{origin}`' for origin in ORIGINS if origin in origins)}."
    live = " *Live*: it matters only while it happens." if kind.payload_class.LIVE else ""
    legacy = " *Legacy*: it is still read, but not written any more." if kind.payload_class.LEGACY else ""
    return f"{who}{live}{legacy}\n"


def doc(thing: Any) -> str:
    """A docstring without its indentation, or nothing."""
    lines = (thing.__doc__ or "").strip().split("\n")
    return "\n".join(line.strip() for line in lines) + "\n" if any(lines) else ""


def type_section(kind: EventType) -> list[str]:
    """The section of one type."""
    payload = kind.payload_class
    return [f"### {kind.name}\n", doc(payload), emitters(kind), table(payload), example(payload.EXAMPLE)]


def family_sections() -> Iterator[str]:
    """One section per module, in the order of the catalog."""
    family = ""
    for kind in FULL_CATALOG:
        if kind.payload_class.__module__ != family:
            family = kind.payload_class.__module__
            # The vocabulary of an optional package has the package's name.
            title = family.removesuffix(".events").rpartition(".")[2].replace("_", "-")
            yield from (f"## {title}\n", doc(sys.modules[family]))
        yield from type_section(kind)


def records(shape: inspect.Type) -> Iterator[type[Any]]:
    """The struct classes inside a type, itself included."""
    match shape:
        case inspect.StructType():
            yield shape.cls
            for field in shape.fields:
                yield from records(field.type)
        case inspect.UnionType():
            for part in shape.types:
                yield from records(part)
        case inspect.VarTupleType():
            yield from records(shape.item_type)
        case inspect.Metadata():
            yield from records(shape.type)


def record_sections() -> Iterator[str]:
    """One section per record, in the order of first use."""
    users: dict[type[Any], dict[str, None]] = {}
    for kind in FULL_CATALOG:
        for record in records(inspect.type_info(kind.payload_class)):
            users.setdefault(record, {})[f"`{kind.name}`"] = None
    yield "## Records\n"
    for record, names in users.items():
        if not issubclass(record, base.Payload):
            yield from (
                f"### {record.__name__}\n",
                doc(record),
                f"Part of {', '.join(names)}.\n",
                table(record),
            )


def envelope_sections() -> Iterator[str]:
    """The envelope with an example."""
    kind = FULL_CATALOG.get_event_type("tool.call")
    scope = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Researcher", depth=1)
    event = FULL_CATALOG.build_event(
        kind.name, kind.payload_class.EXAMPLE, id="evt_1", origin="model", scope=scope
    )
    line = encode_envelope(event, session_id="sess_1", seq=42, ts_ms=1767875696789)
    yield from ("## The envelope\n", doc(Envelope), table(Envelope), example(json.loads(line)))


def render() -> str:
    """The event reference."""
    head = HEAD + "".join(f"| {name} | {meaning} |\n" for _, name, meaning in FORMS)
    sections = [*envelope_sections(), *family_sections(), *record_sections()]
    families = [section[3:-1] for section in sections if section.startswith("## ")]
    links = [f"[{family}](#{family.lower().replace(' ', '-')})" for family in families]
    return "\n".join(section for section in [head, f"{' · '.join(links)}\n", *sections] if section)


Facts = dict[str, Any]


def snapshot() -> Facts:
    """Everything the catalog declares, by name, each with what may not change."""
    payloads = [kind.payload_class for kind in FULL_CATALOG]
    _, shapes = msgspec.json.schema_components([Envelope, *payloads], ref_template="{name}")
    facts: Facts = {}
    for kind in FULL_CATALOG:
        facts[kind.name] = {"live": kind.payload_class.LIVE, "legacy": kind.payload_class.LEGACY}
        facts.update(field_facts(kind.name, shapes.pop(kind.payload_class.__name__)))
    for title, shape in shapes.items():
        facts.update(field_facts(title, shape))
    return facts


def field_facts(owner: str, shape: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of one object; what is said about them may change."""
    for name, schema in shape["properties"].items():
        kept = {
            key: list(value) if value == () else value
            for key, value in schema.items()
            if key != "description"
        }
        yield f"{owner}:{name}", {"required": name in shape["required"], "schema": kept}


def lost(before: Facts, now: Facts) -> list[str]:
    """What was declared and is gone or another thing."""
    return [name for name, fact in before.items() if not keeps(fact, now.get(name))]


def keeps(fact: Facts, now: Facts | None) -> bool:
    """Whether all that was declared still holds: nothing changed, newly legacy, or more allowed values."""
    if now is None or now in (fact, {**fact, "legacy": True}):
        return now is not None
    before, after = fact.get("schema", {}), now.get("schema", {})
    if fact | {"schema": None} != now | {"schema": None}:
        return False
    return has_more_values(before, after) or has_more_classes(before, after)


def has_more_values(before: Facts, after: Facts) -> bool:
    """Whether a list of values grew, or became any text."""
    values = before.get("enum")
    if not values:
        return False
    if after.get("type") == "string" and "enum" not in after:
        form = re.compile(after.get("pattern", ""))
        return all(isinstance(value, str) and form.search(value) for value in values)
    return set(values) < set(after.get("enum", ())) and before | {"enum": []} == after | {"enum": []}


def has_more_classes(before: Facts, after: Facts) -> bool:
    """Whether a union of classes with a tag grew."""
    tags = before.get("discriminator", {}).get("mapping", {})
    return bool(tags) and tags.items() < after.get("discriminator", {}).get("mapping", {}).items()


def gained(before: Facts, now: Facts) -> list[str]:
    """What is declared and was not, or is newly legacy."""
    return [name for name, fact in now.items() if before.get(name) != fact]


def recorded() -> Facts:
    """The committed snapshot."""
    facts: Facts = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    return facts


def dump(facts: Facts) -> str:
    """One fact per line, so that a change is one line too."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fact)}" for name, fact in facts.items())
    return "{\n" + lines + "\n}\n"


def main() -> None:
    """Write both files."""
    now = snapshot()
    if gone := lost(recorded(), now):
        raise SystemExit(f"removed or retyped: add a new type instead: {', '.join(gone)}")
    SNAPSHOT.write_text(dump(now))
    REFERENCE.write_text(render())


if __name__ == "__main__":
    main()
