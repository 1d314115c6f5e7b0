"""`@tool`: a function with type hints and a docstring becomes a tool a model can call.

The hints become the JSON schema of the arguments and validate them before the function runs; the docstring
says what it does, its section `Args:` what the arguments mean. What a tool cannot be made of is refused where
it is defined. A frontend or remote tool is a signature only: the page or another process runs it and answers.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, Unpack, get_args, overload

import msgspec

from turnlog.agents.definition import validate_definition
from turnlog.agents.docstring import parse_docstring
from turnlog.agents.tool_context import ToolContext
from turnlog.errors import CallerError, quote
from turnlog.events import ErrorInfo, ToolCall, ToolResult
from turnlog.events.strict_json import split_json_path, split_validation_error

ToolFunction = Callable[..., Any]
ExecutorKind = Literal["backend", "frontend", "remote"]
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes
IMAGE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp"}
)  # every model and browser reads them
MAX_IMAGE_BYTES = 5_000_000  # what models take; larger ones should be scaled down by who makes them
MAX_NAMES_SHOWN = 20  # tools that an answer names
APPROVAL_EXPIRES_S = 3600.0  # who comes later should be asked again
MAX_APPROVAL_EXPIRES_S = 10 * 365 * 86_400.0  # a time stamp has four digits for the year; `inf` is never


class ToolOptions(TypedDict, total=False):
    """What can be said about a tool beside its function."""

    executor: ExecutorKind
    timeout_s: float | None
    kind: Literal["read", "write"]
    approval: bool | Callable[[Mapping[str, Any]], bool]
    roles: tuple[str, ...]
    risk: str
    expires_s: float


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call. `schema` is the JSON schema of its arguments, `context` a parameter's name.

    Its policy: whether it reads or writes, whose roles may use it (none: everyone's), whether a person must
    approve a call, what that person is told of the risk, and how long the question stands.
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
        """The arguments as the hints say, or what is wrong with them and where."""
        if call.incomplete is not None:
            return ErrorInfo(code="VALIDATION_ERROR", message="the arguments are not a JSON object")
        try:
            values = msgspec.convert(call.args, self.arguments)
        except msgspec.ValidationError as error:
            sentence, path = split_validation_error(error)
            return ErrorInfo(
                code="VALIDATION_ERROR", message=sentence, details={"path": split_json_path(path)}
            )
        return {name: getattr(values, name) for name in values.__struct_fields__}

    def needs_approval(self, args: Mapping[str, Any]) -> bool:
        """Whether a person must agree first; a policy that fails to say so is a yes."""
        if isinstance(self.approval, bool):
            return self.approval
        try:
            return bool(self.approval(args))
        except Exception:  # noqa: BLE001  it is foreign code, and a person can still say no
            return True


class ImageContent:
    """An image a tool returns, alone or as an item of a list with other values.

    Not a dataclass: deeper inside a value it cannot be written, instead of being written as text.
    """

    __slots__ = ("data", "media_type")

    def __init__(self, data: bytes, media_type: str) -> None:
        if media_type not in IMAGE_TYPES:
            raise CallerError(f"expected one of {', '.join(sorted(IMAGE_TYPES))}, got {quote(media_type)}")
        if not 0 < len(data) <= MAX_IMAGE_BYTES:
            raise CallerError(f"expected a picture of 1 to {MAX_IMAGE_BYTES} bytes, got {len(data)}")
        self.data = data
        self.media_type = media_type


def split_images(result: Any) -> tuple[Any, list[ImageContent]]:
    """A tool's result without its pictures, and the pictures.

    One value that is left stands for itself. If none is left, the result is a sentence: pages and models that
    show no pictures would read `null`.
    """
    if isinstance(result, ImageContent):
        return describe_images([result]), [result]
    if not isinstance(result, list | tuple):
        return result, []
    found = [item for item in result if isinstance(item, ImageContent)]
    if not found:
        return result, []
    rest = [item for item in result if not isinstance(item, ImageContent)]
    if len(rest) > 1:
        return rest, found
    return (rest[0] if rest else describe_images(found)), found


def describe_images(images: list[ImageContent]) -> str:
    """What a result says that is only pictures."""
    kinds = ", ".join(picture.media_type for picture in images)
    return (
        f"An image was returned: {kinds}."
        if len(images) == 1
        else f"{len(images)} images were returned: {kinds}."
    )


def ok_result(call: ToolCall, result: Any) -> ToolResult:
    """The result of a call that worked."""
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=result)


def error_result(
    call: ToolCall, code: str, message: str, details: dict[str, Any] | None = None
) -> ToolResult:
    """The result of a call that did not work."""
    return error_info_result(call, ErrorInfo(code=code, message=message, details=details))


def error_info_result(call: ToolCall, fault: ErrorInfo) -> ToolResult:
    """The result of a call that has a fault."""
    return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


def tool_not_found(call: ToolCall, names: Collection[str]) -> ToolResult:
    """The answer to a call of a tool that is not there: it names some that are."""
    shown = sorted(names)[:MAX_NAMES_SHOWN]
    details = {"available": shown, "more": len(names) - len(shown)}
    return error_result(call, "TOOL_NOT_FOUND", f"there is no tool {quote(call.tool)}", details)


@overload
def tool(function: ToolFunction, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[ToolFunction], Tool]: ...


def tool(
    function: ToolFunction | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a tool of a function; every parameter needs a type hint."""
    if function is None:
        return lambda decorated: make_tool(decorated, options)
    return make_tool(function, options)


