"""Wherever a log is cut: closing leaves nothing open, and recovery leaves exactly what waits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.written_logs import Item, closing_log, log, scope
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    AwaitedCall,
    BlockDelta,
    BlockEnd,
    BlockStart,
    Payload,
    Scope,
    ToolAwait,
    ToolCall,
    ToolResult,
    UiMessage,
    Usage,
)
from turnlog.state.closing import build_closing_events
from turnlog.state.tree import Tree

DEPTH = 3
STEPS = [("tool",), ("page",), ("agent",), ("agent", "agent"), ("tool", "page"), ("agent", "page", "tool")]
Move = Callable[[], None]


@dataclass
class Node:
    """An agent while a log is being written."""

    scope: Scope
    start: AgentStart
    calls: dict[str, str] = field(default_factory=dict)  # tool, page, asked, agent, or the id of the agent
    block: str | None = None

    @property
    def depth(self) -> int:
        return self.scope.depth or 0


@dataclass
class Writer:
    """Writes a legal log: each choice takes one of the moves that are possible."""

    entries: list[tuple[Payload, Scope]] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    count: int = 0

    def take(self, choice: int) -> None:
        moves = list(self.moves())
        moves[choice % len(moves)]()

    def moves(self) -> Iterator[Move]:
        if self.pending and not self.nodes:
            yield partial(self.begin, self.pending[0])
        if len(self.pending) < 2:
            yield self.message
        for node in self.nodes.values():
            yield from self.calling(node) if node.calls else self.speaking(node)

    def speaking(self, node: Node) -> Iterator[Move]:
        if node.block is None:
            yield partial(self.open_block, node)
            yield partial(self.end, node)
            for kinds in STEPS:
                if node.depth < DEPTH or "agent" not in kinds:
                    yield partial(self.step, node, kinds)
        else:
            yield partial(self.write, node, BlockDelta(block_id=node.block, text="word "))
            yield partial(self.close_block, node)

    def calling(self, node: Node) -> Iterator[Move]:
        if set(node.calls.values()) == {"page"}:
            yield partial(self.ask, node)
        for call_id, kind in node.calls.items():
            if kind in ("tool", "asked"):
                yield partial(self.answer, node, call_id)
            elif kind == "agent":
                yield partial(self.start_called, node, call_id)

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def write(self, node: Node, payload: Payload) -> None:
        self.entries.append((payload, node.scope))

    def open_node(self, start: AgentStart, depth: int, trace_id: str) -> str:
        node = Node(scope(self.new("agt_"), depth, trace_id), start)
        agent_id = str(node.scope.agent_id)
        self.nodes[agent_id] = node
        self.write(node, start)
        return agent_id

    def message(self) -> None:
        self.pending.append(self.new("tr_"))
        self.entries.append((UiMessage(text="hi"), Scope(trace_id=self.pending[-1])))

    def begin(self, trace_id: str) -> None:
        self.pending.remove(trace_id)
        self.open_node(AgentStart(name="Root", via="prompt", prompt="hi"), 0, trace_id)

    def start_called(self, node: Node, call_id: str) -> None:
        start = AgentStart(name="Called", via="call", parent_id=node.scope.agent_id, call_id=call_id)
        node.calls[call_id] = self.open_node(start, node.depth + 1, str(node.scope.trace_id))

    def open_block(self, node: Node) -> None:
        node.block = self.new("blk_")
        self.write(node, BlockStart(block_id=node.block, kind="text"))

    def close_block(self, node: Node) -> None:
        self.write(node, BlockEnd(block_id=str(node.block), status="complete"))
        node.block = None

    def step(self, node: Node, kinds: tuple[str, ...]) -> None:
        self.write(node, AgentUsage(model="m", usage=Usage(input_tokens=0, output_tokens=0)))
        for kind in kinds:
            call_id = self.new("call_")
            executor = "frontend" if kind == "page" else "backend"
            node.calls[call_id] = kind
            self.write(node, ToolCall(call_id=call_id, tool=kind, args={}, executor=executor))  # type: ignore[arg-type]

    def ask(self, node: Node) -> None:
        asked = tuple(AwaitedCall(call_id=call_id, tool="page", args={}) for call_id in node.calls)
        node.calls = dict.fromkeys(node.calls, "asked")
        self.write(node, ToolAwait(calls=asked))

    def answer(self, node: Node, call_id: str) -> None:
        del node.calls[call_id]
        self.write(node, ToolResult(call_id=call_id, tool="t", ok=True))

    def end(self, node: Node) -> None:
        del self.nodes[str(node.scope.agent_id)]
        self.write(node, AgentEnd(stop_reason="end_turn"))
        if parent := self.nodes.get(node.start.parent_id or ""):
            self.answer(parent, str(node.start.call_id))


def written(choices: list[int]) -> list[Item]:
    writer = Writer()
    writer.message()
    writer.begin(writer.pending[0])
    for choice in choices:
        writer.take(choice)
    return log(*writer.entries)


class Ledger:
    """What is open, kept by the events alone; whatever closes must be open, and holds nothing open."""

    def __init__(self, items: list[Item]) -> None:
        self.agents: dict[str, str | None] = {}  # with their parents
        self.blocks: dict[str, str] = {}  # with their agents
        self.calls: dict[str, str] = {}
        self.asked: set[str] = set()
        self.pending: list[str] = []
        for envelope, payload in items:
            self.take(envelope.agent_id or "", envelope.trace_id or "", payload)

    def take(self, agent: str, trace_id: str, payload: object) -> None:
        match payload:
            case UiMessage():
                self.pending.append(trace_id)
            case AgentStart():
                self.agents[agent] = payload.parent_id
                self.pending = [pending for pending in self.pending if pending != trace_id]
            case AgentEnd():
                del self.agents[agent]
                assert agent not in [*self.agents.values(), *self.calls.values(), *self.blocks.values()]
            case BlockStart():
                self.blocks[payload.block_id] = agent
            case BlockEnd():
                assert self.blocks.pop(payload.block_id) == agent
            case _:
                self.take_call(agent, payload)

    def take_call(self, agent: str, payload: object) -> None:
        match payload:
            case ToolCall():
                self.calls[payload.call_id] = agent
            case ToolAwait():
                self.asked |= {call.call_id for call in payload.calls}
            case ToolResult():
                assert self.calls.pop(payload.call_id) == agent
                self.asked.discard(payload.call_id)

    def waiting(self) -> set[str]:
        """Who asked the page, and everybody who called them."""
        found: set[str] = set()
        for agent_id in {self.calls[call_id] for call_id in self.asked}:
            at: str | None = agent_id
            while at is not None:
                found.add(at)
                at = self.agents[at]
        return found


def grown(items: list[Item]) -> Tree:
    tree = Tree()
    for envelope, payload in items:
        tree.apply(envelope, payload)
    return tree


def close(items: list[Item], *, keep_waiting: bool) -> list[Item]:
    """The log with its closing events."""
    closings = build_closing_events(grown(items), "error", "It stopped.", keep_waiting=keep_waiting)
    assert closings == build_closing_events(grown(items), "error", "It stopped.", keep_waiting=keep_waiting)
    return items + closing_log(closings, len(items))


logs = st.lists(st.integers(0, 59), min_size=25, max_size=50).map(written)
quick = examples(15)


@quick
@given(logs)
def test_a_stop_at_any_point_leaves_nothing_open(items: list[Item]) -> None:
    for cut in range(len(items) + 1):
        closed = close(items[:cut], keep_waiting=False)
        ledger, tree = Ledger(closed), grown(closed)
        assert (ledger.agents, ledger.blocks, ledger.calls) == ({}, {}, {})
        assert (tree.open, list(tree.queued_turns)) == ({}, ledger.pending)
        assert close(closed, keep_waiting=False) == closed


@quick
@given(logs)
def test_recovery_at_any_point_leaves_exactly_what_waits(items: list[Item]) -> None:
    for cut in range(len(items) + 1):
        before = Ledger(items[:cut])
        closed = close(items[:cut], keep_waiting=True)
        after, tree = Ledger(closed), grown(closed)
        assert set(after.agents) == before.waiting() == set(tree.open)
        assert (after.blocks, after.asked, after.pending) == ({}, before.asked, before.pending)
        assert tree.is_all_waiting
        assert set(tree.agents_asking_page()) == {after.calls[call_id] for call_id in after.asked}
        assert close(closed, keep_waiting=True) == closed


@quick
@given(logs)
def test_the_tree_is_what_the_events_leave_open(items: list[Item]) -> None:
    ledger, tree = Ledger(items), grown(items)
    assert list(tree.open) == list(ledger.agents)
    assert list(tree.queued_turns) == ledger.pending
    assert {call_id for node in tree.open.values() for call_id in node.calls} == set(ledger.calls)
    assert {block_id for node in tree.open.values() for block_id in node.blocks} == set(ledger.blocks)


def test_such_logs_reach_waits_at_every_depth_and_beside_a_sibling_that_runs() -> None:
    random, mixed = Random(1), 0
    depths: set[int | None] = set()
    for _ in range(400):
        tree = grown(written([random.randrange(60) for _ in range(random.randrange(50))]))
        depths |= {tree.open[agent_id].scope.depth for agent_id in tree.agents_asking_page()}
        mixed += bool(tree.agents_asking_page()) and next(iter(tree.open)) not in tree.waiting_agents()
    assert depths == set(range(DEPTH + 1))
    assert mixed
