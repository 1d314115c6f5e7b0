"""Views and actions on them, by chance: trees that can be shown, what looks like one, and any submit."""

from typing import Any

from hypothesis import strategies as st

from turnlog.events.ui import (
    Action,
    ButtonClick,
    FormSubmit,
    InputSubmit,
    TableAddRow,
    TableDeleteRow,
    TableSave,
)
from turnlog.events.view_nodes import FIELD_TYPES, NODE_TYPES

Tree = dict[str, Any]

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LABELS = WORDS.filter(bool)
NUMBERS = st.integers(-10, 10) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from("abcd")
IDS = st.sampled_from(["f", "g", "t", "u", "go", "r1", "r2"])
DAYS = st.dates().map(str)
TIMES = st.datetimes().map(lambda time: time.isoformat(timespec="minutes")) | DAYS
STRANGE = st.sampled_from(["__proto__", "constructor", "", "row_id", "html", "a" * 200, "\0", "a\n", "`$`"])
LEAVES = (
    st.none() | st.booleans() | NUMBERS | st.integers() | st.just(10**400) | WORDS | TIMES | NAMES | STRANGE
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | STRANGE, inner, max_size=3),
    max_leaves=5,
)


def node(kind: str, needed: dict[str, Any], **optional: Any) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries({"type": st.just(kind), **needed}, optional=optional)


def once(items: st.SearchStrategy[Tree], key: str, min_size: int = 0) -> st.SearchStrategy[list[Tree]]:
    return st.lists(items, min_size=min_size, max_size=3, unique_by=lambda item: item[key])


NAMED = {"name": NAMES, "label": LABELS}
SHARED: dict[str, Any] = {"required": st.booleans(), "help": LABELS, "error": WORDS}
CHOICES = once(st.fixed_dictionaries({"value": LABELS}, optional={"label": LABELS}), "value", min_size=1)
BOUNDS = dict.fromkeys(("value", "min", "max", "above"), NUMBERS)
STEPS = st.integers(1, 9) | st.floats(1e-3, 1e3)
FIELD_TREES = (
    node("field.text", NAMED, **SHARED, value=WORDS, max_length=st.integers(1, 9), multiline=st.booleans())
    | node("field.number", NAMED, **SHARED, **BOUNDS, step=STEPS)
    | node(
        "field.datetime",
        NAMED,
        **SHARED,
        value=TIMES,
        picks=st.sampled_from(["date", "datetime"]),
        min=DAYS,
        max=DAYS,
    )
    | node("field.select", {**NAMED, "options": CHOICES}, **SHARED, value=LABELS)
)
SAID: dict[str, Any] = {"title": LABELS, "confirm": LABELS}
FORMS = node(
    "form", {"id": IDS, "fields": once(FIELD_TREES, "name")}, **SAID, repeat=st.booleans(), error=WORDS
)
BUTTONS = node("button", {"id": IDS, "label": LABELS}, confirm=LABELS, repeat=st.booleans())
TEXTS = node("text", {"text": WORDS}, style=st.sampled_from(["body", "heading"]))


@st.composite
def tables(draw: st.DrawFn) -> Tree:
    """A table whose rows fit its columns."""
    columns = draw(once(FIELD_TREES, "name", min_size=1))
    kinds = {column["name"]: NUMBERS if column["type"] == "field.number" else WORDS for column in columns}
    cells = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})
    errors = st.fixed_dictionaries({}, optional=dict.fromkeys(kinds, WORDS))
    rows = once(
        st.fixed_dictionaries({"row_id": IDS, "values": cells}, optional={"errors": errors}), "row_id"
    )
    may: dict[str, Any] = {"can_add": st.booleans(), "can_delete": st.booleans()}
    return draw(node("table_editor", {"id": IDS, "columns": st.just(columns), "rows": rows}, **SAID, **may))


