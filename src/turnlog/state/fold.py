"""`fold`: apply events to a state through a table of reducers keyed by payload class.

A reducer takes the state, a payload and its envelope, and returns the next state. It must not change the
state that it got. Payloads without a reducer, unknown ones included, leave the state as it is. The classes of
this package that keep their own state (`Tree`, `History`, ...) take the same events with `apply`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from turnlog.events import Envelope, Payload, UnknownPayload

Item = tuple[Envelope, Payload | UnknownPayload]
Reducer = Callable[[Any, Any, Envelope], Any]
Reducers = Mapping[type[Payload], Reducer]


class Fold(Protocol):
    """A state that is built from events in order: `Tree`, `History`, `Transcript`, `Meters`, ..."""

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> object: ...


def fold(reducers: Reducers, items: Iterable[Item], start: Any) -> Any:
    """Return the state after these events."""
    state = start
    for envelope, payload in items:
        reducer = reducers.get(type(payload))  # type: ignore[arg-type]
        if reducer is not None:
            state = reducer(state, payload, envelope)
    return state


def guard_reducers(reducers: Reducers, on_error: Callable[[Envelope], None] = lambda _: None) -> Reducers:
    """Wrap an application's reducers: one that raises leaves the state unchanged and calls `on_error`."""

    def guard(reducer: Reducer) -> Reducer:
        def reduce(state: Any, payload: Any, envelope: Envelope) -> Any:
            try:
                return reducer(state, payload, envelope)
            except Exception:  # noqa: BLE001  one event that a reducer cannot take must not stop a session
                on_error(envelope)
                return state

        return reduce

    return {payload_class: guard(reducer) for payload_class, reducer in reducers.items()}
