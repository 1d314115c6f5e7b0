"""The time limit of turns: a timer for each running turn, and the events that end one (protocol 4.17).

A turn runs while any of its agents does more than wait for an answer. Its timer starts with its first agent,
stops when all its agents wait, and starts again from zero when one of them continues: the time that a person
takes to answer does not count, and an answer is new work. Time in the queue does not count either. The timers
use the clock of the event loop.
"""

import asyncio
from collections.abc import Callable

from turnlog.events import EventDraft, SessionError
from turnlog.ids import new_id
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree, restrict_to_turns

Trace = str | None


class TurnTimers:
    """Timers of the running turns. `on_timeout` is called every `limit_s` while a turn runs."""

    def __init__(self, limit_s: float, on_timeout: Callable[[Trace], None]) -> None:
        self.limit_s = limit_s
        self._on_timeout = on_timeout
        self._timers: dict[Trace, asyncio.TimerHandle] = {}
        self._expired: set[Trace] = set()

    def update(self, running: set[Trace]) -> None:
        """Start the timers of turns that are new in `running`, and stop those of all others."""
        for trace in self._timers.keys() - running:
            self._timers.pop(trace).cancel()
            self._expired.discard(trace)
        for trace in running - self._timers.keys():
            self._start(trace)

    def is_expired(self, trace: Trace) -> bool:
        return trace in self._expired

    def _start(self, trace: Trace) -> None:
        self._timers[trace] = asyncio.get_running_loop().call_later(self.limit_s, self._on_timer, trace)

    def _on_timer(self, trace: Trace) -> None:
        self._expired.add(trace)
        self._start(trace)  # again: if the store fails now, it may accept the end later
        self._on_timeout(trace)


def running_turns(tree: Tree) -> set[Trace]:
    waiting = tree.waiting_agents()
    busy = {agent.scope.trace_id for agent_id, agent in tree.open.items() if agent_id not in waiting}
    return busy | set(tree.handoff_targets.values())


def timeout_events(tree: Tree, trace: Trace, limit_s: float) -> list[EventDraft]:
    turn_tree = restrict_to_turns(tree, {trace})
    if not turn_tree.open:
        return []
    message = f"The turn took longer than {limit_s:g} s and was ended."
    problem = SessionError(code="turn_timeout", message=message, retriable=True)
    first_scope = next(iter(turn_tree.open.values())).scope
    ends = build_closing_events(turn_tree, "timeout", message, keep_waiting=False)
    return [EventDraft(problem, first_scope, "system", new_id("evt_")), *ends]
