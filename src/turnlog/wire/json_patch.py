"""JSON Patch (RFC 6902), both ways: `diff_json(old, new)` writes one, `PatchedValue` applies others' patches.

Applied in order to `old`, the operations give `new`. Objects are compared key by key and arrays index by
index, so a patch is small if a value changes in place, and never larger than the new value by much.

A patch that cannot be applied raises `BadInput`; the operations before the wrong one were applied. `copy`
could make a small patch large: all copies together may have `MAX_COPIED_BYTES`.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec

from turnlog.errors import BadInput, quote

PatchOperation = dict[str, Any]

MAX_COPIED_BYTES = 4 << 20  # of one value, over all its patches
MAX_OPERATIONS = 10_000  # of one patch
MAX_INDEX_DIGITS = 9  # longer ones are beyond the end of any array


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


class PatchedValue:
    """A JSON value that patches change. It never shares objects with a patch."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self._copied_bytes = 0

    def apply(self, operations: Any) -> None:
        """Apply the operations in order. Raise `BadInput` at the first that does not fit."""
        if not isinstance(operations, list) or len(operations) > MAX_OPERATIONS:
            raise BadInput(f"expected a list of at most {MAX_OPERATIONS} operations", "patch")
        try:
            for operation in operations:
                self._apply_one(operation)
        except RecursionError:
            raise BadInput("expected fewer levels", "patch") from None

    def _apply_one(self, operation: Any) -> None:
        name = operation.get("op") if isinstance(operation, dict) else None
        apply = OPERATIONS.get(name) if isinstance(name, str) else None
        if apply is None:
            raise BadInput(f"expected an operation, got {quote(str(operation))}", "patch")
        apply(self, operation)

    def _add(self, operation: PatchOperation) -> None:
        self._put(read_path(operation, "path"), deepcopy(find_operand(operation)))

    def _remove(self, operation: PatchOperation) -> None:
        self._take(read_path(operation, "path"))

    def _replace(self, operation: PatchOperation) -> None:
        path = read_path(operation, "path")
        value = deepcopy(find_operand(operation))
        if not path:
            self.value = value
            return
        parent = self._find(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            parent[path[-1]] = value
        elif isinstance(parent, list):
            parent[read_index(path[-1], len(parent) - 1)] = value
        else:
            raise BadInput("expected a value to replace", "patch")

    def _move(self, operation: PatchOperation) -> None:
        source = read_path(operation, "from")
        path = read_path(operation, "path")
        if path[: len(source)] == source and path != source:
            raise BadInput("expected a move to another place than inside itself", "patch")
        self._put(path, self._take(source))

    def _copy(self, operation: PatchOperation) -> None:
        value = self._find(read_path(operation, "from"))
        self._copied_bytes += len(msgspec.json.encode(value))
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise BadInput(f"expected copies of at most {MAX_COPIED_BYTES} bytes", "patch")
        self._put(read_path(operation, "path"), deepcopy(value))

    def _test(self, operation: PatchOperation) -> None:
        if diff_json(self._find(read_path(operation, "path")), find_operand(operation)):
            raise BadInput("expected the value of a test", "patch")

    def _find(self, path: list[str]) -> Any:
        value = self.value
        for key in path:
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list):
                value = value[read_index(key, len(value) - 1)]
            else:
                raise BadInput("expected a path to a value", "patch")
        return value

    def _put(self, path: list[str], value: Any) -> None:
        if not path:
            self.value = value
            return
        parent = self._find(path[:-1])
        if isinstance(parent, dict):
            parent[path[-1]] = value
        elif isinstance(parent, list):
            index = len(parent) if path[-1] == "-" else read_index(path[-1], len(parent))
            parent.insert(index, value)
        else:
            raise BadInput("expected a path into an object or an array", "patch")

    def _take(self, path: list[str]) -> Any:
        value = self._find(path)
        if not path:
            self.value = None
            return value
        parent = self._find(path[:-1])
        if isinstance(parent, dict):
            del parent[path[-1]]
        else:
            del parent[int(path[-1])]
        return value


def read_path(operation: PatchOperation, field: str) -> list[str]:
    """Return the keys of a JSON Pointer."""
    pointer = operation.get(field)
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise BadInput("expected a JSON Pointer", "patch")
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def find_operand(operation: PatchOperation) -> Any:
    if "value" not in operation:
        raise BadInput("expected a value", "patch")
    return operation["value"]


def read_index(key: str, last: int) -> int:
    """Return an index of an array up to `last`: digits without leading zeros."""
    is_number = key.isascii() and key.isdigit() and len(key) <= MAX_INDEX_DIGITS
    if not is_number or (key != "0" and key.startswith("0")) or int(key) > last:
        raise BadInput("expected an index of the array", "patch")
    return int(key)


OPERATIONS: dict[str, Callable[[PatchedValue, PatchOperation], None]] = {
    "add": PatchedValue._add,
    "remove": PatchedValue._remove,
    "replace": PatchedValue._replace,
    "move": PatchedValue._move,
    "copy": PatchedValue._copy,
    "test": PatchedValue._test,
}
