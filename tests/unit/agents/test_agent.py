"""What an agent may call, and under which names."""

from typing import Any

import pytest

from turnlog.agents import Agent, Scripted, tool
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.team import index_agents
from turnlog.errors import CallerError

MODEL = Scripted(lambda messages: [])


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "rain"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the visitor."""
    raise NotImplementedError


GUARD = Agent("Guard", "Guard it.", MODEL)
SCOUT = Agent("Night Scout", "Find it.", MODEL, agents=(GUARD,))
CLERK = Agent("Clerk", "Write it.", MODEL)
GUIDE = Agent("Guide", "Plan it.", MODEL, tools=(weather, confirm), agents=(SCOUT, CLERK))


@pytest.mark.parametrize(
    ("name", "tool_name"),
    [
        ("Guide", "guide"),
        ("Night Scout", "night_scout"),
        ("Dr. Who's  TARDIS", "dr_who_s_tardis"),
        ("agent_7", "agent_7"),
        ("Zoë", "zoe"),
        ("李", "agent"),
        ("x" * 80, "x" * 53),
    ],
)
def test_an_agent_is_called_by_its_name_in_small_letters(name: str, tool_name: str) -> None:
    assert Agent(name, "", MODEL).tool_name == tool_name


def test_it_may_call_its_tools_and_its_agents() -> None:
    assert [spec.name for spec in GUIDE.tool_specs] == ["weather", "confirm", "night_scout", "clerk"]
    assert GUARD.tool_specs == ()


def test_a_tool_is_found_by_its_name() -> None:
    assert GUIDE.find_tool("weather") is weather
    assert GUIDE.find_tool("confirm") is confirm
    assert GUIDE.find_tool("night_scout") is None
    assert GUARD.find_tool("weather") is None


def test_an_agent_is_found_by_its_tool_name_one_level_below() -> None:
    assert GUIDE.find_agent("night_scout") is SCOUT
    assert GUIDE.find_agent("Night Scout") is None
    assert GUIDE.find_agent("guard") is None
    assert SCOUT.find_agent("guard") is GUARD


@pytest.mark.parametrize(
    ("name", "executor"),
    [("weather", "backend"), ("confirm", "frontend"), ("night_scout", "backend"), ("nothing", "backend")],
)
def test_who_runs_a_call(name: str, executor: str) -> None:
    assert GUIDE.executor_of(name) == executor


def test_a_walk_meets_every_agent_parents_first() -> None:
    assert list(GUIDE.iter_team()) == [GUIDE, SCOUT, GUARD, CLERK]
    assert list(GUARD.iter_team()) == [GUARD]


def test_agents_may_hand_work_back_to_one_another() -> None:
    back: list[Agent] = []
    clerk = Agent("Clerk", "", MODEL, handoffs=back)
    desk = Agent("Desk", "", MODEL, handoffs=[clerk])
    back.append(desk)
    assert [agent.name for agent in desk.iter_team()] == ["Desk", "Clerk"]
    assert set(index_agents(desk)) == {"Desk", "Clerk"}


def test_a_name_is_one_agents_and_a_tools_name_is_no_hand_off() -> None:
    with pytest.raises(CallerError, match="Guard twice"):
        index_agents(Agent("Top", "", MODEL, agents=[GUARD], handoffs=[Agent("Guard", "Another.", MODEL)]))

    @tool
    def handoff_to_nobody() -> str:
        """No."""
        return ""

    with pytest.raises(CallerError, match="is the name of a hand-off"):
        Agent("Top", "", MODEL, tools=[handoff_to_nobody])
    with pytest.raises(CallerError, match="weather twice"):
        Agent("Top", "", MODEL, tools=[weather, weather])
    with pytest.raises(CallerError, match="max_steps of at least 1, got 0"):
        Agent("Top", "", MODEL, max_steps=0)
    with pytest.raises(CallerError, match="max_agents of at least 1, got 0"):
        Agent("Top", "", MODEL, max_agents=0)


@pytest.mark.parametrize("name", ["", "x" * 129, "é" * 65, "two\nlines"])
def test_a_name_that_no_event_can_carry_is_refused_at_once(name: str) -> None:
    with pytest.raises(CallerError, match=r"agent '.*: agent\.start: "):
        Agent(name, "", MODEL)
    with pytest.raises(CallerError, match=r"agent 'Top': agent\.start: "):
        Agent("Top", "", Scripted(lambda messages: [], name=name))


def test_what_is_no_tool_no_agent_and_no_model_is_refused_at_once() -> None:
    nothing: Any = None
    with pytest.raises(CallerError, match="expected tools made by @tool, got <built-in function len>"):
        Agent("Top", "", MODEL, tools=[len])  # type: ignore[list-item]
    for wrong in ({"agents": [weather]}, {"handoffs": ["Guard"]}):
        with pytest.raises(CallerError, match="agent Top: expected agents, got "):
            Agent("Top", "", MODEL, **wrong)
    with pytest.raises(CallerError, match=r"expected a model like .*, not None"):
        Agent("Top", "", nothing)


def test_patience_doubles_and_has_an_end() -> None:
    patience = RetryPolicy(initial_delay_s=1, max_delay_s=10)
    for failures, low, high in ((1, 1, 2), (2, 2, 4), (3, 4, 8), (9, 10, 10)):
        assert low <= patience.delay_s(failures, None) <= high
    assert patience.delay_s(1, 7.5) == 7.5
    assert patience.delay_s(1, 99) == 10
    assert patience.delay_s(5_000, None) == 10
    assert RetryPolicy(initial_delay_s=0).delay_s(5_000, None) == 0


def test_agent_specs_of_calls_and_hand_offs_say_what_the_other_knows() -> None:
    other = Agent("Other", "", MODEL)
    called, passed = Agent("One", "", MODEL, agents=(other,), handoffs=(other,)).tool_specs
    assert "knows nothing else" in called.schema["properties"]["prompt"]["description"]
    assert "has read this conversation" in passed.schema["properties"]["prompt"]["description"]
