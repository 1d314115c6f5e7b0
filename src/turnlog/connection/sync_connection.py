"""The same connection for programs without an event loop: each call runs on a loop in a thread of its own."""

import asyncio
from collections.abc import AsyncIterable, Coroutine, Iterator, Mapping, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from turnlog.adapters.foreign_agent import ForeignAgent
from turnlog.connection.event_follower import HistoryReset
from turnlog.connection.server_connection import (
    MAX_PARTS,
    PAGE_SESSIONS,
    MessageReceipt,
    ServerConnection,
    SessionOverview,
    WaitingCall,
    connect,
)
from turnlog.errors import CallerError
from turnlog.events import Entry

T = TypeVar("T")


def connect_sync(url: str, token: str | None = None, **options: Any) -> "SyncConnection":
    """Return a connection whose methods block. See `connect`."""
    return SyncConnection(connect(url, token, **options))


class SyncConnection:
    """A server for a program without an event loop. Close it with `close`, or use it with `with`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="turnlog-connection", daemon=True)
        self._thread.start()

    def __enter__(self) -> "SyncConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        self._run(self._connection.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise CallerError("the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _iterate(self, items: AsyncIterable[T]) -> Iterator[T]:
        iterator = aiter(items)

        async def take() -> T:
            return await anext(iterator)

        try:
            while True:
                try:
                    item = self._run(take())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None and not self._loop.is_closed():
                self._run(close())

    def sessions(self, page_size: int = PAGE_SESSIONS) -> Iterator[SessionOverview]:
        return self._iterate(self._connection.sessions(page_size))

    def session(self, session: str) -> SessionOverview:
        return self._run(self._connection.session(session))

    def create(self, app: str | None = None, title: str | None = None, *, key: str | None = None) -> str:
        return self._run(self._connection.create(app, title, key=key))

    def send(
        self,
        session: str,
        text: str,
        *,
        key: str | None = None,
        target: str | None = None,
        channel: str | None = None,
        traceparent: str | None = None,
    ) -> MessageReceipt:
        sending = self._connection.send(
            session, text, key=key, target=target, channel=channel, traceparent=traceparent
        )
        return self._run(sending)

    def post(
        self, session: str, type: str, payload: Mapping[str, Any], *, event_id: str | None = None
    ) -> int:
        return self._run(self._connection.post(session, type, payload, event_id=event_id))

    def pending_calls(self, session: str) -> list[WaitingCall]:
        return self._run(self._connection.pending_calls(session))

    def answer(self, session: str, call_id: str, value: Any) -> int:
        return self._run(self._connection.answer(session, call_id, value))

    def submit(self, session: str, call_id: str, values: Mapping[str, Any]) -> int:
        return self._run(self._connection.submit(session, call_id, values))

    def approve(self, session: str, call_id: str, notes: str | None = None) -> int:
        return self._run(self._connection.approve(session, call_id, notes))

    def deny(self, session: str, call_id: str, notes: str | None = None) -> int:
        return self._run(self._connection.deny(session, call_id, notes))

    def stop(self, session: str) -> int:
        return self._run(self._connection.stop(session))

    def follow(
        self,
        session: str,
        after: str | int | None = None,
        *,
        types: Sequence[str] = (),
        turn: str | None = None,
    ) -> Iterator[Entry | HistoryReset]:
        """Yield events as `ServerConnection.follow` does; each step blocks until one arrives."""
        return self._iterate(self._connection.follow(session, after, types=types, turn=turn))

    def serve(self, app: str, agent: ForeignAgent, *, max_parts: int = MAX_PARTS) -> None:
        """Answer the sessions of an application, until an interrupt (Ctrl+C) ends it.

        The agent runs in the thread of this connection. See `ServerConnection.serve`.
        """
        serving = asyncio.run_coroutine_threadsafe(
            start_task(self._connection.serve(app, agent, max_parts=max_parts)), self._loop
        ).result()
        try:
            self._run(wait_for_end(serving))
        except KeyboardInterrupt:
            serving_end = self._run(cancel_and_wait(serving))
            if serving_end is not None:
                raise serving_end from None
            raise


async def start_task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    return asyncio.create_task(work)


async def wait_for_end(task: "asyncio.Task[T]") -> T:
    return await asyncio.shield(task)


async def cancel_and_wait(task: "asyncio.Task[Any]") -> BaseException | None:
    """Cancel a task and wait until it has ended. Return what it raised; None if it was cancelled."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
