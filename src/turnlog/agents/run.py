"""Running an agent without a server: one turn as a stream of events, or as its answer (protocol section 8).

`run` follows one turn: every event of every level as it happens, until the turn is over or everyone in it
waits. Leaving the loop detaches, it does not cancel: the turn goes on to its end, in the log. Without a log
there is one in memory, for this run alone. A session is worked on by one agent object in one process; runs of
it in the same session share its driver.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any

from turnlog.agents.agent import AgentTeam
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.models import ModelError
from turnlog.agents.runtime.drivers import Runtime, make_driver
from turnlog.agents.runtime.session_follower import log_task_error
from turnlog.agents.runtime.turn_loop import TurnEvent
from turnlog.agents.runtime.user_input import (
    answer_events,
    checked_answer_events,
    find_waiting_call,
    message_events,
)
from turnlog.errors import CallerError, Conflict, StoreError, TurnlogError
from turnlog.events import (
    CORE,
    TEAM,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    Catalog,
    Entry,
    SessionError,
    UiMessage,
    Vocabulary,
    decode_envelope,
)
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, MemoryStore, envelope_json
from turnlog.parse.claude.lines import CLAUDE_CLI
from turnlog.state.tree import Tree

FAILED_REASONS = ("error", "cancelled", "timeout")
DRIVER_CHECK_INTERVAL_S = 1.0  # of silence, after which `run` checks that the driver still works


class SessionHandle:
    """One session in which an agent works, while somebody follows it or it is not done."""

    def __init__(
        self,
        agent: Runtime,
        log: Log,
        session_id: str,
        vocabulary: Vocabulary | None,
        roles: Collection[str],
    ) -> None:
        own = [CLAUDE_CLI] if isinstance(agent, ClaudeCode) else []
        self.catalog = Catalog(CORE, TEAM, *own, *([vocabulary] if vocabulary else []))
        who = agent if isinstance(agent, ClaudeCode) else AgentTeam(agent, roles=roles)
        self.driver = make_driver(who, log, session_id, self.catalog, vocabulary)
        self.log = log
        self.session_id = session_id
        self.followers = 0
        self.open_task: asyncio.Future[None] | None = None
        self.is_releasing = False
        self.release_done = asyncio.Event()

    async def open(self) -> None:
        """Open the driver once."""
        if self.open_task is None:
            self.open_task = asyncio.create_task(self.driver.open(), context=Context())
        await asyncio.shield(self.open_task)

    async def append(self, items: list[TurnEvent], expected_last: int | None) -> list[int]:
        """Append a batch; its seqs."""
        events = [
            self.catalog.build_event(item.payload, id=new_id("evt_"), origin=item.origin, scope=item.scope)
            for item in items
        ]
        return await self.log.append(self.session_id, events, expected_last=expected_last)

    def has_followers(self) -> bool:
        """Whether anybody follows a turn here."""
        return self.followers > 0

    def is_ending(self) -> bool:
        """Whether it is being cleared, or will be: its driver failed, and no run follows it."""
        return self.is_releasing or (self.driver.has_ended and not self.has_followers())

    async def wait_until_idle(self) -> None:
        """Wait until nothing runs here and nothing is in line."""
        tree = self.driver.tree
        while True:
            await self.driver.wait_for_head()
            if not tree.queued_turns and not tree.handoff_targets and tree.is_all_waiting:
                return
            await self.driver.wait_for_seq(tree.last_seq + 1)


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
    """The events of one turn: begun by a prompt, or gone on with by answers to the calls that wait.

    Tools for certain roles are denied to whoever has none of them.
    """
    if (prompt is None) == (not answers):
        raise CallerError("expected a prompt or answers, and not both")
    own_log = log is None
    log = log or Log(MemoryStore(sys.maxsize, sys.maxsize))  # keeps the turn whole for a slow consumer
    session_id = session_id or await log.create(agent.name)
    desk = await get_session_handle(agent, log, session_id, vocabulary, roles)
    desk.followers += 1
    over = False
    try:
        await desk.open()
        async with aclosing(follow_turn(desk, prompt, answers or {}, roles)) as entries:
            async for entry, rests in entries:
                over = rests
                if depth is None or entry.depth <= depth:
                    yield entry
    finally:
        desk.followers -= 1
        leaving = asyncio.ensure_future(release_when_idle(agent, desk, own_log=own_log))
        agent.release_tasks.add(leaving)
        leaving.add_done_callback(agent.release_tasks.discard)
        leaving.add_done_callback(log_task_error)
        if over:
            await asyncio.shield(leaving)


async def get_session_handle(
    agent: Runtime,
    log: Log,
    session_id: str,
    vocabulary: Vocabulary | None,
    roles: Collection[str],
) -> SessionHandle:
    """Where an agent works on a session; one that is being cleared is waited for: it closes what it finds."""
    key = id(log), session_id
    desk: SessionHandle | None
    while (desk := agent.session_handles.get(key)) and desk.is_ending():
        await desk.release_done.wait()
    desk = desk or SessionHandle(agent, log, session_id, vocabulary, roles)
    agent.session_handles[key] = desk
    return desk


async def follow_turn(
    handle: SessionHandle, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> AsyncGenerator[tuple[Entry, bool], None]:
    """Begin or go on with a turn and follow it; each event, and whether the turn rests after it."""
    tree, batch, seqs = await append_turn_input(handle, prompt, answers, roles)
    trace = batch[-1].scope.trace_id or ""
    async with aclosing(
        handle.log.follow(handle.session_id, tree.last_seq, idle_s=DRIVER_CHECK_INTERVAL_S)
    ) as pages:
        async for page in pages:
            if not page and handle.driver.has_ended:
                raise StoreError("the turn cannot go on: what its agents do cannot be written to the log")
            for row, envelope in zip(page, page.envelopes(), strict=True):
                entry = handle.catalog.decode_entry(envelope)
                if not row.live:  # pieces open and close nothing
                    tree.apply(envelope, entry.payload)
                over = not row.live and row.seq >= seqs[-1] and tree.is_settled(trace)
                if row.seq >= seqs[0] and entry.trace_id == trace:
                    yield entry, over
                if over:
                    return
    raise StoreError("the log ended before the turn: the session was closed, or it keeps less than a turn")


async def append_turn_input(
    handle: SessionHandle, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> tuple[Tree, list[TurnEvent], list[int]]:
    """Append what opens a turn or goes on with one; the tree before it. Answers are for what is open."""
    while True:
        tree = await read_tree(handle)
        if prompt is not None:
            batch = message_events(tree, UiMessage(text=prompt), new_id("tr_"))
        else:
            given = [build_checked_answer(roles, tree, call_id, value) for call_id, value in answers.items()]
            batch = [item for items in given for item in items]
        alone = prompt is not None and len(batch) == 1
        with suppress(Conflict):  # something happened meanwhile: look again
            return tree, batch, await handle.append(batch, None if alone else tree.last_seq)


def build_checked_answer(roles: Collection[str], tree: Tree, call_id: str, value: Any) -> list[TurnEvent]:
    """An answer as events, held against what was asked: in time, and from somebody entitled to."""
    scope, call = find_waiting_call(tree, call_id)
    [item] = answer_events(tree, call_id, value)
    return checked_answer_events(item.payload, scope, call, roles, now_ms())


async def read_tree(handle: SessionHandle) -> Tree:
    """A tree of one's own, as the log stands: the driver's own runs ahead."""
    tree = Tree()
    while page := await handle.log.read(handle.session_id, tree.last_seq, replay_from=-1):
        for row in page:
            envelope = decode_envelope(envelope_json(row))
            tree.apply(envelope, handle.catalog.decode_payload(envelope))
    return tree


async def release_when_idle(agent: Runtime, handle: SessionHandle, *, own_log: bool) -> None:
    """When nobody follows and nothing runs any more, let go of the session."""
    if handle.has_followers():
        return  # the last one does it
    with suppress(TurnlogError):  # whoever opened it was told
        await handle.open()
        await handle.wait_until_idle()
    if not handle.has_followers() and not handle.is_releasing:
        await release_session(agent, handle, own_log=own_log)


async def release_session(agent: Runtime, handle: SessionHandle, *, own_log: bool) -> None:
    """Let go of a session; whoever wants it meanwhile waits until that is done."""
    handle.is_releasing = True
    try:
        await handle.driver.close()
        if own_log:
            await handle.log.close()
    finally:
        del agent.session_handles[id(handle.log), handle.session_id]
        handle.release_done.set()


async def ask(agent: Runtime, prompt: str, **options: Any) -> str:
    """The answer to a prompt; a turn that fails or waits for somebody raises."""
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
    """Wait until every agent that started in these events has ended; how each of them did, by agent id."""
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
    raise CallerError(f"the events ended before {len(expected - ends.keys())} of {len(expected)} agents did")
