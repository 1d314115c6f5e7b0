"""LangGraph beyond the contract of runtimes: deepagents, own checkpointers, states without messages."""

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from tests.support.runtimes.langgraph import ScriptedModel, make_agent
from turnlog import adapters
from turnlog.adapters import ForeignAgent, Part
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalRequest,
    AssistantMessage,
    Entry,
    ToolAwait,
    ToolResult,
)
from turnlog.log import Log, MemoryStore
from turnlog.testing.runtimes import AgentScript, ScriptRecord, ScriptReply, ScriptTool
from turnlog.testing.runtimes.answering import SEVERAL
from turnlog.testing.runtimes.scripts import CallTool, ScriptInput

SESSION = "sess_1"


async def run(agent: ForeignAgent, log: Log, *args: Any, **options: Any) -> list[Entry]:
    return [entry async for entry in agent.run(*args, log=log, session_id=SESSION, **options)]


def payloads(entries: list[Entry], payload_class: type[Any]) -> list[Any]:
    return [entry.payload for entry in entries if isinstance(entry.payload, payload_class)]


def test_deep_agent_with_a_sub_agent_remembers_and_asks_over_a_restart() -> None:
    record = ScriptRecord()

    def reply(given: ScriptInput) -> ScriptReply:
        if given.new_results:
            return ScriptReply((f"Turn {len(given.user_texts)}.",))
        task = CallTool("write_todos", "", "call_t")
        return ScriptReply(("Planning. ",), calls=(task,))

    lead = AgentScript("Deep", reply)

    def make() -> ForeignAgent:
        model = ScriptedModel(script=lead, record=record)
        options: Any = {"model": model, "name": "Deep", "interrupt_on": {"write_todos": True}}
        return adapters.langgraph(create_deep_agent(**options))

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("deep", SESSION)
        entries = await run(make(), log, "one")
        assert len(payloads(entries, ApprovalRequest)) == 1
        entries = await run(make(), log, answers={"call_t": False})
        assert payloads(entries, AgentEnd)[-1].result == "Turn 1."
        await run(make(), log, "two")
        entries = await run(make(), log, answers={"call_t": False})
        assert payloads(entries, AgentEnd)[-1].result == "Turn 2."
        await log.close()

    asyncio.run(scenario())
    assert record.problems == []
    assert record.inputs["Deep"][-1].user_texts == ["one", "two"]


def test_graph_with_its_own_checkpointer_keeps_the_thread_there(tmp_path: Path) -> None:
    record = ScriptRecord()

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("own", SESSION)
        for step in range(2):
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
                agent = adapters.langgraph(make_agent(SEVERAL, record).copy({"checkpointer": saver}))
                if step == 0:
                    await run(agent, log, "Hi")
                    continue
                entries = await run(agent, log, answers={"call_a": True, "call_b": False})
                assert payloads(entries, AgentEnd)[-1].result == "Done."
                assert await saver.aget_tuple({"configurable": {"thread_id": SESSION}}) is not None
        await log.close()

    asyncio.run(scenario())
    assert sorted(record.effects) == ["delete /a", "look"]


class Form(TypedDict):
    topic: str
    notes: Annotated[list[str], operator.add]


def test_graph_without_messages_has_its_own_input_and_asks_in_a_node() -> None:
    def ask(state: Form) -> dict[str, list[str]]:
        return {"notes": [f"{state['topic']}: {interrupt('Which one?')}"]}

    def make_input(part: Part) -> Form:
        return {"topic": part.message or "", "notes": []}

    graph = StateGraph(Form)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    agent = adapters.langgraph(graph.compile(), name="Form", make_input=make_input)

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("form", SESSION)
        entries = await run(agent, log, "Colours")
        [question] = payloads(entries, ToolAwait)
        [awaited] = question.calls
        assert (awaited.tool, awaited.args) == ("interrupt", {"question": "Which one?"})
        entries = await run(agent, log, answers={awaited.call_id: "green"})
        assert payloads(entries, AgentEnd)[-1].stop_reason == "end_turn"
        assert payloads(entries, AgentStart) == []
        await log.close()

    asyncio.run(scenario())


