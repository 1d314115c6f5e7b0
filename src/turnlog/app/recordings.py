"""Recordings: agents that run in another process, whose events a principal of the role `source` sends.

A recording owns its session under a lease of the log, so no runtime of this server runs there meanwhile. Each
request renews it. A recording that is silent for `LEASE_S` is ended: the session is released and due at once,
and the runner that claims it closes the agents that are still open. Its later requests are refused, also
those that were on their way: they raise `Fenced`.

The server decides origin, depth, turn, channel and actor of what it stores. A recording may write about its
own open agents only, each call gets one result, and each agent one end. An event id that the log has already
changes nothing. Recordings belong to this process: after a restart, and at another server of a shared log,
they are refused; what they left open is closed.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from turnlog.agents.runtime.no_runners import NoRunners
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import RECORDER_LOST_MESSAGE
from turnlog.app.client_events import RESERVED_ID_PATTERN, check_images
from turnlog.app.membership import Membership
from turnlog.errors import Conflict, Fenced, Forbidden, InvalidEvent, StoreError, UnknownType, quote
from turnlog.events import (
    AgentCheckpoint,
    AgentEnd,
    AgentStart,
    Catalog,
    Event,
    EventDraft,
    Origin,
    Payload,
    Scope,
    ToolCall,
    ToolResult,
    UiMessage,
)
from turnlog.events.roles import SOURCE
from turnlog.ids import new_id
from turnlog.log import Lease, Log, SessionRecord
from turnlog.parse.open_agents import ORIGIN_BY_PAYLOAD
from turnlog.state.closing import build_recording_closings
from turnlog.state.tree import Tree

log = logging.getLogger("turnlog.app")

LEASE_S = 30.0  # a recorder renews three times in it; as long as a person waits for a turn that hangs

# What a recording may write: what models say, what tools do, what agents are. A checkpoint is left out: its
# blob is private, and only a runtime of this server stores one.
RECORDABLE_PREFIXES = ("agent.", "assistant.", "block.", "tool.")
RECORDABLE_TYPES = frozenset({"approval.request", "parse.reject", "session.error", "context.compact"})
CLAIM_ATTEMPTS = 3  # this process may claim the session at the same moment, for a message that has arrived
RUNNING_STATE = '{"running":[""]}'  # what lists show of a session while it is recorded


class RecordedEvent(NamedTuple):
    """An event as a recorder sends it. `trace_id` and `channel` count for a message and a first agent."""

    type: str
    payload: dict[str, Any]
    id: str
    path: str = "$"
    agent_id: str | None = None
    trace_id: str | None = None
    channel: str | None = None


class RecordingState(NamedTuple):
    """What a recorder needs to know: its fence, the last seq of the log, and how long its lease lasts."""

    fence: int
    last: int
    lease_s: float


class FindFolds(Protocol):
    async def __call__(self, record: SessionRecord) -> SessionFolds: ...


@dataclass(slots=True)
class OpenRecording:
    lease: Lease
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None
    renewal_count: int = 0


class Recordings:
    """The recordings of this process, one for each session."""

    def __init__(self, log: Log, runners: RunnerPool | NoRunners, find_folds: FindFolds) -> None:
        self._log = log
        self._runners = runners
        self._find_folds = find_folds
        self._lease_s = LEASE_S
        self._open: dict[str, OpenRecording] = {}
        self._begin_locks: dict[str, asyncio.Lock] = {}
        self._expiries: set[asyncio.Task[None]] = set()

    async def begin(self, membership: Membership, recorder: str) -> RecordingState:
        """Let a recorder own a session. Raise `Conflict` while a turn or another recorder runs in it.

        The same recorder may ask again: it gets the fence that it has.
        """
        require_source(membership)
        session_id = membership.session_id
        owner = make_owner(membership, recorder)
        lock = self._begin_locks.setdefault(session_id, asyncio.Lock())
        try:
            async with lock:
                recording = self._open.get(session_id)
                if recording is None:
                    recording = await self._claim(membership, owner)
                elif recording.lease.owner != owner:
                    last = await self._log.last_seq(session_id)
                    raise Conflict("another recorder runs in this session", last)
        finally:
            if not lock.locked():
                self._begin_locks.pop(session_id, None)
        self._restart_timer(recording)
        return await self._state_of(recording)

    async def _claim(self, membership: Membership, owner: str) -> OpenRecording:
        session_id = membership.session_id
        lease = None
        for _ in range(CLAIM_ATTEMPTS):
            if not await self._runners.give_up(session_id):
                break
            lease = await self._log.leases.claim(session_id, owner)
            if lease is not None or await self._log.leases.owner_of(session_id) != self._runners.owner:
                break
            await self._runners.open(session_id)  # this process has just claimed it
        if lease is None:
            raise Conflict("a turn runs in this session", await self._log.last_seq(session_id))
        recording = OpenRecording(lease)
        self._open[session_id] = recording
        await self._log.leases.save_states(owner, {session_id: RUNNING_STATE})
        await self._close_leftovers(membership, lease)
        return recording

    async def _close_leftovers(self, membership: Membership, lease: Lease) -> None:
        """Close the agents of an earlier recording that no runner has closed yet."""
        folds = await self._find_folds(membership.record)
        await folds.load_open_texts()
        catalog = membership.app.catalog
        closings = build_recording_closings(folds.tree, RECORDER_LOST_MESSAGE)
        events = [item.build(catalog, new_id("evt_")) for item in closings]
        if events:
            await self._log.append(lease.session_id, events, fence=lease.fence)

    async def append(
        self, membership: Membership, recorder: str, fence: int, items: Sequence[RecordedEvent]
    ) -> tuple[RecordingState, list[int]]:
        """Renew a recording and append its events, all or none. Return the seqs of the events."""
        recording = self._find(membership, recorder, fence)
        async with recording.lock:
            self._find(membership, recorder, fence)  # it may have ended while this request waited
            if self._log.leases.lease_s is not None:
                await self._log.leases.renew(recording.lease.owner)
            seqs = await self._append(membership, recording, items) if items else []
            self._restart_timer(recording)
        return await self._state_of(recording), seqs

    async def _append(
        self, membership: Membership, recording: OpenRecording, items: Sequence[RecordedEvent]
    ) -> list[int]:
        session_id = membership.session_id
        stored = await self._log.find_events(session_id, [item.id for item in items])

        async def make_plan() -> AppendPlan:
            folds = await self._find_folds(membership.record)
            app_state = folds.app_state
            batch = RecordedBatch(membership, folds.tree)
            events: list[Event] = []
            for item in items:
                is_known = item.id in stored
                if not is_known and item.type == AgentStart.TYPE:
                    await self._check_agent_id(item)
                events.append(batch.build_event(item, is_stored=is_known))
            batch.check_messages()
            new_events = [event for event in events if event.id not in stored]
            rule_events = app_state.rule_events(new_events, folds.last_seq, "apply")
            # a person may answer the same call at this moment
            is_dependent = bool(rule_events) or app_state.may_react_to(new_events) or batch.has_results
            expected = folds.durable_count if is_dependent else None
            return AppendPlan([*events, *rule_events], folds.last_seq, {"expected_durable_count": expected})

        append = partial(self._log.append, session_id, fence=recording.lease.fence)
        appended = await append_if_unchanged(append, make_plan)
        assert appended is not None
        _, result = appended
        return list(result.seqs[: len(items)])

    async def _check_agent_id(self, item: RecordedEvent) -> None:
        if item.agent_id is not None and await self._log.agent_starts(item.agent_id):
            raise InvalidEvent("expected the id of a new agent", f"{item.path}.agent_id")

    async def release(self, membership: Membership, recorder: str, fence: int) -> None:
        """End a recording. Agents that are still open are closed by the session's next runner."""
        recording = self._find(membership, recorder, fence)
        async with recording.lock:
            tree = (await self._find_folds(membership.record)).tree
            is_open = any(agent.start.recorder is not None for agent in tree.open.values())
            await self._end(recording, is_due=is_open)

    def _find(self, membership: Membership, recorder: str, fence: int) -> OpenRecording:
        require_source(membership)
        recording = self._open.get(membership.session_id)
        is_held = recording is not None and recording.lease.fence == fence
        if recording is None or not is_held or recording.lease.owner != make_owner(membership, recorder):
            raise Fenced("this recording has ended: another owner has the session, or its lease was over")
        return recording

    async def _state_of(self, recording: OpenRecording) -> RecordingState:
        lease = recording.lease
        return RecordingState(lease.fence, await self._log.last_seq(lease.session_id), self._lease_s)

    # the end of a recording

    def _restart_timer(self, recording: OpenRecording) -> None:
        if recording.timer is not None:
            recording.timer.cancel()
        recording.renewal_count += 1
        loop = asyncio.get_running_loop()
        recording.timer = loop.call_later(
            self._lease_s, self._begin_expiry, recording, recording.renewal_count
        )

    def _begin_expiry(self, recording: OpenRecording, renewal_count: int) -> None:
        task = asyncio.create_task(self._expire(recording, renewal_count))
        self._expiries.add(task)
        task.add_done_callback(self._expiries.discard)

    async def _expire(self, recording: OpenRecording, renewal_count: int) -> None:
        async with recording.lock:  # a request that is being served has come in time
            is_renewed = recording.renewal_count != renewal_count
            if is_renewed or self._open.get(recording.lease.session_id) is not recording:
                return
            log.info("the recorder of %s is silent: its agents are closed", recording.lease.session_id)
            try:
                await self._end(recording, is_due=True)
            except StoreError as error:
                # no request is accepted any more; the lease ends with this process, or with its next claim
                log.warning("%s cannot be released: %s", recording.lease.session_id, error)

    async def _end(self, recording: OpenRecording, *, is_due: bool) -> None:
        lease = recording.lease
        if recording.timer is not None:
            recording.timer.cancel()
        self._open.pop(lease.session_id, None)
        # `seen` is that of the runner before: messages that arrived meanwhile are for the next one
        wake_at_ms = self._log.now_ms() if is_due else lease.wake_at_ms
        await self._log.leases.release(lease, lease.seen, wake_at_ms)
        await self._log.leases.end(lease.owner)

    async def close(self) -> None:
        """End all recordings: this process ends, and the next one closes what is open."""
        for recording in list(self._open.values()):
            if recording.timer is not None:
                recording.timer.cancel()
            with suppress(StoreError):
                await self._end(recording, is_due=True)
        for task in list(self._expiries):
            task.cancel()
        await asyncio.gather(*self._expiries, return_exceptions=True)


