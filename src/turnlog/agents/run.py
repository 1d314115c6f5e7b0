"""Run an agent without a server: one turn as a stream of events, or as its answer (protocol section 8).

`run` yields every event of one turn at every level, until the turn has ended or all its agents wait for an
answer. Leaving the loop detaches and does not cancel: the turn continues in the log. Without a log, each run
has its own in memory. A run owns its session while it follows it or a turn is not done; runs of one agent
object in one session share a runner if their roles and vocabulary are the same. Another live owner of the
session is a `Conflict`.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from turnlog.agents.models import ModelError
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.user_input import (
    answer_events,
    checked_answer_events,
    find_waiting_call,
    message_events,
)
from turnlog.agents.team import define_answerer
from turnlog.errors import CallerError, StoreError
from turnlog.events import (
    CATALOG,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    Catalog,
    Entry,
    Event,
    EventDraft,
    SessionError,
    UiMessage,
    Vocabulary,
    decode_envelope,
)
from turnlog.ids import new_id, now_ms
from turnlog.log import Lease, Log, MemoryStore, envelope_json
from turnlog.state.tree import Tree
from turnlog.vocabularies import FULL_CATALOG, VOCABULARIES

FAILED_REASONS = ("error", "cancelled", "timeout")
RUNNER_CHECK_INTERVAL_S = 1.0  # of silence, after which `run` checks that the runner still works


PoolKey = tuple[int, str]  # the id of a log, and the owner of its sessions


class RunnableAgent(Protocol):
    """An `Agent`, or another runtime. `run_pools` has its pools.

    `run_owner` begins the names of the owners of the sessions that it runs in.
    """

    @property
    def name(self) -> str: ...

    @property
    def run_owner(self) -> str: ...

    @property
    def run_pools(self) -> "dict[PoolKey, RunPool]": ...


def make_pool_key(
    agent: RunnableAgent, log: Log, vocabulary: Vocabulary | None, roles: Collection[str]
) -> PoolKey:
    """Return the key of the runs that share runners.

    A runner uses the roles and the vocabulary that it was built with. Runs with others have another pool and
    another owner: no run may get the roles of another one.
    """
    # quoted, because a role may be any text
    parts = [agent.run_owner, *([f"{id(vocabulary):x}"] if vocabulary else []), *map(repr, sorted({*roles}))]
    return id(log), " ".join(parts)


class RunPool:
    """The sessions of one log in which an agent object runs. It exists while the agent runs in any."""

    def __init__(
        self,
        agent: RunnableAgent,
        log: Log,
        vocabulary: Vocabulary | None,
        roles: Collection[str],
        *,
        own_log: bool,
    ) -> None:
        self._agent = agent
        self._definition = define_answerer(agent, roles=roles).runtime
        self._vocabulary = vocabulary
        extra = [*self._definition.vocabularies, *([vocabulary] if vocabulary else [])]
        self.catalog = Catalog(*VOCABULARIES, *extra) if extra else FULL_CATALOG
        self.log = log
        self._own_log = own_log
        self._close_task: asyncio.Task[None] | None = None
        self._key = make_pool_key(agent, log, vocabulary, roles)
        _, owner = self._key
        self.runners = RunnerPool(log, self._make_runner, quiet_s=0.0, owner=owner, ends_processes=True)
        self.runners.on_empty = self._on_empty
        agent.run_pools[self._key] = self

    async def _make_runner(self, lease: Lease) -> SessionRunner:
        folds = SessionFolds(self.log, lease.session_id, self.catalog)
        return SessionRunner(self.log, lease, folds, self._definition, self._vocabulary)

    def _on_empty(self) -> None:
        self._agent.run_pools.pop(self._key, None)
        if self._own_log and self._close_task is None:
            self._close_task = asyncio.create_task(self.log.close(), context=Context())

    async def wait_released(self, session_id: str) -> None:
        """Wait until a session is released, unless another run uses it. Wait until an own log is closed."""
        await self.runners.wait_released(session_id)
        if self._close_task is not None:
            await asyncio.shield(self._close_task)


@dataclass(slots=True)
class TurnInputPlan(AppendPlan):
    """The events that open or continue a turn, and the tree from which they were built."""

    tree: Tree = field(kw_only=True)


async def run(
    agent: RunnableAgent,
    prompt: str | None = None,
    *,
    answers: Mapping[str, Any] | None = None,
    log: Log | None = None,
    session_id: str | None = None,
    depth: int | None = None,
    vocabulary: Vocabulary | None = None,
    roles: Collection[str] = (),
) -> AsyncGenerator[Entry, None]:
    """Yield the events of one turn, which a prompt opens or answers to waiting calls continue.

    `depth` leaves out agents below that level. Tools that require a role are denied unless `roles` has it.
    """
    if (prompt is None) == (not answers):
        raise CallerError("expected a prompt or answers, and not both")
    own_log = log is None
    # without limits: a slow consumer must not lose the beginning of its turn
    log = log or Log(MemoryStore(sys.maxsize, sys.maxsize))
    appended: tuple[TurnInputPlan, list[int]] | None = None
    if session_id is None:
        # a new session has its prompt from the start: one write less
        items = [] if prompt is None else message_events(Tree(), UiMessage(text=prompt), new_id("tr_"))
        events = build_events(CATALOG, items)
        session_id = await log.create(agent.name, events=events)
        if events:
            appended = TurnInputPlan(events, -1, tree=Tree()), [0]
    pool_key = make_pool_key(agent, log, vocabulary, roles)
    for key, other in list(agent.run_pools.items()):
        # an earlier run with other roles may have ended a moment ago
        if other.log is log and key != pool_key:
            await other.runners.wait_released(session_id)
    pool = agent.run_pools.get(pool_key)
    if pool is None:
        pool = RunPool(agent, log, vocabulary, roles, own_log=own_log)
    async with pool.runners.use(session_id):
        if appended is None:
            appended = await append_turn_input(pool, session_id, prompt, answers or {}, roles)
        async with aclosing(follow_turn(pool, session_id, *appended)) as entries:
            async for entry in entries:
                if depth is None or entry.depth <= depth:
                    yield entry
    # the turn has ended or waits: the next process may own the session now
    await pool.wait_released(session_id)


async def follow_turn(
    pool: RunPool, session_id: str, plan: TurnInputPlan, seqs: Sequence[int]
) -> AsyncGenerator[Entry, None]:
    """Yield the events of a turn from its input on, until it has ended or all its agents wait."""
    tree = plan.tree
    trace = plan.events[-1].scope.trace_id or ""
    pages = pool.log.follow(session_id, tree.last_seq, idle_s=RUNNER_CHECK_INTERVAL_S)
    async with aclosing(pages):
        async for page in pages:
            if not page and pool.runners.has_failed(session_id):
                raise StoreError("the turn cannot go on: what its agents do cannot be written to the log")
            for row, envelope in zip(page, page.envelopes(), strict=True):
                entry = pool.catalog.decode_entry(envelope)
                if not row.live:  # live events open and close nothing
                    tree.apply(envelope, entry.payload)
                if row.seq >= seqs[0] and entry.trace_id == trace:
                    yield entry
                if not row.live and row.seq >= seqs[-1] and tree.is_settled(trace):
                    return
    raise StoreError("the log ended before the turn: the session was closed, or it keeps less than a turn")


def build_events(catalog: Catalog, items: Iterable[EventDraft]) -> list[Event]:
    return [item.build(catalog, new_id("evt_")) for item in items]


async def append_turn_input(
    pool: RunPool, session_id: str, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> tuple[TurnInputPlan, list[int]]:
    async def make_plan() -> TurnInputPlan:
        tree = await read_tree(pool, session_id)
        items: list[EventDraft] = []
        if prompt is not None:
            items = message_events(tree, UiMessage(text=prompt), new_id("tr_"))
        for call_id, value in answers.items():
            items += build_checked_answer(roles, tree, call_id, value)
        events = build_events(pool.catalog, items)
        # a message that cancels no call does not depend on what is open
        is_independent = prompt is not None and len(events) == 1
        expected = {} if is_independent else {"expected_last": tree.last_seq}
        return TurnInputPlan(events, tree.last_seq, expected, tree=tree)

    appended = await append_if_unchanged(partial(pool.log.append, session_id), make_plan)
    assert appended is not None
    plan, result = appended
    return plan, result.seqs


def build_checked_answer(roles: Collection[str], tree: Tree, call_id: str, value: Any) -> list[EventDraft]:
    """Build the events of an answer. Raise `NotFound` or `InvalidEvent` if the call does not accept it."""
    scope, call = find_waiting_call(tree, call_id)
    [item] = answer_events(tree, call_id, value)
    return checked_answer_events(item.payload, scope, call, roles, now_ms())


async def read_tree(pool: RunPool, session_id: str) -> Tree:
    """Fold the log into a new tree. The runner's tree may be ahead of the events that a run yields."""
    tree = Tree()
    while page := await pool.log.read(session_id, tree.last_seq, replay_from=-1):
        for row in page:
            envelope = decode_envelope(envelope_json(row))
            tree.apply(envelope, pool.catalog.decode_payload(envelope))
    return tree