def test_config_may_be_a_function_of_the_part() -> None:
    parts: list[Part] = []

    def make_config(part: Part) -> dict[str, Any]:
        parts.append(part)
        return {"configurable": {"thread_id": "not used"}, "tags": ["test"]}

    script = AgentScript("Lead", lambda _: ScriptReply(("Hello.",)), [ScriptTool("look")])
    agent = adapters.langgraph(make_agent(script, ScriptRecord()), config=make_config)

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("config", SESSION)
        entries = await run(agent, log, "Hi")
        assert [message.text for message in payloads(entries, AssistantMessage)] == ["Hello."]
        await log.close()

    asyncio.run(scenario())
    assert [part.conversation_key for part in parts] == [SESSION]
    assert Part("s", channel="c").conversation_key == "s/c"


class SeenModel(GenericFakeChatModel):
    """A model that says given messages. `seen` has what it read."""

    seen: list[list[Any]]

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        self.seen.append(messages)
        return super()._generate(messages, *args, **options)

    @property
    def results(self) -> dict[str, str]:
        """Return the results that it read last, by call."""
        return {message.tool_call_id: message.text for message in self.seen[-1] if message.type == "tool"}


def make_model(*calls: str) -> SeenModel:
    items = [{"name": name, "args": {}, "id": f"call_{name}"} for name in calls]
    answers = iter([AIMessage("", tool_calls=items), AIMessage("I see.")])
    return SeenModel(messages=answers, seen=[], disable_streaming=True)


@tool
async def look() -> str:
    """Look."""
    return "grass"


def test_turn_after_a_failed_step_has_the_results_of_the_tools_that_finished() -> None:
    has_looked = asyncio.Event()

    @tool
    async def fail() -> str:
        """Fail."""
        await has_looked.wait()
        raise ValueError("broken")

    model = make_model("look", "fail")

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("failing", SESSION)
        agent = adapters.langgraph(create_agent(model, [look, fail], name="Lead"))
        async for entry in agent.run("one", log=log, session_id=SESSION):
            if isinstance(entry.payload, ToolResult):
                has_looked.set()
        entries = await run(agent, log, "two")
        assert [message.text for message in payloads(entries, AssistantMessage)] == ["I see."]
        await log.close()

    asyncio.run(scenario())
    assert model.results == {"call_look": "grass", "call_fail": "Its agent has ended."}


def test_message_in_place_of_an_answer_keeps_the_results_of_the_tools_that_finished() -> None:
    @tool
    async def ask() -> str:
        """Ask the person."""
        return str(interrupt("Which colour?"))

    model = make_model("look", "ask")

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("asking", SESSION)
        await run(adapters.langgraph(create_agent(model, [look, ask], name="Lead")), log, "one")
        agent = adapters.langgraph(create_agent(model, [look, ask], name="Lead"))
        entries = await run(agent, log, "Never mind.")
        assert [message.text for message in payloads(entries, AssistantMessage)] == ["I see."]
        await log.close()

    asyncio.run(scenario())
    assert model.results == {"call_look": "grass", "call_ask": "The user went on with a message."}


def test_steps_before_a_question_count_if_the_model_reports_no_usage() -> None:
    @tool
    async def ask() -> str:
        """Ask the person."""
        return str(interrupt("Which colour?"))

    calls: list[Any] = [{"name": name, "args": {}, "id": f"call_{name}"} for name in ("look", "ask")]
    replies = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("I see.")]
    model = SeenModel(messages=iter(replies), seen=[], disable_streaming=True)

    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("steps", SESSION)
        agent = adapters.langgraph(create_agent(model, [look, ask], name="Lead"))
        await run(agent, log, "one")
        [end] = payloads(await run(agent, log, answers={"call_ask": "green"}), AgentEnd)
        assert (end.steps, end.usage, end.result) == (3, None, "I see.")
        await log.close()

    asyncio.run(scenario())
