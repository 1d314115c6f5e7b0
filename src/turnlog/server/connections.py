"""How many connections the server holds: always fewer than the files that the process may open.

Up to `max_connections` everyone is served. The next ones, up to `max_with_reserve`, are a reserve for
operators and `/healthz`, so that the server can be looked at while it is full; all others get 503 there.
Beyond the reserve the server answers 503 and closes. The journal has a line about it at most once a minute.

A connection on which no request is being answered belongs to a peer that may say nothing for as long as it
likes. There are at most `max_silent` of them, half of all; when there is one more, the one that has been
silent longest is closed. So peers that have not signed in cannot take the connections of the others.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("turnlog.server")

RESERVE_KEY = "turnlog.crowded"  # in the scope of a request on a connection of the reserve
FULL_MESSAGE = "the server has as many connections as it may hold, come back later"
MAX_OPEN_FILES = 65_536  # programs that the server starts inherit the limit, and some walk through all of it
DEFAULT_OPEN_FILES = 1024  # where the system names no limit
MIN_OTHER_FILES = 32  # the log's files, pipes of programs and the server's own sockets
MIN_RESERVE_CONNECTIONS = 4
MAX_IDLE_CONNECTIONS = 2048  # about 20 MiB
LOG_INTERVAL_S = 60.0


class ConnectionBounds(NamedTuple):
    """How many connections there may be, without and with the reserve."""

    max_connections: int
    max_with_reserve: int


class ConnectionLimit:
    """The bounds of one server, and what was refused because of them."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.max_connections, self.max_with_reserve = bounds
        self.max_idle = max(1, min(MAX_IDLE_CONNECTIONS, bounds.max_connections // 2))
        self._idle: dict[object, Callable[[], None]] = {}  # in the order in which they fell silent
        self._refused_count = 0
        self._next_log_s = 0.0

    def add_idle(self, connection: object, close: Callable[[], None]) -> None:
        """A connection waits for a request from now on; close the oldest one if there are too many."""
        self._idle.pop(connection, None)
        self._idle[connection] = close
        if len(self._idle) > self.max_idle:
            oldest = next(iter(self._idle))
            self._idle.pop(oldest)()

    def discard_idle(self, connection: object) -> None:
        """A connection has sent its request, or is gone."""
        self._idle.pop(connection, None)

    def record_refusal(self, now_s: float) -> None:
        """Count a refusal; the journal has the first one, and their number at most once a minute."""
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
    """Return the bounds for a process that may open so many files: 80 % of them, and a reserve."""
    with_reserve = files - max(MIN_OTHER_FILES, files // 10)
    most = min(files * 80 // 100, with_reserve - max(MIN_RESERVE_CONNECTIONS, files // 20))
    return ConnectionBounds(max(1, most), max(2, with_reserve))


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as the hard one allows; return the limit that holds now."""
    try:
        import resource  # not at the top: Windows has none
    except ImportError:
        return DEFAULT_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_OPEN_FILES
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS names no hard limit and has one
        return soft
    return wanted