def make_tool(function: ToolFunction, options: ToolOptions) -> Tool:
    """The tool of a function, or a `CallerError` that says what stands in the way."""
    name = getattr(function, "__name__", "")
    if not NAME_PATTERN.fullmatch(name):
        raise CallerError(f"tool {quote(name)}: expected a name of 1 to 64 of A-Z a-z 0-9 _ -")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise CallerError(f"tool {name}: expected a function that returns, got one that yields")
    check_tool_options(name, options)
    description, words = parse_docstring(inspect.getdoc(function) or "")
    parameters = read_parameters(name, function)
    if extra := words.keys() - {parameter.name for parameter in parameters}:
        raise CallerError(f"tool {name}: its docstring describes {min(extra)}, which is no parameter")
    contexts = [parameter.name for parameter in parameters if parameter.annotation is ToolContext]
    if len(contexts) > 1:
        raise CallerError(f"tool {name}: expected one parameter that is a Context, got {len(contexts)}")
    fields = [argument_field(item, words) for item in parameters if item.name not in contexts]
    try:
        # a module of its own: a hint may be a class with the name of the tool
        arguments = msgspec.defstruct(
            name, fields, kw_only=True, forbid_unknown_fields=True, module="turnlog.tools"
        )
        schema = arguments_schema(arguments)
        msgspec.json.Decoder(arguments)
    except TypeError as error:
        raise CallerError(f"tool {name}: its parameters cannot be said in JSON: {error}") from None
    return Tool(name, description, schema, arguments, function, next(iter(contexts), None), **options)


def check_tool_options(name: str, options: ToolOptions) -> None:
    """Refuse what would only show when the tool is called."""
    place = options.get("executor", "backend")
    roles: object = options.get("roles", ())
    if place not in get_args(ExecutorKind):
        raise CallerError(
            f"tool {name}: expected executor {' or '.join(get_args(ExecutorKind))}, got {quote(place)}"
        )
    if not isinstance(roles, tuple):
        raise CallerError(f"tool {name}: expected roles in a tuple, got {quote(roles)}")
    for limit in (options.get("timeout_s"), options.get("expires_s")):
        if limit is not None and not limit > 0:
            raise CallerError(f"tool {name}: expected seconds above 0, got {limit}")
    if MAX_APPROVAL_EXPIRES_S < (expires_s := options.get("expires_s", APPROVAL_EXPIRES_S)) < math.inf:
        raise CallerError(
            f"tool {name}: expected expires_s of at most {MAX_APPROVAL_EXPIRES_S:g}, got {expires_s:g}"
        )
    risk = options.get("risk") or options.get("kind", "read")
    validate_definition(
        f"tool {name}", "approval.request", call_id="call", tool=name, args_hash="0", risk=risk, roles=roles
    )


def read_parameters(name: str, function: ToolFunction) -> list[inspect.Parameter]:
    """The parameters of a function, each with a name and a hint."""
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


def argument_field(parameter: inspect.Parameter, words: Mapping[str, str]) -> tuple[Any, ...]:
    """A parameter as a field of the arguments."""
    hint = parameter.annotation
    if parameter.name in words:
        hint = Annotated[hint, msgspec.Meta(description=words[parameter.name])]
    return (parameter.name, hint, *([] if parameter.default is parameter.empty else [parameter.default]))


def arguments_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments: an object at the top, as models want it, what it refers to inside."""
    schema = msgspec.json.schema(arguments)
    definitions = schema["$defs"]
    top: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    del top["title"]
    return top | ({"$defs": definitions} if definitions else {})
