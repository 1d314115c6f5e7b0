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

from turnlog.agents.agent import Cast
from turnlog.agents.claude.claude_code import ClaudeCli
from turnlog.agents.models import ModelFault
from turnlog.agents.runtime.drivers import Who, driver_of
from turnlog.agents.runtime.session_follower import report
from turnlog.agents.runtime.turn_loop import Item
from turnlog.agents.runtime.user_input import answer_items, answered, message_batch, waiting_call
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
    decode,
)
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, MemoryStore, line_of
from turnlog.parse.claude.lines import CLI
from turnlog.state.tree import Tree

FAILED = ("error", "cancelled", "timeout")
LOOK_S = 1.0  # of silence, after which `run` checks that the driver still works


class Desk:
    """One session in which an agent works, while somebody follows it or it is not done."""

    def __init__(
        self,
        agent: Who,
        log: Log,
        session_id: str,
        vocabulary: Vocabulary | None,
        roles: Collection[str],
    ) -> None:
        own = [CLI] if isinstance(agent, ClaudeCli) else []
        self.catalog = Catalog(CORE, TEAM, *own, *([vocabulary] if vocabulary else []))
        who = agent if isinstance(agent, ClaudeCli) else Cast(agent, roles=roles)
        self.driver = driver_of(who, log, session_id, self.catalog, vocabulary)
        self.log = log
        self.session_id = session_id
        self.followers = 0
        self.opening: asyncio.Future[None] | None = None
        self.is_clearing = False
        self.cleared = asyncio.Event()

    async def open(self) -> None:
        """Open the driver once."""
        if self.opening is None:
            self.opening = asyncio.create_task(self.driver.open(), context=Context())
        await asyncio.shield(self.opening)

    async def append(self, items: list[Item], expected_last: int | None) -> list[int]:
        """Append a batch; its seqs."""
        events = [
            self.catalog.event(item.payload, id=new_id("evt_"), origin=item.origin, scope=item.scope)
            for item in items
        ]
        return await self.log.append(self.session_id, events, expected_last=expected_last)

    def followed(self) -> bool:
        """Whether anybody follows a turn here."""
        return self.followers > 0

    def is_going(self) -> bool:
        """Whether it is being cleared, or will be: its driver failed, and no run follows it."""
        return self.is_clearing or (self.driver.left and not self.followed())

    async def rested(self) -> None:
        """Wait until nothing runs here and nothing is in line."""
        tree = self.driver.tree
        while True:
            await self.driver.caught_up()
            if not tree.queue and not tree.coming and tree.all_wait:
                return
            await self.driver.reached(tree.last + 1)


async def run(
    agent: Who,
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
    desk = await desk_of(agent, log, session_id, vocabulary, roles)
    desk.followers += 1
    over = False
    try:
        await desk.open()
        async with aclosing(turn(desk, prompt, answers or {}, roles)) as entries:
            async for entry, rests in entries:
                over = rests
                if depth is None or entry.depth <= depth:
                    yield entry
    finally:
        desk.followers -= 1
        leaving = asyncio.ensure_future(wind_down(agent, desk, own_log=own_log))
        agent.endings.add(leaving)
        leaving.add_done_callback(agent.endings.discard)
        leaving.add_done_callback(report)
        if over:
            await asyncio.shield(leaving)


async def desk_of(
    agent: Who,
    log: Log,
    session_id: str,
    vocabulary: Vocabulary | None,
    roles: Collection[str],
) -> Desk:
    """Where an agent works on a session; one that is being cleared is waited for: it closes what it finds."""
    key = id(log), session_id
    desk: Desk | None
    while (desk := agent.desks.get(key)) and desk.is_going():
        await desk.cleared.wait()
    desk = desk or Desk(agent, log, session_id, vocabulary, roles)
    agent.desks[key] = desk
    return desk


async def turn(
    desk: Desk, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> AsyncGenerator[tuple[Entry, bool], None]:
    """Begin or go on with a turn and follow it; each event, and whether the turn rests after it."""
    tree, batch, seqs = await begin(desk, prompt, answers, roles)
    trace = batch[-1].scope.trace_id or ""
    async with aclosing(desk.log.follow(desk.session_id, tree.last, idle_s=LOOK_S)) as pages:
        async for page in pages:
            if not page and desk.driver.left:
                raise StoreError("the turn cannot go on: what its agents do cannot be written to the log")
            for row, envelope in zip(page, page.envelopes(), strict=True):
                entry = desk.catalog.entry(envelope)
                if not row.live:  # pieces open and close nothing
                    tree.apply(envelope, entry.payload)
                over = not row.live and row.seq >= seqs[-1] and tree.rests(trace)
                if row.seq >= seqs[0] and entry.trace_id == trace:
                    yield entry, over
                if over:
                    return
    raise StoreError("the log ended before the turn: the session was closed, or it keeps less than a turn")


async def begin(
    desk: Desk, prompt: str | None, answers: Mapping[str, Any], roles: Collection[str]
) -> tuple[Tree, list[Item], list[int]]:
    """Append what opens a turn or goes on with one; the tree before it. Answers are for what is open."""
    while True:
        tree = await seen(desk)
        if prompt is not None:
            batch = message_batch(tree, UiMessage(text=prompt), new_id("tr_"))
        else:
            given = [given_by(roles, tree, call_id, value) for call_id, value in answers.items()]
            batch = [item for items in given for item in items]
        alone = prompt is not None and len(batch) == 1
        with suppress(Conflict):  # something happened meanwhile: look again
            return tree, batch, await desk.append(batch, None if alone else tree.last)


def given_by(roles: Collection[str], tree: Tree, call_id: str, value: Any) -> list[Item]:
    """An answer as events, held against what was asked: in time, and from somebody entitled to."""
    scope, call = waiting_call(tree, call_id)
    [item] = answer_items(tree, call_id, value)
    return answered(item.payload, scope, call, roles, now_ms())


async def seen(desk: Desk) -> Tree:
    """A tree of one's own, as the log stands: the driver's own runs ahead."""
    tree = Tree()
    while page := await desk.log.read(desk.session_id, tree.last, origin=-1):
        for row in page:
            envelope = decode(line_of(row))
            tree.apply(envelope, desk.catalog.payload(envelope))
    return tree


async def wind_down(agent: Who, desk: Desk, *, own_log: bool) -> None:
    """When nobody follows and nothing runs any more, let go of the session."""
    if desk.followed():
        return  # the last one does it
    with suppress(TurnlogError):  # whoever opened it was told
        await desk.open()
        await desk.rested()
    if not desk.followed() and not desk.is_clearing:
        await clear(agent, desk, own_log=own_log)


async def clear(agent: Who, desk: Desk, *, own_log: bool) -> None:
    """Let go of a session; whoever wants it meanwhile waits until that is done."""
    desk.is_clearing = True
    try:
        await desk.driver.close()
        if own_log:
            await desk.log.close()
    finally:
        del agent.desks[id(desk.log), desk.session_id]
        desk.cleared.set()


async def ask(agent: Who, prompt: str, **options: Any) -> str:
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
    if end.stop_reason in FAILED:
        raise ModelFault(end.stop_reason, problem or "the turn did not reach its end")
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
