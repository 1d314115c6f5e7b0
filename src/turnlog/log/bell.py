"""The bell of a store: it tells the logs on a store which sessions have changed.

A store rings after each commit. A log that has made the commit itself knows the outcome and ignores the ring.
"""

from collections.abc import Callable, Mapping

RingListener = Callable[[Mapping[str, int], bool], None]
"""Gets the last seq of each session that has changed, and whether a session was marked as wanted.

An empty mapping means that any session may have changed. It may be called in any thread, and must neither
block nor raise.
"""
StopListening = Callable[[], None]


class Bell:
    """The listeners of a store in this process."""

    def __init__(self) -> None:
        self._rings: tuple[RingListener, ...] = ()  # replaced, never changed: `ring` runs in another thread

    @property
    def has_listeners(self) -> bool:
        return bool(self._rings)

    @property
    def listener_count(self) -> int:
        return len(self._rings)

    def listen(self, ring: RingListener) -> StopListening:
        self._rings = (*self._rings, ring)
        return lambda: self._remove(ring)

    def _remove(self, ring: RingListener) -> None:
        self._rings = tuple(other for other in self._rings if other != ring)

    def ring(self, moved: Mapping[str, int], is_wanted: bool = False) -> None:
        for ring in self._rings:
            ring(moved, is_wanted)
