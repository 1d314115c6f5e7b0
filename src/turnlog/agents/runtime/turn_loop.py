"""The turn loop: what follows from an event. Pure: an event and the open tree in, effects out; ids come in.

A message starts an agent when nothing else is open; a start asks its model; the end of a completion
(`agent.usage`, behind its calls) starts the calls in it; the last result asks the model again. Backend calls
of a step finish before the page is asked, and the page before a hand-off takes place. `Ask` and `Run` are for
the driver; everything else an event causes is a batch of other events. Events come one by one: nothing here
follows from half a batch, and only the first answer to a call counts.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.agents.agent import Agent, Cast
from turnlog.agents.runtime.approvals import permits
from turnlog.agents.runtime.loop_inputs import (
    asks_the_page,
    awaited,
    files_of,
    stopped,
    unanswered,
    unprompted,
    values_of,
)
from turnlog.agents.tools import answered, failed, not_found, succeeded
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ApprovalDecision,
    ApprovalRequest,
    BlockEnd,
    Cost,
    Envelope,
    Fault,
    Origin,
    ParseReject,
    Payload,
    Scope,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiAction,
    UiCommand,
    UiMessage,
    Unknown,
)
from turnlog.events.ui import Stop
from turnlog.parse.reply import Reply
from turnlog.state.descriptions import narrated
from turnlog.state.tree import Invocation, OpenCall, Opening, Tree, cancelled, reaches
from turnlog.state.view_actions import Views

NAMELESS = "unknown"  # a model that does not say what it is
AGENT_ID = re.compile(r"agt_[A-Za-z0-9_-]{1,64}")
ENDED = "Its agent has ended."
ACTION_CONFLICT = "action_conflict"
CHANGED = "What you acted on has been shown again since. Nothing was done: look at it again, and then act."
MAX_HANDOFFS = 25  # of one turn, as many as an agent has steps: more are a ring
HANDOFF_LIMIT = "handoff_limit"
LIMIT_REACHED = "You have reached the limit of steps. Use no more tools: say what you have found, in short."


class Item(NamedTuple):
    """An event before it is built."""

    payload: Payload
    scope: Scope
    origin: Origin


class Ask(NamedTuple):
    """Ask the model of an agent."""

    agent_id: str


class Run(NamedTuple):
    """Run a tool; `values` is the input it asked for."""

    agent_id: str
    call: ToolCall
    values: dict[str, Any] | None = None


class Approve(NamedTuple):
    """Ask a person whether a call may run."""

    agent_id: str
    call: ToolCall


class Time(NamedTuple):
    """Answer a call with `TIMEOUT` when another process has not answered it in time."""

    agent_id: str
    call: ToolCall
    timeout_s: float


class Say(NamedTuple):
    """Append a batch."""

    items: list[Item]


class Halt(NamedTuple):
    """Stop what is in a channel and in none; without a channel everything in this session."""

    channel: str | None


Effect = Ask | Run | Approve | Time | Say | Halt


class Loop:
    """What one process does in one session; only what it has begun itself is remembered here."""

    def __init__(self, cast: Cast, new_id: Callable[[Any], str]) -> None:
        self._cast = cast
        self.team = cast.team
        self.tree = Tree()
        self.views = Views()
        self._new_id = new_id
        self._starting: str | None = None
        self._agent_counts: dict[str, int] = {}  # by turn: with those whose start is not in the log yet
        self._begun: set[tuple[str, str]] = set()
        self._shown: set[tuple[str, str]] = set()
        self._guarded: set[tuple[str, str]] = set()
        self._leaving: set[str] = set()
        self._freed: dict[str, None] = {}
        self._changed_own_view: set[str] = set()  # queued turns of actions whose rules changed the view
        self._counts = False

    def agent(self, invocation: Invocation) -> Agent:
        """Who is invoked; one that is no longer in the team is played by the first."""
        return self.team.get(invocation.start.name, self._cast.root)

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take an event into account."""
        self._counts = counts(self.tree, envelope, payload)
        self.tree.apply(envelope, payload)
        self._apply_to_views(envelope, payload)
        if isinstance(payload, AgentStart):
            self._changed_own_view.discard(envelope.trace_id or "")
        elif isinstance(payload, AgentEnd):
            agent_id = envelope.agent_id or ""
            if envelope.trace_id not in self.tree.agent_counts:
                self._agent_counts.pop(envelope.trace_id or "", None)
            self._leaving.discard(agent_id)
            self._freed.pop(agent_id, None)
            self._begun = {key for key in self._begun if key[0] != agent_id}
            self._shown = {key for key in self._shown if key[0] != agent_id}
            self._guarded = {key for key in self._guarded if key[0] != agent_id}
        elif isinstance(payload, ApprovalDecision | ToolResult):
            self._guarded.discard((envelope.agent_id or "", payload.call_id))
        if isinstance(payload, ToolResult):  # a model may use the id of a call again
            self._begun.discard((envelope.agent_id or "", payload.call_id))
            self._shown.discard((envelope.agent_id or "", payload.call_id))

    def _apply_to_views(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        trace = envelope.trace_id or ""
        opening = self.tree.queue.get(trace)
        was_current = opening is not None and self._is_current(opening)
        self.views.apply(envelope, payload)
        if opening is not None and was_current and not self._is_current(opening):
            self._changed_own_view.add(trace)

    def _is_current(self, opening: Opening) -> bool:
        """Whether the view of a queued action is open as the person saw it; True for any other opening."""
        return not isinstance(opening.what, UiAction) or self.views.is_current(opening.what)

    def react(self, envelope: Envelope, payload: Payload | Unknown) -> list[Effect]:
        """What follows from an event that was applied."""
        reaction = REACTIONS.get(type(payload))
        return reaction(self, envelope, payload) if reaction else []

    def forget(self) -> None:
        """What was begun is stopped."""
        self._starting = None
        self._begun.clear()
        self._shown.clear()
        self._guarded.clear()
        self._leaving.clear()
        self._freed.clear()

    # turns

    def ending(self, channel: str | None) -> set[str | None]:
        """The turns that a stop in a channel ends, the one that is just being started too."""
        opening = self.tree.queue.get(self._starting or "")
        starting = opening is not None and reaches(channel, opening.scope)
        return self.tree.stopped | ({self._starting} if starting else set())

    def ended(self, traces: Collection[str | None]) -> None:
        """Some turns are over, also one that had not begun: it may begin anew."""
        if self._starting in traces:
            self._starting = None

    def start_next(self) -> list[Effect]:
        """The next message in line, when nothing runs; a channel whose agent waits is left to it."""
        if not self.tree.all_wait or self.tree.coming or self._starting:
            return []
        waiting = {invocation.scope.channel for invocation in self.tree.open.values()}
        for trace, opening in self.tree.queue.items():
            if opening.scope.channel not in waiting:
                self._starting = trace
                # a view that the action's own rules have changed is no conflict: the action was carried out
                if trace not in self._changed_own_view and not self._is_current(opening):
                    return [Say(self._refused(opening))]
                return [Say([self._opened(opening)])]
        return []

    def _refused(self, opening: Opening) -> list[Item]:
        """The turn of an action whose view another turn showed again, or closed, while the action waited.

        The turn ends where it begins. No model is asked, and the action is in no model's history.
        """
        agent = self._cast.agent(opening.scope.channel, None)
        scope = self._scope(agent, opening.scope, 0)
        self._leaving.add(scope.agent_id or "")
        conflict = SessionError(code=ACTION_CONFLICT, message=CHANGED)
        return [
            started(agent, scope, via="prompt", prompt=None),
            Item(conflict, scope, "system"),
            Item(AgentEnd(stop_reason="error"), scope, "system"),
        ]

    def _opened(self, opening: Opening) -> Item:
        named = opening.what.target if isinstance(opening.what, UiMessage) else None
        agent = self._cast.agent(opening.scope.channel, named)
        prompt = narrated("", opening.what) if opening.what else None
        return started(agent, self._scope(agent, opening.scope, 0), via="prompt", prompt=prompt)

    def _scope(self, agent: Agent, within: Scope, depth: int) -> Scope:
        """The scope of an agent in the turn and the channel of another scope."""
        return structs.replace(within, agent_id=self._new_id("agt_"), agent_name=agent.name, depth=depth)

    def ask(self, agent_id: str) -> list[Effect]:
        """Ask the model, unless its agent is about to leave."""
        return [Ask(agent_id)] if agent_id in self.tree.open and agent_id not in self._leaving else []

    # calls

    def begin(self, invocation: Invocation) -> list[Effect]:
        """Start the calls of a completion, then see what is left."""
        effects: list[Effect] = []
        for call in list(invocation.own_calls.values()):
            key = invocation.agent_id, call.call.call_id
            if key not in self._begun and not call.awaited and call.asked is None:
                self._begun.add(key)
                effects += self._route(invocation, call.call)
        return effects + self.settle(invocation)

    def _route(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        """Who a call is for; calls for the page, for others and hand-offs come when they are alone."""
        agent = self.agent(invocation)
        tool, called = agent.tool(call.tool), agent.agent(call.tool)
        if call.incomplete is not None:
            answer = failed(call, "VALIDATION_ERROR", "the arguments are not a JSON object")
            return [Say([Item(answer, invocation.scope, "tool")])]
        if called is not None and (fault := unprompted(call)):
            return [Say([Item(answered(call, fault), invocation.scope, "tool")])]
        if called is not None:
            return [Say([self._call_agent(invocation, called, call)])]
        if agent.successor(call.tool):
            return []
        if tool is None:
            answer = not_found(call, [spec.name for spec in agent.specs])
            return [Say([Item(answer, invocation.scope, "tool")])]
        if fault := permits(tool, {*self._cast.roles, *self.tree.roles(invocation.scope.trace_id)}):
            return [Say([Item(answered(call, fault), invocation.scope, "tool")])]
        if tool.needs_approval(call.args):
            problem = tool.validate(call)  # nobody is asked about a call that cannot run
            if isinstance(problem, Fault):
                return [Say([Item(answered(call, problem), invocation.scope, "tool")])]
            self._guarded.add((invocation.agent_id, call.call_id))
            return [Approve(invocation.agent_id, call)]
        return [Run(invocation.agent_id, call)] if tool.executor == "backend" else self.time(invocation, call)

    def time(self, invocation: Invocation, call: ToolCall) -> list[Effect]:
        """Start the clock of a call that another process answers, if its tool has a limit."""
        tool = self.agent(invocation).tool(call.tool)
        if call.executor != "remote" or tool is None or tool.timeout_s is None:
            return []
        return [Time(invocation.agent_id, call, tool.timeout_s)]

    def _call_agent(self, parent: Invocation, agent: Agent, call: ToolCall) -> Item:
        """Start the agent that a call names; refuse the call when the turn has as many agents as it may."""
        trace, most = parent.scope.trace_id or "", self._cast.agent(parent.scope.channel, None).max_agents
        number = max(self.tree.agent_counts.get(trace, 0), self._agent_counts.get(trace, 0))
        if number >= most:
            answer = failed(call, "EXECUTION_ERROR", f"the turn has {most} agents, which is its limit")
            return Item(answer, parent.scope, "tool")
        self._agent_counts[trace] = number + 1
        return self._called(parent, agent, call)

    def _called(self, parent: Invocation, agent: Agent, call: ToolCall) -> Item:
        scope = self._scope(agent, parent.scope, (parent.scope.depth or 0) + 1)
        resumes = call.args.get("resume_agent_id")
        return started(
            agent,
            scope,
            via="call",
            prompt=call.args["prompt"],
            parent_id=parent.agent_id,
            call_id=call.call_id,
            resumes=resumes if isinstance(resumes, str) and AGENT_ID.fullmatch(resumes) else None,
        )

    def settle(self, invocation: Invocation) -> list[Effect]:
        """With nothing running: ask the page for what is left for it, then hand over."""
        if invocation.agent_id in self._leaving:
            return []
        calls = invocation.own_calls.values()
        page: list[ToolCall] = []
        passes: list[ToolCall] = []
        for call in calls:
            if call.waits or self._is_guarded(invocation, call):
                continue
            if asks_the_page(call.call):
                page.append(call.call)
            elif self._passes(invocation, call):
                passes.append(call.call)
            else:
                return []  # it runs
        if page:
            return self._ask_page(invocation, page)
        return [Say(self._hand_over(invocation, passes))] if passes and len(passes) == len(calls) else []

    def _is_guarded(self, invocation: Invocation, call: OpenCall) -> bool:
        """Whether a person has yet to agree, though the question may not be in the log."""
        return (invocation.agent_id, call.call.call_id) in self._guarded

    def _ask_page(self, invocation: Invocation, calls: list[ToolCall]) -> list[Effect]:
        """Ask the page, once: an answer from elsewhere may come before the question is in the log."""
        keys = {(invocation.agent_id, call.call_id) for call in calls}
        if keys <= self._shown:
            return []
        self._shown |= keys
        agent = self.agent(invocation)
        questions = tuple(awaited(agent.tool(call.tool), call, call.args) for call in calls)
        return [Say([Item(ToolAwait(calls=questions), invocation.scope, "system")])]

    def _passes(self, invocation: Invocation, call: OpenCall) -> bool:
        return call.call.incomplete is None and self.agent(invocation).successor(call.call.tool) is not None

    def _hand_over(self, invocation: Invocation, calls: list[ToolCall]) -> list[Item]:
        """One batch: the result, the hand-off, the end, and the start of whoever takes the place."""
        if self.tree.handoff_counts.get(invocation.scope.trace_id or "", 0) >= MAX_HANDOFFS:
            return self._end_ring(invocation, calls)
        first, *others = calls
        successor = self.agent(invocation).successor(first.tool)
        assert successor is not None
        self._leaving.add(invocation.agent_id)
        scope = self._scope(successor, invocation.scope, invocation.scope.depth or 0)
        results = [succeeded(first, f"Handed over to {successor.name}.")]
        results += [failed(call, "CANCELLED", "another agent has taken over") for call in others]
        handoff = AgentHandoff(to=successor.name, to_agent_id=scope.agent_id or "")
        provided = [call.call for call in invocation.calls.values() if call.call.executor == "provider"]
        return [
            *[Item(result, invocation.scope, "tool") for result in results],
            *voided(provided, invocation.scope, ENDED),
            Item(handoff, invocation.scope, "system"),
            Item(invocation.end("handoff"), invocation.scope, "system"),
            started(
                successor,
                scope,
                via="handoff",
                prompt=str(first.args.get("prompt", "")),
                parent_id=invocation.start.parent_id,
                call_id=invocation.start.call_id,
            ),
        ]

    def _end_ring(self, invocation: Invocation, calls: list[ToolCall]) -> list[Item]:
        """End an agent that would hand over once too often in its turn, in one batch."""
        self._leaving.add(invocation.agent_id)
        message = f"The work of this turn was handed over {MAX_HANDOFFS} times, which is the limit."
        results = [failed(call, "EXECUTION_ERROR", message) for call in calls]
        provided = [call.call for call in invocation.calls.values() if call.call.executor == "provider"]
        return [
            *[Item(result, invocation.scope, "tool") for result in results],
            *voided(provided, invocation.scope, ENDED),
            Item(SessionError(code=HANDOFF_LIMIT, message=message), invocation.scope, "system"),
            *self._end(
                invocation, invocation.end("error"), lambda call: failed(call, "EXECUTION_ERROR", message)
            ),
        ]

    # the ends of completions

    def finished(
        self, invocation: Invocation, reply: Reply, ending: list[Payload], cost: Cost | None
    ) -> list[Item]:
        """The end of a reply and what follows from it, in one append: its calls start with it."""
        usage = AgentUsage(
            model=reply.model or invocation.start.model or NAMELESS, usage=reply.usage, cost=cost
        )
        items, spent = said(ending, invocation.scope), Item(usage, invocation.scope, "system")
        last = invocation.steps >= self.agent(invocation).max_steps
        if not last and (reply.calls or reply.stop_reason == "pause_turn"):
            return [*items, spent]
        why = "The limit of steps was reached." if last else ENDED
        items += voided(unanswered(invocation, ending), invocation.scope, why)
        ended = replace(invocation, files=invocation.files + files_of(ending))
        ended.spend(reply.usage, cost)  # a copy: the tree learns of it from the log
        end = ended.end("max_steps" if last else stopped(reply), reply.said)
        return [*items, spent, *self._end(invocation, end, lambda call: succeeded(call, reply.said))]

    def broken(self, invocation: Invocation, reply: Reply, problem: SessionError) -> list[Item]:
        """The end of an agent whose model failed, or said what cannot be written."""
        ending = reply.abort()
        closed = {payload.block_id for payload in ending if isinstance(payload, BlockEnd)}
        ending += [
            BlockEnd(block_id=block_id, status="aborted", text="".join(pieces))
            for block_id, pieces in invocation.blocks.items()
            if block_id not in closed
        ]
        items = said(ending, invocation.scope)
        items += voided(unanswered(invocation, ending), invocation.scope, ENDED)
        items.append(Item(problem, invocation.scope, "system"))
        end = replace(invocation, files=invocation.files + files_of(ending)).end("error")
        return items + self._end(
            invocation, end, lambda call: failed(call, "EXECUTION_ERROR", problem.message)
        )

    def _end(
        self, invocation: Invocation, end: AgentEnd, answer: Callable[[ToolCall], ToolResult]
    ) -> list[Item]:
        """The end of an agent, and in the same batch the answer to the call that started it."""
        items = [Item(end, invocation.scope, "system")]
        parent = self.tree.open.get(invocation.start.parent_id or "")
        if parent and (call := parent.calls.get(invocation.start.call_id or "")):
            items.append(Item(answer(call.call), parent.scope, "tool"))
        return items


def _message(loop: Loop, envelope: Envelope, _: UiMessage) -> list[Effect]:
    """A message inside a turn wakes the agents it freed; another one waits for its turn."""
    freed, loop._freed = loop._freed, {}
    awake = [agent_id for agent_id in freed if not loop.tree.open[agent_id].own_calls]
    return [effect for agent_id in awake for effect in loop.ask(agent_id)] + loop.start_next()


def _action(loop: Loop, envelope: Envelope, payload: UiAction) -> list[Effect]:
    """An input that a tool asked for; for the page's own calls the result comes with it."""
    call = loop.tree.call(envelope.agent_id, payload.call_id)
    if call is None:
        return loop.start_next()
    if call.call.executor != "backend" or not loop._counts:
        return []
    return [Run(envelope.agent_id or "", call.call, values_of(payload))]


def _command(loop: Loop, envelope: Envelope, payload: UiCommand) -> list[Effect]:
    channel = envelope.channel
    stops = isinstance(payload.command, Stop) and loop.tree.concerns(payload.command, channel)
    return [Halt(channel)] if stops else []


def _start(loop: Loop, envelope: Envelope, _: AgentStart) -> list[Effect]:
    loop._starting = None
    return loop.ask(envelope.agent_id or "")


def _end(loop: Loop, _: Envelope, __: AgentEnd) -> list[Effect]:
    return loop.start_next()


def _usage(loop: Loop, envelope: Envelope, _: AgentUsage) -> list[Effect]:
    invocation = loop.tree.open.get(envelope.agent_id or "")
    return [*loop.begin(invocation), *loop.start_next()] if invocation else []


def _result(loop: Loop, envelope: Envelope, payload: ToolResult) -> list[Effect]:
    """The model goes on when nothing is open; who cancelled a call decides what comes next."""
    invocation = loop.tree.open.get(envelope.agent_id or "")
    if invocation is None or payload.kind is not None or not loop._counts:
        return []
    if envelope.origin == "system":
        loop._freed[invocation.agent_id] = None
        return []
    return loop.settle(invocation) if invocation.own_calls else loop.ask(invocation.agent_id)


def _waits(loop: Loop, _: Envelope, __: ToolAwait | ApprovalRequest) -> list[Effect]:
    """While one channel waits, another may have its turn."""
    return loop.start_next()


def _decision(loop: Loop, envelope: Envelope, payload: ApprovalDecision) -> list[Effect]:
    invocation = loop.tree.open.get(envelope.agent_id or "")
    if invocation is None or not loop._counts:
        return []
    call = invocation.calls[payload.call_id]
    if payload.decision == "approve":
        here = call.call.executor == "backend"
        if here:
            return [Run(invocation.agent_id, call.call)]
        return [*loop.time(invocation, call.call), *loop.settle(invocation)]
    why = "nobody answered in time" if payload.decision == "expired" else payload.notes or "a person said no"
    return [Say([Item(failed(call.call, "DENIED", why), invocation.scope, "tool")])]


REACTIONS: dict[type, Callable[[Loop, Envelope, Any], list[Effect]]] = {
    UiMessage: _message,
    UiAction: _action,
    UiCommand: _command,
    AgentStart: _start,
    AgentEnd: _end,
    AgentUsage: _usage,
    ToolAwait: _waits,
    ApprovalRequest: _waits,
    ToolResult: _result,
    ApprovalDecision: _decision,
}


FITS: dict[type, Callable[[OpenCall], bool]] = {
    ToolResult: lambda call: True,
    UiAction: lambda call: call.awaited,
    ApprovalDecision: lambda call: call.asked is not None,
}


def counts(tree: Tree, envelope: Envelope, payload: Any) -> bool:
    """Whether an answer is the first one to its call; asked before the tree has it."""
    fits = FITS.get(type(payload))
    call = tree.call(envelope.agent_id, payload.call_id) if fits else None
    return fits is not None and call is not None and fits(call)


def started(agent: Agent, scope: Scope, **fields: Any) -> Item:
    """The start of an agent."""
    names = tuple(spec.name for spec in agent.specs)
    return Item(AgentStart(name=agent.name, model=agent.mind.name, tools=names, **fields), scope, "system")


def said(payloads: Iterable[Payload], scope: Scope) -> list[Item]:
    """What a model said; its refused tags are the system's to tell."""
    return [
        Item(payload, scope, "system" if isinstance(payload, ParseReject) else "model")
        for payload in payloads
    ]


def voided(calls: Iterable[ToolCall], scope: Scope, why: str) -> list[Item]:
    """The results of calls that nobody will answer any more."""
    return [Item(cancelled(call, why), scope, "system") for call in calls]
