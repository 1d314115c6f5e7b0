"""Contracts of runtimes: approvals and questions, answered once, later, in part, or not at all."""

from turnlog.errors import NotFound
from turnlog.events import AgentEnd, ApprovalRequest, ToolAwait, ToolCall
from turnlog.testing.harness import expect_raises
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

DELETE = ScriptTool("delete", lambda value: f"deleted {value}", needs_approval=True)
LOOK = ScriptTool("look", lambda value: "seen")


def ask_for_deletions(given: ScriptInput) -> ScriptReply:
    """Delete two things and look at a third after "Hi"; say hello to any other message."""
    if given.last_user_text != "Hi":
        return HELLO
    if given.new_results:
        return DONE
    calls = (
        CallTool("delete", "/a", "call_a"),
        CallTool("delete", "/b", "call_b"),
        CallTool("look", "", "call_l"),
    )
    return ScriptReply(("Looking. ",), calls=calls)


def delete_one(given: ScriptInput) -> ScriptReply:
    if given.last_user_text != "Hi":
        return HELLO
    return DONE if given.new_results else ScriptReply(calls=(CallTool("delete", "/a", "call_a"),))


def delete_two_in_a_row(given: ScriptInput) -> ScriptReply:
    done = len(given.new_results)
    if done == 2:
        return DONE
    return ScriptReply((f"Step {done}. ",), calls=(CallTool("delete", f"/{done}", f"call_{done}"),))


ONE = AgentScript("Lead", delete_one, [DELETE])
SEVERAL = AgentScript("Lead", ask_for_deletions, [DELETE, LOOK])


async def approve(runtime: RuntimeUnderTest) -> None:
    """A call that needs approval runs once, after a person approved it."""
    async with open_session(runtime, ONE) as session:
        await session.say("Hi")
        await session.check(is_waiting=True)
        [request] = await session.find(ApprovalRequest)
        assert (request.call_id, request.tool) == ("call_a", "delete")
        assert session.record.effects == []
        await session.answer("call_a", True)
        await session.check()
        assert session.record.effects == ["delete /a"]
        assert (await session.results())["call_a"].result == "deleted /a"
        assert (await session.end_of("Lead")).stop_reason == "end_turn"


async def deny(runtime: RuntimeUnderTest) -> None:
    """A call that a person denied does not run, and the model reads why."""
    async with open_session(runtime, ONE) as session:
        await session.say("Hi")
        await session.answer("call_a", False)
        await session.check()
        assert session.record.effects == []
        error = (await session.results())["call_a"].error
        assert error is not None
        assert error.code == "DENIED"
        assert "a person said no" in session.record.inputs["Lead"][-1].new_results["call_a"]


async def answer_twice(runtime: RuntimeUnderTest) -> None:
    """A second answer to a call is refused, and changes nothing."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.wait_for_requests(2)
        await session.answer("call_a", True)
        await expect_raises(NotFound, session.answer("call_a", False))
        await session.answer("call_b", False)
        await session.check()
        assert sorted(session.record.effects) == ["delete /a", "look"]


async def approve_after_restart(runtime: RuntimeUnderTest) -> None:
    """An agent waits over a restart, and an answer to the next process continues it."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.restart()
        await session.check(is_waiting=True)
        await session.answer("call_a", True)
        await session.restart()
        await session.answer("call_b", False)
        await session.check()
        assert sorted(session.record.effects) == ["delete /a", "look"]
        results = await session.results()
        assert {call_id: result.ok for call_id, result in results.items()} == {
            "call_a": True,
            "call_b": False,
            "call_l": True,
        }
        assert (await session.end_of("Lead")).result == "Done."