async def ask(agent: RunnableAgent, prompt: str, **options: Any) -> str:
    """Return the text of the answer to a prompt.

    Raise `ModelError` if the turn fails, and `CallerError` if it waits for an answer.
    """
    problem = ""
    end: AgentEnd | None = None
    async for entry in run(agent, prompt, **options):
        if isinstance(entry.payload, SessionError):
            problem = entry.payload.message
        if isinstance(entry.payload, AgentEnd) and entry.depth == 0:
            end = entry.payload
    if end is None or end.stop_reason == "handoff":
        raise CallerError(f"{agent.name} waits for an answer; use `run` and answer its calls")
    if end.stop_reason in FAILED_REASONS:
        raise ModelError(end.stop_reason, problem or "the turn did not reach its end")
    return end.result or ""


async def all_ended(events: AsyncGenerator[Entry, None]) -> dict[str, AgentEnd]:
    """Read events until every agent that started in them has ended. Return the ends by agent id.

    Raise `CallerError` if the events end before.
    """
    expected: set[str] = set()
    ends: dict[str, AgentEnd] = {}
    async with aclosing(events):
        async for entry in events:
            if isinstance(entry.payload, AgentStart):
                expected.add(entry.agent_id or "")
            elif isinstance(entry.payload, AgentHandoff):
                expected.add(entry.payload.to_agent_id)
            elif isinstance(entry.payload, AgentEnd):
                ends[entry.agent_id or ""] = entry.payload
                if expected and expected <= ends.keys():
                    return ends
    missing = expected - ends.keys()
    raise CallerError(f"the events ended before {len(missing)} of {len(expected)} agents did")
