"""A subprocess with pipes: writes lines to stdin, yields chunks of stdout, and surely ends.

The process leads its own process group and dies with this process (`exec_program`). `terminate` sends SIGTERM
and, after a grace time, SIGKILL to the group. After the process has ended, the rest of its group is killed
and it is reaped, so no zombie is left. Limits: the pipes bound the memory, and `MAX_STDERR_LINES` lines of
stderr are logged.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from turnlog.agents.claude import exec_program

log = logging.getLogger("turnlog.agents")

STDIN_FD = 0
CHUNK_BYTES = 64 * 1024
TERM_GRACE_S = 2.0  # from SIGTERM to SIGKILL: a server that stops does not wait longer
LINGER_S = 1.0  # for the last bytes, if a process outside the group keeps stdout open
WRITE_TIMEOUT_S = 10.0  # a process that does not read its stdin for so long hangs
MAX_STDERR_LINES = 100  # that are logged
MAX_STDERR_LINE_CHARS = 500


SETUP_TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"  # of a token that `claude setup-token` made


class ProgramNotFound(OSError):
    """The command names no program of this system."""


class ClaudeProcessProtocol(SubprocessStreamProtocol):
    """Reports the end of a process and of its stdin at once: asyncio's `wait` may wait for all pipes."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=CHUNK_BYTES, loop=loop)
        self.exit_future: asyncio.Future[None] = loop.create_future()
        self.stdin_closed: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exit_future.done():
            self.exit_future.set_result(None)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd == STDIN_FD and not self.stdin_closed.done():
            self.stdin_closed.set_result(None)


class ClaudeProcess:
    """A process that runs or has ended."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: ClaudeProcessProtocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        self._transport = transport
        self._stdin = protocol.stdin
        self._stdout = protocol.stdout
        self._stdin_closed = protocol.stdin_closed
        self.pid: int = transport.get_pid() or 0
        self._exit_task = asyncio.create_task(self._reap(protocol.exit_future))
        self._stderr_task = asyncio.create_task(log_stderr(protocol.stderr, self.pid))
        self._kill_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], cwd: str | Path | None, env: Mapping[str, str] | None
    ) -> "ClaudeProcess":
        """Start a command. Raise `ProgramNotFound` if its program is not in the PATH."""
        path = env.get("PATH") if env is not None else None
        if shutil.which(command[0], path=path) is None:
            raise ProgramNotFound(f"there is no program {command[0]}")
        wrapped = [sys.executable, "-I", "-S", exec_program.__file__, str(os.getpid()), *command]
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            ClaudeProcessProtocol,
            *wrapped,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        return cls(transport, protocol)

    def write(self, line: bytes) -> None:
        """Buffer a line for stdin. `drain` raises if the process does not read it."""
        if not self._stdin.is_closing():  # uvloop raises a RuntimeError here
            self._stdin.write(line)

    async def drain(self) -> None:
        """Wait until most of the buffer is written. Raise `OSError` if the process does not read."""
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._stdin.drain()

    async def wait_stdin_closed(self) -> bool:
        """Wait until stdin is closed. Return False if the process has ended."""
        ends: list[asyncio.Future[Any]] = [self._stdin_closed, self._exit_task]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([self._exit_task], timeout=LINGER_S)
        return not self._exit_task.done()

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._next_chunk():
            yield chunk

    async def _next_chunk(self) -> bytes:
        # a process outside the group may keep stdout open: after the end, wait only shortly for more bytes
        reading = asyncio.ensure_future(self._stdout.read(CHUNK_BYTES))
        try:
            await asyncio.wait([reading, self._exit_task], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([reading], timeout=LINGER_S)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    def terminate(self) -> None:
        """Send SIGTERM now and SIGKILL after the grace time. A second call does nothing."""
        if self._kill_timer is None and not self._exit_task.done():
            self._signal(signal.SIGTERM)
            self._kill_timer = asyncio.get_running_loop().call_later(
                TERM_GRACE_S, self._signal, signal.SIGKILL
            )

    async def wait(self) -> int:
        """Wait for the end and return the exit code, which is negative for a signal.

        A process that only closed its stdout is terminated.
        """
        await asyncio.wait([self._exit_task], timeout=TERM_GRACE_S)
        self.terminate()
        code = await asyncio.shield(self._exit_task)
        self._transport.close()
        return code

    async def _reap(self, exit_future: asyncio.Future[None]) -> int:
        await exit_future
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._signal(signal.SIGKILL)  # the processes that it started
        await asyncio.wait([self._stderr_task], timeout=LINGER_S)
        self._stderr_task.cancel()
        return self._transport.get_returncode() or 0

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # the group has ended; macOS: only zombies left
            os.killpg(self.pid, number)


def find_sign_in_method(env: Mapping[str, str] | None) -> Literal["oauth", "setup_token"]:
    """Return how a process with this environment signs in; None is the environment of this process."""
    environment = os.environ if env is None else env
    return "setup_token" if environment.get(SETUP_TOKEN_VARIABLE) else "oauth"


async def log_stderr(stderr: asyncio.StreamReader, pid: int) -> None:
    """Log the lines of stderr up to the limit. Read and drop the others."""
    line_count = 0
    rest = b""
    while chunk := await stderr.read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[:CHUNK_BYTES]
        line_count = log_lines(pid, lines, line_count)
    log_lines(pid, [rest], line_count)


def log_lines(pid: int, lines: Sequence[bytes], line_count: int) -> int:
    for line in lines:
        text = line.decode(errors="replace").strip()
        if text and line_count < MAX_STDERR_LINES:
            line_count += 1
            log.warning("process %d: %s", pid, text[:MAX_STDERR_LINE_CHARS])
    return line_count
