"""The state of an A2UI surface: messages fold into its components and its data model (protocol 3.7).

`apply_messages` returns the surface after the messages of one event, or None if they delete it. It raises
`InvalidEvent` for messages that are wrong in themselves (`events/a2ui`), and for those that do not fit what
is open: then no message of the event counts. `snapshot_messages` returns messages that build the surface.

The data model changes as in the official renderer: a path creates the objects and lists on its way.

Limits of a surface, so that no reader hangs: 2,000 components; 2,000 shown ones, with every copy that a list
of the data model makes of its template; 20 levels; a size of 200,000 (`measure`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from turnlog.errors import InvalidEvent, quote
from turnlog.events.a2ui import (
    A2UI_VERSION,
    MEDIA,
    find_a2ui_error,
    find_address_error,
    message_type,
    split_path,
)

MAX_COMPONENTS = 2000  # as many as parts of another view
MAX_SHOWN = 2000
MAX_LEVELS = 20  # the deepest official example has 7
MAX_SURFACE_SIZE = 200_000  # about 200 kB of JSON; the largest official example has 5,000
ROOT_ID = "root"

NO_DATA: Final = object()  # the data model was removed

Scope = str  # the path of the data model that relative paths of a component start from


@dataclass(frozen=True, slots=True)
class Surface:
    """A surface after some messages. `creation` is the content of its `createSurface`."""

    surface_id: str
    creation: Mapping[str, Any]
    components: Mapping[str, Mapping[str, Any]]
    data: Any

    @property
    def size(self) -> int:
        components = sum(measure(component) for component in self.components.values())
        return components + (0 if self.data is NO_DATA else measure(self.data))

    @property
    def sends_data_model(self) -> bool:
        return self.creation.get("sendDataModel", False) is True


def apply_messages(surface: Surface | None, view_id: str, tree: Mapping[str, Any]) -> Surface | None:
    """Return the surface after the messages of an event; None if none is open then. Raise `InvalidEvent`."""
    error = find_a2ui_error(view_id, tree)
    if error is not None:
        raise InvalidEvent(*error)

    # `{}` closes a view of any kind
    for index, message in enumerate(tree.get("messages", ())):
        name = message_type(message)
        path = f"$.messages[{index}]"
        if name == "createSurface":
            surface = Surface(view_id, message[name], {}, {})
        elif surface is None:
            raise InvalidEvent(f"surface {quote(view_id)} is not open: expected createSurface first", path)
        elif name == "deleteSurface":
            return None
        elif name == "updateComponents":
            components = {component["id"]: component for component in message[name]["components"]}
            surface = replace(surface, components={**surface.components, **components})
        else:
            body = message[name]
            value = body.get("value", NO_DATA)
            names = split_path(body.get("path", "/"))
            surface = replace(surface, data=set_value(surface.data, names, value, f"{path}.updateDataModel"))
    if not tree or surface is None:
        return None
    check_limits(surface)
    return surface


def snapshot_messages(surface: Surface) -> list[dict[str, Any]]:
    """Return messages that build this surface in a reader that has none."""
    surface_id = surface.surface_id
    bodies: list[tuple[str, Mapping[str, Any]]] = [("createSurface", surface.creation)]
    if surface.components:
        components = list(surface.components.values())
        bodies.append(("updateComponents", {"surfaceId": surface_id, "components": components}))
    if surface.data is not NO_DATA and surface.data != {}:
        bodies.append(("updateDataModel", {"surfaceId": surface_id, "path": "/", "value": surface.data}))
    return [{"version": A2UI_VERSION, name: body} for name, body in bodies]


# The data model


def is_index(name: str) -> bool:
    return name.isdecimal() and name.isascii() and (name == "0" or not name.startswith("0"))


def set_value(data: Any, names: Sequence[str], value: Any, path: str) -> Any:
    """Return the data with a value at a path; `NO_DATA` removes it. Raise `InvalidEvent` for a wrong path."""
    if not names:
        return value
    name, *rest = names
    if data is None or data is NO_DATA:
        data = [] if is_index(name) else {}

    if isinstance(data, list):
        # A list with a gap would be as long as its largest index.
        if not is_index(name) or len(name) > len(str(len(data))) or int(name) > len(data):
            raise InvalidEvent(f"expected an index up to {len(data)}, got {quote(name)}", f"{path}.path")
        index = int(name)
        before = data[index] if index < len(data) else None
        after = set_value(before, rest, value, path)
        return [*data[:index], None if after is NO_DATA else after, *data[index + 1 :]]
    if not isinstance(data, dict):
        raise InvalidEvent(f"expected a path of objects and lists, got a value before {quote(name)}", path)

    after = set_value(data.get(name), rest, value, path)
    if after is NO_DATA:
        return {key: item for key, item in data.items() if key != name}
    return {**data, name: after}


def get_value(data: Any, names: Sequence[str]) -> Any:
    """Return the value at a path; None if there is none."""
    for name in names:
        if isinstance(data, dict):
            data = data.get(name)
        elif isinstance(data, list) and is_index(name) and len(name) < 10 and int(name) < len(data):
            data = data[int(name)]
        else:
            return None
    return data


# Limits


def measure(value: Any) -> int:
    """Return the size of a JSON value: one for each value, and one for each character of texts and names."""
    size = 0
    stack = [value]
    while stack:
        item = stack.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += sum(map(len, item))
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return size


def check_limits(surface: Surface) -> None:
    """Raise `InvalidEvent` for a surface that a reader cannot draw in bounded time and space."""
    if len(surface.components) > MAX_COMPONENTS:
        raise InvalidEvent(f"expected at most {MAX_COMPONENTS} components", "$.messages")
    if surface.size > MAX_SURFACE_SIZE:
        raise InvalidEvent(f"expected a surface with a size of at most {MAX_SURFACE_SIZE}", "$.messages")
    check_shown(surface)


def check_shown(surface: Surface) -> None:
    """Walk what a reader draws, with every copy of a template. Ids without a component are not drawn yet."""
    shown_count = 0
    stack: list[tuple[str, Scope, tuple[tuple[str, Scope], ...]]] = [(ROOT_ID, "", ())]
    while stack:
        component_id, scope, ancestors = stack.pop()
        component = surface.components.get(component_id)
        if component is None:
            continue
        shown_count += 1
        if shown_count > MAX_SHOWN:
            raise InvalidEvent(f"expected at most {MAX_SHOWN} shown components", "$.messages")
        if (component_id, scope) in ancestors:
            raise InvalidEvent(f"component {quote(component_id)} contains itself", "$.messages")
        if len(ancestors) == MAX_LEVELS:
            raise InvalidEvent(f"expected at most {MAX_LEVELS} levels", "$.messages")
        check_address(surface, component, scope)
        line = (*ancestors, (component_id, scope))
        children = iter_child_ids(surface, component, scope)
        stack += [(child_id, child_scope, line) for child_id, child_scope in children]


def check_address(surface: Surface, component: Mapping[str, Any], scope: Scope) -> None:
    """Check an address that is in the data model; `events/a2ui` has checked the others."""
    type_name = component["component"]
    url = component.get("url")
    if type_name not in MEDIA or not isinstance(url, dict) or "path" not in url:
        return
    path = join_paths(scope, url["path"])
    address = get_value(surface.data, split_path(path))
    if isinstance(address, str) and address:
        error = find_address_error(type_name, address, "$.messages")
        if error is not None:
            raise InvalidEvent(f"{error[0]} in {quote(path)}", error[1])


def iter_child_ids(
    surface: Surface, component: Mapping[str, Any], scope: Scope
) -> Iterator[tuple[str, Scope]]:
    """Yield the ids of what a component contains, each with its scope."""
    for name in ("child", "trigger", "content"):
        if name in component:
            yield component[name], scope
    for tab in component.get("tabs", ()):
        yield tab["child"], scope
    children = component.get("children", ())
    if not isinstance(children, dict):
        yield from ((child_id, scope) for child_id in children)
        return

    path = join_paths(scope, children["path"])
    items = get_value(surface.data, split_path(path))
    if isinstance(items, list):
        # more than the limit is not walked: the count stops there
        for index in range(min(len(items), MAX_SHOWN + 1)):
            yield children["componentId"], f"{path}/{index}"


def join_paths(scope: Scope, path: str) -> str:
    return path if path.startswith("/") else f"{scope}/{path}"
