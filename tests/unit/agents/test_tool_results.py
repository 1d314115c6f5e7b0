"""How a tool's result is measured and converted: bytes are counted, copies of large values are not made."""

import asyncio
import math
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.support.coverage_pause import without_coverage
from turnlog.agents.runtime.executor import Executor
from turnlog.agents.tool_context import ToolContext
from turnlog.agents.tool_results import ResultTooLarge, check_json_size, result_to_json
from turnlog.agents.tools import tool
from turnlog.events import ToolCall, ToolResult, strict_json

LARGE_BYTES = 32 << 20
SPARE_BYTES = 4 << 20  # for everything else that is allocated meanwhile


class Entry(msgspec.Struct):
    data: Any


@dataclass
class Page:
    data: Any


async def put_blob(data: bytes, media_type: str) -> str:
    raise NotImplementedError


def answer_of(value: Any) -> ToolResult:
    """The answer to a call of a tool that returns a value."""

    @tool
    def fetch() -> Any:
        return value

    async def work() -> ToolResult:
        call = ToolCall(call_id="call_1", tool="fetch", args={}, executor="backend")
        result = await Executor(put_blob).run(fetch, call, ToolContext(call))
        assert isinstance(result, ToolResult)
        return result

    return asyncio.run(work())


LARGE: dict[str, Callable[[], Any]] = {
    "text": lambda: "x" * LARGE_BYTES,
    "bytes": lambda: b"x" * LARGE_BYTES,
    "texts": lambda: ["x" * (1 << 19)] * 64,
    "keys": lambda: {"x" * LARGE_BYTES: 1},
    "numbers": lambda: [0] * (LARGE_BYTES // 8),
    "struct": lambda: Entry(b"x" * LARGE_BYTES),
    "dataclass": lambda: Page([b"x" * LARGE_BYTES]),
}


@pytest.mark.parametrize("kind", LARGE)
@without_coverage()
def test_result_that_is_too_large_is_refused_without_a_copy_of_it(kind: str) -> None:
    value = LARGE[kind]()
    answer_of("warm up")
    tracemalloc.start()
    try:
        result = answer_of(value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.error is not None
    assert result.error.message == f"the result is larger than {strict_json.MAX_JSON_BYTES} bytes"
    assert peak_bytes < SPARE_BYTES


def test_control_encoding_first_takes_a_copy() -> None:
    value = LARGE["text"]()
    tracemalloc.start()
    try:
        msgspec.json.encode(value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes > LARGE_BYTES


def test_result_is_converted_outside_of_the_event_loop() -> None:
    threads: set[int] = set()

    @dataclass
    class Watched:
        data: str = "x"

        def __getattribute__(self, name: str) -> Any:
            if name == "data":
                threads.add(threading.get_ident())
            return super().__getattribute__(name)

    value = Watched()
    threads.clear()
    assert answer_of(value).result == {"data": "x"}
    assert threads
    assert threading.get_ident() not in threads


def test_result_that_is_larger_only_when_it_is_encoded_is_refused() -> None:
    with pytest.raises(ResultTooLarge):
        result_to_json("\x00" * (strict_json.MAX_JSON_BYTES // 2))


def test_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ResultTooLarge):
        check_json_size(value, 100_000)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}, {math.nan: 1}, "\ud800"])
def test_value_that_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the encoder's own words for some of them
        result_to_json(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, [2.5, None], [True, "x"]], [1, [2.5, None], [True, "x"]]),
        ({"a": {"b": []}}, {"a": {"b": []}}),
        (Entry({"a": Page(b"x")}), {"data": {"a": {"data": "eA=="}}}),
        ({3}, [3]),
    ],
)
def test_value_becomes_json_values(value: Any, expected: Any) -> None:
    assert result_to_json(value) == expected
