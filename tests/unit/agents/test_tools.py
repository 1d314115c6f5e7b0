"""`@tool`: the schema from the hints, validation before the function runs, failures as answers."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pytest

from turnlog.agents.runtime.executor import Executor
from turnlog.agents.tool_context import ToolContext
from turnlog.agents.tool_results import result_to_json
from turnlog.agents.tools import (
    MAX_IMAGE_BYTES,
    ImageContent,
    Tool,
    error_result,
    ok_result,
    split_images,
    tool,
    tool_not_found,
)
from turnlog.errors import CallerError
from turnlog.events import CATALOG, ErrorInfo, ToolCall, ToolResult


class Row(msgspec.Struct):
    day: str
    weight_lbs: Annotated[float, msgspec.Meta(gt=0)]


@tool
def save(rows: list[Row], unit: Literal["lbs", "kg"] = "lbs", note: str | None = None) -> dict[str, Any]:
    """Save weights.

    One row a day.
    """
    return {"saved": len(rows), "unit": unit, "note": note}


@tool
async def fetch(url: str) -> str:
    return f"the page at {url}"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the visitor."""
    raise NotImplementedError


@tool(executor="backend")
def ping() -> str:
    return "pong"


async def no_blobs(data: bytes, media_type: str) -> str:
    raise NotImplementedError


def ran(what: Tool, **args: Any) -> ToolResult:
    call = ToolCall(call_id="call_1", tool=what.name, args=args)
    result = asyncio.run(Executor(no_blobs).run(what, call, ToolContext(call)))
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.tool) == ("call_1", what.name)
    CATALOG.build_event(result, id="evt_1", origin="tool")
    return result


def fault(result: ToolResult) -> ErrorInfo:
    assert not result.ok
    assert result.result is None
    assert result.error is not None
    return result.error


def test_name_and_description_are_the_functions() -> None:
    assert (save.name, save.description) == ("save", "Save weights.\n\nOne row a day.")
    assert (fetch.name, fetch.description) == ("fetch", "")


