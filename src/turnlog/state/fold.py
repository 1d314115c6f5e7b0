"""`fold`: events in, state out, through a table of reducers keyed by payload class.

A reducer takes the state and a payload and returns the next state; it must not change what it was given.
Payloads without a reducer, unknown ones included, leave the state as it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from turnlog.events import Payload, Unknown

Reducer = Callable[[Any, Any], Any]
Reducers = Mapping[type[Payload], Reducer]


def fold(reducers: Reducers, payloads: Iterable[Payload | Unknown], start: Any) -> Any:
    """The state after these payloads."""
    state = start
    for payload in payloads:
        reducer = reducers.get(type(payload))  # type: ignore[arg-type]
        if reducer is not None:
            state = reducer(state, payload)
    return state
