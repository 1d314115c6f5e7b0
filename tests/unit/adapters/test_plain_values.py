"""Values of frameworks as JSON values: whatever a tool returns, its run goes on."""

from typing import Any

import pytest
from pydantic import BaseModel, field_serializer

from turnlog.adapters.plain_values import to_plain


class Raw(BaseModel):
    data: bytes = b"\xff"


class Broken(BaseModel):
    value: int = 1

    @field_serializer("value")
    def fail(self, value: int) -> int:
        raise RuntimeError("broken")


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("broken")


def make_deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"\xff", "_w=="),
        (Raw(), "Raw(data=b'\\xff')"),
        ({"raw": Broken()}, "{'raw': Broken(value=1)}"),
        ("\ud83d\ude00 \ud800", "\U0001f600 \ufffd"),
        (Hostile(), "<Hostile>"),
        (make_deep(100_000), "<list>"),
        ({1: {2}}, {"1": [2]}),
    ],
)
def test_any_value_has_a_json_form(value: Any, plain: Any) -> None:
    assert to_plain(value) == plain
