"""Stores around a store: one that counts its calls, one that can be made to wait. And how async tests run."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, cast

import pytest

from tests.support.limits import HANG_S
from tests.support.transact import transact
from turnlog.log import Log, Row, Store
from turnlog.testing.harness import open_follower

P = ParamSpec("P")


THREAD_DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
PLACES = ("has_event", "oldest_open_turn_start", "turn_bounds", "span_end")
READS = ("info", "sessions", "read", *PLACES, "sessions_with_open_agents", "documents", "snapshot")


def scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, as a plain function with an end."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), HANG_S))

    return run


class Counting:
    """Counts the calls of a store."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()

    @property
    def store(self) -> Store:
        """As what it stands for."""
        return cast(Store, self)

    @property
    def reads(self) -> int:
        """How often somebody read."""
        return sum(self.calls[name] for name in READS)

    @property
    def max_batch(self) -> int:
        """As many as the store itself takes."""
        return self.inner.max_batch

    @property
    def reconcile_s(self) -> float | None:
        """As the store itself."""
        return self.inner.reconcile_s

    @property
    def lease_s(self) -> float | None:
        """As the store itself."""
        return self.inner.lease_s

    @property
    def reader_threads(self) -> int:
        """As a store that may make its readers wait."""
        return 2

    def __getattr__(self, name: str) -> Any:
        getattr(self.inner, name)  # an ability that the store does not have
        return partial(self._call, name)

    def _call(self, name: str, *args: Any) -> Any:
        self.calls[name] += 1
        return getattr(self.inner, name)(*args)


class Gate:
    """A call that has its answer and does not give it yet."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    async def reached(self) -> None:
        """Wait until the call is at the gate."""
        assert await asyncio.to_thread(self._reached.wait, HANG_S)

    def open(self) -> None:
        """Let it go on."""
        self._open.set()

    def hold(self) -> None:
        """Called by whoever is held."""
        self._reached.set()
        assert self._open.wait(HANG_S)


class Gated(Counting):
    """A store whose calls can be held back, with the answer of their time."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._gates: dict[str, list[Gate | None]] = {}

    def gate(self, name: str, skip: int = 0) -> Gate:
        """Hold the next call of a name, after letting some pass."""
        gate = Gate()
        self._gates.setdefault(name, []).extend([*[None] * skip, gate])
        return gate

    def _call(self, name: str, *args: Any) -> Any:
        answer = super()._call(name, *args)
        if self._gates.get(name) and (gate := self._gates[name].pop(0)):
            gate.hold()
        return answer


async def all_pages(log: Log, session: str, after: int = -1, **options: Any) -> list[Row]:
    """Everything a follower gets until it ends."""
    async with open_follower(log, session, after, **options) as pages:
        return [row async for page in pages for row in page]


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until something is so."""
    while not condition():  # noqa: ASYNC110  # nothing to wait on: what is looked at has no signal of its own
        await asyncio.sleep(0)


@asynccontextmanager
async def held(log: Log) -> AsyncIterator[Gate]:
    """Keep the writer busy: what is submitted meanwhile waits, and is one group when it is let go."""
    gate = Gate()
    job = asyncio.create_task(transact(log, lambda _: gate.hold()))
    await gate.reached()
    try:
        yield gate
    finally:
        gate.open()
        await job


async def soon(what: Awaitable[Any]) -> Any:
    """What a bug would make wait for ever."""
    return await asyncio.wait_for(what, HANG_S)
