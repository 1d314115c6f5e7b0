"""The difference of two JSON values, judged by another implementation of RFC 6902."""

from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from turnlog.wire.json_patch import diff_json

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1.0]) | st.text(max_size=3)
keys = st.sampled_from(["a", "b", "~", "/", "a/b", "~1", "", "0"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def test_nothing_changes() -> None:
    assert diff_json({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == []


def test_only_what_changed_is_sent() -> None:
    old = {"notes": ["milk"], "count": 1, "gone": True}
    new = {"notes": ["milk", "eggs"], "count": 2}
    assert diff_json(old, new) == [
        {"op": "remove", "path": "/gone"},
        {"op": "add", "path": "/notes/-", "value": "eggs"},
        {"op": "replace", "path": "/count", "value": 2},
    ]


def test_a_shorter_array_loses_its_end() -> None:
    assert diff_json([1, 2, 3], [1]) == [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]


@examples(100)
@given(old=values, new=values)
def test_the_patch_makes_one_value_of_another(old: Any, new: Any) -> None:
    patched = jsonpatch.apply_patch(old, diff_json(old, new))
    assert patched == new
    assert msgspec.json.encode(patched, order="sorted") == msgspec.json.encode(new, order="sorted")
