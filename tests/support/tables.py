"""Tables and laws as one test item each, where an item per row or per law would say no more.

`for_each_row` stands where `pytest.mark.parametrize` would: the test runs for every row of the table.
`check_laws` runs several laws on one vector. Both go on after a failure and raise one `ExceptionGroup`
whose members are the failures, each with a note that names its row or its law.

The rows share the fixtures of the item: a test that changes `tmp_path` or the like stays parametrised.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _pytest.mark.structures import ParameterSet

Check = Callable[..., None]
Ids = Callable[[Any], Any] | Sequence[str] | None

MAX_NAME_CHARACTERS = 120


def for_each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Ids = None
) -> Callable[[Check], Check]:
    """Return a decorator that runs a test once for every row. Raise ValueError if it is empty."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [(_name(row, number, ids), _values(row, keys)) for number, row in enumerate(rows)]
    if not table:
        raise ValueError("a table without rows checks nothing")

    def decorate(test: Check) -> Check:
        if inspect.iscoroutinefunction(test):  # its coroutine would never run
            raise TypeError(f"{test.__name__} is async: wrap it in what runs it first")

        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            _check_all(
                (name, functools.partial(test, *instance, **fixtures, **values)) for name, values in table
            )

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def check_laws(laws: Iterable[Check], *arguments: Any) -> None:
    """Call every law with the arguments; raise one ExceptionGroup that names the laws that fail."""
    _check_all((law.__name__, functools.partial(law, *arguments)) for law in laws)


def _check_all(checks: Iterable[tuple[str, Callable[[], None]]]) -> None:
    failures = []
    for name, check in checks:
        try:
            check()
        except Exception as error:  # noqa: BLE001
            error.add_note(f"failed for: {name}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("the notes name the rows or laws", failures)


def _values(row: Any, keys: Sequence[str]) -> dict[str, Any]:
    values = row.values if isinstance(row, ParameterSet) else row if len(keys) > 1 else (row,)
    return dict(zip(keys, values, strict=True))


def _name(row: Any, number: int, ids: Ids) -> str:
    if isinstance(row, ParameterSet) and row.id is not None:
        return str(row.id)
    if ids is None:
        return f"row {number}: {row!r}"[:MAX_NAME_CHARACTERS]
    return str(ids(row) if callable(ids) else ids[number])