async def partial_answers(runtime: RuntimeUnderTest) -> None:
    """An agent with two questions waits for both, and goes on after the second answer."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.wait_for_requests(2)
        await session.answer("call_b", True)
        await session.check(is_waiting=True)
        await session.answer("call_a", True)
        await session.check()
        assert sorted(session.record.effects) == ["delete /a", "delete /b", "look"]
        assert session.record.completions["Lead"] == 2


async def message_instead_of_answer(runtime: RuntimeUnderTest) -> None:
    """A message in place of an answer cancels the questions, and the same agent goes on with it."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.restart()
        await session.say("Never mind")
        await session.check()
        assert "delete /a" not in session.record.effects
        assert "delete /b" not in session.record.effects
        results = await session.results()
        for call_id in ("call_a", "call_b"):
            error = results[call_id].error
            assert error is not None
            assert error.code == "CANCELLED"
        last = session.record.inputs["Lead"][-1]
        assert last.user_texts == ["Hi", "Never mind"]
        assert (await session.end_of("Lead")).result == "Hello world."


async def stop_while_waiting(runtime: RuntimeUnderTest) -> None:
    """A stop ends an agent that waits; the next turn's history is lawful."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.stop()
        await session.check()
        assert (await session.end_of("Lead")).stop_reason == "cancelled"
        await session.restart()
        await session.say("Again")
        await session.check()
        assert session.record.inputs["Lead"][-1].last_user_text == "Again"
        assert "delete /a" not in session.record.effects
        assert len(await session.find(ToolCall)) == 3, "calls of the stopped turn are reported again"


async def two_questions_in_a_row(runtime: RuntimeUnderTest) -> None:
    """An agent that asks again after an answer waits again."""
    async with open_session(runtime, AgentScript("Lead", delete_two_in_a_row, [DELETE])) as session:
        await session.say("Hi")
        await session.answer("call_0", True)
        await session.check(is_waiting=True)
        await session.restart()
        await session.answer("call_1", True)
        await session.check()
        assert session.record.effects == ["delete /0", "delete /1"]


async def message_while_process_waits(runtime: RuntimeUnderTest) -> None:
    """A message in place of an answer reaches an agent whose process waits, and nothing that it held runs."""
    async with open_session(runtime, SEVERAL) as session:
        await session.say("Hi")
        await session.wait_for_requests(2)
        await session.say("Never mind")
        await session.check()
        assert "delete /a" not in session.record.effects
        assert "delete /b" not in session.record.effects
        assert session.record.inputs["Lead"][-1].last_user_text == "Never mind"
        assert (await session.end_of("Lead")).result == "Hello world."


async def two_questions_to_one_process(runtime: RuntimeUnderTest) -> None:
    """An agent that asks again after an answer waits again, in the same process."""
    async with open_session(runtime, AgentScript("Lead", delete_two_in_a_row, [DELETE])) as session:
        await session.say("Hi")
        await session.answer("call_0", True)
        await session.check(is_waiting=True)
        await session.answer("call_1", True)
        await session.check()
        assert session.record.effects == ["delete /0", "delete /1"]


async def restart_of_waiting_process(runtime: RuntimeUnderTest) -> None:
    """A restart keeps a turn that waits, or closes it, and never both. The next turn works."""
    async with open_session(runtime, ONE) as session:
        await session.say("Hi")
        await session.restart()
        is_kept = bool(runtime.features & {"approvals", "single_approvals"})
        if is_kept:
            await session.check(is_waiting=True)
            await session.answer("call_a", False)
        await session.check()
        [end] = await session.find(AgentEnd)
        assert end.stop_reason == ("end_turn" if is_kept else "error")
        await session.say("Again")
        await session.check()
        assert session.record.effects == []
        assert session.record.inputs["Lead"][-1].user_texts == ["Hi", "Again"]


async def single_approval_after_restart(runtime: RuntimeUnderTest) -> None:
    """A single question waits over restarts. Its call runs once, and a second question waits again."""
    async with open_session(runtime, AgentScript("Lead", delete_two_in_a_row, [DELETE])) as session:
        await session.say("Hi")
        await session.restart()
        await session.check(is_waiting=True)
        await session.answer("call_0", True)
        await session.restart()
        await session.check(is_waiting=True)
        assert session.record.effects == ["delete /0"]
        await session.answer("call_1", True)
        await session.check()
        assert session.record.effects == ["delete /0", "delete /1"]
        assert (await session.results())["call_1"].result == "deleted /1"
        assert (await session.end_of("Lead")).stop_reason == "end_turn"


async def message_instead_of_single_answer(runtime: RuntimeUnderTest) -> None:
    """A message in place of the only answer, after a restart, cancels the call; the same agent goes on."""
    async with open_session(runtime, ONE) as session:
        await session.say("Hi")
        await session.restart()
        await session.say("Never mind")
        await session.check()
        assert session.record.effects == []
        error = (await session.results())["call_a"].error
        assert error is not None
        assert error.code == "CANCELLED"
        assert session.record.inputs["Lead"][-1].user_texts == ["Hi", "Never mind"]
        await session.say("Hi again")
        await session.check()
        assert session.record.inputs["Lead"][-1].user_texts == ["Hi", "Never mind", "Hi again"]


async def page_call_after_restart(runtime: RuntimeUnderTest) -> None:
    """A call that the page answers waits over a restart, and its answer is the result."""
    script = AgentScript(
        "Lead", call_once(CallTool("confirm", "Sure?")).reply, [ScriptTool("confirm", is_for_page=True)]
    )
    async with open_session(runtime, script) as session:
        await session.say("Hi")
        await session.check(is_waiting=True)
        [question] = await session.find(ToolAwait)
        assert [call.call_id for call in question.calls] == ["call_1"]
        await session.restart()
        await session.answer("call_1", "yes, sure")
        await session.check()
        assert (await session.results())["call_1"].result == "yes, sure"
        assert "yes, sure" in session.record.inputs["Lead"][-1].new_results["call_1"]


def make_nested() -> AgentScript:
    """Return an agent whose sub-agent asks. The message may go on with either of them."""

    def reply(given: ScriptInput) -> ScriptReply:
        if given.last_user_text != "Hi":
            return HELLO
        return DONE if given.new_results else ScriptReply(("Asking. ",), calls=(CallAgent("Child"),))

    def reply_child(given: ScriptInput) -> ScriptReply:
        if given.new_results or given.last_user_text != "Go.":
            return DONE
        return ScriptReply(("Deleting. ",), calls=(CallTool("delete", "/a", "call_a"),))

    return AgentScript("Lead", reply, agents=[AgentScript("Child", reply_child, [DELETE])])


async def nested_approval_after_restart(runtime: RuntimeUnderTest) -> None:
    """A sub-agent waits for an approval over a restart, and its caller with it."""
    async with open_session(runtime, make_nested()) as session:
        await session.say("Hi")
        await session.check(is_waiting=True)
        await session.restart()
        await session.check(is_waiting=True)
        await session.answer("call_a", True)
        await session.check()
        assert session.record.effects == ["delete /a"]
        assert (await session.end_of("Child")).result == "Done."
        assert (await session.end_of("Lead")).result == "Done."


async def inner_approval(runtime: RuntimeUnderTest) -> None:
    """A sub-agent waits for an approval, and its caller with it. A second question can be denied."""
    async with open_session(runtime, make_nested()) as session:
        await session.say("Hi")
        await session.check(is_waiting=True)
        await session.answer("call_a", False)
        await session.check()
        assert session.record.effects == []
        assert "a person said no" in session.record.inputs["Child"][-1].new_results["call_a"]
        assert (await session.end_of("Lead")).result == "Done."


async def message_instead_of_nested_answer(runtime: RuntimeUnderTest) -> None:
    """A message in place of the answer of a sub-agent ends the turn lawfully."""
    async with open_session(runtime, make_nested()) as session:
        await session.say("Hi")
        await session.say("Never mind")
        await session.check()
        assert session.record.effects == []
