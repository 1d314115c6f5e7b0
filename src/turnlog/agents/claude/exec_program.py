"""A script that replaces itself by a program which dies with its parent: `exec_program.py <parent pid> ...`.

It runs first in a new process and imports nothing of this package. Linux kills the program when the thread
that started it has ended, in whichever way. On other systems the program only sees the end of its stdin.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
STDERR_FD = 2
EXIT_NOT_FOUND = 127  # as in a shell


def set_parent_death_signal(parent: int) -> None:
    """Have the kernel kill this process when the parent ends, or kill it now if the parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def close_inherited_fds() -> None:
    """Close everything but stdin, stdout and stderr.

    uvloop leaves the other ends of these three open in a child. A program with a second copy of its stdin can
    close the first one, and the input is lost without an error.
    """
    for name in os.listdir("/dev/fd"):
        if int(name) > STDERR_FD:
            with suppress(OSError):  # the descriptor that listed the folder is closed by now
                os.close(int(name))


def exec_command(command: list[str]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec keeps that
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(EXIT_NOT_FOUND)


if __name__ == "__main__":
    set_parent_death_signal(int(sys.argv[1]))
    close_inherited_fds()
    exec_command(sys.argv[2:])
