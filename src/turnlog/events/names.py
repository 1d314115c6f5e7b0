"""The bound of names in bytes: a schema can only count characters (protocol 2.8).

`check_names` raises `InvalidEvent` with the path inside the value. The fields of a class are looked at once,
also where its annotations are strings; a class without names, such as a delta, costs nothing.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from turnlog.errors import InvalidEvent
from turnlog.events.base import NAME_BYTES, Name

Check = Callable[[Any, str], None]  # a value, and its path
Made = dict[type, Check | None]  # by class of a struct


def check_name_bytes(name: Any, path: str) -> None:
    """Raise `InvalidEvent` for a name that is too long; null and values of other types pass."""
    if isinstance(name, str) and len(name.encode(errors="replace")) > NAME_BYTES:
        field = path.rpartition(".")[2].partition("[")[0]
        raise InvalidEvent(f"expected {field} to be a name of at most {NAME_BYTES} bytes", path)


def check_names(kind: Any, value: Any) -> None:
    """Raise `InvalidEvent` for a name in a value of this type that is too long."""
    check = name_check(kind)
    if check is not None:
        check(value, "$")


@lru_cache(1024)  # the classes of a process: a few hundred
def name_check(kind: Any) -> Check | None:
    """Return the check of all names in values of a type; None if it has none."""
    from msgspec import inspect  # with the first event: `import turnlog` does not pay for it

    return _check_of(inspect.type_info(kind), {})


def _check_of(shape: Any, made: Made) -> Check | None:
    from msgspec import inspect

    match shape:
        case inspect.Metadata():
            return _check_of(shape.type, made)
        case inspect.StrType():
            return check_name_bytes if shape == inspect.type_info(Name) else None
        case inspect.StructType():
            return _struct_check(shape, made)
        case inspect.UnionType():
            return _union_check(shape, made)
        case inspect.CollectionType():
            return _items_check(_check_of(shape.item_type, made))
        case inspect.DictType():
            return _values_check(_check_of(shape.value_type, made))
    return None


def _struct_check(shape: Any, made: Made) -> Check | None:
    if shape.cls in made:
        return made[shape.cls]

    found: dict[str, Check] = {}

    def check_fields(value: Any, path: str) -> None:
        for name, check in found.items():
            field = getattr(value, name)
            if field is not None:
                check(field, f"{path}.{name}")

    made[shape.cls] = check_fields  # also for structs of this class inside it
    for field in shape.fields:
        if check := _check_of(field.type, made):
            found[field.name] = check
    made[shape.cls] = check_fields if found else None
    return made[shape.cls]


def _union_check(shape: Any, made: Made) -> Check | None:
    """Return the check of a union: a struct is checked as its class, all else by what it may be."""
    structs: dict[type, Check] = {}
    others: list[Check] = []
    for member in shape.types:
        check = _check_of(member, made)
        if check is not None and hasattr(member, "cls"):
            structs[member.cls] = check
        elif check is not None:
            others.append(check)
    if not structs and len(others) == 1:
        return others[0]  # `Name | None`, most often

    def check_member(value: Any, path: str) -> None:
        for check in [structs[type(value)]] if type(value) in structs else others:
            check(value, path)

    return check_member if structs or others else None


def _items_check(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_items(values: Any, path: str) -> None:
        if isinstance(values, str | bytes | None):  # another member of a union
            return
        for index, value in enumerate(values):
            check(value, f"{path}[{index}]")

    return check_items


def _values_check(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_values(values: Any, path: str) -> None:
        if isinstance(values, dict):  # else another member of a union
            for key, value in values.items():
                check(value, f"{path}.{key}")

    return check_values
