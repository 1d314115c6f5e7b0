"""Teams of agents from vectors: they play their moves on a log, whole or with something that goes wrong.

A vector has a team (agents with scripts as `scripted:` reads them, and tools of the box below), moves and the
events that follow (`agent_logs`). `Stage` plays them. A `Trouble` is what may go wrong: after so many appends
the driver dies, a stop arrives or the turn has run for too long; or a model fails.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.limits import HANG_S
from tests.support.manual_clock import move_on, run_on_clock
from tests.support.session_runners import kill_runner, open_runner
from turnlog.agents import Agent, ModelError, ReplyBuilder, Request, Tool, ToolContext, WaitForInput, tool
from turnlog.agents.models import Model, Scripted, ToolUse
from turnlog.agents.models.script import ScriptedSteps, read_script
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.user_input import answer_events, message_events
from turnlog.agents.team import AgentTeam
from turnlog.events import (
    CATALOG,
    Envelope,
    Event,
    EventDraft,
    Payload,
    Scope,
    UiCommand,
    UiMessage,
    decode_envelope,
)
from turnlog.events.ui import Stop
from turnlog.ids import new_id
from turnlog.log import AppendResult, Log, envelope_json, open_log
from turnlog.state.history import Message
from turnlog.state.tree import Tree

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "agents" / "sequences.json").read_text()
)["cases"]
TURN_LIMIT_S = 3600.0  # passes only when a test moves the clock
LIMIT_S = TURN_LIMIT_S + HANG_S  # goes by the same clock
TRIES = 3
AGAIN = "And again?"


@tool
def look(topic: str) -> str:
    """Look something up."""
    return f"{topic} is green"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool
def inquire(question: str, context: ToolContext) -> str:
    """Ask the person, in the middle of a tool."""
    if context.values is None:
        raise WaitForInput({"question": question})
    return f"the answer is {context.values['answer']}"


@tool(kind="write", approval=True, risk="gone for ever")
def remove(what: str) -> str:
    """Remove something."""
    return f"{what} is gone"


@tool(executor="remote")
def weigh(what: str) -> str:
    """Another process does it."""
    raise NotImplementedError


BOX: dict[str, Tool] = {item.name: item for item in (look, confirm, inquire, remove, weigh)}


# teams


@dataclass
class Player:
    """A model of a team: it plays its script, and says one more thing when asked to go on."""

    script: ScriptedSteps
    trouble: "Trouble"
    name: str = "scripted"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        fails = self.trouble.model_call(self.script.path)
        fault = ModelError("overloaded_error", "Busy.", retriable=self.trouble.retriable)
        said = 0
        if fails == 0:
            raise fault
        async for batch in Scripted(self.parts).stream(request, reply):
            yield batch
            said += bool(batch)
            if fails == said and not reply.complete:
                raise fault

    def parts(self, messages: list[Message]) -> Iterator[Any]:
        asked = [part for part in messages[-1].content if part["type"] == "text"]
        if asked and asked[-1]["text"] == AGAIN:
            return iter(["Once more."])
        return (resumed(part, messages) for part in self.script(messages))


def resumed(part: Any, messages: list[Message]) -> Any:
    """A call that goes on with the agent that answered before."""
    if isinstance(part, ToolUse) and part.args.get("resume_agent_id") == "<last>":
        said = [
            answer["agent_id"] for message in messages for answer in message.content if "agent_id" in answer
        ]
        return ToolUse(part.tool, part.args | {"resume_agent_id": said[-1]})
    return part


def make_team(team: Mapping[str, Any], trouble: "Trouble") -> Agent:
    """The first agent of a team, with all the others."""
    made: dict[str, Agent] = {}

    def agent(name: str) -> Agent:
        if name not in made:
            role = team[name]
            steps = read_script(json.dumps(role["script"]).encode(), name).steps
            model: Model = Player(ScriptedSteps(name, steps), trouble)
            made[name] = Agent(
                name,
                f"You are {name}.",
                model,
                tools=[BOX[item] for item in role.get("tools", ())],
                agents=[agent(other) for other in role.get("agents", ())],
                handoffs=[agent(other) for other in role.get("handoffs", ())],
                max_steps=role.get("max_steps", 25),
                retry=RetryPolicy(max_attempts=TRIES, initial_delay_s=0),
            )
        return made[name]

    return agent(next(iter(team)))


# what goes wrong


@dataclass
class Trouble:
    """After so many appends the driver dies, a stop arrives or time is over; or the model fails at a call."""

    dies_after: int | None = None
    stops_after: int | None = None
    late_after: int | None = None
    fails_at: int | None = None
    fails_times: int = 1
    after_batches: int = 0
    retriable: bool = False
    appends: int = 0
    calls: int = 0
    victim: str | None = None
    struck: asyncio.Event = field(default_factory=asyncio.Event)

    def model_call(self, agent: str) -> int | None:
        """After how many batches the model fails in this call, if it does; it is one agent's that fails."""
        if self.calls == self.fails_at:
            self.victim = agent
            self.struck.set()
        self.calls += 1
        if agent != self.victim or not self.fails_times:
            return None
        self.fails_times -= 1
        return self.after_batches


