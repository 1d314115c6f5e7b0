"""Calls of the Claude Agent SDK that wait without a process: what its hook decides, how a part goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, HookMatcher, StreamEvent, ToolUseBlock

from tests.support.limits import HANG_S
from tests.support.scripted_claude import Line, LineClaude
from tests.unit.adapters.scripted_runner import OneRunner, open_session
from turnlog import adapters
from turnlog.adapters import Approved, Denied, claude_sdk_runner
from turnlog.adapters.claude_sdk_deferral import Deferrals, HeldCall
from turnlog.adapters.foreign_runtime import CHECKPOINT_UNREADABLE
from turnlog.events import AgentEnd, ApprovalRequest, SessionError, ToolAwait, ToolResult
from turnlog.testing.runtimes.harness import RuntimeHarness

SESSION = "6a1f8f9c-0f4e-4d3c-9d5a-0f2f0a4f6d10"
QUESTIONS = {"questions": [{"question": "Which colour?", "options": [{"label": "Green"}]}]}

Play = Callable[["ResumingClaude", str | None], Awaitable[None]]


class ResumingClaude(LineClaude):
    """A program whose turns are a function of the test. One that resumes begins without a message."""

    def __init__(self, play: Play, options: ClaudeAgentOptions) -> None:
        super().__init__(options.resume or SESSION)
        self.options = options
        self._play = play

    def begin_work(self) -> None:
        if self.options.resume is not None:
            self._start(self._play(self, None))

    async def play_turn(self, content: Any) -> None:
        await self._play(self, content if isinstance(content, str) else content[-1]["text"])

    def call(self, tool: str, args: Line, call_id: str = "call_1", message_id: str = "msg_1") -> None:
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": args}
        message = {"id": message_id, "model": "m", "content": [block]}
        self.write_line("assistant", message=message, parent_tool_use_id=None)

    def give_result(self, call_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        self.write_line("user", message={"role": "user", "content": [block]}, parent_tool_use_id=None)

    def write_deferred(self, tool: str, args: Line, call_id: str = "call_1", **fields: Any) -> None:
        call = {"id": call_id, "name": tool, "input": args}
        self.write_result(stop_reason="tool_deferred", deferred_tool_use=call, **fields)


def scenario(
    play: Play, run: Callable[[RuntimeHarness], Awaitable[None]], *tools: str, **options: Any
) -> None:
    agent = adapters.claude_sdk(
        ClaudeAgentOptions(**options),
        deferred_tools=tools,
        make_transport=lambda chosen: ResumingClaude(play, chosen),
    )

    async def bounded() -> None:
        async with asyncio.timeout(HANG_S), open_session(OneRunner(agent.runner)) as session:
            await run(session)
            await session.check_laws()

    asyncio.run(bounded())


# what the hook decides


def make_message(*call_ids: str) -> AssistantMessage:
    blocks: list[Any] = [ToolUseBlock(call_id, "Bash", {}) for call_id in call_ids]
    return AssistantMessage(blocks, "m", message_id="msg_1")


def make_event(kind: str, **fields: Any) -> StreamEvent:
    return StreamEvent("uuid", SESSION, {"type": kind, **fields})


def request(tool: str, call_id: str = "call_1", **fields: Any) -> Line:
    return {"tool_name": tool, "tool_use_id": call_id, **fields}


async def read_at_once(call_id: str) -> None:
    """Everything that the program has sent is read already."""


async def decide(deferrals: Deferrals, hook_input: Line) -> str | None:
    output = await deferrals.decide_call(hook_input, None, None)
    decision: str | None = output.get("hookSpecificOutput", {}).get("permissionDecision")
    return decision


@pytest.mark.parametrize(
    ("hook_input", "calls", "is_busy", "decision"),
    [
        (request("Bash"), ("call_1",), False, "defer"),
        (request("Bash"), ("call_1", "call_2"), False, "ask"),
        (request("Bash"), ("call_1",), True, "ask"),
        (request("Bash", agent_id="a"), ("call_1",), False, "ask"),
        (request("Read"), ("call_1",), False, None),
        (request("AskUserQuestion"), ("call_1",), False, "defer"),
        (request("AskUserQuestion"), ("call_1", "call_2"), False, None),
    ],
)
def test_call_is_deferred_if_it_is_alone(
    hook_input: Line, calls: tuple[str, ...], is_busy: bool, decision: str | None
) -> None:
    async def run() -> None:
        deferrals = Deferrals(["Bash"], None, lambda: is_busy, read_at_once)
        deferrals.feed(make_message(*calls))
        assert await decide(deferrals, hook_input) == decision

    asyncio.run(run())


@pytest.mark.parametrize(("call_ids", "decision"), [(["call_1"], "defer"), (["call_1", "call_2"], "ask")])
def test_hook_waits_for_the_end_of_a_message_that_is_streamed(call_ids: list[str], decision: str) -> None:
    async def run() -> None:
        deferrals = Deferrals(["Bash"], None, lambda: False, read_at_once)
        deferrals.feed(make_event("message_start", message={"id": "msg_1"}))
        deciding = asyncio.create_task(decide(deferrals, request("Bash")))
        for call_id in call_ids:
            deferrals.feed(
                make_event("content_block_start", content_block={"type": "tool_use", "id": call_id})
            )
            deferrals.feed(make_message(call_id))
            await asyncio.sleep(0)
            assert not deciding.done()
        deferrals.feed(make_event("message_stop"))
        assert await deciding == decision

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "decision"), [(Approved(), "allow"), (Denied("no"), "deny"), (None, "defer")]
)
def test_call_that_was_held_gets_its_answer(answer: Any, decision: str) -> None:
    async def run() -> None:
        deferrals = Deferrals([], HeldCall("call_1", answer), lambda: False, read_at_once)
        assert await decide(deferrals, request("Bash")) == decision
        assert await decide(deferrals, request("Bash", "call_2")) is None

    asyncio.run(run())


def test_stored_call_of_which_no_checkpoint_tells_is_not_run() -> None:
    async def play(program: ResumingClaude, prompt: str | None) -> None:
        if prompt == "Hi":
            program.write_init()
            program.write_result()
        elif prompt is None:
            decision = await program.ask_hooks("Bash", {}, "call_9")
            assert decision["permissionDecision"] == "defer"
            program.write_deferred("Bash", {}, "call_9")
        else:
            program.write_init()
            program.write_result(result="Done.")

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("Again")
        assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn", "end_turn"]
        assert await session.find(ApprovalRequest) == []

    scenario(play, run, "Bash")


def test_hook_that_fails_lets_no_deferred_tool_run() -> None:
    assert Deferrals(["Bash"], None, lambda: False, read_at_once).make_matcher().on_failure == "block"
    assert Deferrals([], None, lambda: False, read_at_once).make_matcher().on_failure is None


# parts


def test_question_of_the_program_waits_over_a_restart() -> None:
    inputs: list[Line] = []

    async def play(program: ResumingClaude, prompt: str | None) -> None:
        decision = None
        if prompt is not None:
            program.write_init()
            program.call("AskUserQuestion", QUESTIONS)
        decision = await program.ask_hooks("AskUserQuestion", QUESTIONS, "call_1")
        if decision["permissionDecision"] == "defer":
            program.write_deferred("AskUserQuestion", QUESTIONS, total_cost_usd=0.25)
            return
        permission = await program.ask("AskUserQuestion", QUESTIONS, "call_1")
        inputs.append(permission["updatedInput"])
        program.give_result("call_1", "The user chose Green.")
        program.write_init()
        program.write_result(total_cost_usd=0.75)

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ToolAwait)
        assert [call.args for call in question.calls] == [QUESTIONS]
        await session.restart()
        await session.answer("call_1", "Green")
        [result] = await session.find(ToolResult)
        assert result.result == "Green"
        [end] = await session.find(AgentEnd)
        assert end.cost is not None
        assert end.cost.total_cost == 0.75, "the cost of both parts, each once"

    scenario(play, run)
    assert inputs == [{**QUESTIONS, "answers": {"Which colour?": "Green"}}]


def test_hooks_of_the_options_are_asked_too() -> None:
    tools: list[str] = []

    async def note(hook_input: Any, _: str | None, __: Any) -> Any:
        tools.append(hook_input["tool_name"])
        return {}

    async def play(program: ResumingClaude, _: str | None) -> None:
        program.write_init()
        program.call("Read", {})
        assert await program.ask_hooks("Read", {}, "call_1") == {}
        program.give_result("call_1", "text")
        program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")

    scenario(play, run, hooks={"PreToolUse": [HookMatcher(hooks=[note])]})
    assert tools == ["Read"]


def test_arguments_that_a_hook_has_changed_are_shown() -> None:
    async def play(program: ResumingClaude, prompt: str | None) -> None:
        if prompt is None:
            await program.ask_hooks("Bash", {"command": "rm -i a"}, "call_1")
            program.give_result("call_1", "done")
            program.write_init()
            program.write_result()
            return
        program.write_init()
        program.call("Bash", {"command": "rm a"})
        await program.ask_hooks("Bash", {"command": "rm a"}, "call_1")
        program.write_deferred("Bash", {"command": "rm -i a"})

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ApprovalRequest)
        assert question.reason == 'It will run with {"command":"rm -i a"}'
        await session.answer("call_1", True)

    scenario(play, run, "Bash")


def test_program_that_does_not_know_the_call_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_sdk_runner, "RESUME_LIMIT_S", 0.0)

    async def play(program: ResumingClaude, prompt: str | None) -> None:
        if prompt == "Hi":
            program.write_init()
            program.call("Bash", {})
            await program.ask_hooks("Bash", {}, "call_1")
            program.write_deferred("Bash", {})
        elif prompt is not None:
            program.write_init()
            program.write_result()

    async def run(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.answer("call_1", True)
        [problem] = await session.find(SessionError)
        assert problem.code == CHECKPOINT_UNREADABLE
        assert "does not know the call" in problem.message
        await session.say("Again")
        assert [end.stop_reason for end in await session.find(AgentEnd)] == ["error", "end_turn"]

    scenario(play, run, "Bash")
