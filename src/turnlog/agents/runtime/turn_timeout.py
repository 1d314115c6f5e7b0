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
from turnlog.state.tree import Closing, Tree, closing, only

Trace = str | None


class Clocks:
    """The turns that run now; `ring` is called when one has run for `limit_s`, and each time again."""

    def __init__(self, limit_s: float, ring: Callable[[Trace], None]) -> None:
        self.limit_s = limit_s
        self._ring = ring
        self._clocks: dict[Trace, asyncio.TimerHandle] = {}
        self._over: set[Trace] = set()

    def watch(self, running: set[Trace]) -> None:
        """Start the clocks of turns that run since now, and stop those of all others."""
        for trace in self._clocks.keys() - running:
            self._clocks.pop(trace).cancel()
            self._over.discard(trace)
        for trace in running - self._clocks.keys():
            self._start(trace)

    def over(self, trace: Trace) -> bool:
        """Whether a turn has run for too long, and still does."""
        return trace in self._over

    def _start(self, trace: Trace) -> None:
        self._clocks[trace] = asyncio.get_running_loop().call_later(self.limit_s, self._rings, trace)

    def _rings(self, trace: Trace) -> None:
        self._over.add(trace)
        self._start(trace)  # a log that is full cannot take the end now, and perhaps later
        self._ring(trace)


def running(tree: Tree) -> set[Trace]:
    """The turns in which somebody does more than wait; one that is handed over runs too."""
    waiters = tree.waiters()
    busy = {agent.scope.trace_id for agent_id, agent in tree.open.items() if agent_id not in waiters}
    return busy | set(tree.coming.values())


def timed_out(tree: Tree, trace: Trace, limit_s: float) -> list[Closing]:
    """The events that end one turn: what went wrong, then the ends of all that is open in it."""
    inside = only(tree, {trace})
    if not inside.open:
        return []
    message = f"The turn took longer than {limit_s:g} s and was ended."
    problem = SessionError(code="turn_timeout", message=message, retriable=True)
    first = next(iter(inside.open.values())).scope
    ends = closing(inside, "timeout", message, keep_waiting=False)
    return [Closing(problem, first, new_id("evt_")), *ends]
