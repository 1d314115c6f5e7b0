"""Which sessions another process appends to all the time, by its rings.

An append to such a session would lose the comparison of a group commit each time: the other process commits
between the read of the record and the comparison. Under row locks it waits once.
"""

import time
from collections.abc import Callable, Iterable

CONTENTION_S = 0.1  # two rings of another process within this time are a stream; one is a message of a person
MAX_SESSIONS = 10_000


class Contention:
    """Counts recent rings of other processes. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rings_s: dict[str, tuple[float, float]] = {}  # the last two rings of a session

    def note_rings(self, session_ids: Iterable[str]) -> None:
        now_s = self._clock()
        if len(self._rings_s) > MAX_SESSIONS:
            self._rings_s.clear()
        for session_id in session_ids:
            _, last_s = self._rings_s.get(session_id, (-CONTENTION_S, -CONTENTION_S))
            self._rings_s[session_id] = last_s, now_s

    def find_contended(self, session_ids: Iterable[str]) -> set[str]:
        """Return the sessions that had two rings of other processes just now."""
        earliest_s = self._clock() - CONTENTION_S
        rings_s = self._rings_s
        return {
            session_id
            for session_id in session_ids
            if session_id in rings_s and rings_s[session_id][0] > earliest_s
        }
