"""How many connections the server holds: always fewer than the files that the process may open.

- Up to `max_connections` every request is served.
- The next connections, up to `max_with_reserve`, serve operators and `/healthz` only, so that operators can
  inspect a full server; other requests on them get 503.
- Beyond the reserve the server sends 503 and closes the connection.

A connection is idle while no request of it is being answered. At most `max_idle` connections, half of all,
may be idle; one more closes the one that has been idle longest. So peers that send nothing cannot take all
connections. The log has one line about refusals per minute at most.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("turnlog.server")

FULL_MESSAGE = "the server has as many connections as it may hold, try again later"
MAX_OPEN_FILES = 65_536  # processes that the server starts inherit it, and some loop over all file numbers
DEFAULT_OPEN_FILES = 1024  # on systems without such a limit
MIN_OTHER_FILES = 32  # for the log, pipes of processes and the server's own sockets
MIN_RESERVE_CONNECTIONS = 4
MAX_IDLE_CONNECTIONS = 2048  # about 20 MiB
LOG_INTERVAL_S = 60.0


class ConnectionBounds(NamedTuple):
    """The maximum number of connections, without and with the reserve."""

    max_connections: int
    max_with_reserve: int


class ConnectionLimit:
    """Closes idle connections over the limit, and logs refusals."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.max_connections, self.max_with_reserve = bounds
        self.max_idle = max(1, min(MAX_IDLE_CONNECTIONS, bounds.max_connections // 2))
        self._idle: dict[object, Callable[[], None]] = {}  # how to close each, idle longest first
        self._refused_count = 0
        self._next_log_s = 0.0

    def add_idle(self, connection: object, close: Callable[[], None]) -> None:
        """Mark a connection as idle from now on. Close the one that is idle longest if there are too many."""
        self._idle.pop(connection, None)
        self._idle[connection] = close
        if len(self._idle) > self.max_idle:
            oldest = next(iter(self._idle))
            close_oldest = self._idle.pop(oldest)
            close_oldest()

    def discard_idle(self, connection: object) -> None:
        self._idle.pop(connection, None)

    def record_refusal(self, now_s: float) -> None:
        self._refused_count += 1
        if now_s >= self._next_log_s:
            log.warning(
                "connections refused: %d; more than %d are open; raise the limit of open files (ulimit -n)",
                self._refused_count,
                self.max_connections,
            )
            self._refused_count = 0
            self._next_log_s = now_s + LOG_INTERVAL_S


def compute_bounds(files: int) -> ConnectionBounds:
    with_reserve = files - max(MIN_OTHER_FILES, files // 10)
    reserve = max(MIN_RESERVE_CONNECTIONS, files // 20)
    without_reserve = min(files * 80 // 100, with_reserve - reserve)
    return ConnectionBounds(max(1, without_reserve), max(2, with_reserve))


def raise_file_limit() -> int:
    """Raise the soft limit of open files up to `MAX_OPEN_FILES`. Return the limit that holds then."""
    try:
        import resource  # not at the top: Windows does not have it
    except ImportError:
        return DEFAULT_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_OPEN_FILES

    target = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft >= target:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (ValueError, OSError):  # macOS reports no hard limit and has one
        return soft
    return target
