"""`@tool`: makes a tool that a model can call of a function with type hints and a docstring.

The hints become the JSON schema of the arguments and validate them before the function runs. The docstring
becomes the description; its section `Args:` describes the arguments. A function that cannot be a tool raises
`CallerError` at its definition. A frontend or remote tool is a signature only: the page or another process
runs it and answers.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, Unpack, get_args, overload

import msgspec

from turnlog.agents.docstring import parse_docstring
from turnlog.agents.tool_context import ToolContext
from turnlog.errors import CallerError, quote
from turnlog.events import CATALOG, AwaitedCall, ErrorInfo, ToolCall, ToolResult
from turnlog.events.strict_json import split_json_path, split_validation_error

ToolFunction = Callable[..., Any]
ExecutorKind = Literal["backend", "frontend", "remote"]
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider accepts
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # all models read these
MAX_IMAGE_BYTES = 5_000_000  # what models accept; a tool should scale larger images down
MAX_NAMES_SHOWN = 20  # tools that an answer names
APPROVAL_EXPIRES_S = 3600.0  # a person who comes later should be asked again
MAX_APPROVAL_EXPIRES_S = 10 * 365 * 86_400.0  # a timestamp has four digits for the year; `inf` is never


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; `Tool` describes them."""

    executor: ExecutorKind
    timeout_s: float | None
    kind: Literal["read", "write"]
    approval: bool | Callable[[Mapping[str, Any]], bool]
    roles: tuple[str, ...]
    risk: str
    expires_s: float


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model can call.

    `schema` is the JSON schema of its arguments. `context_parameter` names the parameter that gets the
    `ToolContext`. Policy: `kind` says whether it reads or writes; only members with one of `roles` may use it
    (none: everyone); `approval` says whether a person must approve a call. The approval shows `risk` and
    expires after `expires_s`.
    """

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    function: ToolFunction
    context_parameter: str | None = None
    executor: ExecutorKind = "backend"
    timeout_s: float | None = None
    kind: Literal["read", "write"] = "read"
    approval: bool | Callable[[Mapping[str, Any]], bool] = False
    roles: tuple[str, ...] = ()
    risk: str = ""
    expires_s: float = APPROVAL_EXPIRES_S

    def validate(self, call: ToolCall) -> dict[str, Any] | ErrorInfo:
        """Return the arguments by parameter name, or the error with its JSON path."""
        if call.incomplete is not None:
            return ErrorInfo(code="VALIDATION_ERROR", message="the arguments are not a JSON object")
        try:
            values = msgspec.convert(call.args, self.arguments)
        except msgspec.ValidationError as error:
            message, path = split_validation_error(error)
            details = {"path": split_json_path(path)}
            return ErrorInfo(code="VALIDATION_ERROR", message=message, details=details)
        return {name: getattr(values, name) for name in values.__struct_fields__}

    def needs_approval(self, args: Mapping[str, Any]) -> bool:
        """Return whether a person must approve this call. A policy function that raises counts as yes."""
        if isinstance(self.approval, bool):
            return self.approval
        try:
            return bool(self.approval(args))
        except Exception:  # noqa: BLE001  it is foreign code, and a person can still deny the call
            return True


class ImageContent:
    """An image that a tool returns, alone or as an item of a list with other values.

    Not a dataclass: deeper inside a value it cannot be encoded, instead of being encoded as text.
    """

    __slots__ = ("data", "media_type")

    def __init__(self, data: bytes, media_type: str) -> None:
        if media_type not in IMAGE_TYPES:
            raise CallerError(f"expected one of {', '.join(sorted(IMAGE_TYPES))}, got {quote(media_type)}")
        if not 0 < len(data) <= MAX_IMAGE_BYTES:
            raise CallerError(f"expected an image of 1 to {MAX_IMAGE_BYTES} bytes, got {len(data)}")
        self.data = data
        self.media_type = media_type


def split_images(result: Any) -> tuple[Any, list[ImageContent]]:
    """Return a tool's result without its images, and the images.

    A list with one value beside images becomes that value. A result of images alone becomes a sentence,
    because pages and models that show no images would read `null`.
    """
    if isinstance(result, ImageContent):
        return describe_images([result]), [result]
    if not isinstance(result, list | tuple):
        return result, []

    images = [item for item in result if isinstance(item, ImageContent)]
    if not images:
        return result, []  # without a copy: the result may be very large

    values = [item for item in result if not isinstance(item, ImageContent)]
    if not values:
        return describe_images(images), images
    if len(values) == 1:
        return values[0], images
    return values, images


def describe_images(images: list[ImageContent]) -> str:
    media_types = ", ".join(image.media_type for image in images)
    if len(images) == 1:
        return f"An image was returned: {media_types}."
    return f"{len(images)} images were returned: {media_types}."


def ok_result(call: ToolCall, result: Any) -> ToolResult:
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=result)


def error_result(
    call: ToolCall, code: str, message: str, details: dict[str, Any] | None = None
) -> ToolResult:
    return error_info_result(call, ErrorInfo(code=code, message=message, details=details))


def error_info_result(call: ToolCall, error: ErrorInfo) -> ToolResult:
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=error)


def tool_not_found(call: ToolCall, names: Collection[str]) -> ToolResult:
    shown_names = sorted(names)[:MAX_NAMES_SHOWN]
    details = {"available": shown_names, "more": len(names) - len(shown_names)}
    return error_result(call, "TOOL_NOT_FOUND", f"there is no tool {quote(call.tool)}", details)


def build_awaited_call(tool: Tool | None, call: ToolCall, args: dict[str, Any]) -> AwaitedCall:
    return AwaitedCall(call_id=call.call_id, tool=call.tool, args=args, roles=tool.roles if tool else ())


@overload
def tool(function: ToolFunction, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[ToolFunction], Tool]: ...


def tool(
    function: ToolFunction | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a tool of a function. Every parameter needs a type hint."""
    if function is None:
        return lambda decorated: make_tool(decorated, options)
    return make_tool(function, options)