def test_the_schema_comes_from_the_hints() -> None:
    definitions = msgspec.json.schema(save.arguments)["$defs"]
    assert definitions["save"] == {
        "title": "save",
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
            "unit": {"enum": ["kg", "lbs"], "default": "lbs"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["rows"],
        "additionalProperties": False,
    }
    assert definitions["Row"]["properties"]["weight_lbs"] == {"type": "number", "exclusiveMinimum": 0}


def test_hints_may_be_written_as_text() -> None:
    def later(count: "int") -> "int":
        return count + 1

    assert ran(tool(later), count=2).result == 3
    assert fault(ran(tool(later), count="2")).code == "VALIDATION_ERROR"


def test_the_decorator_works_with_and_without_arguments() -> None:
    assert [what.executor for what in (save, fetch, ping, confirm)] == ["backend"] * 3 + ["frontend"]
    assert isinstance(confirm, Tool)
    assert msgspec.json.schema(confirm.arguments)["$defs"]["confirm"]["required"] == ["question"]


@pytest.mark.parametrize("hinted", [True, False])
def test_a_parameter_without_a_hint_is_refused_by_name(hinted: bool) -> None:
    def guess(city: str, country="NO") -> str:  # type: ignore[no-untyped-def]
        return f"{city}, {country}"

    with pytest.raises(CallerError, match="tool guess: parameter country needs a type hint"):
        tool(guess) if hinted else tool(executor="backend")(guess)


def test_arguments_become_what_the_hints_say() -> None:
    row = {"day": "2026-01-08", "weight_lbs": 187.6}
    assert ran(save, rows=[row], unit="kg", note="new") == ToolResult(
        call_id="call_1", tool="save", ok=True, result={"saved": 1, "unit": "kg", "note": "new"}
    )

    def first(rows: list[Row]) -> float:
        return rows[0].weight_lbs

    assert ran(tool(first), rows=[row]).result == 187.6


def test_defaults_stand_in_for_what_is_missing() -> None:
    assert ran(save, rows=[]).result == {"saved": 0, "unit": "lbs", "note": None}


def test_a_default_list_is_not_shared() -> None:
    def collect(items: list[str] = []) -> list[str]:  # noqa: B006
        items.append("x")
        return items

    assert [ran(tool(collect)).result for _ in range(2)] == [["x"], ["x"]]


@pytest.mark.parametrize(
    ("args", "path", "words"),
    [
        ({}, [], "missing required field rows"),
        ({"rows": "none"}, ["rows"], "expected array, got str"),
        (
            {"rows": [{"day": "x", "weight_lbs": 1}, {"day": "x", "weight_lbs": -1}]},
            ["rows", 1, "weight_lbs"],
            "> 0",
        ),
        ({"rows": [], "unit": "stone"}, ["unit"], "stone"),
        ({"rows": [], "note": 3}, ["note"], "expected str | null, got int"),
        ({"rows": [], "colour": "red"}, [], "unknown field colour"),
    ],
)
def test_wrong_arguments_are_named_by_their_path(
    args: dict[str, Any], path: list[str | int], words: str
) -> None:
    error = fault(ran(save, **args))
    assert (error.code, error.details) == ("VALIDATION_ERROR", {"path": path})
    assert words in error.message


def test_a_function_does_not_run_with_wrong_arguments() -> None:
    ran_with: list[int] = []

    def remember(number: int) -> None:
        ran_with.append(number)

    assert fault(ran(tool(remember), number="1")).code == "VALIDATION_ERROR"
    assert ran(tool(remember), number=1).ok
    assert ran_with == [1]


def test_results_are_plain_values() -> None:
    def rows() -> list[Row]:
        return [Row("2026-01-08", 1.5)]

    def nothing() -> None:
        return None

    assert ran(tool(rows)).result == [{"day": "2026-01-08", "weight_lbs": 1.5}]
    assert ran(tool(nothing)) == ToolResult(call_id="call_1", tool="nothing", ok=True, result=None)


def test_answers_carry_the_call_they_answer() -> None:
    call = ToolCall(call_id="call_7", tool="save", args={})
    assert ok_result(call, [1]) == ToolResult(call_id="call_7", tool="save", ok=True, result=[1])
    no = error_result(call, "TOOL_NOT_FOUND", "no such tool", {"tool": "save"})
    assert (no.call_id, no.tool, no.ok, no.result) == ("call_7", "save", False, None)
    assert no.error == ErrorInfo(code="TOOL_NOT_FOUND", message="no such tool", details={"tool": "save"})


def unwritable() -> object:
    return object()


def not_a_number() -> float:
    return float("nan")


def lone_surrogate() -> str:
    return "\ud800"


def either(row: dict[str, Any] | Row) -> int:
    return 1


@pytest.mark.parametrize("function", [unwritable, not_a_number, lone_surrogate])
def test_a_result_that_cannot_be_written_is_a_failure(function: Any) -> None:
    assert fault(ran(tool(function))).code == "EXECUTION_ERROR"


def test_a_hint_that_cannot_be_checked_is_refused_at_once() -> None:
    with pytest.raises(CallerError):
        tool(either)


def by_position(city: str, /) -> str:
    return city


def any_number(*cities: str) -> str:
    return "".join(cities)


def anything(**cities: str) -> str:
    return "".join(cities)


@pytest.mark.parametrize("function", [by_position, any_number, anything])
def test_parameters_that_have_no_name_are_refused_at_once(function: Any) -> None:
    with pytest.raises(CallerError):
        tool(function)


@tool(timeout_s=2.5, kind="write", approval=True, roles=("coach",), risk="db_write", expires_s=60)
def erase(ids: list[str], context: ToolContext, why: str = "") -> int:
    """Delete entries.

    Args:
        ids: Which ones.
        why: The reason, for the record.
        context: Not the model's business.

    Returns:
        How many there were.
    """
    return len(ids)


def test_a_schema_for_models_is_an_object_with_descriptions() -> None:
    assert erase.description == "Delete entries.\n\nReturns:\n    How many there were."
    assert erase.schema == {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": {"type": "string"}, "description": "Which ones."},
            "why": {"type": "string", "default": "", "description": "The reason, for the record."},
        },
        "required": ["ids"],
        "additionalProperties": False,
    }
    assert save.schema["type"] == "object"
    assert list(save.schema["$defs"]) == ["Row"]
    assert ping.schema["properties"] == {}


def test_a_hint_may_have_the_name_of_the_tool() -> None:
    def weigh(row: Row) -> int:
        return 1

    weigh.__name__ = "Row"
    made = tool(weigh)
    reference = made.schema["properties"]["row"]["$ref"].removeprefix("#/$defs/")
    assert made.schema["$defs"][reference]["required"] == ["day", "weight_lbs"]


def test_words_join_the_limits_of_a_hint() -> None:
    def weigh(weight: Annotated[float, msgspec.Meta(gt=0)], row: Row) -> None:
        """Weigh.

        Args:
            weight: In pounds.
            row: A row.
        """

    properties = tool(weigh).schema["properties"]
    assert properties["weight"] == {"type": "number", "exclusiveMinimum": 0, "description": "In pounds."}
    assert properties["row"] == {"$ref": "#/$defs/Row", "description": "A row."}


