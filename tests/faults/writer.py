"""A writer that is there to be killed: `python -m tests.faults.writer`.

Each line on stdin is an order, `{"path", "life", "retry"}`. For each this process forks a child (imports are
paid once; there are no threads to lose), which appends to several sessions at once until it is killed, and
says on stdout what it does: `pid`, then `made` for sessions, `try` before and `ack` after each append. When
the child is dead this process says `dead`. A line is one write, so none is ever half there.
"""

import asyncio
import os
import signal
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.faults.sample import turn
from tests.support.limits import HANG_S
from turnlog.errors import Conflict
from turnlog.events import Event
from turnlog.log import Log, SqliteStore

SESSIONS = [f"sess_{number}" for number in range(4)]
BATCHES = 2000  # per session and life; the killer comes long before


class Order(msgspec.Struct):
    """What a child is to do; `retry` is what the one before it tried and never heard about."""

    path: str
    life: int
    retry: list[tuple[str, str]]


def batch(name: str) -> list[Event]:
    """The events of an append: 1 to 8, durable and live ones."""
    return turn(name)[: zlib.crc32(name.encode()) % 8 + 1]


def say(**what: object) -> None:
    os.write(1, msgspec.json.encode(what) + b"\n")


async def append(log: Log, session: str, name: str) -> None:
    events = batch(name)
    say(attempt=[session, name])
    seqs = (await log.append(session, events)).seqs
    say(ack=[session, name], ids=[event.id for event in events], seqs=seqs)


async def one_session(log: Log, session: str, life: int) -> None:
    with suppress(Conflict):  # it is there since an earlier life
        await log.create("faults", session)
    say(made=session)
    for number in range(BATCHES):
        await append(log, session, f"{session[5:]}_{life}_{number}")


async def child(order: Order) -> None:
    log = Log(SqliteStore(Path(order.path)))
    for session, name in order.retry:
        await append(log, session, name)
    async with asyncio.TaskGroup() as tasks:
        for session in SESSIONS:
            tasks.create_task(one_session(log, session, order.life))


def main() -> None:
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(HANG_S))  # a child that is not killed
            say(pid=os.getpid())
            asyncio.run(child(order))
            os._exit(0)
        say(dead=os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
