"""The output of one part: what a framework reports goes through a translator into the log.

Reports may come from any thread: the translator always runs on the thread of the session's runner. `report`
returns when durable events are in the log; deltas follow soon, merged while a write is under way, and never
more than `MAX_PENDING_CHARS` are pending. After `close` nothing more is written: the part was cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from turnlog.adapters.runner import Answer, CallKey, Question
from turnlog.agents.runtime.delta_writer import MAX_PENDING_CHARS
from turnlog.events import BlockDelta, EventDraft
from turnlog.parse import AgentEventBuilder, RuntimeAgent

AppendBatch = Callable[[Sequence[EventDraft]], Awaitable[Any]]
AskPeople = Callable[["PartOutput", Sequence[Question]], Awaitable[Mapping[CallKey, Answer]]]


class PartOutput:
    """Appends the events of one part. `builder` has the agents of the turn; `root` answers the user."""

    def __init__(self, builder: AgentEventBuilder, append: AppendBatch, ask: AskPeople) -> None:
        self.builder = builder
        self.saved_state: bytes | None = None
        self.has_asked = False
        self.open_questions: set[CallKey] = set()  # that people were asked while the part runs
        self._append = append
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._pending: list[EventDraft] = []
        self._writer: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def root(self) -> RuntimeAgent:
        """Return the agent that answers the user: after a hand-off, the one that took over."""
        return next(agent for agent in self.builder.open_agents if agent.caller is None)

    def find_agent(self, agent_id: str) -> RuntimeAgent | None:
        return next((agent for agent in self.builder.open_agents if agent.agent_id == agent_id), None)

    def save_state(self, state: bytes) -> None:
        """Keep what the next turn needs, in case that this part is stopped or fails."""
        self.saved_state = state

    async def ask(self, questions: Sequence[Question]) -> Mapping[CallKey, Answer]:
        """Ask people, and wait for all answers while the part goes on running.

        For questions that a framework cannot store: if the process ends meanwhile, the turn is closed.
        """
        if asyncio.get_running_loop() is not self._loop:
            asking = asyncio.run_coroutine_threadsafe(self.ask(questions), self._loop)
            return await asyncio.wrap_future(asking)
        self.has_asked = True
        return await self._ask(self, questions)

    async def report(self, feed: Callable[..., object], *values: Any) -> None:
        """Pass values to a translator's method, and append what it builds."""
        if asyncio.get_running_loop() is not self._loop:
            # a tool in a thread has started an agent in a loop of its own
            feeding = asyncio.run_coroutine_threadsafe(self.report(feed, *values), self._loop)
            await asyncio.wrap_future(feeding)
            return
        if not self._is_closed:
            feed(*values)
            await self.flush()

    async def flush(self) -> None:
        """Append what the builder has. Wait until it is in the log, unless it is only deltas."""
        items = self.builder.take_output()
        self._pending += items
        if self._pending and self._writer is None:
            self._writer = asyncio.create_task(self._write_pending())
        is_urgent = any(not item.payload.LIVE for item in items)
        if self._writer is not None and (is_urgent or self._has_much_pending):
            await self._wait_for_writer()

    @property
    def _has_much_pending(self) -> bool:
        chars = sum(len(item.payload.text) for item in self._pending if isinstance(item.payload, BlockDelta))
        return chars > MAX_PENDING_CHARS

    async def _write_pending(self) -> None:
        while self._pending:
            batch = merge_deltas(self._pending)
            self._pending = []
            await self._append(batch)
        self._writer = None

    async def _wait_for_writer(self) -> None:
        if self._writer is not None:
            # shielded: one agent that is cancelled must not cut off the write of another
            await asyncio.shield(self._writer)

    async def take_rest(self) -> list[EventDraft]:
        """Wait for the writes under way. Return what is not written, for an append of the caller."""
        await self._wait_for_writer()
        return self.builder.take_output()

    async def close(self) -> None:
        """Drop what is not written. What is open in the log is closed from the log."""
        self._is_closed = True
        self._pending = []
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)


def merge_deltas(items: Sequence[EventDraft]) -> list[EventDraft]:
    """Join neighbouring deltas of one block."""
    merged: list[EventDraft] = []
    pieces: list[str] = []
    last: EventDraft | None = None
    for item in items:
        is_same_block = (
            last is not None
            and isinstance(last.payload, BlockDelta)
            and isinstance(item.payload, BlockDelta)
            and item.payload.block_id == last.payload.block_id
        )
        if is_same_block and isinstance(item.payload, BlockDelta):
            pieces.append(item.payload.text)
            continue
        _join_pieces(merged, pieces)
        merged.append(item)
        last = item
        pieces = [item.payload.text] if isinstance(item.payload, BlockDelta) else []
    _join_pieces(merged, pieces)
    return merged


def _join_pieces(merged: list[EventDraft], pieces: list[str]) -> None:
    if len(pieces) > 1:
        last = merged[-1]
        assert isinstance(last.payload, BlockDelta)
        delta = BlockDelta(block_id=last.payload.block_id, text="".join(pieces))
        merged[-1] = EventDraft(delta, last.scope, last.origin)
