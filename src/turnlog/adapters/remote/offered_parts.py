"""The parts of an application that workers in other processes run, in the order in which they were offered.

A worker asks with `wait_for_news` what there is to do, and names what it holds. The answer says what is, not
what has changed: an answer that is lost is given again. Parts belong to this process.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from turnlog.adapters.remote.part_messages import AnswerMessage
from turnlog.adapters.remote.remote_part import NOT_HELD, PartState, RemotePart, WorkerKey
from turnlog.adapters.runner import PartOffer
from turnlog.errors import Fenced, Unavailable

POLLS_PER_LEASE = 3  # two answers may be lost


class HeldPart(NamedTuple):
    """A part that a worker has, and the numbers of its questions that have no answer yet."""

    part: str
    asks: Sequence[int] = ()


class AnsweredAsk(NamedTuple):
    part: str
    ask: int
    answers: list[AnswerMessage]


class WorkNews(NamedTuple):
    """What a worker has to do: parts that it may take, parts to end, and answers to its questions."""

    offers: list[str]
    stopped: list[str]
    answers: list[AnsweredAsk]

    @property
    def is_empty(self) -> bool:
        return not self.offers and not self.stopped and not self.answers


class OfferedParts:
    """All parts of one application in this process, until they end."""

    def __init__(self, name: str, lease_s: float) -> None:
        self.lease_s = lease_s
        self._name = name
        self._parts: dict[str, RemotePart] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, offer: PartOffer) -> RemotePart:
        part = RemotePart(offer, self._name, self.lease_s, self._wake)
        if self._is_closed:
            part.release_stop()
        self._parts[part.id] = part
        self._wake()
        return part

    def remove(self, part: RemotePart) -> None:
        del self._parts[part.id]
        part.end()

    def find(self, part_id: str) -> RemotePart:
        """Return a part. Raise `Fenced` if it is over, or never was."""
        part = self._parts.get(part_id)
        if part is None:
            raise Fenced(NOT_HELD)
        return part

    async def wait_for_news(self, worker: WorkerKey, free: int, holds: Sequence[HeldPart]) -> WorkNews:
        """Renew what a worker holds, and return what it has to do; nothing after a third of the lease."""
        for held in holds:
            part = self._parts.get(held.part)
            if part is not None:
                part.renew(worker)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.lease_s / POLLS_PER_LEASE):
                while (news := self._look(worker, free, holds)).is_empty:
                    await self._wait_for_change()
                return news
        return self._look(worker, free, holds)

    def _look(self, worker: WorkerKey, free: int, holds: Sequence[HeldPart]) -> WorkNews:
        if self._is_closed:
            raise Unavailable("the server is being stopped; try again")
        stopped: list[str] = []
        answers: list[AnsweredAsk] = []
        for held in holds:
            part = self._parts.get(held.part)
            is_mine = part is not None and part.holder in (None, worker)
            if part is None or not is_mine or part.state in (PartState.STOPPING, PartState.ENDED):
                stopped.append(held.part)
                continue
            answers += [
                AnsweredAsk(part.id, ask, part.answers[ask]) for ask in held.asks if ask in part.answers
            ]
        held_ids = {held.part for held in holds}
        offers = [
            part.id
            for part in self._parts.values()
            if part.state is PartState.OFFERED and part.id not in held_ids
        ]
        return WorkNews(offers[:free], stopped, answers)

    async def _wait_for_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def open(self) -> None:
        """Answer workers: the server has started."""
        self._is_closed = False

    def close(self) -> None:
        """End all waiting requests: the server is being stopped."""
        self._is_closed = True
        for part in self._parts.values():
            part.release_stop()
        self._wake()
