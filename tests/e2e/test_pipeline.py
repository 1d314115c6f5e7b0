"""The example `pipeline` over real sockets: three levels, a hand-off, outcomes that follow from the input."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import (
    APPS,
    assembled,
    bodies,
    durable,
    over,
    read,
    replayed,
    told,
    watch,
)
from tests.e2e.harness import Reader, Server, kind, running
from tests.e2e.killed_at_work import kill_and_continue
from tests.e2e.test_crash import NOTHING, open_things


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(f"{APPS}fast_pipeline", tmp_path_factory.mktemp("pipeline")) as server:
        yield server


def turn(server: Server, topic: str) -> tuple[str, list[Any]]:
    """A session and the events of its first turn."""
    session = server.session()
    server.send(session, topic)
    events = read(Reader(server, session), over)
    assert open_things(events) == NOTHING
    return session, events


def starts(events: list[Any], name: str) -> list[Any]:
    return [event for event in events if event["type"] == "agent.start" and event["agent_name"] == name]


def last_words(events: list[Any]) -> str:
    said = [event for event in events if event["type"] == "assistant.message" and event["depth"] == 0]
    return str(said[-1]["payload"]["text"])


@pytest.mark.parametrize(
    ("topic", "who", "agents", "words"),
    [
        ("honey", "Writer", 4, "Of 1 claims, 1 held."),
        (
            "honey and the Moon",
            "Writer",
            7,
            "You may have read this: The far side of the Moon is always dark.",
        ),
        ("goldfish, ghosts", "Writer", 6, "- Nothing about ghosts.\n\nOf 2 claims, 1 held."),
        ("ghosts and unicorns", "Planner", 3, "Nobody found anything about ghosts and unicorns"),
    ],
)
def test_the_topic_decides_who_works_and_what_is_written(
    server: Server, topic: str, who: str, agents: int, words: str
) -> None:
    _, events = turn(server, topic)
    assert events[-1]["agent_name"] == who
    assert len(bodies(events, "agent.start")) == len(bodies(events, "agent.end")) == agents
    assert words in last_words(events)


def test_what_is_on_the_shelves_decides_what_holds(tmp_path: Path) -> None:
    with running(f"{APPS}own_pipeline", tmp_path) as server:
        _, events = turn(server, "tin and zinc")
        assert last_words(events) == (
            "# On tin and zinc\n\n- Tin melts before lead does.\n- Zinc is a metal.\n"
            "- You may have read this: Tin cans are made of tin. They are of steel.\n\nOf 3 claims, 2 held."
        )
        _, events = turn(server, "honey")
        assert "Nobody found anything" in last_words(events)


def test_every_level_has_its_depth_and_its_parent(server: Server) -> None:
    _, events = turn(server, "honey and lightning")
    [planner] = starts(events, "Planner")
    researchers, checkers = starts(events, "Researcher"), starts(events, "Fact checker")
    [writer] = starts(events, "Writer")
    assert [len(researchers), len(checkers)] == [2, 3]
    assert {start["payload"]["parent_id"] for start in researchers} == {planner["agent_id"]}
    assert {start["payload"]["parent_id"] for start in checkers} == {
        start["agent_id"] for start in researchers
    }
    depths = {(event["agent_name"], event["depth"]) for event in events if "agent_name" in event}
    assert depths == {("Planner", 0), ("Researcher", 1), ("Fact checker", 2), ("Writer", 0)}
    assert writer["payload"]["via"] == "handoff"
    assert "parent_id" not in writer["payload"], "the writer has the planner's caller"
    assert {event["trace_id"] for event in events if "agent_id" in event} == {planner["trace_id"]}


def test_a_hand_off_has_the_order_of_the_diagram(server: Server) -> None:
    _, events = turn(server, "honey")
    assert next(event["agent_name"] for event in events if event["type"] == "agent.start") == "Planner"
    [handoff] = bodies(events, "agent.handoff")
    types = [event["type"] for event in events]
    place = types.index("agent.handoff")
    before, after = events[:place], events[place:]
    assert types[place - 1 : place + 3] == ["tool.result", "agent.handoff", "agent.end", "agent.start"]
    assert "assistant.message" in {event["type"] for event in before if event.get("agent_name") == "Planner"}
    assert not any(event.get("agent_name") == "Writer" for event in before)
    assert {event["agent_name"] for event in after[:2]} == {"Planner"}
    names = {(event["agent_name"], event["agent_id"], event["depth"]) for event in after[2:]}
    assert names == {("Writer", handoff["to_agent_id"], 0)}, "the caller gets them from the writer itself"


def test_researchers_work_at_once_and_the_planner_ends_before_the_writer_begins(server: Server) -> None:
    _, events = turn(server, "honey, bees and lightning")
    places = {event["id"]: place for place, event in enumerate(events)}
    begun = [places[start["id"]] for start in starts(events, "Researcher")]
    ended = [
        place
        for place, event in enumerate(events)
        if event["type"] == "agent.end" and event["agent_name"] == "Researcher"
    ]
    assert len(begun) == len(ended) == 3
    assert max(begun) < min(ended)
    [writer] = starts(events, "Writer")
    before = events[places[writer["id"]] - 1]
    assert (before["type"], before["agent_name"]) == ("agent.end", "Planner")
    assert before["payload"]["stop_reason"] == "handoff"


def test_a_reader_may_ask_for_the_top_only(server: Server) -> None:
    session, events = turn(server, "honey and bees")
    top = read(Reader(server, session, "&depth=0"), over)
    assert [event["id"] for event in durable(top)] == [
        event["id"] for event in durable(events) if event.get("depth", 0) == 0
    ]
    assert {event.get("agent_name", "") for event in top} == {"", "Planner", "Writer"}


def test_a_stop_reaches_every_level(tmp_path: Path) -> None:
    with running(f"{APPS}slow_pipeline", tmp_path) as server:
        session = server.session()
        reader = Reader(server, session)
        server.send(session, "bees and the Moon")
        read(reader, kind("block.delta", "Fact checker"))
        assert server.post("/api/stop", {"session": session})[0] == 202
        read(reader, over)
        assert open_things(reader.events) == NOTHING
        ends = [event for event in reader.events if event["type"] == "agent.end"]
        assert {event["depth"] for event in ends} == {0, 1, 2}
        assert {event["payload"]["stop_reason"] for event in ends} <= {"cancelled", "end_turn"}
        assert reader.events[-1]["payload"]["stop_reason"] == "cancelled"


def test_blocks_give_every_agent_its_words_and_calls(server: Server) -> None:
    session, events = turn(server, "honey and the Moon")
    starts = [event for event in events if event["type"] == "agent.start"]
    first, *later = [event for event in starts if not event["depth"]]
    assembler = assembled(told(server, session, first["agent_id"], 1 + len(later)))
    agents = {agent.id: agent for agent in assembler.agents.values()}
    # one id for the whole conversation: the agent that took over has it last
    shown = {later[-1]["agent_id"]: agents[first["agent_id"].removeprefix("agt_")]}
    for event in (event for event in starts if event["depth"] or event is later[-1]):
        agent = shown.get(event["agent_id"]) or agents[event["agent_id"].removeprefix("agt_")]
        assert agent.name == event["agent_name"]
        assert agent.meta_init
        assert agent.meta_init["user_query"] == event["payload"]["prompt"]
        assert agent.meta_final
    texts = [(agents[block.agent].name, block.text) for block in assembler.blocks if block.type == "text"]
    assert sorted(texts) == sorted(
        (event["agent_name"] if event["depth"] else later[-1]["agent_name"], event["payload"]["text"])
        for event in events
        if event["type"] == "assistant.message"
    )
    calls = [block for block in assembler.blocks if block.type == "tool_call"]
    assert all(len(call.results) == 1 for call in calls)
    assert sorted(call.name or "" for call in calls) == (
        ["fact_checker"] * 3 + ["handoff_to_writer"] + ["look_up"] * 3 + ["researcher"] * 2 + ["search"] * 2
    )


def test_a_replay_holds_what_was_seen_live(server: Server) -> None:
    session = server.session()
    live = watch(server, session, "bees and goldfish", over)
    assert {"tool.progress", "block.delta"} <= {event["type"] for event in live}
    again = replayed(server, session, live[-1]["seq"])
    assert durable(again) == durable(live)
    assert len(again) < len(live), "what only mattered while it was made is left out"


@pytest.mark.parametrize("moment", [("agent.start", "Fact checker"), ("block.delta", "Writer")])
def test_team_killed_at_work_goes_on_with_the_same_topic_and_ends_once(
    tmp_path: Path, moment: tuple[str, str]
) -> None:
    events = kill_and_continue(f"{APPS}slow_pipeline", tmp_path, "honey and the Moon", moment)
    assert {end["stop_reason"] for end in bodies(events, "agent.end")} <= {"end_turn", "handoff"}
    assert last_words(events).endswith("Of 3 claims, 2 held.")
