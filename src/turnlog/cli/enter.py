"""Call a function in a thread when the user presses Enter in the terminal of a server."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable

READ_BYTES = 1024
BACKGROUND_POLL_S = 1.0  # how often a background process checks if it is in the foreground again


def call_on_enter(call: Callable[[], None]) -> bool:
    """Call a function in a thread whenever the user presses Enter. Return False without a terminal."""
    try:
        descriptor = sys.stdin.fileno()
        can_read = os.isatty(descriptor) and hasattr(os, "tcgetpgrp")
    except (AttributeError, OSError, ValueError):  # there is no stdin, or it is no file
        return False
    if can_read:
        thread = threading.Thread(
            target=watch_for_enter, args=(descriptor, call), name="turnlog-enter", daemon=True
        )
        thread.start()
    return can_read


def watch_for_enter(descriptor: int, call: Callable[[], None]) -> None:
    while True:
        select.select([descriptor], [], [])
        # In the background the input belongs to the shell, and reading it would stop this process.
        if not is_in_foreground(descriptor):
            time.sleep(BACKGROUND_POLL_S)
            continue
        try:
            data = os.read(descriptor, READ_BYTES)
        except OSError:
            return
        if not data:
            return
        call()


def is_in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
