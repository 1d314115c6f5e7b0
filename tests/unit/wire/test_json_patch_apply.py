"""Patches of others applied to a value, against a library that does the same."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.wire import json_patch
from turnlog.wire.json_patch import MAX_OPERATIONS, PatchedValue, diff_json

VALUE = {"a": 1, "list": [1, 2, 3], "deep": {"x": {"y": None}}, "a/b": {"~": 0}, "": 5}


def op(name: str, path: Any, **fields: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **fields}


def apply(value: Any, *operations: Any) -> Any:
    patched = PatchedValue(deepcopy(value))
    patched.apply(list(operations))
    return patched.value


@for_each_row(
    "operations",
    [
        [op("add", "/b", value={"c": 1})],
        [op("add", "/list/-", value=4), op("add", "/list/0", value=0), op("add", "/list/5", value=9)],
        [op("add", "", value=[1])],
        [op("remove", "/a"), op("remove", "/list/1"), op("remove", "/deep/x/y")],
        [op("replace", "/list/2", value="three"), op("replace", "/deep/x", value=1)],
        [op("replace", "", value=None)],
        [op("replace", "/a~1b/~0", value=1), op("replace", "/", value=6)],
        [op("move", "/b", **{"from": "/deep/x"}), op("move", "/list/0", **{"from": "/list/2"})],
        [op("move", "/a", **{"from": "/a"})],
        [op("copy", "/b", **{"from": "/deep"}), op("add", "/b/x", value=2)],
        [op("test", "/list", value=[1, 2, 3]), op("test", "/deep/x/y", value=None)],
    ],
)
def test_patch_gives_what_the_library_gives(operations: list[Any]) -> None:
    expected = jsonpatch.apply_patch(VALUE, operations)
    assert apply(VALUE, *operations) == expected


@for_each_row(
    "operations",
    [
        None,
        [None],
        [{"op": 1}],
        [op("dance", "/a")],
        [op("add", "/b")],
        [op("add", "b", value=1)],
        [op("add", 7, value=1)],
        [op("add", "/a/b", value=1)],
        [op("add", "/none/b", value=1)],
        [op("add", "/list/4", value=1)],
        [op("add", "/list/01", value=1)],
        [op("add", "/list/-1", value=1)],
        [op("add", "/list/\u0661", value=1)],
        [op("add", "/list/9999999999", value=1)],
        [op("remove", "/none")],
        [op("remove", "/list/3")],
        [op("replace", "/none", value=1)],
        [op("replace", "/list/3", value=1)],
        [op("replace", "/a/b", value=1)],
        [op("move", "/deep/x/z", **{"from": "/deep"})],
        [op("copy", "/b", **{"from": "/none"})],
        [op("test", "/a", value=True)],
        [op("test", "/a", value=2)],
        [op("add", "/b", value=1)] * (MAX_OPERATIONS + 1),
    ],
)
def test_patch_that_does_not_fit_is_refused(operations: Any) -> None:
    with pytest.raises(BadInput):
        PatchedValue(deepcopy(VALUE)).apply(operations)


def test_removed_whole_value_is_null() -> None:
    assert apply(VALUE, op("remove", "")) is None


def test_copies_cannot_grow_a_value_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_patch, "MAX_COPIED_BYTES", 1000)
    doubling = [op("copy", f"/{number}", **{"from": ""}) for number in range(40)]
    with pytest.raises(BadInput):
        PatchedValue({}).apply(doubling)
    # a control: as many operations that copy little
    patched = PatchedValue({"a": 1})
    patched.apply([op("copy", f"/{number}", **{"from": "/a"}) for number in range(40)])
    assert len(patched.value) == 41


def test_value_that_is_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadInput, match="fewer levels"):
        PatchedValue({}).apply([op("add", "/deep", value=deep)])


def test_value_shares_nothing_with_its_patch() -> None:
    operation = op("add", "/b", value=[])
    patched = PatchedValue({})
    patched.apply([operation, op("add", "/b/-", value=1)])
    assert operation["value"] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab~/", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_difference_applied_gives_the_new_value(old: Any, new: Any) -> None:
    patched = PatchedValue(deepcopy(old))
    patched.apply(diff_json(old, new))
    assert diff_json(patched.value, new) == []
