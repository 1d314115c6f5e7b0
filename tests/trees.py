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
from turnlog.events.views import FIELDS, NODES

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


def ids_of(tree: Tree) -> list[str]:
    inner = [key for child in tree.get("children", ()) for key in ids_of(child)]
    return [tree["id"], *inner] if "id" in tree else inner


NODE_TREES = st.recursive(
    TEXTS | FORMS | tables() | BUTTONS,
    lambda inner: node("section", {"children": st.lists(inner, max_size=4)}, title=LABELS),
    max_leaves=6,
)
SCREENS = node("screen", {"children": st.lists(NODE_TREES, max_size=4)}, title=LABELS)
ANY_TREES: st.SearchStrategy[Tree] = st.just(dict[str, Any]()) | SCREENS | NODE_TREES
TREES = ANY_TREES.filter(lambda tree: len(set(ids_of(tree))) == len(ids_of(tree)))

KINDS = st.sampled_from([*NODES.split(", "), *FIELDS.split(", "), "screen", "html"]) | VALUES
KEYS = st.sampled_from(["type", "id", "children", "fields", "columns", "rows", "options", "name", "label"])
NEARLY = st.recursive(
    VALUES | TREES,
    lambda inner: st.dictionaries(KEYS | STRANGE, inner | st.lists(inner, max_size=3) | KINDS, max_size=5),
    max_leaves=12,
)

ROWS = st.lists(st.dictionaries(NAMES | st.just("row_id") | STRANGE, VALUES | IDS, max_size=5), max_size=4)
ACTIONS: st.SearchStrategy[Action] = (
    st.builds(FormSubmit, form_id=IDS, values=st.dictionaries(NAMES | STRANGE, VALUES, max_size=5))
    | st.builds(TableSave, table_id=IDS, rows=ROWS.map(tuple))
    | st.builds(TableAddRow, table_id=IDS)
    | st.builds(TableDeleteRow, table_id=IDS, row_id=IDS)
    | st.builds(ButtonClick, button_id=IDS)
    | st.builds(InputSubmit, values=st.dictionaries(NAMES, VALUES, max_size=2))
)
