"""Appends without pause, and a record of what was acknowledged: what a failover must not lose."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from turnlog.log import Log
from turnlog.testing.factories import durable_event

SESSIONS = [f"sess_load-{number}" for number in range(6)]


@dataclass
class Acknowledged:
    """The seq of every acknowledged event, by session and event id."""

    seqs: dict[tuple[str, str], int] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, session_id: str, event_id: str, seq: int) -> None:
        self.seqs[session_id, event_id] = seq
        self.changed.set()


@dataclass(frozen=True)
class Losses:
    """How a log differs from what was acknowledged."""

    lost: int
    doubled: int
    moved: int
    gaps: int


class Load:
    """Writers that append one event after the other to sessions, until `stop`."""

    def __init__(self, log: Log, name: str = "load") -> None:
        self.acknowledged = Acknowledged()
        self._log = log
        self._name = name
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for session_id in SESSIONS:
            await self._log.create("cluster", session_id)
        self._tasks = [asyncio.create_task(self._write(session_id)) for session_id in SESSIONS]
        for task in self._tasks:
            task.add_done_callback(lambda _: self.acknowledged.changed.set())

    async def _write(self, session_id: str) -> None:
        number = 0
        while not self._is_stopping:
            event = durable_event(f"{self._name}-{session_id[5:]}-{number}")
            result = await self._log.append(session_id, [event])
            self.acknowledged.add(session_id, event.id, result.seqs[0])
            number += 1

    async def wait_for_more(self, number: int) -> None:
        """Wait until so many more events are acknowledged. Raise what a writer has raised."""
        goal = len(self.acknowledged.seqs) + number
        while len(self.acknowledged.seqs) < goal:
            for task in self._tasks:
                if task.done():
                    task.result()
            self.acknowledged.changed.clear()
            await self.acknowledged.changed.wait()

    async def stop(self) -> None:
        """Let each writer end its append. Raise what a writer has raised."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)


async def find_losses(log: Log, acknowledged: Acknowledged) -> Losses:
    """Read everything and compare it with what was acknowledged."""
    places: dict[tuple[str, str], int] = {}
    copies: Counter[tuple[str, str]] = Counter()
    gaps = 0
    for session_id in SESSIONS:
        seqs = []
        async for entry in log.events(session_id):
            places[session_id, entry.id] = entry.seq
            copies[session_id, entry.id] += 1
            seqs.append(entry.seq)
        gaps += seqs != list(range(len(seqs)))
    stored = acknowledged.seqs.keys() & places.keys()
    return Losses(
        lost=len(acknowledged.seqs) - len(stored),
        doubled=sum(number - 1 for number in copies.values()),
        moved=sum(acknowledged.seqs[key] != places[key] for key in stored),
        gaps=gaps,
    )
