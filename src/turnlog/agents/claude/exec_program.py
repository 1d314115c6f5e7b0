"""Becomes another program, which dies with its parent: `python cli_exec.py <pid of parent> <command> ...`.

Run as a script, before everything else in a new process: it needs nothing of this package. Linux kills the
program when the thread that started it is gone, however that ended; elsewhere only the end of stdin tells it.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
STDERR_FD = 2
EXIT_NOT_FOUND = 127  # as a shell says it


def set_parent_death_signal(parent: int) -> None:
    """Be killed when the parent is gone; it may be gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def close_inherited_fds() -> None:
    """Close everything but stdin, stdout and stderr.

    uvloop leaves the other ends of these three open in a child. A program that holds a second copy of its
    stdin can close the first one, and what is written to it is lost without an error.
    """
    for name in os.listdir("/dev/fd"):
        if int(name) > STDERR_FD:
            with suppress(OSError):  # the descriptor that listed the folder is closed by now
                os.close(int(name))


def exec_command(command: list[str]) -> None:
    """Be that program from now on."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays ignored
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(EXIT_NOT_FOUND)


if __name__ == "__main__":
    set_parent_death_signal(int(sys.argv[1]))
    close_inherited_fds()
    exec_command(sys.argv[2:])