class Shaky:
    """The log as a driver in trouble sees it. An append is one step: nothing dies in the middle of it."""

    def __init__(self, log: Log, trouble: Trouble) -> None:
        self._log = log
        self._trouble = trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(
        self, session_id: str, events: Sequence[Event], **options: Any
    ) -> "asyncio.Future[AppendResult]":
        trouble = self._trouble
        if not events:
            return self._log.submit(session_id, events)
        if trouble.appends == trouble.dies_after:
            trouble.struck.set()
            return asyncio.get_running_loop().create_future()
        done = self._log.submit(session_id, events, **options)
        trouble.appends += 1
        if trouble.appends == trouble.stops_after:
            trouble.struck.set()
            self._log.submit(session_id, [event_of(stop())])
        if trouble.appends == trouble.late_after:
            trouble.struck.set()
            move_on(TURN_LIMIT_S)
        return done

    async def append(self, session_id: str, events: Sequence[Event], **options: Any) -> AppendResult:
        return await self.submit(session_id, events, **options)


def stop() -> EventDraft:
    return EventDraft(UiCommand(command=Stop()), Scope(), "ui")


def event_of(item: EventDraft) -> Event:
    return CATALOG.build_event(item.payload, id=new_id("evt_"), origin=item.origin, scope=item.scope)


# playing


