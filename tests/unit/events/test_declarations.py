"""What a vocabulary refuses where it is declared: origins that do not exist, examples that do not fit."""

from typing import Any, ClassVar

import pytest

from turnlog.errors import InvalidEvent
from turnlog.events import Catalog, Payload, Vocabulary
from turnlog.events.catalog import find_unknown_fields


class Silent(Payload, frozen=True, kw_only=True):
    """Says nothing about who may emit it."""

    text: str = ""


@pytest.mark.parametrize(
    ("origin", "is_taken"),
    [("model", True), ("app", True), ("ui", False), ("tool", False), ("system", False)],
)
def test_event_without_origins_is_for_models_and_rules(origin: Any, is_taken: bool) -> None:
    catalog = Catalog(Vocabulary("shop", [Silent]))
    if is_taken:
        assert catalog.build_event(Silent(text="x"), id="evt_1", origin=origin).origin == origin
    else:
        with pytest.raises(InvalidEvent, match="may not come from"):
            catalog.build_event(Silent(text="x"), id="evt_1", origin=origin)


def test_vocabulary_origin_that_does_not_exist_is_refused() -> None:
    class Misspelt(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = frozenset({"modle", "ui"})

    with pytest.raises(InvalidEvent, match=r"ORIGINS of shop\.misspelt: expected some of .*, got 'modle'"):
        Vocabulary("shop", [Misspelt])


def test_vocabulary_function_of_origins_is_tried_on_the_example() -> None:
    class Depends(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar[Any] = lambda payload: frozenset({"page"} if payload.text else {"ui"})
        EXAMPLE: ClassVar = {"text": "x"}

        text: str

    with pytest.raises(InvalidEvent, match="got 'page'"):
        Vocabulary("shop", [Depends])


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        ({"text": 7}, "expected str, got int"),
        ({"text": "x", "txet": "x"}, "no field 'txet'"),
        ({"n": 1}, "'n'"),
    ],
)
def test_vocabulary_example_that_does_not_fit_is_refused(example: dict[str, Any], problem: str) -> None:
    class Wrong(Payload, frozen=True, kw_only=True):
        EXAMPLE: ClassVar = example

        text: str

    with pytest.raises(InvalidEvent, match=problem):
        Vocabulary("shop", [Wrong])


def test_unknown_fields_are_those_of_the_wire() -> None:
    class Renamed(Payload, frozen=True, kw_only=True, rename="camel"):
        full_name: str = ""

    assert find_unknown_fields(Renamed, {"fullName": "Ada"}) == []
    assert find_unknown_fields(Renamed, {"full_name": "Ada"}) == ["full_name"]
