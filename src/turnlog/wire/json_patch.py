"""The difference of two JSON values as a JSON Patch (RFC 6902): `diff_json(old, new)`.

Applied in order to `old`, the operations give `new`. Objects are compared key by key and arrays index by
index, so a patch is small if a value changes in place, and never larger than the new value by much.
"""

from typing import Any

PatchOperation = dict[str, Any]


def diff_json(old: Any, new: Any) -> list[PatchOperation]:
    """Return the operations that make `new` of `old`; none if they are equal."""
    operations: list[PatchOperation] = []
    _diff(old, new, "", operations)
    return operations


def _diff(old: Any, new: Any, path: str, operations: list[PatchOperation]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        _diff_objects(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _diff_arrays(old, new, path, operations)
    # 1, 1.0 and True are equal in Python, and not in JSON
    elif type(old) is not type(new) or old != new:
        operations.append({"op": "replace", "path": path, "value": new})


def _diff_objects(
    old: dict[str, Any], new: dict[str, Any], path: str, operations: list[PatchOperation]
) -> None:
    for key in old:
        if key not in new:
            operations.append({"op": "remove", "path": f"{path}/{escape_key(key)}"})
    for key, value in new.items():
        place = f"{path}/{escape_key(key)}"
        if key in old:
            _diff(old[key], value, place, operations)
        else:
            operations.append({"op": "add", "path": place, "value": value})


def _diff_arrays(old: list[Any], new: list[Any], path: str, operations: list[PatchOperation]) -> None:
    for index, (old_item, new_item) in enumerate(zip(old, new, strict=False)):
        _diff(old_item, new_item, f"{path}/{index}", operations)
    # from the end, so that the indexes before it stay
    for index in range(len(old) - 1, len(new) - 1, -1):
        operations.append({"op": "remove", "path": f"{path}/{index}"})
    for item in new[len(old) :]:
        operations.append({"op": "add", "path": f"{path}/-", "value": item})


def escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
