"""The limit of names in bytes; a schema can only count characters (protocol 2.8).

`check_names` raises `InvalidEvent` with the path inside the value. The check of a class is built once, also
if its annotations are strings. A class without names, such as a delta, has no check and costs nothing.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from turnlog.errors import InvalidEvent
from turnlog.events.payload import MAX_NAME_BYTES, Name

NameCheck = Callable[[Any, str], None]  # a value, and its path
CheckCache = dict[type, NameCheck | None]  # by class of a struct


def check_name_bytes(name: Any, path: str) -> None:
    """Raise `InvalidEvent` for a name that is too long. Accept None and values of other types."""
    if isinstance(name, str) and len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        field = path.rpartition(".")[2].partition("[")[0]
        raise InvalidEvent(f"expected {field} to be a name of at most {MAX_NAME_BYTES} bytes", path)


def check_names(type_: Any, value: Any) -> None:
    """Raise `InvalidEvent` if a name inside a value of this type is too long."""
    check = build_name_check(type_)
    if check is not None:
        check(value, "$")


@lru_cache(1024)  # the classes of a process: a few hundred
def build_name_check(type_: Any) -> NameCheck | None:
    """Build the check of all names in values of a type. Return None if the type has no names."""
    from msgspec import inspect  # with the first event, to keep `import turnlog` fast

    return _build_check(inspect.type_info(type_), {})


def _build_check(shape: Any, cache: CheckCache) -> NameCheck | None:
    from msgspec import inspect

    match shape:
        case inspect.Metadata():
            return _build_check(shape.type, cache)
        case inspect.StrType():
            return check_name_bytes if shape == inspect.type_info(Name) else None
        case inspect.StructType():
            return _build_struct_check(shape, cache)
        case inspect.UnionType():
            return _build_union_check(shape, cache)
        case inspect.CollectionType():
            return _build_items_check(_build_check(shape.item_type, cache))
        case inspect.DictType():
            return _build_values_check(_build_check(shape.value_type, cache))
    return None


def _build_struct_check(shape: Any, cache: CheckCache) -> NameCheck | None:
    if shape.cls in cache:
        return cache[shape.cls]

    field_checks: dict[str, NameCheck] = {}

    def check_fields(value: Any, path: str) -> None:
        for name, check in field_checks.items():
            field = getattr(value, name)
            if field is not None:
                check(field, f"{path}.{name}")

    cache[shape.cls] = check_fields  # before the fields: they may contain the class itself
    for field in shape.fields:
        check = _build_check(field.type, cache)
        if check is not None:
            field_checks[field.name] = check

    cache[shape.cls] = check_fields if field_checks else None
    return cache[shape.cls]


def _build_union_check(shape: Any, cache: CheckCache) -> NameCheck | None:
    structs: dict[type, NameCheck] = {}
    others: list[NameCheck] = []
    for member in shape.types:
        check = _build_check(member, cache)
        if check is not None and hasattr(member, "cls"):
            structs[member.cls] = check
        elif check is not None:
            others.append(check)
    if not structs and len(others) == 1:
        return others[0]  # `Name | None`, most often

    def check_member(value: Any, path: str) -> None:
        struct_check = structs.get(type(value))
        if struct_check is not None:
            struct_check(value, path)
            return
        for check in others:
            check(value, path)

    return check_member if structs or others else None


def _build_items_check(check: NameCheck | None) -> NameCheck | None:
    if check is None:
        return None

    def check_items(values: Any, path: str) -> None:
        if isinstance(values, str | bytes | None):  # another member of a union
            return
        for index, value in enumerate(values):
            check(value, f"{path}[{index}]")

    return check_items


def _build_values_check(check: NameCheck | None) -> NameCheck | None:
    if check is None:
        return None

    def check_values(values: Any, path: str) -> None:
        if isinstance(values, dict):  # else another member of a union
            for key, value in values.items():
                check(value, f"{path}.{key}")

    return check_values
