"""A server that dies at a given step, for the test that kills it: orders on stdin, a forked server for each.

A line of the process is one step here: the server takes them one by one, and before it takes the one that it
is told to it kills itself, or the process and itself, with SIGKILL. A server that comes to the end of its
turn before that says so.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from tests.support.claude_sessions import Room, make_app
from tests.unit.app.desk import ADA, desk
from turnlog.agents.claude.process import ClaudeProcess
from turnlog.log import Log, SqliteStore


class Order(msgspec.Struct):
    """Where to work, what to say, and the line (of the last text's turn) at which to die."""

    folder: str
    texts: list[str]
    dies_at: int
    kills_process: bool = False


class Fuse:
    """Cuts what a process says into lines, and burns with each when it is lit."""

    def __init__(self, order: Order) -> None:
        self._left, self._both = order.dies_at, order.kills_process
        self.lit = False

    def cut(self) -> None:
        pieces = ClaudeProcess.chunks

        async def lines(process: ClaudeProcess) -> AsyncIterator[bytes]:
            rest = b""
            async for piece in pieces(process):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    self.burn(process)
                    yield line + b"\n"
            yield rest

        ClaudeProcess.chunks = lines  # type: ignore[assignment,method-assign]

    def burn(self, process: ClaudeProcess) -> None:
        if self.lit and self._left == 0:
            if self._both:
                os.kill(process.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= self.lit


async def serve(order: Order) -> None:
    folder, fuse = Path(order.folder), Fuse(order)
    fuse.cut()
    log = Log(SqliteStore(folder / "log.db"))
    async with desk(make_app(folder), log=log) as served:
        room = Room(served, await served.sessions.create(ADA, session_id="sess_1"))
        *before, last = order.texts
        for text in before:
            await room.ask(text)
        fuse.lit = True
        await (room.command("summon") if last == "summon" else room.ask(last))
        runner = await room.runner()
        while True:
            seq = runner.tree.last_seq  # before the look: the end may be folded while the log is read
            ends = [end for end in await room.events("agent.end") if not end.depth]
            if len(ends) > len(before) or runner.tree.agents_asking_page():
                break
            await runner.wait_for_seq(seq + 1)
    await log.close()


def main() -> None:
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        child = os.fork()
        if child == 0:
            asyncio.run(serve(order))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
