"""The scripted models of the examples answer a greeting with words, and an unknown place with another one."""

import asyncio
from typing import Any

import pytest

from turnlog import Agent
from turnlog.agents.retry import RetryPolicy
from turnlog_examples.assistant.team import make_agent as make_assistant
from turnlog_examples.demo_office.people import CANDIDATES
from turnlog_examples.greetings import is_greeting
from turnlog_examples.pipeline.team import make_team
from turnlog_examples.tour import make_app as make_tour

AT_ONCE = RetryPolicy(initial_delay_s=0)


async def events_of(agent: Agent, text: str) -> list[Any]:
    return [entry async for entry in agent.run(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", True),
        ("Hello there!", True),
        ("hi", True),
        ("Good morning.", True),
        ("What can you do?", True),
        ("Oslo", False),
        ("hills and valleys", False),
        ("Can we fly from Helsinki?", False),
    ],
)
def test_is_greeting_of_short_messages(text: str, expected: bool) -> None:
    assert is_greeting(text) is expected


@pytest.mark.parametrize("name", ["tour", "assistant", "pipeline"])
def test_example_greeted_with_hello_answers_without_a_tool(name: str) -> None:
    agents = {
        "tour": make_tour().agent,
        "assistant": make_assistant(patience=AT_ONCE),
        "pipeline": make_team(),
    }
    events = asyncio.run(events_of(agents[name], "hello"))
    assert [
        event.type for event in events if event.type in ("tool.call", "session.error", "block.retract")
    ] == []
    [end] = [event.payload for event in events if event.type == "agent.end"]
    assert end.result.startswith("Hello!")
    assert "hello" not in end.result


def test_assistant_place_without_a_field_offers_another_one() -> None:
    events = asyncio.run(events_of(make_assistant(patience=AT_ONCE), "Can we fly from Oslo?"))
    [asked] = [event.payload for event in events if event.type == "tool.await"]
    question = "There is no launch field at Oslo. Shall I write the flight plan for Göreme instead?"
    assert [call.args["question"] for call in asked.calls] == [question]


def test_office_candidates_have_names_of_their_own() -> None:
    names = [person.name for person in CANDIDATES]
    assert len(set(names)) == len(names)
