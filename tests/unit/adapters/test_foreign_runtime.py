"""The runtime of foreign agents beyond the contract: lost states, code that hangs, policy of questions."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.adapters.scripted_runner import (
    OneRunner,
    ScriptedRunner,
    ask_to_delete,
    open_session,
    say,
)
from turnlog.adapters import (
    Finished,
    ForeignAgent,
    Part,
    Paused,
    Question,
    ToolPolicy,
    UnreadableState,
    foreign_runtime,
)
from turnlog.adapters.part_output import PartOutput
from turnlog.errors import CallerError, NotFound
from turnlog.events import (
    AgentCheckpoint,
    AgentEnd,
    ApprovalDecision,
    ApprovalRequest,
    AssistantMessage,
    BlockDelta,
    BlockEnd,
    SessionError,
    ToolCall,
    ToolResult,
)
from turnlog.log import Log, MemoryStore
from turnlog.parse import AgentInfo
from turnlog.testing.harness import expect_raises
from turnlog.testing.runtimes.harness import RuntimeHarness

TEST_TIMEOUT_S = 120.0


def run_test(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await work()

    asyncio.run(bounded())


async def texts(session: RuntimeHarness) -> list[str]:
    return [message.text for message in await session.find(AssistantMessage)]


async def errors(session: RuntimeHarness) -> list[str]:
    return [error.code for error in await session.find(SessionError)]


# checkpoints


def test_state_of_another_framework_is_an_error_and_the_turn_starts_afresh() -> None:
    async def scenario() -> None:
        runtime = OneRunner(ScriptedRunner(say))
        async with open_session(runtime) as session:
            await session.say("one")
            runtime.runner = ScriptedRunner(say, source="other")
            await session.restart()
            await session.say("two")
            await session.say("three")
            assert await texts(session) == ["1: one", "1: two", "2: three"]
            [error] = await session.find(SessionError)
            assert error.code == "checkpoint_unreadable"
            assert "scripted 1.0, not other 1.0" in error.message

    run_test(scenario)


def test_question_of_another_version_ends_its_turn_and_the_next_one_starts_afresh() -> None:
    async def scenario() -> None:
        runtime = OneRunner(ScriptedRunner(ask_to_delete))
        async with open_session(runtime) as session:
            await session.say("Hi")
            runtime.runner = ScriptedRunner(say, version="2.0")
            await session.restart()
            await session.answer("call_1", True)
            await session.check_laws()
            assert (await session.end_of("Lead")).stop_reason == "error"
            assert (await session.results())["call_1"].ok is False
            assert runtime.runner.parts == []
            await session.say("again")
            assert await texts(session) == ["1: again"]
            assert await errors(session) == ["checkpoint_unreadable"]

    run_test(scenario)


def test_state_that_is_missing_or_cannot_be_read_is_an_error() -> None:
    async def refuse(part: Part, output: PartOutput) -> Finished:
        if part.state is not None:
            raise UnreadableState("the stored state is not of this version")
        return await say(part, output)

    async def scenario() -> None:
        runtime = OneRunner(ScriptedRunner(refuse))
        async with open_session(runtime) as session:
            await session.say("one")
            await session.say("two")
            await session.say("three")
            assert await texts(session) == ["1: one", "1: three"]
            assert await errors(session) == ["checkpoint_unreadable"]
            names = await session.log.private_blob_names(session.session)
            await session.log.drop_private_blobs(session.session, names)
            await session.say("four")
            assert (await texts(session))[-1] == "1: four"
            assert await errors(session) == ["checkpoint_unreadable"] * 2
            await session.check_laws()

    run_test(scenario)


def test_agent_that_cannot_be_described_from_its_state_starts_afresh() -> None:
    class Forgetful(ScriptedRunner):
        def describe_agent(self, state: bytes | None) -> Any:
            if state is not None:
                raise UnreadableState("the stored agent is not known")
            return super().describe_agent(state)

    async def scenario() -> None:
        async with open_session(OneRunner(Forgetful(say))) as session:
            await session.say("one")
            await session.say("two")
            assert await texts(session) == ["1: one", "1: two"]
            assert await errors(session) == ["checkpoint_unreadable"]

    run_test(scenario)


def test_only_the_last_state_is_stored_and_no_member_can_fetch_it() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(say))) as session:
            for text in ("one", "two", "three"):
                await session.say(text)
            *_, last = await session.find(AgentCheckpoint)
            # the states before it are dropped in the background
            while await session.log.private_blob_names(session.session) != [last.blob]:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await expect_raises(NotFound, session.log.get_blob(last.blob))
            assert (await session.log.get_private_blob(session.session, last.blob)).data == b"3"

    run_test(scenario)


def test_agent_without_a_state_begins_each_turn_afresh() -> None:
    async def forget(part: Part, output: PartOutput) -> Finished:
        await output.report(output.builder.text, output.root, f"{part.state!r}: {part.message}")
        return Finished()

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(forget))) as session:
            await session.say("one")
            await session.say("two")
            assert await texts(session) == ["None: one", "None: two"]
            assert await session.find(AgentCheckpoint) == []

    run_test(scenario)


# questions


def test_question_and_checkpoint_are_one_append_and_wait_for_the_named_role() -> None:
    async def scenario() -> None:
        policy = ToolPolicy(roles=("manager",), expires_s=3600.0, risk="irreversible")
        runtime = OneRunner(ScriptedRunner(ask_to_delete), delete=policy)
        async with open_session(runtime) as session:
            await session.say("Hi")
            [request] = await session.find(ApprovalRequest)
            assert (request.roles, request.risk) == (("manager",), "irreversible")
            assert request.expires_at is not None
            assert session.runner.runtime.wake_at_ms is not None
            entries = await session.entries()
            assert [entry.type for entry in entries][-2:] == ["agent.checkpoint", "approval.request"]
            assert entries[-1].ts == entries[-2].ts
            with pytest.raises(CallerError, match="manager"):
                await session.answer("call_1", True)
            await session.answer("call_1", True, roles=("manager",))
            assert await texts(session) == ["Approved"]
            await session.check_laws()

    run_test(scenario)


def test_question_that_expires_is_denied_also_after_a_restart() -> None:
    async def scenario() -> None:
        runtime = OneRunner(ScriptedRunner(ask_to_delete), delete=ToolPolicy(expires_s=0.2))
        async with open_session(runtime) as session:
            await session.say("Hi")
            await session.restart()
            await session.wait_for(AgentEnd)
            [decision] = await session.find(ApprovalDecision)
            assert decision.decision == "expired"
            [result] = await session.find(ToolResult)
            assert result.error is not None
            assert (result.error.code, result.error.message) == ("DENIED", "no person answered in time")
            await session.check_laws()

    run_test(scenario)


def test_question_about_a_call_that_is_not_open_fails_the_turn() -> None:
    async def ask_nothing(part: Part, output: PartOutput) -> Paused:
        return Paused(b"waits", [Question(output.root, "call_9")])

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ask_nothing))) as session:
            await session.say("Hi")
            assert (await session.end_of("Lead")).stop_reason == "error"
            assert await errors(session) == ["agent_failed"]
            await session.check_laws()

    run_test(scenario)


def test_policy_that_expires_at_once_is_refused() -> None:
    with pytest.raises(CallerError, match="expires_s above 0"):
        ForeignAgent(ScriptedRunner(say), {"delete": ToolPolicy(expires_s=0)})


async def ask_inside(part: Part, output: PartOutput) -> Finished:
    """Ask the page while the part runs, and say what it answered."""
    root = output.root
    if part.message == "Hi":
        await output.report(output.builder.call, root, "confirm", {}, "call_1")
        answers = await output.ask([Question(root, "call_1", is_for_page=True)])
        await output.report(output.builder.result, root, "call_1", "reported again")
        await output.report(output.builder.text, root, str(answers[root.agent_id, "call_1"]))
    else:
        await output.report(output.builder.text, root, f"You said {part.message}.")
    return Finished(b"done")


def test_question_inside_a_part_is_answered_while_it_runs() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ask_inside))) as session:
            await session.say("Hi")
            await session.answer("call_1", "yes")
            assert await texts(session) == ["Returned(value='yes')"]
            [result] = await session.find(ToolResult)
            assert result.result == "yes"
            await session.check_laws()

    run_test(scenario)


async def ask_twice_inside(part: Part, output: PartOutput) -> Finished:
    """Ask a second question after the first, whatever its answer was."""
    root = output.root
    if part.message == "Hi":
        for call_id in ("call_1", "call_2"):
            await output.report(output.builder.call, root, "delete", {}, call_id)
            answers = await output.ask([Question(root, call_id)])
            await output.report(output.builder.text, root, str(answers[root.agent_id, call_id]))
    return Finished(b"done")


async def use_call_id_again(part: Part, output: PartOutput) -> Finished:
    """Ask about two calls of one id, and twice about each."""
    root = output.root
    for path in ("/a", "/b"):
        output.builder.reuse_call_id(root, "call_1")
        await output.report(output.builder.call, root, "delete", {"path": path}, "call_1")
        await output.report(output.builder.complete_message, root)
        question = Question(root, "call_1")
        both = await asyncio.gather(output.ask([question, question]), output.ask([question]))
        assert both[0] == both[1] == await output.ask([question])
        await output.report(output.builder.text, root, f"{path}: {both[0][root.agent_id, 'call_1']}")
        if root.owns_open_call("call_1"):
            await output.report(output.builder.result, root, "call_1", "deleted")
    return Finished(b"done")


def test_repeated_questions_are_asked_once_for_each_call() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(use_call_id_again))) as session:
            await session.say("Hi")
            await session.answer("call_1", True)
            await session.answer("call_1", False)
            calls = await session.find(ToolCall)
            assert [call.args["path"] for call in calls] == ["/a", "/b"]
            assert len(await session.find(ApprovalRequest)) == 2, "one approval is for one call"
            assert await texts(session) == ["/a: Approved()", "/b: Denied(reason='a person said no')"]
            await session.check_laws()

    run_test(scenario)


def test_question_after_a_message_in_place_of_an_answer_is_not_asked() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ask_twice_inside))) as session:
            await session.say("Hi")
            await session.say("Never mind")
            await session.check_laws()
            assert [request.call_id for request in await session.find(ApprovalRequest)] == ["call_1"]
            codes = [result.error.code for result in await session.find(ToolResult) if result.error]
            assert codes == ["CANCELLED", "CANCELLED"]
            assert await texts(session) == ["Denied(reason='The user went on with a message.')"] * 2

    run_test(scenario)


def test_message_in_place_of_an_answer_inside_a_part_is_answered_by_the_same_agent() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ask_inside))) as session:
            await session.say("Hi")
            await session.say("Never mind")
            assert await texts(session) == [
                "Denied(reason='The user went on with a message.')",
                "You said Never mind.",
            ]
            assert len(await session.find(AgentEnd)) == 1
            await session.check_laws()

    run_test(scenario)


def test_question_inside_a_part_is_closed_by_a_restart() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ask_inside))) as session:
            await session.say("Hi")
            await session.restart()
            assert (await session.end_of("Lead")).stop_reason == "error"
            await session.check_laws()

    run_test(scenario)


# foreign code that behaves badly


def test_code_that_does_not_stop_does_not_keep_its_turn_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_runtime, "STOP_GRACE_S", 0.01)
    release = asyncio.Event()

    async def ignore_stop(part: Part, output: PartOutput) -> Finished:
        await output.report(output.builder.text, output.root, "Busy")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            await output.report(output.builder.text, output.root, "too late")
        return Finished(b"late")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(ignore_stop))) as session:
            await session.send("Hi")
            await session.wait_for_text("Busy")
            await session.stop()
            release.set()
            await asyncio.sleep(0)
            assert (await session.end_of("Lead")).stop_reason == "cancelled"
            assert [end.text for end in await session.find(BlockEnd)] == ["Busy"]
            await session.check_laws()

    run_test(scenario)


def test_code_that_cancels_itself_fails_its_turn() -> None:
    async def cancel(part: Part, output: PartOutput) -> Finished:
        raise asyncio.CancelledError

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(cancel))) as session:
            await session.say("Hi")
            assert (await session.end_of("Lead")).stop_reason == "error"
            await session.check_laws()

    run_test(scenario)


def test_next_turn_is_told_what_became_of_the_calls_of_a_failed_one() -> None:
    async def fail_first(part: Part, output: PartOutput) -> Finished:
        if part.message != "Hi":
            return Finished(b"done")
        for call_id in ("call_1", "call_2"):
            await output.report(output.builder.call, output.root, "look", None, call_id)
        await output.report(output.builder.complete_message, output.root)
        await output.report(output.builder.result, output.root, "call_2", "grass")
        output.save_state(b"half")
        raise ValueError("the tool raised")

    async def scenario() -> None:
        runner = ScriptedRunner(fail_first)
        async with open_session(OneRunner(runner)) as session:
            await session.say("Hi")
            await session.restart()
            await session.say("Next")
            await session.check_laws()
        assert runner.parts[1].state == b"half"
        assert dict(runner.parts[1].ended_calls) == {
            "call_1": "Its agent has ended.",
            "call_2": "It ran, and returned: grass",
        }

    run_test(scenario)


def test_event_that_the_log_refuses_ends_the_turn_with_an_error() -> None:
    async def break_catalog(part: Part, output: PartOutput) -> Finished:
        await output.report(output.builder.text, output.root, "Hello")
        raise CallerError("an event was refused")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(break_catalog))) as session:
            await session.say("Hi")
            assert (await session.end_of("Lead")).stop_reason == "error"
            assert await errors(session) == ["agent_failed"]
            await session.check_laws()

    run_test(scenario)


def test_agents_that_a_finished_part_left_open_are_closed() -> None:
    async def leave_open(part: Part, output: PartOutput) -> Finished:
        output.builder.start_child(output.root, None, AgentInfo("Child", source_id="1"))
        output.builder.call(output.root, "look", {}, "call_1")
        return Finished(b"done")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(leave_open))) as session:
            await session.say("Hi")
            await session.check_laws()
            assert (await session.results())["call_1"].ok is False

    run_test(scenario)


def test_reports_of_a_thread_are_read_on_the_thread_of_the_runner() -> None:
    async def use_thread(part: Part, output: PartOutput) -> Finished:
        own_thread = threading.get_ident()
        seen: list[int] = []

        def feed(text: str) -> None:
            seen.append(threading.get_ident())
            output.builder.text(output.root, text)

        def work() -> None:
            asyncio.run(output.report(feed, "from a thread"))

        await asyncio.to_thread(work)
        assert seen == [own_thread]
        return Finished(b"done")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(use_thread))) as session:
            await session.say("Hi")
            assert await texts(session) == ["from a thread"]

    run_test(scenario)


def test_deltas_that_arrive_during_a_write_are_one() -> None:
    async def stream(part: Part, output: PartOutput) -> Finished:
        for number in range(100):
            await output.report(output.builder.text, output.root, f"{number} ")
        return Finished(b"done")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(stream))) as session:
            await session.say("Hi")
            deltas = await session.find(BlockDelta)
            assert "".join(delta.text for delta in deltas) == "".join(f"{n} " for n in range(100))
            assert len(deltas) < 100
            await session.check_laws()

    run_test(scenario)


def test_much_text_at_once_waits_for_the_log() -> None:
    async def flood(part: Part, output: PartOutput) -> Finished:
        for _ in range(4):
            await output.report(output.builder.text, output.root, "x" * 50_000)
        return Finished(b"done")

    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(flood))) as session:
            await session.say("Hi")
            assert [len(text) for text in await texts(session)] == [200_000]

    run_test(scenario)


# owners


def test_answer_that_no_owner_has_acted_on_continues_with_the_next_owner() -> None:
    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("test", "sess_1")
        runner = ScriptedRunner(ask_to_delete)
        async with open_session(OneRunner(runner), log) as session:
            await session.say("Hi")
            request = await session.build_answer("call_1", True)
        await log.append("sess_1", request)
        async with open_session(OneRunner(runner), log) as session:
            await session.wait_for(AgentEnd)
            assert await texts(session) == ["Approved"]
            await session.check_laws()
        await log.close()

    run_test(scenario)


def test_stop_that_no_owner_has_seen_closes_what_waits() -> None:
    async def scenario() -> None:
        log = Log(MemoryStore())
        await log.create("test", "sess_1")
        async with open_session(OneRunner(ScriptedRunner(ask_to_delete)), log) as session:
            await session.say("Hi")
        await log.append("sess_1", [session.build_stop()])
        async with open_session(OneRunner(ScriptedRunner(ask_to_delete)), log) as session:
            await session.wait_for(AgentEnd)
            assert (await session.end_of("Lead")).stop_reason == "cancelled"
            await session.check_laws()
        await log.close()

    run_test(scenario)


def test_stop_before_an_agent_has_started_leaves_its_turn_in_the_queue() -> None:
    async def scenario() -> None:
        async with open_session(OneRunner(ScriptedRunner(say))) as session:
            events = [*(await session.build_message("Hi")), session.build_stop()]
            await session.log.append(session.session, events)
            await session.wait_for(AgentEnd)
            await session.check_laws()

    run_test(scenario)
