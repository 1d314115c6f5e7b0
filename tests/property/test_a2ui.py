"""A2UI under any input: our check agrees with a validator of JSON Schema, and a surface is the same whichever
way its messages come."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]
from referencing import Registry, Resource

from tests.support.examples import examples
from turnlog.errors import InvalidEvent
from turnlog.events import View
from turnlog.events.a2ui import BASIC_CATALOG, SPECIFICATION, find_a2ui_error, load_message_checks
from turnlog.state.a2ui_surfaces import NO_DATA, Surface, apply_messages, set_value, snapshot_messages
from turnlog.state.view_actions import MAX_OPEN_PARTS, OpenViews

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "src" / "turnlog" / "events" / "a2ui_schema"
EXAMPLES = json.loads((ROOT / "tests" / "vectors" / "a2ui" / "examples.json").read_text())["cases"]
MESSAGES = [message for case in EXAMPLES for message in case["messages"]]

MANY = examples(25)
SCALARS = st.sampled_from([None, True, 0, 1.5, -1, "", "x", "root", "/a", "2026-01-08", "body", "required"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["path", "call", "args", "event", "name", "componentId"]), inner)
    ),
    max_leaves=4,
)


@cache
def oracle() -> Draft202012Validator:
    """The published schema in a library for JSON Schema."""
    documents = [json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json"))]
    resources = [(schema["$id"], Resource.from_contents(schema)) for schema in documents]
    # relative to the schema of messages, the catalog has this name
    catalog = next(schema for schema in documents if schema["$id"] == BASIC_CATALOG)
    resources.append((f"{SPECIFICATION}/catalog.json", Resource.from_contents(catalog)))
    schema = next(one for one in documents if one["$id"].endswith("server_to_client.json"))
    return Draft202012Validator(
        schema, registry=Registry().with_resources(resources), format_checker=FormatChecker()
    )


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a value with a key of it."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        item = stack.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            found.append((item, key))
            stack.append(item[key])
    return found


@st.composite
def changed_messages(draw: st.DrawFn) -> Any:
    """An official message with one change."""
    message = copy.deepcopy(draw(st.sampled_from(MESSAGES)))
    container, key = draw(st.sampled_from(places(message)))
    change = draw(st.sampled_from(["replace", "remove", "add"]))
    if change == "replace":
        container[key] = draw(VALUES)
    elif change == "remove":
        del container[key]
    elif isinstance(container, dict):
        container[draw(st.sampled_from(["extra", "variant", "checks", "value", "returnType"]))] = draw(VALUES)
    else:
        container.append(draw(VALUES))
    return message


def is_accepted(message: Any) -> bool:
    checks = load_message_checks()
    return any(check(message, "$") is None for check in checks.values())


@MANY
@given(changed_messages())
def test_check_agrees_with_a_validator_of_the_published_schema(message: Any) -> None:
    assert is_accepted(message) == oracle().is_valid(message)


def test_control_validator_accepts_official_messages_and_refuses_wrong_ones() -> None:
    assert all(oracle().is_valid(message) for message in MESSAGES[:5])
    assert not oracle().is_valid({**MESSAGES[0], "version": "v1.0"})


@MANY
@given(st.lists(st.one_of(changed_messages(), VALUES), max_size=4))
def test_any_tree_is_stored_or_refused_with_a_path(messages: list[Any]) -> None:
    error = find_a2ui_error("s", {"messages": messages})
    assert error is None or (error[0] and error[1].startswith("$"))


NAMES = st.lists(st.sampled_from(["a", "b", "0", "1", "2"]), max_size=3)
DATA = st.recursive(
    st.sampled_from([None, 1, "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@MANY
@given(DATA, NAMES, DATA)
def test_value_that_is_set_is_read_again_and_nothing_else_changes(
    data: Any, names: list[str], value: Any
) -> None:
    before = json.dumps(data)
    try:
        after = set_value(data, names, value, "$")
    except InvalidEvent:
        return
    found = after
    for name in names:
        found = found[int(name)] if isinstance(found, list) else found[name]
    assert found == value
    assert json.dumps(data) == before
    assert set_value(after, names, NO_DATA, "$") is not None


COMPONENTS = st.builds(
    lambda component_id, children: {"id": component_id, "component": "Column", "children": children},
    st.sampled_from(["root", "a", "b"]),
    st.lists(st.sampled_from(["root", "a", "b", "none"]), max_size=2),
)
UPDATES = st.one_of(
    st.builds(
        lambda component: {"updateComponents": {"surfaceId": "s", "components": [component]}}, COMPONENTS
    ),
    st.builds(
        lambda names, value: {
            "updateDataModel": {"surfaceId": "s", "path": "/" + "/".join(names), "value": value}
        },
        NAMES,
        DATA,
    ),
    st.just({"createSurface": {"surfaceId": "s", "catalogId": BASIC_CATALOG}}),
    st.just({"deleteSurface": {"surfaceId": "s"}}),
)


@MANY
@given(st.lists(UPDATES, max_size=12))
def test_late_reader_gets_the_surface_that_every_reader_has(updates: list[dict[str, Any]]) -> None:
    surface: Surface | None = None
    views = OpenViews()
    for number, update in enumerate(updates):
        view = View.a2ui("s", [{"version": "v0.9", **update}])
        views.show(view, f"evt_{number}", None)
        try:
            surface = apply_messages(surface, "s", view.tree)
        except InvalidEvent:
            continue
        late = (
            None if surface is None else apply_messages(None, "s", {"messages": snapshot_messages(surface)})
        )
        assert (late is None) == (surface is None)
        if surface is not None and late is not None:
            assert (late.components, late.data) == (surface.components, surface.data)
    open_view = views.open.get((None, "s"))
    assert (open_view.surface if open_view else None) == surface
    assert views.part_count <= MAX_OPEN_PARTS
