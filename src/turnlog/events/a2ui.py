"""The messages of an `assistant.view` of the kind `a2ui.v0.9` (protocol 3.7): `find_a2ui_error` checks them.

The tree is `{"messages": [...]}`: server-to-client messages of A2UI v0.9 for one surface, whose id is the
`view_id`. They are checked against the published schema (`a2ui_schema`, from the package @a2ui/web_core) and
against these rules:

    order        `createSurface` is the first message or absent, `deleteSurface` the last or absent
    catalog      the basic catalog; another one has components that the console cannot draw
    names        no key, id or path segment is `__proto__`, `constructor` or `prototype`
    addresses    http and https; media also blobs of the server, images also data URLs
    size         100 messages in one event, 32 names in a path

Rules about the whole surface are in `state/a2ui_surfaces`, which knows what earlier events have shown.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from turnlog.errors import quote
from turnlog.events.schema_check import Check, SchemaError, compile_check

A2UI_KIND = "a2ui.v0.9"
A2UI_VERSION = "v0.9"
SPECIFICATION = "https://a2ui.org/specification/v0_9"
BASIC_CATALOG = f"{SPECIFICATION}/catalogs/basic/catalog.json"
SCHEMA_FILES = ("server_to_client.json", "common_types.json", "catalog.json")

MAX_MESSAGES = 100  # of one event; the longest official example has 10
MAX_PATH_NAMES = 32  # of a path into the data model; the longest of an official example has 3
MAX_DOUBLE = 1.7976931348623157e308  # a page reads a larger number as infinity

# A page that assigns to an object by such a name changes every object.
FORBIDDEN_NAMES = frozenset({"__proto__", "constructor", "prototype"})

# The types of messages, and what the published schema calls each.
MESSAGE_SCHEMAS = {
    "createSurface": "CreateSurfaceMessage",
    "updateComponents": "UpdateComponentsMessage",
    "updateDataModel": "UpdateDataModelMessage",
    "deleteSurface": "DeleteSurfaceMessage",
}

_WEB = re.compile(r"https?://[^\s\x00-\x20\x7f<>\"\\]+", re.IGNORECASE)
_BLOB = re.compile(r"/?api/blobs/[\w/-]+", re.ASCII)
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
# The components that load something, and what else than a web address each may load.
MEDIA: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "Image": (_BLOB, _IMAGE),
    "Video": (_BLOB,),
    "AudioPlayer": (_BLOB,),
}


@cache
def load_message_checks() -> dict[str, Check]:
    """Return the checks of messages by type. The published schema is read with the first message."""
    documents: dict[str, Any] = {}
    for name in SCHEMA_FILES:
        text = files("turnlog.events").joinpath("a2ui_schema", name).read_text(encoding="utf-8")
        schema = msgspec.json.decode(text)
        documents[schema["$id"]] = schema
    # The schema of messages leaves the catalog open under this name.
    documents["catalog.json"] = documents[BASIC_CATALOG]
    checks: dict[str, Check] = {}
    for type_name, schema_name in MESSAGE_SCHEMAS.items():
        reference = f"{SPECIFICATION}/server_to_client.json#/$defs/{schema_name}"
        checks[type_name] = compile_check(documents, reference)
    return checks


def find_a2ui_error(view_id: str, tree: Mapping[str, Any]) -> SchemaError | None:
    """Return the message and the JSON path of the first error of a tree; None if its messages are valid."""
    if not tree:
        return None  # it closes the view, as in every kind
    messages = tree.get("messages")
    if len(tree) != 1 or not isinstance(messages, list):
        return "expected the field messages, a list, and no other", "$"
    if not 1 <= len(messages) <= MAX_MESSAGES:
        return f"expected 1 to {MAX_MESSAGES} messages", "$.messages"

    for index, message in enumerate(messages):
        path = f"$.messages[{index}]"
        error = find_message_error(view_id, message, path)
        error = error or find_order_error(index, message, len(messages), path)
        if error is not None:
            return error
    return None


def find_message_error(view_id: str, message: Any, path: str) -> SchemaError | None:
    if not isinstance(message, dict):
        return "expected an object", path
    if message.get("version") != A2UI_VERSION:
        problem = f"expected version {A2UI_VERSION} of A2UI, got {quote(message.get('version'))}"
        return problem, f"{path}.version"
    types = [name for name in MESSAGE_SCHEMAS if name in message]
    if len(types) != 1:
        return f"expected one of {', '.join(MESSAGE_SCHEMAS)}", path

    type_name = types[0]
    error = find_value_error(message, path) or load_message_checks()[type_name](message, path)
    if error is not None:
        return error
    body = message[type_name]
    place = f"{path}.{type_name}"
    if body["surfaceId"] != view_id:
        problem = f"expected the view_id {quote(view_id)}, got {quote(body['surfaceId'])}"
        return problem, f"{place}.surfaceId"
    return BODY_CHECKS[type_name](body, place)


def message_type(message: Mapping[str, Any]) -> str:
    """Return the type of a message that has one."""
    return next(name for name in MESSAGE_SCHEMAS if name in message)


def find_order_error(index: int, message: Mapping[str, Any], count: int, path: str) -> SchemaError | None:
    if "createSurface" in message and index > 0:
        return "expected createSurface as the first message: it replaces an open surface", path
    if "deleteSurface" in message and index < count - 1:
        return "expected deleteSurface as the last message", path
    return None


def find_value_error(value: Any, path: str) -> SchemaError | None:
    """Return the first forbidden name or number in a JSON value."""
    stack = [(value, path)]
    while stack:
        item, place = stack.pop()
        if isinstance(item, dict):
            for name, child in item.items():
                if name in FORBIDDEN_NAMES:
                    return f"expected another name than {name}", place
                stack.append((child, f"{place}.{name}"))
        elif isinstance(item, list):
            stack += [(child, f"{place}[{index}]") for index, child in enumerate(item)]
        elif isinstance(item, int | float) and not abs(item) <= MAX_DOUBLE:
            return "expected a number that a double can hold", place
    return None


def find_path_error(path: str, place: str) -> SchemaError | None:
    """Return why a path into the data model is refused."""
    names = split_path(path)
    if len(names) > MAX_PATH_NAMES:
        return f"expected a path of at most {MAX_PATH_NAMES} names", place
    if FORBIDDEN_NAMES.isdisjoint(names):
        return None
    return f"expected a path without {', '.join(sorted(FORBIDDEN_NAMES))}, got {quote(path)}", place


def split_path(path: str) -> list[str]:
    """Return the names of a path into the data model. A slash at either end says nothing."""
    return [name.replace("~1", "/").replace("~0", "~") for name in path.split("/") if name]


def find_address_error(component_type: str, address: str, path: str) -> SchemaError | None:
    forms = (_WEB, *MEDIA.get(component_type, ()))
    if any(form.fullmatch(address) for form in forms):
        return None
    return f"expected an http or https address, got {quote(address)}", path


# Checks of the body of a message, which the schema has accepted.


def _check_create(body: Mapping[str, Any], path: str) -> SchemaError | None:
    if body["catalogId"] != BASIC_CATALOG:
        return f"expected the catalog {BASIC_CATALOG}, got {quote(body['catalogId'])}", f"{path}.catalogId"
    icon = body.get("theme", {}).get("iconUrl")
    return find_address_error("Image", icon, f"{path}.theme.iconUrl") if icon is not None else None


def _check_components(body: Mapping[str, Any], path: str) -> SchemaError | None:
    ids: set[str] = set()
    for index, component in enumerate(body["components"]):
        place = f"{path}.components[{index}]"
        component_id = component["id"]
        if component_id in ids:
            return f"expected each id once, got {quote(component_id)} twice", f"{place}.id"
        if component_id in FORBIDDEN_NAMES or not component_id:
            return f"expected another id than {quote(component_id)}", f"{place}.id"
        ids.add(component_id)
        error = next(iter_component_errors(component, place), None)
        if error is not None:
            return error
    return None


def iter_component_errors(component: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
    """Yield the wrong addresses and paths of a component: of media, of calls of `openUrl`, of bindings."""
    type_name = component["component"]
    if type_name in MEDIA and isinstance(component["url"], str):
        yield from iter_present(find_address_error(type_name, component["url"], f"{path}.url"))
    stack: list[tuple[Any, str]] = [(component, path)]
    while stack:
        item, place = stack.pop()
        if isinstance(item, dict):
            if item.get("call") == "openUrl":
                yield from iter_present(find_address_error("", item["args"]["url"], f"{place}.args.url"))
            if isinstance(item.get("path"), str):
                yield from iter_present(find_path_error(item["path"], f"{place}.path"))
            stack += [(child, f"{place}.{name}") for name, child in item.items()]
        elif isinstance(item, list):
            stack += [(child, f"{place}[{index}]") for index, child in enumerate(item)]


def iter_present(error: SchemaError | None) -> Iterator[SchemaError]:
    if error is not None:
        yield error


def _check_data(body: Mapping[str, Any], path: str) -> SchemaError | None:
    return find_path_error(body.get("path", "/"), f"{path}.path")


def _check_nothing(_: Mapping[str, Any], __: str) -> SchemaError | None:
    return None


BODY_CHECKS = {
    "createSurface": _check_create,
    "updateComponents": _check_components,
    "updateDataModel": _check_data,
    "deleteSurface": _check_nothing,
}
