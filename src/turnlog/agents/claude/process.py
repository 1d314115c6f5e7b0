"""One process that is spoken to over its pipes: lines down, pieces of bytes up, and an end that is sure.

It is the leader of a process group of its own, and dies with this process (`cli_exec`). `end` asks it to go
and kills the group when it does not; however it went, what is left of its group is killed and it has been
waited for, so there is no zombie. Memory is bounded by the pipes' limit; what it writes to stderr goes to the
journal, `COMPLAINTS` lines of it.
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
from typing import Any

from turnlog.agents.claude import exec_program

log = logging.getLogger("turnlog.agents")

STDIN_FD = 0
CHUNK_BYTES = 64 * 1024
TERM_GRACE_S = 2.0  # from being asked to go to being killed: a server that stops does not wait longer
LINGER_S = 1.0  # for the last bytes, if somebody who left the group holds its stdout open
WRITE_TIMEOUT_S = 10.0  # a process that does not read what it is told is none to talk to
MAX_STDERR_LINES = 100  # lines of stderr in the journal
MAX_STDERR_LINE_CHARS = 500


class ProgramNotFound(OSError):
    """There is no such program here."""


class ClaudeProcessProtocol(SubprocessStreamProtocol):
    """Tells of the end of a process and of its stdin at once: asyncio's own `wait` may wait for all pipes."""

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
    """A process that runs, or did."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: ClaudeProcessProtocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        self._transport = transport
        self._stdin, self._stdout = protocol.stdin, protocol.stdout
        self._stdin_closed = protocol.stdin_closed
        self.pid: int = transport.get_pid() or 0
        self._exit_task = asyncio.create_task(self._reap(protocol.exit_future))
        self._stderr_task = asyncio.create_task(log_stderr(protocol.stderr, self.pid))
        self._kill_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], cwd: str | Path | None, env: Mapping[str, str] | None
    ) -> "ClaudeProcess":
        """Start a command; `Missing` if there is none of that name."""
        if shutil.which(command[0], path=env.get("PATH") if env is not None else None) is None:
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
        """Tell it something, after everything else that it was told; `written` says if it is not read."""
        if not self._stdin.is_closing():  # uvloop raises a RuntimeError here
            self._stdin.write(line)

    async def drain(self) -> None:
        """Wait until it has taken nearly everything; `OSError` if it does not listen any more."""
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._stdin.drain()

    async def wait_stdin_closed(self) -> bool:
        """Wait until its stdin is closed; False if that is because the process is gone."""
        ends: list[asyncio.Future[Any]] = [self._stdin_closed, self._exit_task]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([self._exit_task], timeout=LINGER_S)
        return not self._exit_task.done()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it says, until it has nothing more to say."""
        while piece := await self._next_chunk():
            yield piece

    async def _next_chunk(self) -> bytes:
        """The next bytes; of a process that is gone only what comes soon."""
        reading = asyncio.ensure_future(self._stdout.read(CHUNK_BYTES))
        try:
            await asyncio.wait([reading, self._exit_task], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([reading], timeout=LINGER_S)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    def terminate(self) -> None:
        """Ask it to go, and see to it that it does."""
        if self._kill_timer is None and not self._exit_task.done():
            self._signal(signal.SIGTERM)
            self._kill_timer = asyncio.get_running_loop().call_later(
                TERM_GRACE_S, self._signal, signal.SIGKILL
            )

    async def wait(self) -> int:
        """Its exit code when it is gone; below 0 is a signal. One that only closed its stdout has to go."""
        await asyncio.wait([self._exit_task], timeout=TERM_GRACE_S)
        self.terminate()
        code = await asyncio.shield(self._exit_task)
        self._transport.close()
        return code

    async def _reap(self, exit_future: asyncio.Future[None]) -> int:
        await exit_future
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._signal(signal.SIGKILL)  # whom it started, and left behind
        await asyncio.wait([self._stderr_task], timeout=LINGER_S)
        self._stderr_task.cancel()
        return self._transport.get_returncode() or 0

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody is left, or macOS says so of zombies
            os.killpg(self.pid, number)


async def log_stderr(stderr: asyncio.StreamReader, pid: int) -> None:
    """What a process complains of, to the journal; beyond the limit it is only read."""
    told, rest = 0, b""
    while piece := await stderr.read(CHUNK_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:CHUNK_BYTES]
        told = log_lines(pid, lines, told)
    log_lines(pid, [rest], told)


def log_lines(pid: int, lines: Sequence[bytes], line_count: int) -> int:
    """Tell the journal, as far as that goes; how much it has been told."""
    for line in lines:
        if (text := line.decode(errors="replace").strip()) and line_count < MAX_STDERR_LINES:
            line_count += 1
            log.warning("process %d: %s", pid, text[:MAX_STDERR_LINE_CHARS])
    return line_count
