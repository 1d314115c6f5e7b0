"""Document 001 against the real server: a program of its own observes the example `pipeline` to the end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.examples import APPS, over, read, standing
from tests.e2e.harness import ROOT, Reader, Server, running
from tests.support.limits import HANG_S
from turnlog.wire.sse import ServerSentEvent

Events = list[dict[str, Any]]


class Observation(NamedTuple):
    """What the program printed, and the events of the same turn in the log."""

    events: Events
    ui: str
    usage: dict[str, int]
    log: Events
    meters: Any


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(f"{APPS}fast_pipeline", tmp_path_factory.mktemp("agents")) as server:
        yield server


def observe(server: Server, message: str) -> Observation:
    session = server.session()
    command = [sys.executable, "-m", "tests.e2e.observe_agents", server.url, session, message]
    env = os.environ | {"TURNLOG_TOKEN": server.token}
    output = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=HANG_S)
    log = read(Reader(server, session), over)
    meters = standing(server, session)["meters"]["session"]
    return Observation(**json.loads(output.stdout), log=log, meters=meters)


@pytest.fixture(scope="module")
def seen(server: Server) -> Observation:
    """A planner calls two researchers, who call fact checkers, and hands over to a writer."""
    return observe(server, "honey and the Moon")


def of_type(events: Events, name: str) -> Events:
    return [event for event in events if event["type"] == name]


def test_waiting_for_the_end_of_every_agent_observes_the_whole_tree(seen: Observation) -> None:
    started = {event["agent_id"]: event["agent_name"] for event in of_type(seen.log, "agent.start")}
    assert {event["agent_id"]: event["agent"] for event in seen.events} == started
    assert sorted(started.values()) == ["Fact checker"] * 3 + ["Planner"] + ["Researcher"] * 2 + ["Writer"]
    ends = [event["agent_id"] for event in of_type(seen.events, "turn_end")]
    assert sorted(ends) == sorted(started), "one TurnEnd of each"
    assert seen.events[-1]["type"] == "turn_end"
    assert seen.events[-1]["agent"] == "Writer", "the program stops with the last one, and not before"


def test_every_event_has_its_agent_its_depth_and_the_invocation_that_called_it(seen: Observation) -> None:
    depths = {(event["agent"], event["depth"]) for event in seen.events}
    assert depths == {("Planner", 0), ("Researcher", 1), ("Fact checker", 2), ("Writer", 0)}
    names = {event["agent_id"]: event["agent"] for event in seen.events}
    callers = {(event["agent"], names.get(event.get("parent_id"))) for event in seen.events}
    assert callers == {
        ("Planner", None),
        ("Researcher", "Planner"),
        ("Fact checker", "Researcher"),
        ("Writer", None),
    }


def test_the_simplest_ui_shows_the_text_of_the_top_agents_only(seen: Observation) -> None:
    said = of_type(seen.log, "assistant.message")
    assert seen.ui == "".join(event["payload"]["text"] for event in said if event["depth"] == 0)
    deeper = [event["payload"]["text"] for event in said if event["depth"] > 0]
    assert deeper
    assert not any(text in seen.ui for text in deeper)


def test_the_usage_of_a_turn_is_the_sum_of_its_finished_completions(tmp_path: Path) -> None:
    with running("tests.e2e.envelope_apps:metered", tmp_path) as server:
        seen = observe(server, "go")
    ends = of_type(seen.events, "completion_end")
    assert [(end["agent"], end["payload"]["usage"]["output_tokens"]) for end in ends] == [
        ("First", 10),
        ("Helper", 1),
        ("Writer", 100),
    ]
    assert seen.usage == {"input_tokens": 1110, "output_tokens": 111}
    assert seen.usage == {name: seen.meters[name] for name in seen.usage}


def test_events_of_a_called_agent_come_up_while_it_works(seen: Observation) -> None:
    [planner] = {event["agent_id"] for event in seen.events if event["agent"] == "Planner"}
    for end in (event for event in of_type(seen.events, "turn_end") if event["agent"] == "Researcher"):
        own = [event for event in seen.events if event["agent_id"] == end["agent_id"]]
        types = [event["type"] for event in own]
        assert types[0] == "prompt_started"
        assert types.index("chat_output") < types.index("turn_end") == len(types) - 1
        after = seen.events[seen.events.index(end) + 1]
        assert (after["type"], after["agent_id"]) == ("subagent_result", planner), "then its caller goes on"


def test_a_hand_off_has_the_order_of_the_diagram(seen: Observation) -> None:
    top = [(event["type"], event["agent"]) for event in seen.events if event["depth"] == 0]
    assert top[:2] == [("prompt", "Planner"), ("prompt_started", "Planner")]
    handed = top.index(("add_child", "Planner"))
    assert ("chat_output", "Planner") in top[:handed]
    assert top[handed + 1 : handed + 3] == [("turn_end", "Planner"), ("prompt_started", "Writer")]
    assert {agent for _, agent in top[handed + 2 :]} == {"Writer"}


def test_tool_output_is_shown_before_the_result_of_its_tool(seen: Observation) -> None:
    outputs = of_type(seen.events, "tool_output")
    assert outputs
    for output in outputs:
        call = output["payload"]["tool_call_id"]
        same = [
            event["type"]
            for event in seen.events
            if event["agent_id"] == output["agent_id"]
            and isinstance(event["payload"], dict)
            and event["payload"].get("tool_call_id") == call
        ]
        assert same[0] == "tool_call"
        assert same[-1] == "tool_result"
        assert set(same[1:-1]) == {"tool_output"}


def test_a_turn_without_a_hand_off_ends_with_the_top_agent(server: Server) -> None:
    seen = observe(server, "ghosts and unicorns")
    assert (seen.events[-1]["type"], seen.events[-1]["agent"]) == ("turn_end", "Planner")
    assert "Nobody found anything about ghosts and unicorns" in seen.ui


def test_an_agent_that_is_cancelled_sends_its_turn_end(tmp_path: Path) -> None:
    with running(f"{APPS}slow_pipeline", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session, "&dialect=agentic")
        server.send(session, "bees and the Moon")
        read(reader, lambda message: is_event(message, "chat_output", "Fact checker"))
        assert server.post("/api/stop", {"session": session})[0] == 202
        read(reader, lambda message: is_event(message, "turn_end", "Planner"))
        events = [event for event in reader.events if "agent_id" in event]
    ends = [event["agent_id"] for event in of_type(events, "turn_end")]
    assert sorted(ends) == sorted({event["agent_id"] for event in events})
    cancelled = {event["agent"] for event in of_type(events, "turn_cancelled")}
    assert {"Planner", "Fact checker"} <= cancelled


def is_event(message: ServerSentEvent, name: str, agent: str) -> bool:
    if message.event != "message":
        return False
    event = json.loads(message.data)
    return (event["type"], event["agent"]) == (name, agent)
