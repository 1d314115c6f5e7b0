"""Names in unions of structs, texts, lists and maps: each member is checked as what it is."""

from typing import Any

import pytest
from msgspec import Struct

from turnlog.errors import InvalidEvent
from turnlog.events.names import build_name_check
from turnlog.events.payload import Name, Payload
from turnlog.events.view_nodes import iter_button_events

LONG = "é" * 100  # 100 characters, 200 bytes


class Part(Struct, frozen=True):
    name: Name


class Mixed(Payload, frozen=True, kw_only=True):
    """A payload whose fields are unions."""

    either: Part | Name = "a"
    several: dict[str, Name] | tuple[Name, ...] = ()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"either": LONG}, "$.either"),
        ({"either": Part(LONG)}, "$.either.name"),
        ({"several": {"x": LONG}}, "$.several.x"),
        ({"several": (LONG,)}, "$.several[0]"),
    ],
)
def test_name_in_any_member_of_a_union_is_bounded_in_bytes(fields: dict[str, Any], path: str) -> None:
    check = build_name_check(Mixed)
    assert check is not None
    with pytest.raises(InvalidEvent) as refused:
        check(Mixed(**fields), "$")
    assert refused.value.path == path
    check(Mixed(either="b", several={"x": "y"}), "$")


def test_tree_that_is_no_view_has_no_events_of_buttons() -> None:
    assert list(iter_button_events({"type": "html"})) == []
    assert list(iter_button_events({})) == []
