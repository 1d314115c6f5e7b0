"""`fold`: events in, state out, through a table of reducers keyed by payload class.

A reducer takes the state, a payload and the envelope it came in (time, seq, origin, who), and returns the
next state; it must not change what it was given. Payloads without a reducer, unknown ones included, leave the
state as it is. The folds of this room that keep books of their own take the same events with `apply`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from turnlog.events import Envelope, Payload, UnknownPayload

Item = tuple[Envelope, Payload | UnknownPayload]
Reducer = Callable[[Any, Any, Envelope], Any]
Reducers = Mapping[type[Payload], Reducer]


class Fold(Protocol):
    """What takes events in order and holds what they make: `Tree`, `History`, `Transcript`, `Meters`, ..."""

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> object:
        """Take one event into account."""
        ...


F = TypeVar("F", bound=Fold)


def fold(reducers: Reducers, items: Iterable[Item], start: Any) -> Any:
    """The state after these events."""
    state = start
    for envelope, payload in items:
        reducer = reducers.get(type(payload))  # type: ignore[arg-type]
        if reducer is not None:
            state = reducer(state, payload, envelope)
    return state


def guard_reducers(reducers: Reducers, on_error: Callable[[Envelope], None] = lambda _: None) -> Reducers:
    """Reducers of somebody else: where one raises, the state stays as it was, and `failed` is told."""

    def guard(reducer: Reducer) -> Reducer:
        def reduce(state: Any, payload: Any, envelope: Envelope) -> Any:
            try:
                return reducer(state, payload, envelope)
            except Exception:  # noqa: BLE001  an event that a reducer cannot take must not stop a session
                on_error(envelope)
                return state

        return reduce

    return {kind: guard(reducer) for kind, reducer in reducers.items()}


def apply_events(target: F, items: Iterable[Item]) -> F:
    """A fold after these events."""
    for envelope, payload in items:
        target.apply(envelope, payload)
    return target
