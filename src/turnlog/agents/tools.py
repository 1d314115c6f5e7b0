"""`@tool`: a function with type hints and a docstring becomes a tool a model can call.

Arguments are validated against the hints before the function runs. A frontend tool is a signature only: the
page runs it and answers.
"""

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import msgspec

from turnlog.errors import CallerError
from turnlog.events import Fault, ToolCall, ToolResult
from turnlog.events.gate import path_parts, problem

Function = Callable[..., Any]
FOREIGN_FAULTS = (Exception, SystemExit)  # a tool is foreign code: what it raises is an answer, masked


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    function: Function
    executor: Literal["backend", "frontend"]

    async def run(self, call: ToolCall) -> ToolResult:
        """Validate, run, answer. What goes wrong becomes a result that says so."""
        try:
            values = msgspec.convert(call.args, self.arguments)
        except msgspec.ValidationError as error:
            sentence, path = problem(error)
            return failed(call, "VALIDATION_ERROR", sentence, {"path": path_parts(path)})
        try:
            arguments = {name: getattr(values, name) for name in values.__struct_fields__}
            return succeeded(call, plain(await self._call(arguments)))
        except FOREIGN_FAULTS:
            return failed(call, "EXECUTION_ERROR", f"{self.name} failed")

    async def _call(self, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**arguments)
        return await asyncio.to_thread(in_thread, self.function, arguments)


def in_thread(function: Function, arguments: dict[str, Any]) -> Any:
    """Call a tool in a thread; a future cannot carry `StopIteration`."""
    try:
        return function(**arguments)
    except StopIteration as error:
        raise RuntimeError("the tool stopped an iteration that is not its own") from error


def plain(result: Any) -> Any:
    """A result as JSON values; what JSON cannot say is refused, NaN and lone surrogates too."""
    value = msgspec.to_builtins(result)
    json.dumps(value, allow_nan=False).encode("ascii")
    msgspec.json.encode(value)
    return value


def succeeded(call: ToolCall, result: Any) -> ToolResult:
    """The result of a call that worked."""
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=result)


def failed(call: ToolCall, code: str, message: str, details: dict[str, Any] | None = None) -> ToolResult:
    """The result of a call that did not work."""
    fault = Fault(code=code, message=message, details=details)
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


@overload
def tool(function: Function) -> Tool: ...
@overload
def tool(*, executor: Literal["backend", "frontend"]) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None, *, executor: Literal["backend", "frontend"] = "backend"
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function; every parameter needs a type hint."""
    if function is None:
        return lambda decorated: make_tool(decorated, executor)
    return make_tool(function, executor)


def make_tool(function: Function, executor: Literal["backend", "frontend"]) -> Tool:
    """The tool of a function."""
    name, fields = function.__name__, []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise CallerError(
                f"tool {name}: parameter {parameter.name} must be one that has a name in a call"
            )
        if parameter.annotation is parameter.empty:
            raise CallerError(f"tool {name}: parameter {parameter.name} needs a type hint")
        hint: tuple[Any, ...] = (parameter.name, parameter.annotation)
        fields.append(hint if parameter.default is parameter.empty else (*hint, parameter.default))
    try:
        arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.schema(arguments)
        msgspec.json.Decoder(arguments)
    except TypeError as error:
        raise CallerError(f"tool {name}: its parameters cannot be said in JSON: {error}") from None
    return Tool(name, inspect.getdoc(function) or "", arguments, function, executor)
