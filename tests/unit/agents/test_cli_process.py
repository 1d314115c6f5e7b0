"""A process and its pipes: it ends for sure, is waited for, and leaves nobody behind."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_sessions import goes, is_there
from tests.support.limits import HANG_S
from tests.support.manual_clock import move_on, run_on_clock
from turnlog.agents.claude import exec_program
from turnlog.agents.claude.process import (
    LINGER_S,
    MAX_STDERR_LINE_CHARS,
    MAX_STDERR_LINES,
    TERM_GRACE_S,
    ClaudeProcess,
    ProgramNotFound,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")


def play(work: Coroutine[Any, Any, None]) -> None:
    run_on_clock(lambda: work)


async def begun(script: str, **options: Any) -> ClaudeProcess:
    return await ClaudeProcess.start(["sh", "-c", script], options.get("cwd"), options.get("env"))


async def said(process: ClaudeProcess) -> bytes:
    return b"".join([piece async for piece in process.chunks()])


def test_what_is_told_is_said_back_and_the_exit_code_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        process = await begun(
            'read x; echo "$x $Y"; pwd; exit 3', cwd=tmp_path, env={"Y": "yes", "PATH": "/bin:/usr/bin"}
        )
        process.write(b"hello\n")
        await process.drain()
        assert await said(process) == f"hello yes\n{tmp_path}\n".encode()
        assert await process.wait() == 3
        assert not is_there(process.pid)

    play(run())


def test_a_program_that_is_not_there_is_missing() -> None:
    async def run() -> None:
        with pytest.raises(ProgramNotFound, match="no program nowhere"):
            await ClaudeProcess.start(["nowhere"], None, None)
        with pytest.raises(ProgramNotFound):
            await ClaudeProcess.start(["sh"], None, {"PATH": "/nowhere"})

    play(run())


def test_whom_it_started_goes_with_it() -> None:
    async def run() -> None:
        process = await begun("sleep 1000 & echo $!; kill -9 $$")
        child = int(await said(process))
        assert await process.wait() == -signal.SIGKILL
        goes(child)

    play(run())


def test_who_does_not_go_is_killed() -> None:
    async def run() -> None:
        process = await begun("trap '' TERM; echo here; while :; do read x || sleep 1000; done")
        pieces = aiter(process.chunks())
        assert await anext(pieces) == b"here\n"
        process.terminate()
        process.terminate()
        move_on(TERM_GRACE_S)
        assert [piece async for piece in pieces] == []
        assert await process.wait() == -signal.SIGKILL

    play(run())


def test_stdout_that_somebody_else_holds_open_is_not_waited_for() -> None:
    async def run() -> None:
        process = await begun("setsid sh -c 'echo $$; exec sleep 1000' & read x; exit 0")
        pieces = aiter(process.chunks())
        child = int(await anext(pieces))
        try:
            process.write(b"\n")
            rest = asyncio.ensure_future(anext(pieces, None))
            while not process._exit_task.done():
                move_on(LINGER_S)  # for stderr, which it holds open too
                await asyncio.sleep(0)
            while not rest.done():
                move_on(LINGER_S)
                await asyncio.sleep(0)
            assert await rest is None
            assert await process.wait() == 0
        finally:
            os.kill(child, signal.SIGKILL)

    play(run())


def test_who_only_closes_stdout_has_to_go() -> None:
    async def run() -> None:
        process = await begun("echo here; exec >&-; read x; sleep 1000")
        assert await said(process) == b"here\n"
        ending = asyncio.ensure_future(process.wait())
        await asyncio.sleep(0)
        move_on(TERM_GRACE_S)
        assert await ending == -signal.SIGTERM

    play(run())


def test_complaints_go_to_the_journal_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        many = "i=0; while [ $i -lt 200 ]; do echo no $i >&2; i=$((i+1)); done"
        process = await begun(f"printf '%0{MAX_STDERR_LINE_CHARS + 9}d\n' 7 >&2; {many}")
        await said(process)
        await process.wait()

    with caplog.at_level(logging.WARNING, "turnlog.agents"):
        play(run())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == MAX_STDERR_LINES
    assert len(told[0].partition(": ")[2]) == MAX_STDERR_LINE_CHARS
    assert told[1].endswith(": no 0")


def test_the_last_complaint_needs_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        process = await begun("printf 'I give up' >&2")
        await said(process)
        await process.wait()

    play(run())
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["I give up"]


def wrapped(parent: int, *command: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-I", "-S", exec_program.__file__, str(parent), *command]
    return subprocess.run(line, capture_output=True, timeout=HANG_S)


def test_what_cannot_become_a_program_says_so() -> None:
    done = wrapped(os.getpid(), "/")
    assert (done.returncode, done.stderr) == (exec_program.EXIT_NOT_FOUND, b"/: Permission denied\n")


def test_who_comes_after_the_death_of_its_parent_dies_too() -> None:
    assert wrapped(1, "echo", "hello").returncode == -signal.SIGKILL


def test_signals_are_as_they_were() -> None:
    assert wrapped(os.getpid(), "sh", "-c", "kill -PIPE $$; echo alive").returncode == -signal.SIGPIPE


@linux
def test_a_process_dies_with_the_one_that_started_it() -> None:
    code = """
import asyncio, os
from turnlog.agents.claude.process import ClaudeProcess
async def run():
    script = "trap '' HUP TERM; while :; do sleep 1000; done"
    process = await ClaudeProcess.start(["sh", "-c", script], None, None)
    print(process.pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(run())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
        server.wait()
    goes(pid)
