"""Contracts of runtimes: what agents say and do."""

import asyncio
import json

from turnlog.events import (
    AgentHandoff,
    AgentStart,
    AgentUsage,
    AssistantThinking,
    BlockDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.testing.runtimes.harness import RuntimeUnderTest, open_session
from turnlog.testing.runtimes.scripts import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    AgentScript,
    CallAgent,
    CallTool,
    HandOff,
    ScriptInput,
    ScriptReply,
    ScriptTool,
)

HELLO = ScriptReply(("Hello ", "world", "."))
DONE = ScriptReply(("Done.",))


def say_hello(_: ScriptInput) -> ScriptReply:
    return HELLO


def call_once(*calls: CallTool | CallAgent | HandOff) -> AgentScript:
    """Return a script that calls once, and then says that it is done."""

    def reply(given: ScriptInput) -> ScriptReply:
        return DONE if given.new_results else ScriptReply(("Looking. ",), calls=calls)

    return AgentScript("Lead", reply)


async def text(runtime: RuntimeUnderTest) -> None:
    """A text streams in pieces and is whole in the end."""
    async with open_session(runtime, AgentScript("Lead", say_hello)) as session:
        await session.say("Hi")
        await session.check()
        deltas = await session.find(BlockDelta, "Lead")
        assert "".join(delta.text for delta in deltas) == "Hello world."
        end = await session.end_of("Lead")
        assert (end.stop_reason, end.result) == ("end_turn", "Hello world.")
        [start] = await session.find(AgentStart)
        assert (start.via, start.prompt) == ("prompt", "Hi")


async def thinking(runtime: RuntimeUnderTest) -> None:
    """Thinking is a block of its own, before the text."""

    def reply(_: ScriptInput) -> ScriptReply:
        return ScriptReply(("Forty ", "two."), thinking=("Let me ", "think."))

    async with open_session(runtime, AgentScript("Lead", reply)) as session:
        await session.say("Hi")
        await session.check()
        [thought] = await session.find(AssistantThinking)
        assert thought.text == "Let me think."


async def one_tool(runtime: RuntimeUnderTest) -> None:
    """A tool runs once, and its call and result are in the log."""
    script = call_once(CallTool("look", "Oslo"))
    script = AgentScript("Lead", script.reply, [ScriptTool("look", lambda value: f"saw {value}")])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        [call] = await session.find(ToolCall)
        assert (call.tool, call.args) == ("look", {"value": "Oslo"})
        [result] = await session.find(ToolResult)
        assert (result.ok, result.result) == (True, "saw Oslo")
        assert session.record.effects == ["look Oslo"]


async def parallel_tools(runtime: RuntimeUnderTest) -> None:
    """Tools of one message run at the same time, and each has its own result."""
    both_run = asyncio.Barrier(2)

    async def meet(value: str) -> str:
        await both_run.wait()
        return f"met {value}"

    calls = (CallTool("meet", "a", "call_a"), CallTool("meet", "b", "call_b"))
    script = AgentScript("Lead", call_once(*calls).reply, [ScriptTool("meet", meet)])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        results = await session.results()
        values = {call_id: result.result for call_id, result in results.items()}
        assert values == {"call_a": "met a", "call_b": "met b"}


async def failing_tool(runtime: RuntimeUnderTest) -> None:
    """A tool that raises leaves an answered call and an ended turn; the next turn works."""

    def fail(value: str) -> str:
        raise ValueError("the disk is on fire")

    def reply(given: ScriptInput) -> ScriptReply:
        if given.last_user_text == "Hi" and not given.new_results:
            return ScriptReply(("Looking. ",), calls=(CallTool("fail"),))
        return DONE

    script = AgentScript("Lead", reply, [ScriptTool("fail", fail)])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        [result] = await session.find(ToolResult)
        assert not result.ok or "error" in str(result.result).lower()
        await session.say("Again")
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "end_turn"


async def sub_agent(runtime: RuntimeUnderTest) -> None:
    """A sub-agent is an agent of its own: with its caller, its call, its depth and its text."""
    child = AgentScript("Researcher", say_hello)
    script = AgentScript("Lead", call_once(CallAgent("Researcher")).reply, agents=[child])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        starts = {start.name: start for start in await session.find(AgentStart)}
        entries = await session.entries()
        lead = next(entry for entry in entries if entry.agent_name == "Lead")
        researcher = starts["Researcher"]
        assert (researcher.via, researcher.parent_id) == ("call", lead.agent_id)
        assert researcher.call_id == "call_1"
        [result] = await session.find(ToolResult)
        assert "Hello world." in str(result.result)


