"""The limit of a turn: a clock for each turn that runs, and the events that end one (protocol 4.17).

A turn runs while any agent in it does more than wait for somebody outside. Its clock starts with its first
agent, stops when everyone in it waits, and starts again from nothing when one of them goes on: what a person
takes to answer is not the turn's time, and an answer is new work. Time in the queue is not counted either.
The clock is the event loop's.
"""

import asyncio
from collections.abc import Callable

from turnlog.events import SessionError
from turnlog.ids import new_id
from turnlog.state.closing import ClosingEvent, build_closing_events
from turnlog.state.tree import Tree, restrict_to_turns

Trace = str | None


class TurnTimers:
    """The turns that run now; `ring` is called when one has run for `limit_s`, and each time again."""

    def __init__(self, limit_s: float, on_timeout: Callable[[Trace], None]) -> None:
        self.limit_s = limit_s
        self._on_timeout = on_timeout
        self._timers: dict[Trace, asyncio.TimerHandle] = {}
        self._expired: set[Trace] = set()

    def update(self, running: set[Trace]) -> None:
        """Start the clocks of turns that run since now, and stop those of all others."""
        for trace in self._timers.keys() - running:
            self._timers.pop(trace).cancel()
            self._expired.discard(trace)
        for trace in running - self._timers.keys():
            self._start(trace)

    def is_expired(self, trace: Trace) -> bool:
        """Whether a turn has run for too long, and still does."""
        return trace in self._expired

    def _start(self, trace: Trace) -> None:
        self._timers[trace] = asyncio.get_running_loop().call_later(self.limit_s, self._on_timer, trace)

    def _on_timer(self, trace: Trace) -> None:
        self._expired.add(trace)
        self._start(trace)  # a log that is full cannot take the end now, and perhaps later
        self._on_timeout(trace)


def running_turns(tree: Tree) -> set[Trace]:
    """The turns in which somebody does more than wait; one that is handed over runs too."""
    waiters = tree.waiting_agents()
    busy = {agent.scope.trace_id for agent_id, agent in tree.open.items() if agent_id not in waiters}
    return busy | set(tree.handoff_targets.values())


def timeout_events(tree: Tree, trace: Trace, limit_s: float) -> list[ClosingEvent]:
    """The events that end one turn: what went wrong, then the ends of all that is open in it."""
    inside = restrict_to_turns(tree, {trace})
    if not inside.open:
        return []
    message = f"The turn took longer than {limit_s:g} s and was ended."
    problem = SessionError(code="turn_timeout", message=message, retriable=True)
    first = next(iter(inside.open.values())).scope
    ends = build_closing_events(inside, "timeout", message, keep_waiting=False)
    return [ClosingEvent(problem, first, new_id("evt_")), *ends]
