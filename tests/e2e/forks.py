"""`turnlog`, or a module, as a process of its own: the fork of a process that has imported everything.

Starting one costs a tenth of what a new interpreter costs, and the tests start hundreds. It is a process like
any other from then on: it has its own memory and sockets, and dies of the signals it is sent.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "turnlog.cli",
        "turnlog.server.uvicorn_server",
        "turnlog.log.postgres.store",
        "turnlog_examples.weights.executor",
        "tests.e2e.apps",
        "tests.e2e.served_worker",
        "tests.cluster.apps",
    ]
)


def do_nothing() -> None:
    """For commands that run as they are."""


class Fork:
    """What the tests need of `subprocess.Popen`, of a fork."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        prepare: Callable[[], None] = do_nothing,
        module: str = "turnlog",
    ) -> None:
        """`prepare` is called in the fork, before the command: `turnlog`, or `python -m MODULE`."""
        read, write = CONTEXT.Pipe(duplex=False)
        with read, write, Connection(os.dup(2), readable=False) as errors:
            begun = (write, errors, module, list(arguments), str(folder), dict(env), prepare)
            self._process = CONTEXT.Process(target=run_command, args=begun)
            self._process.start()
            self.stdout = os.fdopen(os.dup(read.fileno()))
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """The exit code, once it has ended; a signal's number is negative."""
        return self._process.exitcode

    def wait(self, limit_s: float | None = None) -> int:
        """The exit code, when it has ended."""
        self._process.join(limit_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("turnlog", limit_s or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()


def run_command(
    output: Connection,
    errors: Connection,
    module: str,
    arguments: list[str],
    folder: str,
    env: dict[str, str],
    prepare: Callable[[], None],
) -> None:
    """The command, in the fork."""
    from turnlog.cli import main

    for number, stream in ((1, output), (2, errors)):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    prepare()
    if module == "turnlog":
        main()
    else:
        sys.modules.pop(module, None)  # it runs as the main module, and was imported by another name
        runpy.run_module(module, run_name="__main__", alter_sys=True)