class RecordedBatch:
    """Builds the events of one request, as if those before it in the batch were applied. Pure.

    Raise `InvalidEvent` for an event that a recording may not write, or that does not fit what is open.
    """

    def __init__(self, membership: Membership, tree: Tree) -> None:
        self._membership = membership
        self._catalog: Catalog = membership.app.catalog
        self._tree = tree
        self._recorder = membership.principal.name
        self._scopes: dict[str, Scope] = {}
        self._calls: dict[str, set[str]] = {}
        for agent_id, invocation in tree.open.items():
            if invocation.start.recorder == self._recorder:
                self._scopes[agent_id] = invocation.scope
                self._calls[agent_id] = set(invocation.calls)
        self._traces = {scope.trace_id for scope in self._scopes.values()}
        self._messages: dict[str, str] = {}  # paths of messages by their turn, until an agent answers it
        self.has_results = False

    def build_event(self, item: RecordedEvent, *, is_stored: bool) -> Event:
        payload = self._decode(item)
        if is_stored:
            # only its id and its body count: the log compares them with what it has
            scope = Scope(agent_id=item.agent_id)
        elif isinstance(payload, UiMessage):
            scope = self._open_turn(item, payload)
        elif isinstance(payload, AgentStart):
            scope = self._start_agent(item, payload)
        else:
            scope = self._scope_of_agent(item, payload)
        if isinstance(payload, AgentStart):
            payload = structs.replace(payload, recorder=self._recorder)
        draft = EventDraft(payload, scope, find_origin(type(payload)), item.id)
        try:
            return draft.build(self._catalog, item.id)
        except InvalidEvent as error:  # its id or its scope
            raise InvalidEvent(error.problem, f"{item.path}{error.path[1:]}") from None

    def check_messages(self) -> None:
        """Raise `InvalidEvent` for a message without an agent: a runtime of the server would answer it."""
        for path in self._messages.values():
            raise InvalidEvent("expected the agent.start of this message in the same request", path)

    def _decode(self, item: RecordedEvent) -> Payload:
        is_recordable = item.type.startswith(RECORDABLE_PREFIXES) or item.type in RECORDABLE_TYPES
        if (not is_recordable and item.type != UiMessage.TYPE) or item.type == AgentCheckpoint.TYPE:
            raise InvalidEvent(f"a recording may not write {quote(item.type)}", f"{item.path}.type")
        if RESERVED_ID_PATTERN.fullmatch(item.id):
            raise InvalidEvent(
                "expected an id of your own, not one that the server derives", f"{item.path}.id"
            )
        try:
            kind = self._catalog.get_event_type(item.type).payload_class
            draft = self._catalog.build_event(
                item.type, item.payload, id=item.id, origin=find_origin(kind), scope=Scope()
            )
        except InvalidEvent as error:
            raise InvalidEvent(error.problem, f"{item.path}{error.path[1:]}") from None
        except UnknownType as error:
            raise InvalidEvent(str(error), f"{item.path}.type") from None
        assert isinstance(draft.payload, Payload)
        if isinstance(draft.payload, ToolResult):
            check_images(self._membership.session_id, draft.payload, item.path)
        return draft.payload

    def _open_turn(self, item: RecordedEvent, message: UiMessage) -> Scope:
        trace = item.trace_id
        if trace is None or trace in self._tree.queued_turns or self._tree.is_running(trace):
            raise InvalidEvent("expected the id of a new turn", f"{item.path}.trace_id")
        if message.speaker is not None:
            raise InvalidEvent("expected no speaker", f"{item.path}.payload.speaker")
        self._messages[trace] = item.path
        return Scope(trace_id=trace, channel=message.channel or item.channel, actor=self._recorder)

    def _start_agent(self, item: RecordedEvent, start: AgentStart) -> Scope:
        if item.agent_id is None or item.agent_id in self._scopes:
            raise InvalidEvent("expected the id of a new agent", f"{item.path}.agent_id")
        parent = self._scopes.get(start.parent_id or "")
        if start.parent_id is not None and parent is None:
            raise InvalidEvent("expected an open agent of this recording", f"{item.path}.payload.parent_id")
        if parent is not None:
            trace, channel, depth = parent.trace_id, parent.channel, (parent.depth or 0) + 1
        else:
            trace, channel, depth = item.trace_id, item.channel, 0
            is_foreign = trace is None or trace in self._tree.queued_turns or self._tree.is_running(trace)
            if is_foreign and trace not in self._traces:
                raise InvalidEvent("expected the id of a new turn", f"{item.path}.trace_id")
        self._messages.pop(trace or "", None)
        scope = Scope(
            trace_id=trace, agent_id=item.agent_id, agent_name=start.name, depth=depth, channel=channel
        )
        self._scopes[item.agent_id] = scope
        self._calls[item.agent_id] = set()
        self._traces.add(trace)
        return scope

    def _scope_of_agent(self, item: RecordedEvent, payload: Payload) -> Scope:
        agent_id = item.agent_id or ""
        scope = self._scopes.get(agent_id)
        if scope is None:
            raise InvalidEvent("expected an open agent of this recording", f"{item.path}.agent_id")
        calls = self._calls[agent_id]
        if isinstance(payload, ToolCall):
            calls.add(payload.call_id)
        elif isinstance(payload, ToolResult):
            self.has_results = True
            if payload.call_id not in calls:
                raise InvalidEvent("expected the result of an open call", f"{item.path}.payload.call_id")
            calls.discard(payload.call_id)
        elif isinstance(payload, AgentEnd):
            if calls:
                raise InvalidEvent(f"expected a result of {quote(min(calls))} before the end", item.path)
            del self._scopes[agent_id]
        return scope


def find_origin(payload_class: type[Payload]) -> Origin:
    """Return the origin of a recorded event: `ui` for the prompt, else as in a runtime of the server."""
    return "ui" if payload_class is UiMessage else ORIGIN_BY_PAYLOAD.get(payload_class, "model")


def require_source(membership: Membership) -> None:
    """Raise `Forbidden` for a principal that may not record."""
    if SOURCE not in membership.principal.server_roles:
        raise Forbidden(f"expected the server role {SOURCE}: only it may record agents that run elsewhere")


def make_owner(membership: Membership, recorder: str) -> str:
    """Return the owner of a lease: two principals never have the same, whatever name their recorders have."""
    name = membership.principal.name
    return "rec-" + sha256(f"{len(name)}:{name}:{recorder}".encode()).hexdigest()[:32]
