"""The gate lets strict JSON through and names the place of everything else; its cases are data."""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from tests.support.tables import check_laws, for_each_row
from turnlog.errors import BadInput
from turnlog.events import UiMessage, strict_json
from turnlog.vocabularies import FULL_CATALOG

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "gate.json").read_text())
VALUE: Any = Any
LONGEST_PATH = 200  # thirty-two steps and a little more
LONGEST_MESSAGE = LONGEST_PATH + 80 + 150  # a path, what may be quoted, and the sentence around it


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def data_of(source: str | dict[str, str] | list[tuple[str, int]]) -> bytes:
    if isinstance(source, str):
        return source.encode()
    if isinstance(source, dict):
        return bytes.fromhex(source["hex"])
    return "".join(text * times for text, times in source).encode()


def kind_of(case: dict[str, Any]) -> Any:
    return FULL_CATALOG.get_event_type(case["as"]).payload_class if "as" in case else VALUE


@for_each_row("case", named(VECTORS["accepted"]))
def test_accepted_input_gives_its_value(case: dict[str, Any]) -> None:
    data = data_of(case["input"])
    assert strict_json.decode_strict_json(data, VALUE) == json.loads(data)


def check_the_refusal_names_the_place(case: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        strict_json.decode_strict_json(data_of(case["input"]), kind_of(case))
    assert case["says"] in str(caught.value)
    assert caught.value.path == case.get("path", caught.value.path)


def check_the_refusal_is_one_short_line(case: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        strict_json.decode_strict_json(data_of(case["input"]), kind_of(case))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= LONGEST_MESSAGE
    assert len(caught.value.path) <= LONGEST_PATH


@pytest.mark.parametrize("case", named(VECTORS["refused"]))
def test_refused_vector(case: dict[str, Any]) -> None:
    laws = [
        check_the_refusal_names_the_place,
        check_the_refusal_is_one_short_line,
    ]
    check_laws(laws, case)


def test_the_wanted_type_comes_out() -> None:
    assert strict_json.decode_strict_json(b'{"text":"hi","later":1}', UiMessage) == UiMessage(text="hi")


def test_another_size_limit_can_be_given() -> None:
    assert strict_json.decode_strict_json(b"[1,2]", list[int], max_bytes=5) == [1, 2]
    with pytest.raises(BadInput, match="at most 4 bytes"):
        strict_json.decode_strict_json(b"[1,2]", list[int], max_bytes=4)


def test_a_problem_without_a_place_is_at_the_root() -> None:
    assert strict_json.split_validation_error(msgspec.ValidationError("Expected `int`")) == (
        "expected int",
        "$",
    )


def python_calls(work: Callable[[], object]) -> int:
    """How many Python functions run during the work; C functions do not count."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    gc.collect()  # what others left behind must not end, and call something, while we count
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def wide(keys: int) -> bytes:
    return json.dumps({f"key {n}": ["text", n, {"a": None}] for n in range(keys)}).encode()


def test_ordinary_input_is_not_walked_in_python() -> None:
    small, large = wide(2), wide(20_000)
    assert 500_000 < len(large) < strict_json.MAX_JSON_BYTES
    strict_json.decode_strict_json(small, VALUE)  # the first value of a type also looks for its names
    assert python_calls(lambda: strict_json.decode_strict_json(large, VALUE)) == python_calls(
        lambda: strict_json.decode_strict_json(small, VALUE)
    )


def test_the_count_of_calls_sees_a_walk() -> None:
    tree = json.loads(wide(1000))
    assert python_calls(lambda: list(strict_json.iter_duplicate_paths(tree))) > 1000
