"""Run an agent without a server: one turn as a stream of events, or as its answer (protocol section 8).

`run` yields every event of one turn at every level, until the turn has ended or all its agents wait for an
answer. Leaving the loop detaches and does not cancel: the turn continues in the log. Without a log, each run
has its own in memory. One agent object of one process works on a session; its runs in the same session share
a driver.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from turnlog.agents.agent import AgentTeam
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.models import ModelError
from turnlog.agents.runtime.drivers import Runtime, make_driver
from turnlog.agents.runtime.optimistic_append import AppendPlan, append_if_unchanged
from turnlog.agents.runtime.session_follower import log_task_error
from turnlog.agents.runtime.user_input import (
    answer_events,
    checked_answer_events,
    find_waiting_call,
    message_events,
)
from turnlog.errors import CallerError, StoreError, TurnlogError
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    Catalog,
    Entry,
    EventDraft,
    SessionError,
    UiMessage,
    Vocabulary,
    decode_envelope,
)
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, MemoryStore, envelope_json
from turnlog.parse.claude.lines import CLAUDE_CLI
from turnlog.state.tree import Tree
from turnlog.vocabularies import VOCABULARIES

FAILED_REASONS = ("error", "cancelled", "timeout")
DRIVER_CHECK_INTERVAL_S = 1.0  # of silence, after which `run` checks that the driver still works


class SessionHandle:
    """One session in which an agent works: open while a run follows it or a turn is not done."""

    def __init__(
        self,
        agent: Runtime,
        log: Log,
        session_id: str,
        vocabulary: Vocabulary | None,
        roles: Collection[str],
    ) -> None:
        vocabularies = [*VOCABULARIES]
        runtime: AgentTeam | ClaudeCode
        if isinstance(agent, ClaudeCode):
            vocabularies.append(CLAUDE_CLI)
            runtime = agent
        else:
            runtime = AgentTeam(agent, roles=roles)
        if vocabulary is not None:
            vocabularies.append(vocabulary)
        self.catalog = Catalog(*vocabularies)
        self.driver = make_driver(runtime, log, session_id, self.catalog, vocabulary)
        self.log = log
        self.session_id = session_id
        self.followers = 0
        self.open_task: asyncio.Future[None] | None = None
        self.is_releasing = False
        self.release_done = asyncio.Event()

    async def open(self) -> None:
        if self.open_task is None:
            self.open_task = asyncio.create_task(self.driver.open(), context=Context())
        await asyncio.shield(self.open_task)

    def has_followers(self) -> bool:
        return self.followers > 0

    def is_ending(self) -> bool:
        """Return whether the handle is being released, or will be: its driver failed, and no run uses it."""
        return self.is_releasing or (self.driver.has_ended and not self.has_followers())

    async def wait_until_idle(self) -> None:
        tree = self.driver.tree
        while True:
            await self.driver.wait_for_head()
            if not tree.queued_turns and not tree.handoff_targets and tree.is_all_waiting:
                return
            await self.driver.wait_for_seq(tree.last_seq + 1)


@dataclass(slots=True)
class TurnInputPlan(AppendPlan):
    """The events that open or continue a turn, and the tree from which they were built."""

    tree: Tree = field(kw_only=True)


async def run(
    agent: Runtime,
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
    session_id = session_id or await log.create(agent.name)
    handle = await get_session_handle(agent, log, session_id, vocabulary, roles)
    handle.followers += 1
    is_settled = False
    try:
        await handle.open()
        async with aclosing(follow_turn(handle, prompt, answers or {}, roles)) as entries:
            async for entry, settled_after in entries:
                is_settled = settled_after
                if depth is None or entry.depth <= depth:
                    yield entry
    finally:
        handle.followers -= 1
        release_task = asyncio.ensure_future(release_when_idle(agent, handle, own_log=own_log))
        agent.release_tasks.add(release_task)
        release_task.add_done_callback(agent.release_tasks.discard)
        release_task.add_done_callback(log_task_error)
        if is_settled:
            await asyncio.shield(release_task)


async def get_session_handle(
    agent: Runtime,
    log: Log,
    session_id: str,
    vocabulary: Vocabulary | None,
    roles: Collection[str],
) -> SessionHandle:
    key = id(log), session_id
    handle: SessionHandle | None
    while (handle := agent.session_handles.get(key)) and handle.is_ending():
        await handle.release_done.wait()
    if handle is None:
        handle = SessionHandle(agent, log, session_id, vocabulary, roles)
        agent.session_handles[key] = handle
    return handle


async def follow_turn(
    handle: SessionHandle, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> AsyncGenerator[tuple[Entry, bool], None]:
    """Open or continue a turn. Yield each event, and whether the turn has ended or waits after it."""
    plan, seqs = await append_turn_input(handle, prompt, answers, roles)
    tree = plan.tree
    trace = plan.events[-1].scope.trace_id or ""
    pages = handle.log.follow(handle.session_id, tree.last_seq, idle_s=DRIVER_CHECK_INTERVAL_S)
    async with aclosing(pages):
        async for page in pages:
            if not page and handle.driver.has_ended:
                raise StoreError("the turn cannot go on: what its agents do cannot be written to the log")
            for row, envelope in zip(page, page.envelopes(), strict=True):
                entry = handle.catalog.decode_entry(envelope)
                if not row.live:  # live events open and close nothing
                    tree.apply(envelope, entry.payload)
                is_settled = not row.live and row.seq >= seqs[-1] and tree.is_settled(trace)
                if row.seq >= seqs[0] and entry.trace_id == trace:
                    yield entry, is_settled
                if is_settled:
                    return
    raise StoreError("the log ended before the turn: the session was closed, or it keeps less than a turn")


async def append_turn_input(
    handle: SessionHandle, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> tuple[TurnInputPlan, list[int]]:
    async def make_plan() -> TurnInputPlan:
        tree = await read_tree(handle)
        items: list[EventDraft] = []
        if prompt is not None:
            items = message_events(tree, UiMessage(text=prompt), new_id("tr_"))
        for call_id, value in answers.items():
            items += build_checked_answer(roles, tree, call_id, value)
        events = [item.build(handle.catalog, new_id("evt_")) for item in items]
        # a message that cancels no call does not depend on what is open
        is_independent = prompt is not None and len(events) == 1
        expected = {} if is_independent else {"expected_last": tree.last_seq}
        return TurnInputPlan(events, tree.last_seq, expected, tree=tree)

    appended = await append_if_unchanged(partial(handle.log.append, handle.session_id), make_plan)
    assert appended is not None
    plan, result = appended
    return plan, result.seqs


def build_checked_answer(roles: Collection[str], tree: Tree, call_id: str, value: Any) -> list[EventDraft]:
    """Build the events of an answer. Raise `NotFound` or `InvalidEvent` if the call does not accept it."""
    scope, call = find_waiting_call(tree, call_id)
    [item] = answer_events(tree, call_id, value)
    return checked_answer_events(item.payload, scope, call, roles, now_ms())


async def read_tree(handle: SessionHandle) -> Tree:
    """Fold the log into a new tree. The driver's tree may be ahead of the events that a run yields."""
    tree = Tree()
    while page := await handle.log.read(handle.session_id, tree.last_seq, replay_from=-1):
        for row in page:
            envelope = decode_envelope(envelope_json(row))
            tree.apply(envelope, handle.catalog.decode_payload(envelope))
    return tree


async def release_when_idle(agent: Runtime, handle: SessionHandle, *, own_log: bool) -> None:
    if handle.has_followers():
        return  # the last follower releases it
    with suppress(TurnlogError):  # `run` has raised it
        await handle.open()
        await handle.wait_until_idle()
    if not handle.has_followers() and not handle.is_releasing:
        await release_session(agent, handle, own_log=own_log)


async def release_session(agent: Runtime, handle: SessionHandle, *, own_log: bool) -> None:
    """Close the driver and forget the handle. `get_session_handle` waits until that is done."""
    handle.is_releasing = True
    try:
        await handle.driver.close()
        if own_log:
            await handle.log.close()
    finally:
        del agent.session_handles[id(handle.log), handle.session_id]
        handle.release_done.set()


async def ask(agent: Runtime, prompt: str, **options: Any) -> str:
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