def test_the_policy_is_part_of_the_tool() -> None:
    assert (erase.executor, erase.context_parameter, erase.timeout_s, erase.kind) == (
        "backend",
        "context",
        2.5,
        "write",
    )
    assert (erase.approval, erase.roles, erase.risk, erase.expires_s) == (True, ("coach",), "db_write", 60)
    assert (save.context_parameter, save.timeout_s, save.kind, save.approval, save.roles) == (
        None,
        None,
        "read",
        False,
        (),
    )


def careless(args: Any) -> bool:
    return bool(args["rows"][0])


@pytest.mark.parametrize(
    ("approval", "args", "needed"),
    [
        (True, {}, True),
        (False, {}, False),
        (careless, {"rows": [1]}, True),
        (careless, {"rows": [0]}, False),
        (careless, {}, True),
    ],
)
def test_a_policy_that_fails_asks_a_person(approval: Any, args: dict[str, Any], needed: bool) -> None:
    def drop(rows: list[int]) -> None:
        pass

    assert tool(approval=approval)(drop).needs_approval(args) is needed


def unresolved(city: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def typo(city: str) -> str:
    """Look.

    Args:
        citty: Where.
    """
    return city


def two(one: ToolContext, other: ToolContext) -> None:
    pass


def unreadable(city: str) -> None:
    pass


unreadable.__annotations__["city"] = "str |"


async def pieces(city: str) -> AsyncIterator[str]:
    yield city


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unresolved, "tool unresolved: a type hint cannot be read: name 'Nowhere' is not defined"),
        (unreadable, "tool unreadable: a type hint cannot be read: invalid syntax"),
        (pieces, "tool pieces: expected a function that returns, got one that yields"),
        (partial(print), "tool '': expected a name"),
        (typo, "tool typo: its docstring describes citty, which is no parameter"),
        (two, "tool two: expected one parameter that is a ToolContext, got 2"),
        (lambda: None, "expected a name of 1 to 64 of"),
    ],
)
def test_what_is_wrong_is_said_at_the_definition(function: Any, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        tool(function)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "moon"}, "expected executor backend or frontend or remote, got 'moon'"),
        ({"roles": "coach"}, "expected roles in a tuple, got 'coach'"),
        ({"timeout_s": 0}, "expected seconds above 0, got 0"),
        ({"expires_s": 1e15}, "expected expires_s of at most 3.1536e\\+08, got 1e\\+15"),
        ({"risk": "x" * 129}, "tool .*: approval.request: expected str of length <= 128"),
        ({"roles": (7,)}, "tool .*: approval.request: expected `?str`?, got `?int`?"),
        ({"expires_s": -1.0}, "expected seconds above 0, got -1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        tool(**options)(by_position)


PNG = ImageContent(b"png", "image/png")


@pytest.mark.parametrize(
    ("result", "rest", "found"),
    [
        (PNG, "An image was returned: image/png.", [PNG]),
        ([PNG], "An image was returned: image/png.", [PNG]),
        ([PNG, PNG], "2 images were returned: image/png, image/png.", [PNG, PNG]),
        (["a map", PNG], "a map", [PNG]),
        ((PNG, {"a": 1}, PNG, 2), [{"a": 1}, 2], [PNG, PNG]),
        ([1, 2], [1, 2], []),
        ([], [], []),
        ("text", "text", []),
        ({"picture": PNG}, {"picture": PNG}, []),
    ],
)
def test_pictures_stand_beside_the_result(result: Any, rest: Any, found: list[ImageContent]) -> None:
    assert split_images(result) == (rest, found)


def test_a_picture_inside_a_value_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        result_to_json({"picture": PNG})


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"", "image/png"),
        (b"x" * (MAX_IMAGE_BYTES + 1), "image/png"),
        (b"<svg/>", "image/svg+xml"),
        (b"x", ""),
    ],
)
def test_only_pictures_that_every_reader_takes(data: bytes, media_type: str) -> None:
    with pytest.raises(CallerError):
        ImageContent(data, media_type)


def test_an_unknown_tool_is_answered_with_what_there_is() -> None:
    call = ToolCall(call_id="call_1", tool="ad", args={})
    assert tool_not_found(call, ["fetch", "add"]).error == ErrorInfo(
        code="TOOL_NOT_FOUND",
        message="there is no tool 'ad'",
        details={"available": ["add", "fetch"], "more": 0},
    )
    many = tool_not_found(call, [f"tool{number:03}" for number in range(100)])
    assert many.error is not None
    assert many.error.details is not None
    assert (len(many.error.details["available"]), many.error.details["more"]) == (20, 80)