def make_tool(function: ToolFunction, options: ToolOptions) -> Tool:
    """Build the tool of a function. Raise `CallerError` if it cannot be one."""
    name = getattr(function, "__name__", "")
    if not NAME_PATTERN.fullmatch(name):
        raise CallerError(f"tool {quote(name)}: expected a name of 1 to 64 of A-Z a-z 0-9 _ -")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise CallerError(f"tool {name}: expected a function that returns, got one that yields")
    check_tool_options(name, options)

    description, argument_texts = parse_docstring(inspect.getdoc(function) or "")
    parameters = read_parameters(name, function)
    if extra := argument_texts.keys() - {parameter.name for parameter in parameters}:
        raise CallerError(f"tool {name}: its docstring describes {min(extra)}, which is no parameter")
    contexts = [parameter.name for parameter in parameters if parameter.annotation is ToolContext]
    if len(contexts) > 1:
        raise CallerError(f"tool {name}: expected one parameter that is a ToolContext, got {len(contexts)}")

    fields = [argument_field(item, argument_texts) for item in parameters if item.name not in contexts]
    try:
        # a module of its own: a hint may be a class with the name of the tool
        arguments = msgspec.defstruct(
            name, fields, kw_only=True, forbid_unknown_fields=True, module="turnlog.tools"
        )
        schema = arguments_schema(arguments)
        msgspec.json.Decoder(arguments)
    except TypeError as error:
        raise CallerError(f"tool {name}: its parameters cannot be expressed in JSON: {error}") from None
    context_parameter = contexts[0] if contexts else None
    return Tool(name, description, schema, arguments, function, context_parameter, **options)


def check_tool_options(name: str, options: ToolOptions) -> None:
    """Raise `CallerError` for options that would fail only when the tool is called."""
    executor = options.get("executor", "backend")
    if executor not in get_args(ExecutorKind):
        known = " or ".join(get_args(ExecutorKind))
        raise CallerError(f"tool {name}: expected executor {known}, got {quote(executor)}")

    roles: object = options.get("roles", ())
    if not isinstance(roles, tuple):
        raise CallerError(f"tool {name}: expected roles in a tuple, got {quote(roles)}")

    for limit_s in (options.get("timeout_s"), options.get("expires_s")):
        if limit_s is not None and not limit_s > 0:
            raise CallerError(f"tool {name}: expected seconds above 0, got {limit_s}")
    expires_s = options.get("expires_s", APPROVAL_EXPIRES_S)
    if MAX_APPROVAL_EXPIRES_S < expires_s < math.inf:
        limit = f"{MAX_APPROVAL_EXPIRES_S:g}"
        raise CallerError(f"tool {name}: expected expires_s of at most {limit}, got {expires_s:g}")

    risk = options.get("risk") or options.get("kind", "read")
    CATALOG.validate_definition(
        f"tool {name}", "approval.request", call_id="call", tool=name, args_hash="0", risk=risk, roles=roles
    )


def read_parameters(name: str, function: ToolFunction) -> list[inspect.Parameter]:
    """Return the parameters. Raise `CallerError` for one without a type hint or without a name in a call."""
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # noqa: BLE001  a hint in quotes is foreign code
        raise CallerError(f"tool {name}: a type hint cannot be read: {error}") from None

    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise CallerError(
                f"tool {name}: parameter {parameter.name} must be one that has a name in a call"
            )
        if parameter.annotation is parameter.empty:
            raise CallerError(f"tool {name}: parameter {parameter.name} needs a type hint")
    return parameters


def argument_field(parameter: inspect.Parameter, argument_texts: Mapping[str, str]) -> tuple[Any, ...]:
    hint = parameter.annotation
    if parameter.name in argument_texts:
        hint = Annotated[hint, msgspec.Meta(description=argument_texts[parameter.name])]
    if parameter.default is parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default


def arguments_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(arguments)
    definitions = schema["$defs"]
    arguments_object: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    del arguments_object["title"]
    if definitions:
        arguments_object["$defs"] = definitions
    return arguments_object
