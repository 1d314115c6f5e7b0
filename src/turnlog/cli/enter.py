"""What Enter does in the terminal of a server: it calls a function, beside everything else."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable

READ_BYTES = 1024
BACKGROUND_POLL_S = 1.0  # how often a process in the background looks whether it is in front again


def call_on_enter(call: Callable[[], None]) -> bool:
    """Call a function whenever a person presses Enter, in a thread; False where no one can.

    A process in the background does not read: the terminal's line is the shell's, and reading would stop it.
    """
    try:
        number = sys.stdin.fileno()
        can_read = os.isatty(number) and hasattr(os, "tcgetpgrp")
    except (AttributeError, OSError, ValueError):  # there is no stdin, or it is no file
        return False
    if can_read:
        threading.Thread(
            target=watch_for_enter, args=(number, call), name="turnlog-enter", daemon=True
        ).start()
    return can_read


def watch_for_enter(number: int, call: Callable[[], None]) -> None:
    """Wait for lines until the terminal is gone, and call a function for each time there are some."""
    while True:
        select.select([number], [], [])
        if not is_in_foreground(number):
            time.sleep(BACKGROUND_POLL_S)
            continue
        try:
            data = os.read(number, READ_BYTES)
        except OSError:
            return
        if not data:
            return
        call()


def is_in_foreground(number: int) -> bool:
    """Whether the terminal is this process's to read."""
    try:
        return os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False
