"""Refused JSON costs no more than accepted JSON of its size: the gate walks none of it in Python."""

import sys
from types import FrameType

import pytest

from turnlog.errors import BadInput
from turnlog.events import strict_json

SIZE = 500_000  # bytes, about
FILLER = "1," * (SIZE // 2)
KEYS = ",".join(f'"k{number}":{number}' for number in range(SIZE // 16))
REFUSED = {
    "a key twice at the end": f'{{{KEYS},"k0":1}}',
    "an exponent out of range at the end": f"[{FILLER}1e999]",
    "an integer of 400 digits at the end": f"[{FILLER}{'9' * 400}]",
    "an integer of many digits": f"[{'9' * SIZE}]",
    "too deep at the end": f"[{FILLER}{'[' * 40}{']' * 40}]",
    "not JSON at the end": f"[{FILLER}nope]",
}
ACCEPTED = {
    "a fraction of many digits": f"[{FILLER}0.{'9' * 400}]",
    "many digits and a small exponent": f"[{FILLER}{'1' * 400}e-399]",
}


def count_calls(text: str) -> int:
    """Return how many Python functions the gate calls for a text, generators' steps included."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        strict_json.decode_strict_json(text.encode(), object)
    except BadInput:
        pass
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", REFUSED)
def test_gate_large_refused_input_is_not_walked(name: str) -> None:
    with pytest.raises(BadInput):
        strict_json.decode_strict_json(REFUSED[name].encode(), object)

    assert count_calls(REFUSED[name]) < 50


@pytest.mark.parametrize("name", ACCEPTED)
def test_gate_long_digits_that_a_double_holds_are_accepted(name: str) -> None:
    strict_json.decode_strict_json(ACCEPTED[name].encode(), object)


def test_control_small_refused_input_is_walked_to_name_the_place() -> None:
    keys = ",".join(f'"k{number}":{number}' for number in range(500))
    text = f'{{{keys},"k499":1}}'

    with pytest.raises(BadInput) as refused:
        strict_json.decode_strict_json(text.encode(), object)
    assert refused.value.path == "$.k499"
    assert count_calls(text) > 500
