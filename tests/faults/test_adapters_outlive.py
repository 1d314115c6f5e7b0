"""kill -9 of a server after each write of a turn with approvals, for each framework.

The turn waits for the next server, or is closed by it, and never both. `tests/soak/test_adapters_outlive.py`
kills after every write.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.faults.adapter_server import FRAMEWORKS, AdapterOrder, Framework
from tests.faults.test_turns_outlive import KILLED, Servers, load_events, start_servers
from tests.faults.turn_server import WAITS
from tests.support.agent_logs import body, lawful
from turnlog.events import Envelope
from turnlog.state.tree import Tree
from turnlog.vocabularies import FULL_CATALOG

MODULE = "tests.faults.adapter_server"
EVERY_FIFTH = 5
WAITS_INSIDE: tuple[Framework, ...] = ("claude_sdk",)  # its questions end with the process that asked
CAN_NEST: tuple[Framework, ...] = (
    "langgraph",
    "openai_agents",
)  # questions of sub-agents survive the process
MAX_WRITES = 200  # far above what one turn needs: a loop that never ends would hide a fault


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Start the process that forks all servers: importing the frameworks takes longer than a turn."""
    with start_servers(MODULE) as servers:
        yield servers


def fold(events: list[Envelope]) -> Tree:
    tree = Tree()
    for event in events:
        tree.apply(event, FULL_CATALOG.decode_payload(event))
    return tree


def count_effects(order: AdapterOrder) -> Counter[str]:
    if not order.effects_path.exists():
        return Counter()
    return Counter(order.effects_path.read_text().splitlines())


def kill_and_continue(servers: Servers, order: AdapterOrder) -> str | None:
    """Kill a server, and let the next one finish. Return how the turn ended; None if no write was left."""
    return continue_turn(servers, order) if servers.run(order) == KILLED else None


def continue_turn(servers: Servers, order: AdapterOrder) -> str:
    """Let the next server finish what one has left. Return how the turn ended."""
    before = load_events(order)
    tree = fold(before)
    was_waiting = bool(tree.open) and tree.is_all_waiting
    has_ended = not tree.open and not tree.queued_turns

    last = AdapterOrder(order.folder, order.texts, framework=order.framework, is_nested=order.is_nested)
    assert servers.run(last) == 0
    events = load_events(last)
    assert [event.id for event in events[: len(before)]] == [event.id for event in before]
    lawful(events)
    calls = Counter(body(event)["call_id"] for event in events if event.type == "tool.call")
    assert set(calls.values()) <= {1}, f"a call twice: {calls}"

    effects = count_effects(order)
    assert set(effects.values()) <= {1}, f"a tool ran twice: {effects}"
    first_turn = next(event.trace_id for event in events if event.type == "agent.start")
    [end] = [
        body(event)
        for event in events
        if event.type == "agent.end" and event.trace_id == first_turn and not event.depth
    ]
    survives = was_waiting and order.framework not in WAITS_INSIDE
    if survives:
        assert end["stop_reason"] == "end_turn", "a turn that waited was closed"
    elif was_waiting:
        assert end["stop_reason"] == "error", "a turn that waited inside its process goes on"
    if end["stop_reason"] == "end_turn":
        assert effects == {"look": 1, "delete a": 1, "delete b": 1}
    elif not has_ended:
        assert end["stop_reason"] == "error"
    has_next_begun = any(event.type == "agent.start" and event.trace_id != first_turn for event in before)
    if not has_next_begun:  # otherwise the kill has closed the next turn
        texts = [body(event)["text"] for event in events if event.type == "assistant.message"]
        assert texts[-1] == "You said Again."
    return "waited" if survives else str(end["stop_reason"])


def kill_everywhere(
    servers: Servers, folder: Path, step: int, framework: Framework, *, is_nested: bool = False
) -> Counter[str]:
    """Kill a server after every `step`-th write of a new log. Return how often the turns ended how."""
    outcomes: Counter[str] = Counter()
    for dies_after in count(1, step):
        assert dies_after < MAX_WRITES
        place = folder / f"{framework}-{is_nested}-{dies_after}"
        place.mkdir()
        order = AdapterOrder(
            str(place), ("Go", "Again"), dies_after=dies_after, framework=framework, is_nested=is_nested
        )
        outcome = kill_and_continue(servers, order)
        if outcome is None:
            return outcomes
        outcomes[outcome] += 1
    raise AssertionError


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_turn_waits_or_is_closed_after_a_kill(
    servers: Servers, memory_path: Path, framework: Framework
) -> None:
    outcomes = kill_everywhere(servers, memory_path, EVERY_FIFTH, framework)
    assert set(outcomes) <= {"waited", "error", "end_turn"}
    assert sum(outcomes.values()) >= 3


@pytest.mark.parametrize("framework", CAN_NEST)
def test_turn_whose_sub_agent_asks_waits_or_is_closed_after_a_kill(
    servers: Servers, memory_path: Path, framework: Framework
) -> None:
    outcomes = kill_everywhere(servers, memory_path, EVERY_FIFTH, framework, is_nested=True)
    assert set(outcomes) <= {"waited", "error", "end_turn"}
    assert sum(outcomes.values()) >= 3


@pytest.mark.parametrize(
    ("framework", "is_nested"),
    [
        *((framework, False) for framework in FRAMEWORKS if framework not in WAITS_INSIDE),
        *((framework, True) for framework in CAN_NEST if framework not in WAITS_INSIDE),
    ],
)
def test_turn_whose_server_ends_while_it_waits_goes_on(
    servers: Servers, memory_path: Path, framework: Framework, is_nested: bool
) -> None:
    order = AdapterOrder(
        str(memory_path), ("Go", "Again"), framework=framework, is_nested=is_nested, answers=False
    )
    assert servers.run(order) == WAITS
    assert continue_turn(servers, order) == "waited"
