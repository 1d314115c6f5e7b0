"""Statements of document 001 (statements.md) that no other test says in so many words."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from tests.statements.room import body, of_type, opened, result_count, saying, talk
from turnlog import Agent, App, open_log
from turnlog.agents import Scripted, ToolUse
from turnlog.app import Sessions
from turnlog.events import AgentEnd, AgentHandoff, Envelope, decode_envelope
from turnlog.log import envelope_json
from turnlog.state.history import Message
from turnlog.vocabularies import FULL_CATALOG
from turnlog_examples.pipeline import make_team


def calling(name: str, *agents: Agent) -> Agent:
    """An agent that says something, calls these agents, and says something again."""

    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        yield f"{name} {'ends' if result_count(messages) else 'begins'}."
        if not result_count(messages):
            yield from [ToolUse(agent.tool_name, {"prompt": "go"}) for agent in agents]

    return Agent(name, "", Scripted(script), agents=agents)


@pytest.fixture(scope="module")
def tree() -> list[Envelope]:
    """What a caller gets of Agent A, which calls B and C; B calls D."""
    top = calling("Agent A", calling("Agent B", calling("Agent D")), calling("Agent C"))
    return talk(App("tree", top), "go")


def test_an_event_says_which_agent_made_it_and_how_deep_that_is(tree: list[Envelope]) -> None:
    made = {(event.agent_name, event.depth) for event in tree if event.agent_id}
    assert made == {("Agent A", 0), ("Agent B", 1), ("Agent C", 1), ("Agent D", 2)}


def test_the_caller_of_one_agent_gets_the_events_of_all_it_calls(tree: list[Envelope]) -> None:
    asked = [start["name"] for start in of_type(tree, "agent.start") if start["via"] == "prompt"]
    assert asked == ["Agent A"]
    for name in ("Agent A", "Agent B", "Agent C", "Agent D"):
        types = [event.type for event in tree if event.agent_name == name]
        assert (types[0], "assistant.message" in types, types[-1]) == ("agent.start", True, "agent.end")


def test_what_an_agent_says_comes_before_the_agent_it_then_calls(tree: list[Envelope]) -> None:
    said = next(event for event in tree if event.type == "assistant.message")
    called = next(event for event in tree if event.agent_name == "Agent B")
    assert (said.agent_name, said.seq < called.seq) == ("Agent A", True)
    assert body(called)["parent_id"] == said.agent_id


def test_a_reader_can_leave_out_sub_agents_by_depth(tree: list[Envelope]) -> None:
    shown = [body(event)["text"] for event in tree if event.type == "block.delta" and event.depth == 0]
    assert "".join(shown) == "Agent A begins.Agent A ends."


def test_the_types_of_a_turn_are_a_declared_set(tree: list[Envelope]) -> None:
    assert {event.type for event in tree} <= set(FULL_CATALOG.types)


def test_the_conversation_is_kept_as_long_as_the_session() -> None:
    def recall(messages: list[Message]) -> list[str | ToolUse]:
        return [" ".join(part["text"] for turn in messages[::2] for part in turn.content)]

    async def play() -> None:
        async with opened(saying(recall)) as room:
            await room.send("one")
            await room.send("two")
            await room.sessions.close()
            room.sessions = Sessions(room.log, room.sessions.apps.values(), 2)
            await room.send("three")
            assert of_type(room.events, "assistant.message")[-1]["text"] == "one two three"

    asyncio.run(play())


def test_a_caller_waits_for_the_end_of_every_agent_that_it_has_heard_of() -> None:
    """The document's rule on `Agent.run()`: called agents, agents below them, and one that takes over."""

    async def observe() -> tuple[dict[str, str], list[str], list[str]]:
        seen: dict[str, str] = {}
        ended: list[str] = []
        unread: list[str] = []
        async with aclosing(make_team().run("honey and the Moon")) as events:
            async for event in events:
                if ended and seen.keys() == set(ended):
                    unread.append(event.type)
                    continue
                if event.agent_id:
                    seen[event.agent_id] = event.agent_name or ""
                if isinstance(event.payload, AgentHandoff):
                    seen[event.payload.to_agent_id] = event.payload.to
                if isinstance(event.payload, AgentEnd):
                    ended.append(event.agent_id or "")
        return seen, ended, unread

    seen, ended, unread = asyncio.run(observe())
    assert sorted(seen.values()) == ["Fact checker"] * 3 + ["Planner"] + ["Researcher"] * 2 + ["Writer"]
    assert sorted(ended) == sorted(seen)
    assert unread == [], "nothing comes after the last end"


async def followed(agent: Agent) -> list[Envelope]:
    """What the caller of an agent gets, from its log."""
    log = await open_log("memory:")
    session = await log.create("line")
    async for _ in agent.run("go", log=log, session_id=session):
        pass
    happened = [decode_envelope(envelope_json(row)) for row in await log.read(session)]
    await log.close()
    return happened


def test_a_hand_off_is_as_in_the_diagram() -> None:
    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        yield "Event 1."
        yield ToolUse("handoff_to_agent_b", {"prompt": "go on"})

    second = Agent("Agent B", "", Scripted(lambda messages: ["Event 2."]))
    first = Agent("Agent A", "", Scripted(script), handoffs=[second])
    happened = asyncio.run(followed(first))
    [asked] = of_type(happened, "ui.message")
    assert asked == {"text": "go"}
    starts = of_type(happened, "agent.start")
    assert [(start["name"], start["via"]) for start in starts] == [
        ("Agent A", "prompt"),
        ("Agent B", "handoff"),
    ]
    assert all("parent_id" not in start for start in starts), "who sent the message is the caller of both"
    seen = [
        (event.type, event.agent_name, event.depth)
        for event in happened
        if event.type in ("assistant.message", "agent.handoff", "agent.end")
    ]
    assert seen == [
        ("assistant.message", "Agent A", 0),
        ("agent.handoff", "Agent A", 0),
        ("agent.end", "Agent A", 0),
        ("assistant.message", "Agent B", 0),
        ("agent.end", "Agent B", 0),
    ]