def actives(tree: Tree) -> list[Tree]:
    """The forms, tables and buttons of a tree."""
    inner = [each for child in tree.get("children", ()) for each in actives(child)]
    return [tree, *inner] if "id" in tree else inner


def has_each_id_once(tree: Tree) -> bool:
    ids = [each["id"] for each in actives(tree)]
    return len(set(ids)) == len(ids)


NODE_TREES = st.recursive(
    TEXTS | FORMS | tables() | BUTTONS,
    lambda inner: node("section", {"children": st.lists(inner, max_size=4)}, title=LABELS),
    max_leaves=6,
)
SCREENS = node("screen", {"children": st.lists(NODE_TREES, max_size=4)}, title=LABELS)
ANY_TREES: st.SearchStrategy[Tree] = st.just(dict[str, Any]()) | SCREENS | NODE_TREES
TREES = ANY_TREES.filter(has_each_id_once)

KINDS = st.sampled_from([*NODE_TYPES.split(", "), *FIELD_TYPES.split(", "), "screen", "html"]) | VALUES
KEYS = st.sampled_from(["type", "id", "children", "fields", "columns", "rows", "options", "name", "label"])
NEARLY = st.recursive(
    VALUES | TREES,
    lambda inner: st.dictionaries(KEYS | STRANGE, inner | st.lists(inner, max_size=3) | KINDS, max_size=5),
    max_leaves=12,
)


def answers(field: Tree) -> st.SearchStrategy[Any]:
    """Values that a field may take, and some that it does not."""
    fitting = {
        "field.text": WORDS,
        "field.number": st.just(field.get("min", 0)) | st.integers(-3, 3),
        "field.datetime": st.just(field.get("min", "2026-01-08")) | DAYS,
        "field.select": st.sampled_from(
            [option["value"] for option in field.get("options", [{"value": ""}])]
        ),
    }
    return fitting[field["type"]] | fitting[field["type"]] | st.none() | VALUES


def cells(fields: list[Tree]) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries({}, optional={field["name"]: answers(field) for field in fields})


def acted_on(tree: Tree) -> st.SearchStrategy[Action]:
    """An action on something that a tree has, with values that often fit; any action, if it has nothing."""
    found: list[st.SearchStrategy[Action]] = [ACTIONS]
    for each in actives(tree):
        if each["type"] == "form":
            found += [st.builds(FormSubmit, form_id=st.just(each["id"]), values=cells(each["fields"]))] * 3
        elif each["type"] == "button":
            found.append(st.just(ButtonClick(button_id=each["id"])))
        else:
            ids = st.sampled_from([*(row["row_id"] for row in each["rows"]), None])
            row = st.builds(lambda cells, row_id: {**cells, "row_id": row_id}, cells(each["columns"]), ids)
            rows = st.lists(row, max_size=3).map(tuple)
            found += [st.builds(TableSave, table_id=st.just(each["id"]), rows=rows)] * 3
            found.append(st.builds(TableDeleteRow, table_id=st.just(each["id"]), row_id=ids.map(str)))
            found.append(st.just(TableAddRow(table_id=each["id"])))
    return st.one_of(found)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Tree, list[Action]]:
    """A view and what is done to it."""
    tree = draw(TREES.filter(actives))
    return tree, draw(st.lists(acted_on(tree), max_size=6))


ROWS = st.lists(st.dictionaries(NAMES | st.just("row_id") | STRANGE, VALUES | IDS, max_size=5), max_size=4)
ACTIONS: st.SearchStrategy[Action] = (
    st.builds(FormSubmit, form_id=IDS, values=st.dictionaries(NAMES | STRANGE, VALUES, max_size=5))
    | st.builds(TableSave, table_id=IDS, rows=ROWS.map(tuple))
    | st.builds(TableAddRow, table_id=IDS)
    | st.builds(TableDeleteRow, table_id=IDS, row_id=IDS)
    | st.builds(ButtonClick, button_id=IDS)
    | st.builds(InputSubmit, values=st.dictionaries(NAMES, VALUES, max_size=2))
)