async def sub_agents_with_equal_call_ids(runtime: RuntimeUnderTest) -> None:
    """Two sub-agents that run at the same time and use the same call ids stay two."""

    def reply(given: ScriptInput) -> ScriptReply:
        place = given.last_user_text
        if given.new_results:
            return ScriptReply((f"{place} is ", "green."))
        return ScriptReply((f"Asking {place}. ",), calls=(CallTool("look", place, "call_same"),))

    child = AgentScript("Researcher", reply, [ScriptTool("look")])
    calls = (CallAgent("Researcher", "Oslo", "call_a"), CallAgent("Researcher", "Bergen", "call_b"))
    script = AgentScript("Lead", call_once(*calls).reply, agents=[child])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        assert len(await session.find(AgentStart, "Researcher")) == 2
        assert sorted(session.record.effects) == ["look Bergen", "look Oslo"]
        by_agent: dict[str, set[str]] = {}
        for entry in await session.entries():
            if isinstance(entry.payload, ToolCall | BlockDelta) and entry.agent_name == "Researcher":
                said = str(entry.payload)
                places = {place for place in ("Oslo", "Bergen") if place in said}
                by_agent.setdefault(entry.agent_id or "", set()).update(places)
        assert sorted(map(sorted, by_agent.values())) == [["Bergen"], ["Oslo"]]


async def three_levels(runtime: RuntimeUnderTest) -> None:
    """A sub-agent of a sub-agent is two levels deep."""
    grandchild = AgentScript("Reader", say_hello)
    child_reply = call_once(CallAgent("Reader")).reply
    child = AgentScript("Researcher", child_reply, agents=[grandchild])
    script = AgentScript("Lead", call_once(CallAgent("Researcher")).reply, agents=[child])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        depths = {entry.agent_name: entry.depth for entry in await session.entries() if entry.agent_name}
        assert depths == {"Lead": 0, "Researcher": 1, "Reader": 2}


async def hand_off(runtime: RuntimeUnderTest) -> None:
    """An agent that hands over ends, and its successor answers at the same level."""
    billing = AgentScript("Billing", say_hello)

    def reply(given: ScriptInput) -> ScriptReply:
        return ScriptReply(("One moment. ",), calls=(HandOff("Billing"),))

    script = AgentScript("Lead", reply, hand_offs=[billing])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        [handoff] = await session.find(AgentHandoff)
        assert handoff.to == "Billing"
        assert (await session.end_of("Lead")).stop_reason == "handoff"
        entries = await session.entries()
        depths = {entry.agent_name: entry.depth for entry in entries if entry.agent_name}
        assert depths["Lead"] == depths["Billing"]
        end = await session.end_of("Billing")
        assert (end.stop_reason, end.result) == ("end_turn", "Hello world.")


async def structured_output(runtime: RuntimeUnderTest) -> None:
    """A structured output is the result of its agent, as JSON."""

    def reply(_: ScriptInput) -> ScriptReply:
        return ScriptReply(output={"city": "Oslo", "country": "Norway"})

    script = AgentScript("Lead", reply, output_fields=("city", "country"))
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        end = await session.end_of("Lead")
        assert json.loads(end.result or "") == {"city": "Oslo", "country": "Norway"}


async def usage_per_completion(runtime: RuntimeUnderTest) -> None:
    """Each completion has its own tokens, those of sub-agents and callers are apart."""
    script = call_once(CallTool("look"))
    agents = []
    calls: tuple[CallTool | CallAgent, ...] = (CallTool("look"),)
    if "sub_agents" in runtime.features:
        agents = [AgentScript("Researcher", say_hello)]
        calls = (CallTool("look"), CallAgent("Researcher", call_id="call_2"))
    script = AgentScript("Lead", call_once(*calls).reply, [ScriptTool("look")], agents)
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        for name, completions in session.record.completions.items():
            usages = [event.usage for event in await session.find(AgentUsage, name)]
            expected = Usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
            assert usages == [expected] * completions, name


async def next_turn_remembers(runtime: RuntimeUnderTest) -> None:
    """The model of the next turn reads what was said and done before."""
    script = AgentScript("Lead", call_once(CallTool("look", "Oslo")).reply, [ScriptTool("look")])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.restart()
        await session.say("Again")
        await session.check()
        last = session.record.inputs["Lead"][-1]
        assert last.user_texts == ["Hi", "Again"]
        assert "Done." in [item.text for item in last.items if item.kind == "assistant"]
        results = [item.text for item in last.items if item.kind == "result"]
        assert results == ["did Oslo", "did Oslo"]
