"""Append a batch that was planned from the state of a session, if the session has not changed since."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from turnlog.errors import Conflict
from turnlog.events import Event


@dataclass(slots=True)
class AppendPlan:
    """A batch and the state that it was planned from.

    `last` is the last seq of that state. `expected` are conditions of `Log.append`, such as `expected_last`;
    without one the batch is appended wherever the log ends.
    """

    events: Sequence[Event]
    last: int
    expected: Mapping[str, int | None] = field(default_factory=dict)


Plan = TypeVar("Plan", bound=AppendPlan)
Result_co = TypeVar("Result_co", covariant=True)


class AppendEventsTo(Protocol[Result_co]):
    """Appends to one session; raises `Conflict` if a condition does not hold."""

    def __call__(self, events: Sequence[Event], **expected: Any) -> Awaitable[Result_co]: ...


async def ignore_conflict(last: int) -> None:
    """Do nothing, for plans that bring their state up to date themselves."""


async def append_if_unchanged(
    append: AppendEventsTo[Result_co],
    make_plan: Callable[[], Awaitable[Plan | None]],
    catch_up: Callable[[int], Awaitable[None]] = ignore_conflict,
) -> tuple[Plan, Result_co] | None:
    """Append a plan; if the session has changed meanwhile, plan again. Return the plan and its result.

    `make_plan` returns None if there is nothing to append, and so does this. `catch_up` waits until the state
    has a seq. A conflict at the seq that the plan knew has another cause, such as an event id that is used
    already: planning again would not help, so it is raised.
    """
    while True:
        plan = await make_plan()
        if plan is None:
            return None
        try:
            result = await append(plan.events, **plan.expected)
        except Conflict as conflict:
            if conflict.last == plan.last:
                raise
            await catch_up(conflict.last)
        else:
            return plan, result
