"""The bell of a process that reads a SQLite log: a thread that polls the commit count of the writing process.

The count is in shared memory and costs no query. It does not say which sessions have changed: each ring means
that any session may have.
"""

import logging
import threading
from collections.abc import Callable

from turnlog.log.bell import Bell

log = logging.getLogger("turnlog.log")

POLL_INTERVAL_S = 0.05  # how often a reading process looks for new commits; half of the promised 100 ms
ERROR_PAUSE_S = 2.0  # after the count could not be read: the log reads its sessions in the meantime


class CommitPoller:
    """Rings a bell when the commit count changes, until it is closed."""

    def __init__(self, read_count: Callable[[], int], bell: Bell) -> None:
        self._read_count = read_count
        self._bell = bell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnlog-bell", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last_count: int | None = None
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = POLL_INTERVAL_S
            try:
                count = self._read_count()
            except Exception as error:  # noqa: BLE001  whatever SQLite raises: the thread must live on
                log.error("cannot read the commit count, reading the sessions instead: %s", error)
                pause_s = ERROR_PAUSE_S
                continue
            if count != last_count:
                last_count = count
                self._bell.ring({})

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
