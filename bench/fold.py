"""How long the client folds a session, of the console before `SessionStore`: `python -m bench.fold`.

The same 20,000 events in the same process: turns with thinking, texts, calls beside each other, a sub-agent,
an approval, a question and a view, all with deltas. `EARLIER` is checked out beside this tree. Its folds are
`Conversation` with its entries and `Tree` for every event, and `Meters`, `Names` and `waitingAgents` for
every drawing. Now it is `SessionStore`, whose snapshots also have the pending calls and the open agents.

A history comes in one batch, with deltas or, as it is stored, without. Live, a page draws after each event.
"To entries" adds what the console builds from the snapshots, which it does at most every 50 ms. Every round
runs both sides, ratios of CPU time are taken inside a round, after rounds in which the engine compiles both.
The growth is the time per event in a log that is four times as long; 1 is linear.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hatch_build import WEB, install, machine_node, wheel_node
from turnlog.events import CATALOG, Origin, Scope, encode_sse_frame

ROOT = Path(__file__).parent.parent
EARLIER = "ec4c43d2"  # the last commit whose console has folds of its own
ROUNDS = 31
EVENTS = 20_000
LONG = 4  # times as many events, for the growth
SESSION = "sess_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
BEGUN_MS = 1_767_875_696_000
STEP_MS = 40
TEXT = "Based on the document , the harbour of Oslo was cheaper in May than in June ."
WORDS = TEXT.split()
FORM = {
    "type": "form",
    "id": "f",
    "title": "Booking",
    "fields": [{"type": "field.text", "name": "name", "label": "Name"}],
}
USAGE = {"input_tokens": 1200, "output_tokens": 340, "cache_read_tokens": 800}
COST = {"total_cost": 0.0123, "input_cost": 0.01, "output_cost": 0.0023}

GOAL = 1.0
HISTORY_ENTRIES_GOAL = 1.2
LIVE_ENTRIES_GOAL = 1.75  # each event compares all messages; the folds before changed entries in place
GROWTH_GOAL = 1.5  # a change copies the list of messages: 8 bytes for each


class Entry(NamedTuple):
    """An event before it is in the log."""

    type: str
    payload: dict[str, Any]
    scope: Scope
    origin: Origin = "model"


def write_block(scope: Scope, block_id: str, kind: str, words: int, **fields: str) -> Iterator[Entry]:
    """Stream a block of some words, without the event that completes it."""
    yield Entry("block.start", {"block_id": block_id, "kind": kind, **fields}, scope)
    for at in range(words):
        yield Entry("block.delta", {"block_id": block_id, "text": f"{WORDS[at % len(WORDS)]} "}, scope)
    yield Entry("block.end", {"block_id": block_id, "status": "complete"}, scope)


def write_text(scope: Scope, block_id: str, kind: str, words: int) -> Iterator[Entry]:
    yield from write_block(scope, block_id, kind, words)
    text = "".join(f"{WORDS[at % len(WORDS)]} " for at in range(words))
    final = "assistant.message" if kind == "text" else "assistant.thinking"
    yield Entry(final, {"block_id": block_id, "text": text}, scope)


def write_call(scope: Scope, call_id: str, tool: str, executor: str = "backend") -> Iterator[Entry]:
    block_id = f"blk_{call_id}"
    yield from write_block(scope, block_id, "tool_call", 6, call_id=call_id, tool=tool)
    call = {
        "call_id": call_id,
        "tool": tool,
        "args": {"query": "Oslo"},
        "block_id": block_id,
        "executor": executor,
    }
    yield Entry("tool.call", call, scope)


def end_call(scope: Scope, call_id: str, tool: str, origin: Origin = "tool") -> Entry:
    result = {"call_id": call_id, "tool": tool, "ok": True, "result": {"found": 3}, "error": None}
    return Entry("tool.result", result, scope, origin)


def end_completion(scope: Scope) -> Entry:
    return Entry("agent.usage", {"model": "m", "usage": USAGE, "cost": COST}, scope, "system")


def write_sub_agent(parent: Scope, turn: int, call_id: str) -> Iterator[Entry]:
    """Let an agent work that a call has started."""
    scope = Scope(trace_id=parent.trace_id, agent_id=f"agt_{turn}s", agent_name="Scout", depth=1)
    start = {"name": "Scout", "via": "call", "parent_id": parent.agent_id, "call_id": call_id, "model": "m"}
    yield Entry("agent.start", start, scope, "system")
    yield from write_text(scope, f"blk_{turn}s1", "thinking", 8)
    yield from write_call(scope, f"c_{turn}s1", "search")
    yield end_completion(scope)
    yield end_call(scope, f"c_{turn}s1", "search")
    yield from write_text(scope, f"blk_{turn}s2", "text", 20)
    yield end_completion(scope)
    yield Entry("agent.end", {"stop_reason": "end_turn", "steps": 2}, scope, "system")


def write_people(scope: Scope, person: Scope, turn: int) -> Iterator[Entry]:
    """Ask for an approval and for a value, and get both."""
    call = {"call_id": f"c_{turn}b", "args_hash": "9f86d081884c7d65"}
    yield Entry("approval.request", {**call, "tool": "book", "risk": "db_write"}, scope, "system")
    question = {"call_id": f"c_{turn}d", "tool": "confirm", "args": {"question": "Sure?"}}
    yield Entry("tool.await", {"calls": [question]}, scope, "system")
    decided = Scope(trace_id=scope.trace_id, agent_id=scope.agent_id, agent_name="Guide", actor=person.actor)
    yield Entry("approval.decision", {**call, "decision": "approve"}, decided, "ui")
    yield end_call(decided, f"c_{turn}d", "confirm", "ui")
    yield end_call(scope, f"c_{turn}b", "book")


def write_turn(turn: int) -> Iterator[Entry]:
    """One turn of a conversation: about 200 events."""
    person = Scope(trace_id=f"tr_{turn}", actor="ada")
    scope = Scope(trace_id=f"tr_{turn}", agent_id=f"agt_{turn}", agent_name="Guide")
    yield Entry("ui.message", {"text": "When is the harbour of Oslo cheaper?"}, person, "ui")
    yield Entry("agent.start", {"name": "Guide", "via": "prompt", "model": "m"}, scope, "system")
    yield from write_text(scope, f"blk_{turn}a", "thinking", 20)
    yield from write_text(scope, f"blk_{turn}b", "text", 15)
    for letter, tool in zip("abc", ("search", "book", "scout"), strict=True):
        yield from write_call(scope, f"c_{turn}{letter}", tool)
    yield from write_call(scope, f"c_{turn}d", "confirm", "frontend")
    yield end_completion(scope)
    for line in WORDS[:5]:
        yield Entry("tool.progress", {"call_id": f"c_{turn}a", "text": f"{line}\n"}, scope, "tool")
    yield end_call(scope, f"c_{turn}a", "search")
    yield from write_sub_agent(scope, turn, f"c_{turn}c")
    yield end_call(scope, f"c_{turn}c", "scout")
    yield from write_people(scope, person, turn)
    yield from write_text(scope, f"blk_{turn}c", "text", 40)
    view = {"kind": "a2ui.v1", "view_id": f"v_{turn % 3}", "tree": FORM}
    yield Entry("assistant.view", {"view": view}, scope, "tool")
    yield end_completion(scope)
    yield Entry("agent.end", {"stop_reason": "end_turn", "steps": 2}, scope, "system")
    submit = {"kind": "form.submit", "form_id": "f", "values": {"name": "Ada"}}
    yield Entry("ui.action", {"view_id": f"v_{turn % 3}", "action": submit}, Scope(actor="ada"), "ui")


def write_log(path: Path, events: int) -> None:
    """Write a log of whole turns, cut at a number of events, one event in a line."""
    member = {"principal": "ada", "roles": ["owner"], "name": "Ada"}
    entries = [Entry("session.member", member, Scope(), "system")]
    turn = 0
    while len(entries) < events:
        entries += write_turn(turn)
        turn += 1

    with path.open("wb") as file:
        for seq, (kind, payload, scope, origin) in enumerate(entries[:events]):
            event = CATALOG.build_event(kind, payload, id=f"evt_{seq}", origin=origin, scope=scope)
            frame = encode_sse_frame(event, session_id=SESSION, seq=seq, ts_ms=BEGUN_MS + seq * STEP_MS)
            file.write(frame.removeprefix(b"data: ").rstrip() + b"\n")
    print(f"{events:,} events, {turn} turns", flush=True)


class Way(NamedTuple):
    """What is measured of one log: both sides fold as many events, or `times` as many now as before."""

    name: str
    goal: float
    times: int = 1


SHORT_WAYS = (
    Way("history", GOAL),
    Way("stored history", GOAL),
    Way("live", GOAL),
    Way("history to entries", HISTORY_ENTRIES_GOAL),
    Way("live to entries", LIVE_ENTRIES_GOAL),
)
LONG_WAYS = (Way("growth of history", GROWTH_GOAL, LONG), Way("growth of live", GROWTH_GOAL, LONG))


def run_node(earlier: Path, log: Path, way: Way) -> dict[str, list[float]]:
    """Fold a log one way in a process of its own; return the milliseconds of each side by round."""
    found = machine_node() or wheel_node()
    if found is None:
        raise SystemExit("bench.fold needs Node.js 20 or later")
    install(found, dev=False)
    compiler = (WEB / "tests" / "typescript.mjs").as_uri()
    command = [*found.node, "--disable-warning=ExperimentalWarning", "--import", compiler]
    arguments = [str(ROOT / "bench" / "fold.mjs"), str(earlier), str(log), str(ROUNDS), way.name]
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    times: dict[str, list[float]] = json.loads(ran.stdout)
    return times


def report(times: dict[str, list[float]], way: Way) -> bool:
    """Print the figure of a way; return whether it misses its goal."""
    before, now = times["before"], times["now"]
    ratio = median(own / other / way.times for own, other in zip(now, before, strict=True))
    took = f"{median(now):.1f} ms of {median(before):.1f} ms"
    verdict = "met" if ratio <= way.goal else "MISSED"
    print(f"{way.name}: {ratio:.2f}, goal at most {way.goal:.2f}, {verdict} ({took})", flush=True)
    return ratio > way.goal


def main() -> int:
    """Print the figures; return the number of missed goals."""
    with tempfile.TemporaryDirectory() as folder:
        tree, log = Path(folder) / "before", Path(folder) / "log"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(tree), EARLIER], check=True)
        try:
            missed = 0
            for events, ways in ((EVENTS, SHORT_WAYS), (EVENTS * LONG, LONG_WAYS)):
                write_log(log, events)
                missed += sum(report(run_node(tree, log, way), way) for way in ways)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
