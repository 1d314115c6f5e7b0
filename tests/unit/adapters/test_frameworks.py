"""Frameworks that are missing, untested, or used in a way that an adapter refuses."""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from turnlog import adapters
from turnlog.adapters.frameworks import PYDANTIC_AI, Framework, UntestedVersion, parse_version
from turnlog.adapters.langgraph_runner import VolatileCheckpointer, read_state
from turnlog.adapters.pydantic_ai_runner import decode_conversation
from turnlog.errors import CallerError


def make_graph() -> StateGraph[MessagesState]:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: state)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


def test_framework_that_is_missing_names_its_extra() -> None:
    missing = Framework("no_such_framework", "no-such-framework", "pydantic-ai", ("1", "2"))
    with pytest.raises(CallerError, match=r"pip install 'turnlog\[pydantic-ai\]'"):
        missing.load()


def test_version_outside_the_tested_range_warns() -> None:
    for tested in (("0.1", "0.2"), ("99", "100")):
        with pytest.warns(UntestedVersion, match="pydantic-ai-slim .* is untested"):
            PYDANTIC_AI._replace(tested=tested).load()


def test_control_the_installed_version_is_in_the_tested_range() -> None:
    assert PYDANTIC_AI.load().__name__ == "pydantic_ai"  # a warning would be an error


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1.2.20", (1, 2, 20)), ("1.2.0rc1", (1, 2, 0)), ("2.dev3", (2,)), ("unknown", ())],
)
def test_version_is_its_leading_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_agent_of_another_framework_is_refused() -> None:
    with pytest.raises(CallerError, match="expected an agent of Pydantic AI, got StateGraph"):
        adapters.pydantic_ai(make_graph())  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="expected a compiled graph of LangGraph, got StateGraph"):
        adapters.langgraph(make_graph())


def test_option_that_the_adapter_owns_is_refused() -> None:
    with pytest.raises(CallerError, match="expected no message_history"):
        adapters.pydantic_ai(Agent(TestModel()), message_history=[])


def test_checkpointer_in_memory_warns() -> None:
    with pytest.warns(VolatileCheckpointer, match="lost with the process"):
        adapters.langgraph(make_graph().compile(checkpointer=InMemorySaver()))


def test_states_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(adapters.UnreadableState):
        decode_conversation(b"{}{}")
    with pytest.raises(adapters.UnreadableState):
        read_state(b"no msgpack")
