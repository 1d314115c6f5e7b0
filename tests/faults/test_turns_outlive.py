"""kill -9 of a server after each write of a turn: the next server continues the turn, and it ends once.

The turn has text, parallel tools (one that reads, one that writes, one with an idempotency key), a sub-agent
and a question. `tests/soak/test_turns_outlive.py` kills every server of every scenario.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.faults.turn_server import (
    EXPLODES,
    KEY,
    QUESTIONS,
    SESSION,
    STOPPED,
    WAITS,
    Order,
    Question,
    answer_id,
    build_answers,
    make_app,
)
from tests.support.agent_logs import body, lawful
from turnlog.events import Envelope, decode_envelope
from turnlog.log import Log, SqliteStore, envelope_json
from turnlog.state.tree import Tree

KILLED = -signal.SIGKILL
EVERY_THIRD = 3
SECOND_WRITES = 5  # of the next server: from its first notice into the turn that it continues


class Servers:
    """The process that forks the servers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders = process.stdin
        self._codes = process.stdout

    def run(self, order: Order) -> int:
        """Run a server to its end; return its exit code."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        self._orders.flush()
        return int(self._codes.readline())


@contextmanager
def start_servers(module: str = "tests.faults.turn_server") -> Iterator[Servers]:
    command = [sys.executable, "-m", module]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=environment
    ) as process:
        try:
            yield Servers(process)
        finally:
            process.kill()


# between two servers


async def read_events(log: Log) -> list[Envelope]:
    events: list[Envelope] = []
    while page := await log.read(SESSION, events[-1].seq if events else -1):
        events += [decode_envelope(envelope_json(row)) for row in page]
    return events


def load_events(order: Order) -> list[Envelope]:
    """Read the log while no server runs, and verify it."""

    async def load() -> list[Envelope]:
        log = Log(SqliteStore(order.log_path, writable=False), writable=False)
        try:
            assert await log.verify() == []
            return await read_events(log)
        finally:
            await log.close()

    return asyncio.run(load())


def fold(order: Order, events: Sequence[Envelope]) -> Tree:
    catalog = make_app(order).catalog
    tree = Tree()
    for event in events:
        tree.apply(event, catalog.decode_payload(event))
    return tree


def answer_without_server(order: Order) -> bool:
    """Append the answer to the question if the turn waits for it; return whether it does."""

    async def answer() -> bool:
        log = Log(SqliteStore(order.log_path))
        try:
            drafts = build_answers(fold(order, await read_events(log)))
            catalog = make_app(order).catalog
            events = [draft.build(catalog, answer_id(draft)) for draft in drafts]
            if events:
                await log.append(SESSION, events, wants_work=True)
            return bool(events)
        finally:
            await log.close()

    return asyncio.run(answer())


def read_effects(order: Order) -> Counter[str]:
    path = order.effects_path
    return Counter(path.read_text().splitlines() if path.exists() else [])


# what must hold


def of_type(events: Sequence[Envelope], *types: str) -> list[Envelope]:
    return [event for event in events if event.type in types]


def check_effects(order: Order, events: Sequence[Envelope]) -> None:
    """Check that each tool has done what its results say, and none that writes has done it twice."""
    effects = read_effects(order)
    results = {(body(event)["tool"], body(event)["ok"]) for event in of_type(events, "tool.result")}
    question = QUESTIONS[order.question]
    answered = {"inquire": "inquire this"}.get(question, question)
    once = {"scribble": "scribble"}
    if question != "confirm":
        once[question] = answered
    for tool, effect in once.items():
        assert effects[effect] <= 1, effect
        if (tool, True) in results:
            assert effects[effect] == 1, effect
    assert effects[f"pay {KEY}"] <= 1


def check_continued(order: Order, events: Sequence[Envelope]) -> None:
    """Check that a turn has ended once with its normal end, whatever happened on the way."""
    ledger = lawful(events)
    assert ledger.ends == ["end_turn", "end_turn"]
    [end] = [event for event in of_type(events, "agent.end") if not event.depth]
    assert body(end)["result"].endswith("All is done.")
    assert len(of_type(events, "ui.message")) == 1
    assert of_type(events, "session.error") == []
    results = [body(event) for event in of_type(events, "tool.result")]
    failed = {result["tool"] for result in results if not result["ok"]}
    assert failed <= {"scribble", QUESTIONS[order.question]} - {"confirm"}
    assert {result["error"]["code"] for result in results if not result["ok"]} <= {"CANCELLED"}
    answers = [event for event in events if event.id.startswith("evt_answer-")]
    # a tool that was interrupted before it asked for input is cancelled, and asks nothing
    assert len(answers) == len(of_type(events, "approval.request", "tool.await")[:1])
    assert answers or "inquire" in failed
    check_effects(order, events)
    assert read_effects(order)[f"pay {KEY}"] == 1


def check_closed(order: Order, events: Sequence[Envelope], killed_at: Sequence[Envelope]) -> bool:
    """Check that a turn that ran when its server was killed is closed; return whether it did."""
    ledger = lawful(events)
    [end] = [event for event in of_type(events, "agent.end") if not event.depth]
    tree = fold(order, killed_at)
    is_answered = killed_at[-1].id.startswith("evt_answer-")
    check_effects(order, events)
    if tree.open and not tree.is_all_waiting and not is_answered:
        assert body(end)["stop_reason"] == "error"
        return True
    assert set(ledger.ends) <= {"end_turn", "error"}
    return False


def kill_everywhere(servers: Servers, folder: Path, step: int, **options: object) -> Iterator[Order]:
    """Kill servers after one write after the other, in a folder each; yield the orders of those killed.

    Stop at the server whose turn is over, or waits, before it is killed.
    """
    for writes in count(1, step):
        own_folder = folder / str(writes)
        own_folder.mkdir()
        order = msgspec.convert({"folder": str(own_folder), "dies_after": writes, **options}, Order)
        code = servers.run(order)
        assert code in (KILLED, STOPPED, WAITS, 0)
        if code != 0:
            yield order
        if code not in (KILLED, STOPPED):
            assert writes > 10, "hardly killed"
            return


def next_server(order: Order) -> Order:
    """Return the order of the server after the one that was killed: it does everything."""
    return msgspec.structs.replace(order, dies_after=0, answers=True)


def check_wakes(order: Order) -> bool:
    """Check that a session that waits for an approval wakes when that expires; return whether it waits."""

    async def check() -> bool:
        log = Log(SqliteStore(order.log_path, writable=False), writable=False)
        try:
            tree = fold(order, await read_events(log))
            calls = [call for agent in tree.open.values() for call in agent.calls.values()]
            waits = any(call.approval_request for call in calls)
            assert not waits or await log.leases.next_wake_ms() is not None
            return waits
        finally:
            await log.close()

    return asyncio.run(check())


def stop_everywhere(folder: Path, step: int, **options: object) -> None:
    """Stop a server after each write, and let the next one continue."""
    with start_servers() as servers:
        for order in kill_everywhere(servers, folder, step, is_stopped=True, **options):
            check_wakes(order)
            assert servers.run(next_server(order)) == 0
            check_continued(order, load_events(order))


def stop_at_question(folder: Path, question: Question) -> bool:
    """Stop a server while its turn waits, and continue it. Return whether an approval was open."""
    order = Order(str(folder), question=question, is_stopped=True, answers=False)
    with start_servers() as servers:
        assert servers.run(order) == STOPPED
        waits = check_wakes(order)
        assert servers.run(next_server(order)) == 0
    check_continued(order, load_events(order))
    return waits


def continue_everywhere(folder: Path, step: int, **options: object) -> Counter[str]:
    """Kill a server after each write, and let the next one continue. Count the results that are cancelled."""
    cancelled: Counter[str] = Counter()
    with start_servers() as servers:
        for order in kill_everywhere(servers, folder, step, **options):
            assert servers.run(next_server(order)) == 0
            events = load_events(order)
            check_continued(order, events)
            results = [body(event) for event in of_type(events, "tool.result")]
            cancelled.update(result["tool"] for result in results if not result["ok"])
    return cancelled


def kill_twice(folder: Path, step: int, question: Question) -> Counter[str]:
    """Kill the next server, too, after a few writes. Return how the turns ended."""
    ends: Counter[str] = Counter()
    with start_servers() as servers:
        for number, order in enumerate(kill_everywhere(servers, folder, step, question=question)):
            again = msgspec.structs.replace(order, dies_after=number % SECOND_WRITES + 1)
            assert servers.run(again) in (KILLED, 0)
            assert servers.run(next_server(order)) == 0
            events = load_events(order)
            lawful(events)
            [end] = [event for event in of_type(events, "agent.end") if not event.depth]
            codes = [body(event)["code"] for event in of_type(events, "session.error")]
            assert codes == ([] if body(end)["stop_reason"] == "end_turn" else ["worker_lost"])
            check_effects(order, events)
            ends[body(end)["stop_reason"]] += 1
    return ends


def answer_between(folder: Path, step: int, question: Question) -> int:
    """Kill a server after each write, answer while none runs, and let the next one continue."""
    answers = 0
    with start_servers() as servers:
        for order in kill_everywhere(servers, folder, step, question=question, answers=False):
            answers += answer_without_server(order)
            assert servers.run(next_server(order)) == 0
            check_continued(order, load_events(order))
    return answers


def close_everywhere(folder: Path, step: int, question: Question) -> int:
    """Kill a server after each write; the next one closes the turn. Return how many were closed."""
    closed = 0
    with start_servers() as servers:
        for order in kill_everywhere(servers, folder, step, question=question, on_crash="close"):
            killed_at = load_events(order)
            assert servers.run(next_server(order)) == 0
            closed += check_closed(order, load_events(order), killed_at)
    return closed


def test_turn_goes_on_and_ends_once_though_its_server_is_killed_after_any_write(memory_path: Path) -> None:
    cancelled = continue_everywhere(memory_path, 1)
    assert cancelled.keys() == {"scribble", "remove"}, "no kill fell between an effect and its result"


@pytest.mark.parametrize("question", ["approval below", "input", "page"])
def test_turn_with_another_question_goes_on_after_a_kill(memory_path: Path, question: Question) -> None:
    assert continue_everywhere(memory_path, EVERY_THIRD, question=question)["scribble"]


def test_turn_goes_on_after_its_server_was_stopped(memory_path: Path) -> None:
    stop_everywhere(memory_path, 1)


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_is_answered_after_its_server_was_stopped(memory_path: Path, question: Question) -> None:
    assert stop_at_question(memory_path, question) == (QUESTIONS[question] == "remove")


def test_turn_whose_server_is_killed_twice_ends_once(memory_path: Path) -> None:
    assert kill_twice(memory_path, EVERY_THIRD, "approval").keys() == {"end_turn", "error"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answer_that_arrives_while_no_server_runs_is_acted_on(memory_path: Path, question: Question) -> None:
    assert answer_between(memory_path, EVERY_THIRD * 3, question) >= 1


def test_turn_of_an_application_that_closes_is_closed_after_a_kill(memory_path: Path) -> None:
    assert close_everywhere(memory_path, EVERY_THIRD, "approval") > 5


# sub-agents at once, a retry, and a hand-off


def check_parallel(order: Order, events: Sequence[Envelope]) -> None:
    ledger = lawful(events)
    assert sorted(ledger.ends) == ["end_turn", "end_turn", "end_turn", "handoff"]
    assert len(of_type(events, "agent.handoff")) == 1
    assert of_type(events, "session.error") == []
    failed = [body(event) for event in of_type(events, "tool.result") if not body(event)["ok"]]
    assert {(result["tool"], result["error"]["code"]) for result in failed} <= {("scribble", "CANCELLED")}
    effects = read_effects(order)
    assert effects[f"pay {KEY}"] == 1
    assert effects["scribble"] == 1 or failed


@pytest.mark.parametrize("is_stopped", [False, True])
def test_turn_with_agents_at_once_and_a_hand_off_goes_on(memory_path: Path, is_stopped: bool) -> None:
    count = 0
    with start_servers("tests.faults.parallel_server") as servers:
        for order in kill_everywhere(servers, memory_path, EVERY_THIRD, is_stopped=is_stopped):
            assert servers.run(next_server(order)) == 0
            check_parallel(order, load_events(order))
            count += 1
    assert count >= 8


# turns that end their process


def outlive(servers: Servers, order: Order) -> list[int]:
    """Start servers until one of them lives to the end of its turns; return the exit codes."""
    codes = [servers.run(order)]
    while codes[-1] != 0:
        assert len(codes) < 5, codes
        codes.append(servers.run(order))
    return codes


@pytest.mark.parametrize("text", ["explode", "die"])
def test_turn_that_ends_its_process_twice_is_closed_and_the_next_turn_runs(
    memory_path: Path, text: str
) -> None:
    order = Order(str(memory_path), texts=(text, "Hello"))
    with start_servers() as servers:
        assert outlive(servers, order) == [EXPLODES, EXPLODES, 0]
    events = load_events(order)
    assert lawful(events).ends == ["error", "end_turn"]
    assert [body(event)["code"] for event in of_type(events, "session.error")] == ["worker_lost"]
    assert body(of_type(events, "agent.end")[-1])["result"] == "You said Hello."


@pytest.mark.parametrize("waiting_kills", [1, 2])
def test_kills_while_a_turn_waits_do_not_count_as_its_own(memory_path: Path, waiting_kills: int) -> None:
    order = Order(str(memory_path), answers=False)
    with start_servers() as servers:
        for _ in range(waiting_kills):
            assert servers.run(order) == WAITS
        # its notices, the answer, that it acts on it, and what the approved tool reports
        assert servers.run(msgspec.structs.replace(order, answers=True, dies_after=4)) == KILLED
        assert servers.run(next_server(order)) == 0
    check_continued(order, load_events(order))


def test_tool_that_writes_and_ends_its_process_is_not_run_again(memory_path: Path) -> None:
    order = Order(str(memory_path), texts=("explode_once", "Hello"))
    with start_servers() as servers:
        assert outlive(servers, order) == [EXPLODES, 0]
    events = load_events(order)
    assert lawful(events).ends == ["end_turn", "end_turn"]
    [result] = [body(event) for event in of_type(events, "tool.result")]
    assert result["error"]["code"] == "CANCELLED"
    assert of_type(events, "session.error") == []


def test_control_a_server_that_runs_interrupted_tools_again_is_seen(memory_path: Path) -> None:
    with pytest.raises(AssertionError, match="scribble"):
        continue_everywhere(memory_path, 1, reruns_tools=True)


def test_control_an_effect_that_happens_twice_is_seen(memory_path: Path) -> None:
    order = Order(str(memory_path))
    with start_servers() as servers:
        assert servers.run(order) == 0
    events = load_events(order)
    check_continued(order, events)
    with order.effects_path.open("a") as file:
        file.write("remove\n")
    with pytest.raises(AssertionError, match="remove"):
        check_continued(order, events)
