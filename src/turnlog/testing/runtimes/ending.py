"""Contracts of runtimes: errors, stops and limits."""

import asyncio

from turnlog.events import AgentEnd, BlockEnd, SessionError, ToolCall
from turnlog.testing.runtimes.harness import RuntimeUnderTest, open_session
from turnlog.testing.runtimes.scripts import (
    AgentScript,
    CallAgent,
    CallTool,
    ScriptInput,
    ScriptReply,
    ScriptTool,
)
from turnlog.testing.runtimes.talking import DONE, HELLO, call_once

SHORT_LIMIT_S = 0.2


def fail_once(given: ScriptInput) -> ScriptReply:
    return ScriptReply(("I was about ",), error="connection reset") if given.last_user_text == "Hi" else HELLO


def hang_once(given: ScriptInput) -> ScriptReply:
    return ScriptReply(("I was about ",), hangs=True) if given.last_user_text == "Hi" else HELLO


async def model_error(runtime: RuntimeUnderTest) -> None:
    """A model that fails ends the turn with an error; the next turn works."""
    async with open_session(runtime, AgentScript("Lead", fail_once)) as session:
        await session.say("Hi")
        await session.check()
        assert await session.find(SessionError)
        assert (await session.end_of("Lead")).stop_reason == "error"
        await session.say("Again")
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "end_turn"


async def error_in_sub_agent(runtime: RuntimeUnderTest) -> None:
    """A sub-agent whose model fails ends before its caller, with an error."""

    def fail(_: ScriptInput) -> ScriptReply:
        return ScriptReply(("I was about ",), error="connection reset")

    child = AgentScript("Researcher", fail)
    script = AgentScript("Lead", call_once(CallAgent("Researcher")).reply, agents=[child])
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        assert (await session.end_of("Researcher")).stop_reason == "error"


async def stop_in_text(runtime: RuntimeUnderTest) -> None:
    """A stop ends the model; the partial text is kept, and the next turn's history is lawful."""
    async with open_session(runtime, AgentScript("Lead", hang_once)) as session:
        await session.send("Hi")
        await session.wait_for_text("I was about ")
        await session.stop()
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "cancelled"
        [end] = [end for end in await session.find(BlockEnd) if end.status == "aborted"]
        assert end.text == "I was about "
        await session.say("Again")
        await session.check()
        assert session.record.inputs["Lead"][-1].last_user_text == "Again"


async def stop_in_tool(runtime: RuntimeUnderTest) -> None:
    """A stop reaches a tool; its call is cancelled, and the next turn's history is lawful."""
    started = asyncio.Event()
    stopped = asyncio.Event()

    async def hang(value: str) -> str:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()
        return value

    def reply(given: ScriptInput) -> ScriptReply:
        return ScriptReply(calls=(CallTool("hang"),)) if given.last_user_text == "Hi" else DONE

    async with open_session(runtime, AgentScript("Lead", reply, [ScriptTool("hang", hang)])) as session:
        await session.send("Hi")
        await started.wait()
        await session.stop()
        await stopped.wait()
        await session.check()
        result = (await session.results())["call_1"]
        assert result.error is not None
        assert result.error.code == "CANCELLED"
        await session.say("Again")
        await session.check()


async def turn_limit(runtime: RuntimeUnderTest) -> None:
    """A turn that takes too long ends with `turn_timeout`; the next turn works."""
    script = AgentScript("Lead", hang_once)
    async with open_session(runtime, script, turn_limit_s=SHORT_LIMIT_S) as session:
        await session.send("Hi")
        await session.wait_for(AgentEnd)
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "timeout"
        assert [error.code for error in await session.find(SessionError)] == ["turn_timeout"]


async def step_limit(runtime: RuntimeUnderTest) -> None:
    """An agent that calls tools without end is ended with `max_steps`."""

    def reply(given: ScriptInput) -> ScriptReply:
        return ScriptReply(("More. ",), calls=(CallTool("look", call_id=f"call_{len(given.items)}"),))

    script = AgentScript("Lead", reply, [ScriptTool("look")], max_steps=3)
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "max_steps"


async def messages_in_order(runtime: RuntimeUnderTest) -> None:
    """Messages that arrive while a turn runs are answered one after the other."""
    release = asyncio.Event()

    async def wait(value: str) -> str:
        await release.wait()
        return value

    def reply(given: ScriptInput) -> ScriptReply:
        if given.last_user_text == "one" and not given.new_results:
            return ScriptReply(calls=(CallTool("wait"),))
        return ScriptReply((f"You said {given.last_user_text}.",))

    async with open_session(runtime, AgentScript("Lead", reply, [ScriptTool("wait", wait)])) as session:
        await session.send("one")
        await session.wait_for(ToolCall)
        await session.send("two")
        last = await session.send("three")
        release.set()
        await session.wait_settled(last)
        await session.check()
        assert [end.result for end in await session.find(AgentEnd)] == [
            "You said one.",
            "You said two.",
            "You said three.",
        ]
        assert session.record.inputs["Lead"][-1].user_texts == ["one", "two", "three"]
