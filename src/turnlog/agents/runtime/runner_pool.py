"""The runners of a process: claims sessions that need an owner, runs them, and releases those that are quiet.

One task claims sessions that are wanted, whose time to wake has come, or whose owner has died. A runner that
has been quiet for `quiet_s` (no turn runs, no task, no user) is released: its session is claimed again when
an event asks for work. A runner that failed is replaced when the store accepts writes again, or when the
session is used again; it keeps its lease until then.

On a log that several processes share, each claim renews the pool's owner, and the states of its sessions are
stored for the lists of other processes. A pool that drains claims nothing more and hands its sessions over.
"""

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress

from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.errors import Conflict, Fenced, NotFound, SessionDamaged, StoreError, TurnlogError, Unavailable
from turnlog.ids import new_process_id
from turnlog.log import Lease, Log
from turnlog.log.wakeup import Wakeup

log = logging.getLogger("turnlog.agents")

QUIET_S = 60.0  # as long as a person reads before the next message
CLAIM_LIMIT = 100  # sessions of one claim: as many as are opened in a moment
RETRY_S = 1.0  # after a claim that the store refused

MakeRunner = Callable[[Lease], Awaitable[SessionRunner]]


def do_nothing() -> None:
    """For pools whose end concerns no caller."""


class RunnerPool:
    """Owns sessions of a log. `make_runner` builds the runner of a claimed session, which is not open yet."""

    def __init__(
        self,
        log: Log,
        make_runner: MakeRunner,
        apps: Collection[str] | None = None,
        quiet_s: float = QUIET_S,
        owner: str | None = None,
        *,
        ends_processes: bool = False,
    ) -> None:
        """With `ends_processes` a session is released as soon as no turn runs, and its process is ended."""
        self._log = log
        self._make_runner = make_runner
        self._apps = apps
        self._quiet_s = quiet_s
        self._ends_processes = ends_processes
        self.owner = owner or new_process_id()
        self.on_empty: Callable[[], None] = do_nothing
        self._changed = Wakeup()
        self._openings: dict[str, asyncio.Task[SessionRunner]] = {}
        self._releases: dict[str, asyncio.Task[None]] = {}
        self._quiet_timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: Counter[str] = Counter()  # of runners by session, without failures of the store
        self._claim_task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_draining = False
        self._saved_states: dict[str, str] = {}  # of open runners, as other processes see them

    def __len__(self) -> int:
        return len(self._openings)

    # finding

    def find(self, session_id: str) -> SessionRunner | None:
        """Return the runner of a session, if this process runs it now."""
        task = self._openings.get(session_id)
        if task is None or not task.done() or session_id in self._releases:
            return None
        runner = opened_runner(task)
        return runner if runner is not None and not runner.has_ended else None

    def has_failed(self, session_id: str) -> bool:
        """Return whether the session's runner has stopped by itself, so that its turns do not go on."""
        task = self._openings.get(session_id)
        if task is None or not task.done():
            return False
        runner = opened_runner(task)
        return runner is None or runner.has_ended

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[SessionRunner]:
        """Own a session and keep its runner open. Raise `Conflict` if another live process owns it."""
        runner = await self.open(session_id)
        runner.users += 1
        try:
            yield runner
        finally:
            runner.users -= 1
            self._on_change(runner)

    async def open(self, session_id: str) -> SessionRunner:
        """Return the runner of a session; claim the session if this process does not own it."""
        while True:
            releasing = self._releases.get(session_id)
            if releasing is not None:
                await asyncio.shield(releasing)
            runner = self.find(session_id)
            if runner is not None:
                return runner
            task = self._openings.get(session_id)
            if task is None and self._is_draining:
                raise Conflict(f"this process is being stopped: another one runs {session_id}", -1)
            if task is None or task.done():
                task = self._start(session_id, None)
            return await asyncio.shield(task)

    # claiming

    def start(self) -> None:
        """Begin to claim sessions that need an owner."""
        if self._claim_task is None and not self._is_closed:
            self._log.health.on_recovery = self._reopen_failed
            self._claim_task = asyncio.create_task(self._claim_wanted(), context=contextvars.Context())

    async def claim_unowned(self) -> None:
        """Claim sessions whose agents run or wait although they never had an owner: they were imported."""
        session_ids = await self._log.sessions_with_open_agents()
        known = await self._log.leases.states(session_ids)
        for session_id in session_ids:
            if session_id in known:
                continue
            if self._apps is None or (await self._log.info(session_id)).app in self._apps:
                with suppress(TurnlogError):  # it is reported; the next use tries again
                    await self.open(session_id)

    async def _claim_wanted(self) -> None:
        leases = self._log.leases
        while True:
            known_count = leases.wanted_count
            claimed_at_ms = self._log.now_ms()
            try:
                await self._save_states()
                if self._is_draining:
                    await leases.renew(self.owner, is_draining=True)
                    await asyncio.sleep(self._log.claim_poll_s or RETRY_S)
                    continue
                claimed = await self._claim_some()
                for lease in claimed:
                    self._start(lease.session_id, lease)
                if len(claimed) == CLAIM_LIMIT:
                    continue
                timeout_s = await self._next_wake_s(claimed_at_ms)
            except Unavailable:
                return  # the log is closed
            except StoreError as error:
                log.warning("no session can be claimed, the next attempt is in %g s: %s", RETRY_S, error)
                timeout_s = RETRY_S
            await leases.wait_for_wanted(known_count, timeout_s)

    async def _claim_some(self) -> list[Lease]:
        leases = self._log.leases
        claim = asyncio.create_task(leases.claim_wanted(self.owner, self._apps, CLAIM_LIMIT))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            # the pool is being closed, and the store commits the claim all the same: without a release the
            # next owner would count a crash
            with suppress(TurnlogError):
                for lease in await claim:
                    await leases.release(lease, lease.seen, self._log.now_ms())
            raise

    async def _next_wake_s(self, claimed_at_ms: int) -> float | None:
        """Return how long to wait for the next session that has to wake; None if none has to."""
        # what was due at the last claim and was not claimed is not for this process: its application is not
        # served here, or the session is closed
        wake_at_ms = await self._log.leases.next_wake_ms(claimed_at_ms)
        wake_s = None if wake_at_ms is None else max(0.0, (wake_at_ms - self._log.now_ms()) / 1000)
        times_s = [time_s for time_s in (wake_s, self._log.claim_poll_s) if time_s is not None]
        return min(times_s, default=None)

    async def _save_states(self) -> None:
        """Store the states of sessions that have changed since the last time, for other processes."""
        if not self._log.is_shared:
            return
        states: dict[str, str] = {}
        for session_id in self._openings:
            runner = self.find(session_id)
            if runner is not None:
                states[session_id] = runner.state
        changed = {
            session_id: state
            for session_id, state in states.items()
            if self._saved_states.get(session_id) != state
        }
        self._saved_states = states
        if changed:
            await self._log.leases.save_states(self.owner, changed)

    def _start(self, session_id: str, lease: Lease | None) -> asyncio.Task[SessionRunner]:
        # an empty context: the runner keeps nothing of the request that happened to open it
        earlier = self._openings.get(session_id)
        self._cancel_quiet_timer(session_id)
        opening = self._open_runner(session_id, lease, earlier)
        task = asyncio.create_task(opening, context=contextvars.Context())
        self._openings[session_id] = task
        task.add_done_callback(lambda done: self._on_opened(session_id, done))
        return task

    async def _open_runner(
        self, session_id: str, lease: Lease | None, earlier: asyncio.Task[SessionRunner] | None
    ) -> SessionRunner:
        if earlier is not None:
            newer = await self._end_earlier(session_id, earlier, lease)
            if newer is not None:
                return newer
        last_damage: SessionDamaged | None = None
        while True:
            if lease is None:
                lease = await self._log.leases.claim(session_id, self.owner)
            if lease is None:
                raise Conflict(f"another process owns {session_id}", await self._log.last_seq(session_id))
            crashes = max(lease.attempts, self._failures[session_id])
            runner = await self._make_runner(lease._replace(attempts=crashes))
            runner.on_change = self._on_change
            try:
                await runner.open()
            except SessionDamaged as damage:
                # the damage is recorded now, and the next read skips it; the same damage again is final
                if last_damage is not None and last_damage.args == damage.args:
                    raise
                last_damage, lease = damage, None
            else:
                return runner

    async def _end_earlier(
        self, session_id: str, earlier: asyncio.Task[SessionRunner], lease: Lease | None
    ) -> SessionRunner | None:
        """End the earlier runner of a session. Return it if it shall go on."""
        releasing = self._releases.get(session_id)
        if releasing is not None:
            await asyncio.shield(releasing)
        await asyncio.wait([earlier])
        runner = opened_runner(earlier)
        if runner is None:
            return None
        if not runner.has_ended and not runner.is_stopping:
            # `open` has claimed the session after the claim of `lease`. Otherwise this process had lost the
            # session without noticing, and has got it again: what the runner does is refused.
            if lease is None or runner.lease.fence >= lease.fence:
                return runner
            await runner.abandon()
        elif runner.has_ended:
            await runner.abandon()
            if runner.error is not None and not isinstance(runner.error, StoreError | Fenced):
                self._failures[session_id] += 1
        return None

    def _on_opened(self, session_id: str, task: asyncio.Task[SessionRunner]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._on_change(task.result())
        elif isinstance(error, Conflict | NotFound | Fenced):
            if self._openings.get(session_id) is task:
                self._forget(session_id)  # it is not ours
        elif not isinstance(error, Unavailable):
            log.error("%s cannot be run: %s", session_id, error, exc_info=error)

    # releasing

    def _on_change(self, runner: SessionRunner) -> None:
        """Start the time after which a quiet runner is released; stop it if the runner works again."""
        session_id = runner.session_id
        self._changed.wake()
        task = self._openings.get(session_id)
        if self._is_closed or task is None or not task.done() or opened_runner(task) is not runner:
            return
        self._cancel_quiet_timer(session_id)
        if not runner.lease.attempts:
            self._failures.pop(session_id, None)  # the turns that failed an earlier runner have ended
        if runner.has_ended:
            self._forget_ended(runner)
        elif self._is_draining:
            self._release_if_handed_over(runner)
        elif self._is_releasable(runner):
            loop = asyncio.get_running_loop()
            self._quiet_timers[session_id] = loop.call_later(self._quiet_s, self._release_if_quiet, runner)

    def _cancel_quiet_timer(self, session_id: str) -> None:
        timer = self._quiet_timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()

    def _forget_ended(self, runner: SessionRunner) -> None:
        """Drop the runner of a session that has ended or has another owner. Keep one that failed."""
        if isinstance(runner.error, Fenced):
            self._forget(runner.session_id)
        elif runner.has_reached_end:
            self._begin_release(runner)

    def _is_releasable(self, runner: SessionRunner) -> bool:
        if runner.users:
            return False
        return runner.is_idle if self._ends_processes else runner.is_quiet

    def _release_if_quiet(self, runner: SessionRunner) -> None:
        self._quiet_timers.pop(runner.session_id, None)
        if self._is_releasable(runner) and not runner.has_ended:
            self._begin_release(runner)

    def _begin_release(self, runner: SessionRunner) -> None:
        session_id = runner.session_id
        if session_id not in self._releases:
            self._releases[session_id] = asyncio.create_task(
                self._release(runner), context=contextvars.Context()
            )

    async def _release(self, runner: SessionRunner) -> None:
        try:
            await runner.close(is_shutdown=False)
        except Unavailable:
            pass  # the log is closed: its leases have ended with it
        except StoreError as error:
            # the lease still names this process: it opens the session again, and releases it later
            runner.release_failed = True
            asyncio.get_running_loop().call_later(RETRY_S, self.retry, runner.session_id)
            log.warning("%s cannot be released: %s", runner.session_id, error)
        finally:
            del self._releases[runner.session_id]
            task = self._openings.get(runner.session_id)
            # the session may have been claimed again already: then its next runner waits for this release
            is_last = task is not None and task.done() and opened_runner(task) is runner
            if is_last and not runner.release_failed:
                self._forget(runner.session_id)

    async def give_up(self, session_id: str) -> bool:
        """Release a session now, if nothing runs in it. Return whether this process does not run it."""
        opening = self._openings.get(session_id)
        if opening is None:
            return True
        await asyncio.wait([opening])
        runner = self.find(session_id)
        if runner is not None:
            with suppress(Unavailable):
                await runner.wait_for_head()
            if not self._is_releasable(runner):
                return False
            self._begin_release(runner)
        releasing = self._releases.get(session_id)
        if releasing is not None:
            await asyncio.shield(releasing)
        return session_id not in self._openings

    def _forget(self, session_id: str) -> None:
        self._openings.pop(session_id, None)
        self._failures.pop(session_id, None)
        self._changed.wake()
        if not self._openings:
            self.on_empty()

    async def wait_released(self, session_id: str) -> None:
        """Wait until a session is released, unless its runner is used, has failed, or a turn runs in it."""
        runner = self.find(session_id)
        if runner is not None:
            with suppress(Unavailable):
                await runner.wait_for_head()
        while session_id in self._openings and not self.has_failed(session_id):
            if runner is not None and (runner.users or not runner.is_idle):
                return
            await self._changed.wait()

    def _reopen_failed(self) -> None:
        """Replace the runners that have failed: the store accepts writes again."""
        for session_id in list(self._openings):
            self.retry(session_id)

    def retry(self, session_id: str) -> None:
        """Replace the runner of a session if it has failed."""
        if self._is_closed:
            return
        if session_id not in self._releases and self.has_failed(session_id):
            self._start(session_id, None)

    # draining

    async def drain(self, timeout_s: float) -> None:
        """Claim nothing more, and hand every session over when it is between two steps of its turns.

        Return when this process owns no session any more, or after the timeout. What still runs then is for
        `close`.
        """
        self._is_draining = True
        self._log.leases.work_wakeup.wake()  # other processes have to know before they claim
        for task in list(self._openings.values()):
            runner = opened_runner(task) if task.done() else None
            if runner is not None:
                runner.runtime.hand_over()
                self._on_change(runner)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._openings:
                    await self._changed.wait()

    def _release_if_handed_over(self, runner: SessionRunner) -> None:
        runner.runtime.hand_over()  # it may have been opened since the drain began
        if not runner.users and runner.runtime.is_between_steps:
            self._begin_release(runner)

    # closing

    async def close(self) -> None:
        """End all work and release every session. Raise the first error, but not that the store is away."""
        self._is_closed = True
        self._log.health.on_recovery = lambda: None
        if self._claim_task is not None:
            self._claim_task.cancel()
            await asyncio.gather(self._claim_task, return_exceptions=True)
        for timer in self._quiet_timers.values():
            timer.cancel()
        self._quiet_timers.clear()
        await asyncio.gather(*self._releases.values(), return_exceptions=True)
        opened = await asyncio.gather(*self._openings.values(), return_exceptions=True)
        runners = [runner for runner in opened if isinstance(runner, SessionRunner)]
        closings = [asyncio.create_task(runner.close(), context=contextvars.Context()) for runner in runners]
        errors = await asyncio.gather(*closings, return_exceptions=True)
        for runner, error in zip(runners, errors, strict=True):
            if isinstance(error, Unavailable):
                # Nothing is lost, as after a crash: what was acknowledged is stored.
                log.warning("%s: %s; the next owner continues its turns", runner.session_id, error)
            elif error is not None:
                raise error
        self._openings.clear()


def opened_runner(task: asyncio.Task[SessionRunner]) -> SessionRunner | None:
    """Return the runner of an opening that is done; None if it failed."""
    if task.cancelled() or task.exception() is not None:
        return None
    return task.result()
