"""The Claude Agent SDK beyond the contract of runtimes: its options, questions, and its program."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ProcessError

from tests.support.claude_standin import standin_command
from tests.support.limits import HANG_S
from tests.support.scripted_claude import AGENT_TOOL, Line, LineClaude
from tests.unit.adapters.scripted_runner import OneRunner, open_session
from turnlog import adapters
from turnlog.adapters import ForeignAgent, Part
from turnlog.adapters.claude_sdk_runner import OWN_OPTIONS, decode_claude_state
from turnlog.adapters.foreign_runtime import AGENT_FAILED, CHECKPOINT_UNREADABLE
from turnlog.errors import CallerError
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    ApprovalRequest,
    AssistantMessage,
    Cost,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.testing.runtimes.harness import RuntimeHarness

SESSION = "6a1f8f9c-0f4e-4d3c-9d5a-0f2f0a4f6d10"

Play = Callable[["PlayedClaude", str], Awaitable[None]]


class PlayedClaude(LineClaude):
    """A program whose turns are a function of the test."""

    def __init__(self, play: Play, options: ClaudeAgentOptions) -> None:
        super().__init__(options.resume or SESSION)
        self.options = options
        self._play = play

    async def play_turn(self, content: Any) -> None:
        await self._play(self, content)

    def say(self, *blocks: Line, parent: str | None = None, message_id: str = "msg_1", **fields: Any) -> None:
        message = {"id": message_id, "model": "m", "content": list(blocks), **fields}
        self.write_line("assistant", message=message, parent_tool_use_id=parent)

    def give_result(self, call_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        self.write_line("user", message={"role": "user", "content": [block]}, parent_tool_use_id=None)


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def use(tool: str, args: Line, call_id: str = "call_1") -> Line:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": args}


def make_agent(play: Play, **options: Any) -> ForeignAgent:
    return adapters.claude_sdk(
        ClaudeAgentOptions(**options), make_transport=lambda chosen: PlayedClaude(play, chosen)
    )


def scenario(agent: ForeignAgent, run: Callable[[RuntimeHarness], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S), open_session(OneRunner(agent.runner)) as session:
            await run(session)
            await session.check_laws()

    asyncio.run(bounded())


# options


@pytest.mark.parametrize("name", OWN_OPTIONS)
def test_option_that_the_adapter_owns_is_refused(name: str) -> None:
    options = ClaudeAgentOptions(**{name: "given"})  # type: ignore[arg-type]
    with pytest.raises(CallerError, match=f"expected no {name}"):
        adapters.claude_sdk(options)


def test_other_values_than_options_are_refused() -> None:
    with pytest.raises(CallerError, match="expected ClaudeAgentOptions, got dict"):
        adapters.claude_sdk({"model": "m"})  # type: ignore[arg-type]


def test_options_may_be_a_function_of_the_part() -> None:
    parts: list[Part] = []
    models: list[str | None] = []

    def make_options(part: Part) -> ClaudeAgentOptions:
        parts.append(part)
        return ClaudeAgentOptions(model=f"model-of-{part.session_id}")

    async def play(program: PlayedClaude, _: str) -> None:
        models.append(program.options.model)
        program.write_init()
        program.say(text("Hello."))
        program.write_result()

    agent = adapters.claude_sdk(
        make_options, name="Claude Two", make_transport=lambda chosen: PlayedClaude(play, chosen)
    )

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [start] = await session.find(AgentStart)
        assert start.name == "Claude Two"

    scenario(agent, run)
    assert models == ["model-of-sess_1"]
    assert [part.message for part in parts] == ["Hi"]


def test_program_that_is_missing_is_an_error_of_the_turn(tmp_path: Path) -> None:
    agent = adapters.claude_sdk(ClaudeAgentOptions(cli_path=tmp_path / "claude"))

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [problem] = await session.find(SessionError)
        assert problem.code == AGENT_FAILED
        assert (await session.end_of("Claude")).stop_reason == "error"

    scenario(agent, run)


def test_state_without_an_id_is_refused() -> None:
    assert decode_claude_state(None) is None
    with pytest.raises(adapters.UnreadableState):
        decode_claude_state(b"{}")


# conversations


class ForgetfulClaude(PlayedClaude):
    async def connect(self) -> None:
        if self.options.resume is not None:
            raise ProcessError("No conversation found", exit_code=1)
        await super().connect()


async def play_hello(program: PlayedClaude, _: str) -> None:
    program.write_init()
    program.say(text("Hello."))
    program.write_result()


async def play_lost(program: PlayedClaude, _: str) -> None:
    """Greet once; a conversation that is resumed only has an error."""
    if program.options.resume is None:
        await play_hello(program, "")
    else:
        program.write_result(
            is_error=True, subtype="error_during_execution", errors=["No conversation found"]
        )


@pytest.mark.parametrize("make_program", [ForgetfulClaude, PlayedClaude], ids=["exits", "reports"])
def test_conversation_that_the_program_has_lost_ends_its_turn_and_the_next_one_starts_afresh(
    make_program: type[PlayedClaude],
) -> None:
    agent = adapters.claude_sdk(
        ClaudeAgentOptions(), make_transport=lambda chosen: make_program(play_lost, chosen)
    )

    async def run(session: RuntimeHarness) -> None:
        await session.say("one")
        await session.say("two")
        [problem] = await session.find(SessionError)
        assert problem.code == CHECKPOINT_UNREADABLE
        assert "No conversation found" in problem.message
        await session.say("three")
        reasons = [end.stop_reason for end in await session.find(AgentEnd)]
        assert reasons == ["end_turn", "error", "end_turn"]

    scenario(agent, run)


def test_program_that_dies_in_a_turn_ends_it_and_is_resumed() -> None:
    resumed: list[str | None] = []

    async def play(program: PlayedClaude, prompt: str) -> None:
        resumed.append(program.options.resume)
        program.write_init()
        program.say(text("I was about."))
        if prompt == "Hi":
            program.die(ProcessError("killed", exit_code=137))
        else:
            program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert (await session.end_of("Claude")).stop_reason == "error"
        assert [problem.code for problem in await session.find(SessionError)] == [AGENT_FAILED]
        await session.say("Again")
        assert (await session.end_of("Claude")).stop_reason == "end_turn"

    scenario(make_agent(play), run)
    assert resumed == [None, SESSION]


def test_program_that_ends_without_a_result_ends_the_turn_with_an_error() -> None:
    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        program._lines.put_nowait(None)

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert (await session.end_of("Claude")).stop_reason == "error"

    scenario(make_agent(play), run)


# permissions and questions

QUESTIONS = {"questions": [{"question": "Which colour?", "options": [{"label": "Green"}]}]}


@pytest.mark.parametrize("answer", ["Green", {"Which colour?": "Green"}])
def test_question_of_the_program_is_for_the_page(answer: Any) -> None:
    inputs: list[Line] = []

    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        program.say(use("AskUserQuestion", QUESTIONS))
        permission = await program.ask("AskUserQuestion", QUESTIONS, "call_1")
        inputs.append(permission["updatedInput"])
        program.give_result("call_1", "The user chose Green.")
        program.say(text("Green it is."), message_id="msg_2")
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ToolAwait)
        assert [call.args for call in question.calls] == [QUESTIONS]
        await session.answer("call_1", answer)
        [result] = await session.find(ToolResult)
        assert result.result == answer
        assert (await session.end_of("Claude")).result == "Green it is."

    scenario(make_agent(play), run)
    assert inputs == [{**QUESTIONS, "answers": {"Which colour?": "Green"}}]


def test_permission_belongs_to_the_agent_of_messages_that_were_sent_before_it() -> None:
    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        task = {"subagent_type": "Researcher", "prompt": "Look.", "description": "Look"}
        program.say(use(AGENT_TOOL, task, "call_a"))
        program.say(text("I look. "), parent="call_a", message_id="msg_2")
        program.say(use("Bash", {"command": "ls"}, "call_b"), parent="call_a", message_id="msg_2")
        await program.ask("Bash", {"command": "ls"}, "call_b")  # in the same step as the messages
        program.give_result("call_b", "a.txt")
        program.give_result("call_a", "There is a.txt.")
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [request] = await session.find(ApprovalRequest, "Researcher")
        assert request.call_id == "call_b"
        await session.answer("call_b", True)
        calls = [call.call_id for call in await session.find(ToolCall)]
        assert calls == ["call_a", "call_b"]

    scenario(make_agent(play), run)


def test_permission_may_come_before_the_message_of_its_call() -> None:
    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        await program.ask("Bash", {"command": "ls"}, "call_1")
        start = {"id": "msg_1", "model": "m", "content": []}
        block = use("Bash", {})
        piece = {"type": "input_json_delta", "partial_json": '{"command": "ls"}'}
        for event in (
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": piece},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_stop"},
        ):
            program.write_line("stream_event", event=event, parent_tool_use_id=None)
        program.give_result("call_1", "a.txt")
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.answer("call_1", True)
        assert len(await session.find(ToolCall)) == 1
        [result] = await session.find(ToolResult)
        assert result.result == "a.txt"

    scenario(make_agent(play), run)


def test_arguments_that_a_hook_has_changed_are_shown_and_run() -> None:
    inputs: list[Line] = []

    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        program.say(use("Bash", {"command": "rm a"}))
        permission = await program.ask("Bash", {"command": "rm -i a"}, "call_1", decision_reason="a rule")
        inputs.append(permission["updatedInput"])
        program.give_result("call_1", "done")
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [request] = await session.find(ApprovalRequest)
        assert request.reason == 'It will run with {"command":"rm -i a"}'
        await session.answer("call_1", True)

    scenario(make_agent(play), run)
    assert inputs == [{"command": "rm -i a"}]


def test_permission_for_a_call_without_an_id_is_denied() -> None:
    decisions: list[Line] = []

    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        decisions.append(await program.ask("Bash", {}, None))
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert await session.find(ApprovalRequest) == []

    scenario(make_agent(play), run)
    assert [decision["behavior"] for decision in decisions] == ["deny"]


# background agents, tokens and cost


def test_program_goes_on_after_a_result_while_an_agent_works_in_the_background() -> None:
    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        task = {"subagent_type": "Watcher", "prompt": "Watch.", "run_in_background": True}
        program.say(use(AGENT_TOOL, task, "call_w"))
        started = {
            "task_id": "t",
            "description": "Watch",
            "subagent_type": "Watcher",
            "is_backgrounded": True,
        }
        program.write_line("system", subtype="task_started", tool_use_id="call_w", **started)
        program.give_result("call_w", "started")
        program.say(text("It is watched."), message_id="msg_2")
        program.write_result(total_cost_usd=0.5)
        program.say(text("All is quiet."), parent="call_w", message_id="msg_3")
        fields = {"task_id": "t", "output_file": "", "summary": "quiet"}
        program.write_line(
            "system", subtype="task_notification", status="completed", tool_use_id="call_w", **fields
        )
        program.write_init()
        program.say(text("Nothing happened."), message_id="msg_4")
        program.write_result(total_cost_usd=0.75)

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        texts = [message.text for message in await session.find(AssistantMessage)]
        assert texts == ["It is watched.", "All is quiet.", "Nothing happened."]
        assert len(await session.find(AgentStart)) == 2
        end = await session.end_of("Claude")
        assert (end.result, end.cost) == ("Nothing happened.", Cost(total_cost=0.75))
        assert (await session.end_of("Watcher")).stop_reason == "end_turn"

    scenario(make_agent(play), run)


def test_tokens_that_no_message_has_named_are_those_of_the_main_agent() -> None:
    async def play(program: PlayedClaude, _: str) -> None:
        program.write_init()
        named: Line = {"usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 5}}
        program.say(text("Hello "), **named)
        program.say(text("world."), **named)
        totals = {"inputTokens": 12, "outputTokens": 30, "cacheReadInputTokens": 5}
        small = {"inputTokens": 2, "outputTokens": 1}
        program.write_result(modelUsage={"m[1m]": totals, "small": small})

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        usages = await session.find(AgentUsage)
        assert [usage.model for usage in usages] == ["m", "m[1m]"]
        assert [usage.usage for usage in usages] == [
            Usage(input_tokens=10, output_tokens=1, cache_read_tokens=5),
            Usage(input_tokens=4, output_tokens=30),
        ]
        end = await session.end_of("Claude")
        assert end.usage == Usage(input_tokens=14, output_tokens=31, cache_read_tokens=5)

    scenario(make_agent(play), run)


def test_cost_of_a_turn_with_a_message_in_place_of_an_answer_is_that_of_both_runs() -> None:
    async def play(program: PlayedClaude, prompt: str) -> None:
        program.write_init()
        if prompt == "Hi":
            program.say(use("Bash", {}))
            await program.ask("Bash", {}, "call_1")
        # a program that resumes a conversation goes on with its totals
        program.write_result(total_cost_usd=0.25 if prompt == "Hi" else 0.5)

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("Never mind")
        assert (await session.end_of("Claude")).cost == Cost(total_cost=0.5)

    scenario(make_agent(play), run)


# the stand-in of the program, as a process


def make_process_agent(folder: Path) -> ForeignAgent:
    """Return an agent whose program is the project's stand-in of Claude Code."""
    program = folder / "claude.py"
    command = list(standin_command())
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\nos.execv({command[0]!r}, {command!r} + sys.argv[1:])\n"
    )
    program.chmod(0o755)
    return adapters.claude_sdk(ClaudeAgentOptions(cli_path=program, cwd=folder))


def test_process_acts_after_an_approval_and_remembers(tmp_path: Path) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("please delete the notes")
        [request] = await session.find(ApprovalRequest)
        assert (request.tool, request.reason) == ("Bash", "Bash wants to run.")
        await session.answer(request.call_id, True)
        [result] = await session.find(ToolResult)
        assert result.call_id == request.call_id
        end = await session.end_of("Claude")
        assert end.stop_reason == "end_turn"
        assert end.cost is not None
        await session.restart()
        await session.say("hello again")
        [first, second] = await session.find(AgentStart, "Claude")
        assert (first.source_session, second.source_session is not None) == (None, True)

    scenario(make_process_agent(tmp_path), run)


def test_stop_interrupts_the_process_and_the_next_turn_works(tmp_path: Path) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.send("/wait")
        await session.wait_for(AssistantMessage)
        await session.stop()
        assert (await session.end_of("Claude")).stop_reason == "cancelled"
        await session.say("hello again")
        assert (await session.end_of("Claude")).stop_reason == "end_turn"

    scenario(make_process_agent(tmp_path), run)
