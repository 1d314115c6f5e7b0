"""The runner of a session that this process owns: follows its log, folds it, and lets the runtime act.

The runner reads the log, keeps the time limits of turns, owns the tasks of the session, and appends with the
fence of its lease. What differs between agents and processes is the `SessionRuntime`. `lock` serialises
everything that reads the open tree and acts on it: the processing of pages and turn time-outs. A runner whose
task fails stops all its tasks and writes nothing more; the next owner continues from the log.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence, Set
from contextlib import AsyncExitStack, suppress
from typing import Any

from msgspec import structs

from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_folds import YIELD_EVERY_EVENTS, SessionFolds
from turnlog.agents.runtime.session_runtime import RunnerOptions, RuntimeDefinition
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.agents.runtime.turn_timeout import Trace, TurnTimers, running_turns
from turnlog.errors import Fenced, SessionClosed, StoreError, Unavailable
from turnlog.events import Event, EventDraft, Payload, ProcessEnd, ProcessStart, Scope, UiMessage, Vocabulary
from turnlog.ids import now_ms
from turnlog.log import AppendResult, Lease, Log, Page, Row
from turnlog.log.wakeup import Wakeup
from turnlog.state.closing import build_recording_closings
from turnlog.state.tree import Tree

log = logging.getLogger("turnlog.agents")

RECORDER_LOST_MESSAGE = "The process that recorded this agent has ended."


def ignore_runner(runner: "SessionRunner") -> None:
    """Do nothing, for runners without a pool."""


class SessionRunner:
    """Runs one session under a lease. `on_change` is called after each page, and when the runner ends."""

    def __init__(
        self,
        log: Log,
        lease: Lease,
        folds: SessionFolds,
        definition: RuntimeDefinition,
        vocabulary: Vocabulary | None = None,
        options: RunnerOptions = RunnerOptions(),  # noqa: B008
    ) -> None:
        self.log = log
        self.lease = lease
        self.session_id = lease.session_id
        self.folds = folds
        self.options = options
        self.writer = SessionWriter(log, lease, folds)
        self.lock = asyncio.Lock()
        self.timers = TurnTimers(options.turn_limit_s, self._on_turn_timeout)
        self.error: BaseException | None = None
        self.processed_seq = lease.seen  # the runtime has reacted to all events up to here
        self.first_unacted_seq: int | None = None  # an answer that the next owner has to act on
        self.release_failed = False  # the lease still names this process
        self.users = 0  # callers that need the runner, although nothing runs
        self.on_change: Callable[[SessionRunner], None] = ignore_runner
        self._tasks: dict[asyncio.Task[Any], Trace] = {}
        self._follow_task: asyncio.Task[None] | None = None
        self._resumed_traces: set[Trace] = set()
        self._is_stopping = False
        self._held_record = AsyncExitStack()
        self._wakeup = Wakeup()
        self._definition = definition
        self.runtime = definition.make_runtime(self, vocabulary)

    @property
    def tree(self) -> Tree:
        return self.folds.tree

    @property
    def has_ended(self) -> bool:
        """Return whether the runner has stopped by itself: it failed, or the session has ended."""
        if self.release_failed:
            return True
        if self._is_stopping or self._follow_task is None:
            return False
        return self._follow_task.done() or self.error is not None

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def has_reached_end(self) -> bool:
        """Return whether the session was closed, or its history was replaced."""
        is_over = self.error is None or isinstance(self.error, SessionClosed)
        return self.has_ended and is_over and not self.release_failed

    @property
    def is_idle(self) -> bool:
        """Return whether no turn runs or is queued."""
        return not self.tree.queued_turns and not self.tree.handoff_targets and self.tree.is_all_waiting

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing would be lost if this process released the session."""
        return self.is_idle and not self.users and not self._tasks and self.runtime.is_quiet

    def has_tasks_beside(self, tasks: Set[asyncio.Task[Any]]) -> bool:
        return not self._tasks.keys() <= tasks

    @property
    def has_processed_writes(self) -> bool:
        """Return whether the runtime has reacted to everything that this runner has appended."""
        return self.processed_seq >= self.writer.last_seq

    @property
    def state(self) -> str:
        """Return what lists of other processes show of the session (`RunnerOptions.describe_state`)."""
        return self.options.describe_state(self)

    # opening and closing

    async def open(self) -> None:
        """Read the log, settle what an earlier owner left open, record this process, and follow the log.

        A closed session is only read.
        """
        await self._held_record.enter_async_context(self.log.hold_record(self.session_id))
        await self.replay_to_head()
        if (await self.log.info(self.session_id)).closed:
            return
        # a turn that only waited has not ended the process of an earlier owner
        self._resumed_traces = running_turns(self.tree)
        # no runtime runs these agents: their process has not released the session, or not in time
        await self.append_closings(lambda: build_recording_closings(self.tree, RECORDER_LOST_MESSAGE))
        await self.runtime.close_interrupted(self.options.on_crash)
        notices = self._start_notices()
        if notices:
            await self.append([EventDraft(notice, Scope(), "system") for notice in notices])
            await self.replay_to_head()
        await self.writer.append_with_rules([], self.replay_to_head, "apply")
        await self.replay_to_head()
        await self._note_progress()
        self._follow_task = asyncio.create_task(self._follow(), context=contextvars.Context())
        self._follow_task.add_done_callback(self._on_follow_done)

    def _start_notices(self) -> list[Payload]:
        """Return the notices of a change of servers: readers see that another process works now."""
        last_server = self.tree.server_process
        if self.options.pid is None or (last_server and last_server.node == self.lease.owner):
            return []
        notices: list[Payload] = []
        if last_server is not None and self.lease.attempts:
            notices.append(ProcessEnd(process="server", reason="process_crash", pid=last_server.pid))
        start = ProcessStart(
            process="server",
            pid=self.options.pid,
            node=self.lease.owner,
            demo_mode=self._definition.demo_mode,
        )
        notices.append(start)
        return notices

    async def close(self, *, is_shutdown: bool = True) -> None:
        """End all work and release the session. Calls that wait stay open for the next owner.

        `is_shutdown`: this process ends, and the log says so, unless other processes share the log: one of
        them continues at once.
        """
        await self._stop_following()
        wakes_next_server = False
        try:
            if self.error is None:
                await self.runtime.stop(self.options.on_crash)
                if is_shutdown and not self.log.is_shared:
                    wakes_next_server = await self._append_process_end()
        except Fenced:
            log.info("another process owns %s now", self.session_id)
        await self.end_tasks()
        self.runtime.abandon()
        await self._held_record.aclose()
        # the next server says that it has started, so that readers see the whole restart
        await self._release_lease(is_due=wakes_next_server or not self.is_idle)

    async def _append_process_end(self) -> bool:
        """Append the end of this server. Return False if the log does not have its start."""
        server = self.tree.server_process
        if server is None or server.node != self.lease.owner:
            return False
        try:
            end = ProcessEnd(process="server", reason="server_shutdown")
            await self.append([EventDraft(end, Scope(), "system")])
        except SessionClosed:
            return False
        await self.replay_to_head()
        return True

    async def _release_lease(self, *, is_due: bool) -> None:
        """End the lease. With `is_due` the session needs the next owner at once."""
        wake_at_ms = now_ms() if is_due else self.runtime.wake_at_ms
        state = self.state
        with suppress(Unavailable):  # the log is closed: its leases have ended with it
            await self.log.leases.release(self.lease, self._acted_seq, wake_at_ms, state)
        self._wakeup.wake()

    @property
    def _acted_seq(self) -> int:
        if self.first_unacted_seq is None:
            return self.processed_seq
        return min(self.processed_seq, self.first_unacted_seq - 1)

    async def _stop_following(self) -> None:
        self._is_stopping = True
        self.timers.update(set())
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.gather(self._follow_task, return_exceptions=True)
        self._wakeup.wake()  # no event is folded from now on: those who wait for one must not wait for ever

    async def save_seen(self) -> None:
        """Store that this owner acts on everything up to the last event: no other owner does it again."""
        await self.log.leases.save_seen(self.lease.owner, {self.session_id: self.tree.last_seq})

    async def confirm_ownership(self) -> None:
        """Return when it is certain that no other process owns the session. Raise `Fenced` if one does."""
        await self.log.leases.confirm(self.lease)

    # following

    async def _follow(self) -> None:
        async with self.lock:
            await self.runtime.resume()
            self.processed_seq = self.tree.last_seq
        self.on_change(self)
        async for page in self.log.follow(self.session_id, self.tree.last_seq):
            async with self.lock:
                await self._process_page(page)
                await self._note_progress()
            self.on_change(self)

    async def _process_page(self, page: Page, ending: Collection[Trace] = ()) -> None:
        for number, row in enumerate(page, 1):
            if number % YIELD_EVERY_EVENTS == 0:
                await asyncio.sleep(0)
            if row.seq <= self.tree.last_seq:
                continue
            if row.live:
                self._skip_live(row)
                self.processed_seq = row.seq
                continue
            envelope, payload = self.folds.decode(row)
            context = self._apply(row, envelope, payload)
            self.timers.update(self.runtime.running_turns)
            if envelope.trace_id not in ending:
                await self.runtime.react(envelope, payload, context)
            self.processed_seq = row.seq
        self._wakeup.wake()
        await self.runtime.on_page_end()

    def _skip_live(self, row: Row) -> None:
        self.folds.skip_live(row)
        if row.seq > self.lease.seen:
            self.options.observer.observe_live(row)

    def _apply(self, row: Row, envelope: Any, payload: Any) -> Any:
        context = self.runtime.inspect(envelope, payload)
        self.folds.apply(row, envelope, payload)
        self.runtime.apply(envelope, payload, context)
        if row.seq > self.lease.seen:  # earlier events were observed by an earlier owner
            self.options.observer.observe(envelope, payload)
        self._wakeup.wake()
        return context

    async def _note_progress(self) -> None:
        """Forget the crashes of earlier owners when the turns that may have caused them have ended."""
        if not self.lease.attempts:
            return
        open_traces = {agent.scope.trace_id for agent in self.tree.open.values()}
        if not self._resumed_traces & open_traces:
            await self.log.leases.reset_attempts(self.lease)
            self.lease = self.lease._replace(attempts=0)

    async def read_to_head(self, ending: Collection[Trace] = ()) -> int:
        """Fold everything that is in the log now, and react to it, except to events of `ending` turns."""
        while page := await self._next_page():
            await self._process_page(page, ending)
        return self.tree.last_seq

    async def replay_to_head(self) -> int:
        """Fold everything that is in the log now, without acting on it. Return the last seq."""
        while page := await self._next_page():
            for number, row in enumerate(page, 1):
                if number % YIELD_EVERY_EVENTS == 0:
                    await asyncio.sleep(0)
                if row.seq <= self.tree.last_seq:
                    continue
                if row.live:
                    self._skip_live(row)
                else:
                    self._apply(row, *self.folds.decode(row))
        return self.tree.last_seq

    async def _next_page(self) -> Page | None:
        """Return events after the last one, without the live events of blocks that have ended."""
        last = self.tree.last_seq
        # the record is in memory: nothing is read at the end of the log
        if last >= await self.log.last_seq(self.session_id):
            return None
        return await self.log.read(self.session_id, last, replay_from=last)

    def _on_follow_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._note_error(task.exception())
        if not self._is_stopping:
            self._abandon_tasks()

    # waiting

    async def wait_for_seq(self, seq: int) -> None:
        """Wait until a seq has been folded. Raise `Unavailable` if the runner ends before."""
        while self.tree.last_seq < seq:
            if self._follow_task is not None and (self._follow_task.done() or self.error is not None):
                raise Unavailable("the session's runner has stopped; try again")
            await self._wakeup.wait()

    async def wait_for_head(self) -> int:
        await self.wait_for_seq(await self.log.last_seq(self.session_id))
        return self.tree.last_seq

    async def wait_until_settled(self, trace: str) -> None:
        """Wait until a turn has ended, or all its agents wait for an answer."""
        while not self.tree.is_settled(trace):
            await self.wait_for_seq(self.tree.last_seq + 1)

    # tasks

    def spawn(self, work: Coroutine[Any, Any, Any], trace: Trace) -> asyncio.Task[Any]:
        """Start a task of the session. If it fails, the runner stops."""
        # an empty context: a turn is not part of the request that happened to start it
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks[task] = trace
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        """Forget a task. If it failed, stop: its events are not in the log, so its turn would never end."""
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        # a task that waits for the runner gets this error when the runner is closed
        if self._is_stopping and isinstance(error, Unavailable):
            return
        if error is not None:
            self._note_error(error)
            self._abandon_tasks()
        else:
            self.on_change(self)

    def _note_error(self, error: BaseException | None) -> None:
        if error is None or self.error is not None:
            return
        self.error = error
        if isinstance(error, Fenced):
            log.info("another process owns %s now", self.session_id)
        elif not isinstance(error, SessionClosed):
            log.error("a session's task failed: %s", error, exc_info=error)

    def _abandon_tasks(self) -> None:
        self.timers.update(set())
        for task in self._tasks:
            task.cancel()
        if self._follow_task is not None:
            self._follow_task.cancel()
        self.runtime.abandon()
        self._wakeup.wake()
        self.on_change(self)

    async def abandon(self) -> None:
        """End all tasks and give up the session without a word: another runner takes it over."""
        await self._stop_following()
        self.runtime.abandon()
        await self.end_tasks()
        await self._held_record.aclose()

    async def end_tasks(self) -> None:
        """Cancel all tasks and wait for them. Nothing is appended."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def cancel_tasks(self, traces: Collection[Trace] | None = None) -> None:
        """Cancel the tasks of some turns, or all, except the current one. Wait for their writes."""
        selected = [task for task, trace in self._tasks.items() if traces is None or trace in traces]
        others = [task for task in selected if task is not asyncio.current_task()]
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.append([])  # an empty append is queued behind theirs

    def _on_turn_timeout(self, trace: Trace) -> None:
        self.spawn(self._time_out_turn(trace), trace)

    async def _time_out_turn(self, trace: Trace) -> None:
        async with self.lock:
            await self.read_to_head()
            if self.timers.is_expired(trace):
                await self.runtime.end_timed_out(trace)

    # appending

    async def append(self, items: Iterable[EventDraft]) -> int:
        return await self.writer.append(items)

    async def append_with_rules(self, items: Sequence[EventDraft]) -> int:
        """Append a batch and the events that rules emit. Return the seq of the batch's own last event."""
        return await self.writer.append_with_rules(items, self.wait_for_head)

    def open_turn(self, message: Event) -> list[Event]:
        """Return the events that start the turn of a message, for a batch that `append_opened` appends.

        Return nothing if the turn has to wait until the runner has read the message.
        """
        # the holder of the lock may be about to stop turns, or to start one
        if self.lock.locked() or not isinstance(message.payload, UiMessage) or message.scope.agent_id:
            return []
        scope = structs.replace(message.scope, actor=None)
        return [self.writer.build_event(item) for item in self.runtime.open_turn(message.payload, scope)]

    async def append_opened(self, events: Sequence[Event], **expected: Any) -> AppendResult:
        """Append a member's batch that ends with the events of `open_turn`."""
        trace = events[-1].scope.trace_id
        append = self.log.submit(self.session_id, events, fence=self.lease.fence, **expected)
        # without the mark of a member's append: a release now would leave the turn without an owner
        self.users += 1
        append.add_done_callback(lambda done: self._on_opened_done(trace, done))
        return await asyncio.shield(append)  # the caller may be cancelled, and the turn starts all the same

    def _on_opened_done(self, trace: Trace, done: asyncio.Future[AppendResult]) -> None:
        self.users -= 1
        error = done.exception()
        if error is None and done.result().new[-1]:
            return
        # the log may have the events all the same: the next runner reads what it has
        if isinstance(error, StoreError | Fenced):
            self._note_error(error)
            self._abandon_tasks()
        elif not self._is_stopping:
            self.spawn(self._withdraw_turn(trace), trace)

    async def _withdraw_turn(self, trace: Trace) -> None:
        async with self.lock:
            await self.runtime.withdraw_turn(trace)

    async def append_closings(
        self,
        closings: Callable[[], list[EventDraft]],
        refresh: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """Append closing events. If an answer arrives at the same moment, refresh and compute them again."""
        refresh = refresh or self.replay_to_head

        async def make_plan() -> AppendPlan | None:
            await self.folds.load_open_texts()
            items = closings()
            if not items:
                return None
            events = [self.writer.build_event(item) for item in items]
            last = self.tree.last_seq
            return AppendPlan(events, last, {"expected_last": last})

        async def catch_up(_: int) -> None:
            await refresh()

        if await append_if_unchanged(self.writer.write, make_plan, catch_up):
            await refresh()