class Stage:
    """One session on a log, with a runner that may be replaced by the next one."""

    def __init__(self, log: Log, team: Mapping[str, Any], trouble: Trouble) -> None:
        self.log = log
        self.trouble = trouble
        self.team = team
        self.tree = Tree()
        self.runner: SessionRunner | None = None
        self.session = ""

    async def open(self) -> None:
        """The first process, or the next one: with a runner of its own and no trouble left."""
        self.session = self.session or await self.log.create("troupe")
        log: Any = Shaky(self.log, self.trouble)
        team = make_team(self.team, self.trouble)
        self.runner = await open_runner(log, self.session, AgentTeam(team), turn_limit_s=TURN_LIMIT_S)

    async def crash(self) -> None:
        """The process is gone: its tasks with it, and nothing was tidied up."""
        assert self.runner is not None
        await self._look()
        waiting = set() if self.tree.traces_to_stop else set(self.tree.waiting_agents())
        await kill_runner(self.runner)
        self.trouble = Trouble()
        await self.open()
        assert waiting <= set(self.runner.tree.open), "who waits outlives the process"

    async def close(self) -> None:
        assert self.runner is not None
        await self.runner.close()

    async def move(self, move: Mapping[str, Any]) -> None:
        """One move of the person, on what the log shows; then everything that follows from it."""
        await self._look()
        if items := list(self.items(move)):
            result = await self.log.append(self.session, [event_of(item) for item in items])
            await self.rest(result.seqs[-1], stopped="stop" in move)

    def items(self, move: Mapping[str, Any]) -> Iterator[EventDraft]:
        if "prompt" in move:
            yield from message_events(self.tree, UiMessage(text=move["prompt"]), new_id("tr_"))
        if "stop" in move:
            yield stop()
        for name, value in move.get("answer", {}).items():
            for call_id in self.waiting(name):
                yield from answer_events(self.tree, call_id, value)

    def waiting(self, name: str) -> list[str]:
        """The calls of a tool that wait for somebody."""
        return [
            call_id
            for invocation in self.tree.open.values()
            for call_id, call in invocation.calls.items()
            if call.is_waiting and call.call.tool == name
        ]

    async def rest(self, seq: int, *, stopped: bool) -> None:
        """Follow until nothing runs after a seq; a process that dies on the way is replaced."""
        resting = asyncio.create_task(self._rest(seq, stopped=stopped))
        struck = asyncio.create_task(self.trouble.struck.wait())
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait({resting, struck}, return_when=asyncio.FIRST_COMPLETED)
            dies = self.trouble.struck.is_set() and self.trouble.dies_after is not None
            stops = self.trouble.struck.is_set() and self.trouble.stops_after is not None
            struck.cancel()
            if dies or stops:
                resting.cancel()
                await asyncio.gather(resting, return_exceptions=True)
                if dies:
                    await self.crash()
                self.trouble.stops_after = None
                resting = asyncio.create_task(self._rest(seq, stopped=stops or stopped))
            await resting
            if self.trouble.late_after is not None:
                await self._heard()
                await self._rest(seq, stopped=stopped)

    async def _heard(self) -> None:
        """Whoever wants to end a turn stands in line already, and has been let in after this."""
        assert self.runner is not None
        async with self.runner.lock:
            pass
        await self._look()

    async def _rest(self, seq: int, *, stopped: bool) -> None:
        async with aclosing(self.log.follow(self.session, self.tree.last_seq)) as pages:
            while not self.rests(seq) or (stopped and self.tree.open):
                self._apply(await anext(pages))

    def rests(self, seq: int) -> bool:
        tree = self.tree
        return (
            tree.last_seq >= seq
            and not tree.queued_turns
            and not tree.handoff_targets
            and tree.is_all_waiting
        )

    async def _look(self) -> None:
        while page := await self.log.read(self.session, self.tree.last_seq):
            self._apply(page)

    def _apply(self, page: Sequence[Any]) -> None:
        for row in page:
            if row.seq > self.tree.last_seq:
                envelope = decode_envelope(envelope_json(row))
                self.tree.apply(envelope, CATALOG.decode_payload(envelope))

    async def events(self) -> list[Envelope]:
        """Everything in the log."""
        found: list[Envelope] = []
        while page := await self.log.read(self.session, found[-1].seq if found else -1):
            found += [decode_envelope(envelope_json(row)) for row in page]
        return found


async def play(log: Log, case: Mapping[str, Any], trouble: Trouble, *, again: bool = False) -> list[Envelope]:
    """Play a vector; with `again` there is a next turn, and one more answers what it leaves waiting."""
    stage = Stage(log, case["team"], trouble)
    await stage.open()
    try:
        for move in case["moves"]:
            await stage.move(move)
        trouble.dies_after = trouble.stops_after = trouble.late_after = None
        trouble.fails_at = trouble.victim = None
        if again:
            await stage.move({"prompt": AGAIN})
            while stage.tree.open:
                await stage.move({"prompt": AGAIN})
    finally:
        await stage.close()
    return await stage.events()


def played(
    case: Mapping[str, Any], trouble: Trouble, url: str = "memory:", *, again: bool = False
) -> list[Envelope]:
    """Play a vector on a log of its own."""

    async def on_a_log() -> list[Envelope]:
        log = await open_log(url)
        try:
            return await play(log, case, trouble, again=again)
        finally:
            await log.close()

    return run_on_clock(on_a_log)
