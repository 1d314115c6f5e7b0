"""The adapter of the Claude Agent SDK with the real Claude Code program, offline.

For who has it: the one that TURNLOG_CLAUDE_CLI names, that the package brings along, or on PATH. The facts of
docs/adapters.md about the program were seen here with 2.1.325.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, create_sdk_mcp_server, tool

from tests.e2e.claude_program import Block, find_program, serve_messages, text, use
from tests.support.runtimes.served import RoutedRequests, start_worker
from tests.unit.adapters.scripted_runner import OneRunner, open_session
from turnlog import adapters
from turnlog.adapters import Part
from turnlog.adapters.part_files import PartFile
from turnlog.events import (
    AgentEnd,
    AgentStart,
    AgentUsage,
    ApprovalRequest,
    AssistantMessage,
    BlockDelta,
    ParseReject,
    SessionError,
    ToolAwait,
    ToolResult,
)
from turnlog.testing.runtimes.harness import RuntimeHarness

CLAUDE = find_program()
pytestmark = [pytest.mark.skipif(CLAUDE is None, reason="there is no Claude CLI"), pytest.mark.timeout(180)]

# one pixel: the program reads an image before it sends it
DOT_PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Green", "description": "g"}, {"label": "Red", "description": "r"}],
}


def touch(name: str) -> Block:
    return use("Bash", {"command": f"echo ran >> {name}", "description": "make a file"})


REPLIES: dict[str, Callable[[], list[Block]]] = {
    "hello": lambda: [text("Hello to you.")],
    "look": lambda: [use("mcp__shop__look", {"order": "A-1"})],
    "delegate": lambda: [
        use("Agent", {"subagent_type": "Researcher", "prompt": "research", "description": "look"})
    ],
    "research": lambda: [text("It was found.")],
    "touch": lambda: [text("I touch it."), touch("made")],
    "both": lambda: [touch("first"), touch("second")],
    "ask": lambda: [use("AskUserQuestion", {"questions": [QUESTION]})],
    "hang": lambda: [text("I was about", hangs=True)],
    "again": lambda: [text("You are back.")],
}


@tool("look", "Look an order up.", {"order": str})
async def look(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"{args['order']} is on its way"}]}


class Program:
    """An application that the real program answers. `requests` are the bodies that its model got."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self._env = env
        self.requests: list[Any] = []

    def make_agent(self, deferred_tools: tuple[str, ...] = ()) -> adapters.ForeignAgent:
        options = ClaudeAgentOptions(
            cli_path=CLAUDE,
            cwd=self.folder,
            env=self._env,
            agents={"Researcher": AgentDefinition(description="Knows all orders.", prompt="You look.")},
            mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[look])},
            settings=json.dumps({"permissions": {"allow": ["mcp__shop__look"]}}),
        )
        return adapters.claude_sdk(options, name="Clerk", deferred_tools=deferred_tools)

    def has_run(self, name: str) -> int:
        """Return how often a call has run."""
        path = self.folder / name
        return len(path.read_text().split()) if path.exists() else 0

    def history(self) -> str:
        return str(self.requests[-1]["messages"])


@pytest.fixture
def program(tmp_path: Path) -> Any:
    requests: list[Any] = []

    def choose(body: Any) -> list[Block]:
        requests.append(body)
        for message in reversed(body["messages"]):
            content = message["content"]
            for block in reversed([text(content)] if isinstance(content, str) else content):
                if block["type"] == "tool_result":
                    return [text("That is done.")]
                if block.get("text") in REPLIES:
                    return REPLIES[block["text"]]()
        return [text("What?")]

    with serve_messages(tmp_path, choose) as env:
        played = Program(tmp_path, env)
        played.requests = requests
        yield played


class ServedRunner(OneRunner):
    """The same runner, which a worker runs."""

    def make_agent(self, script: Any, record: Any) -> Any:
        agent = adapters.RemoteAgent("Clerk")
        start_worker(RoutedRequests(agent), self.runner)
        return agent


def scenario(
    agent: adapters.ForeignAgent,
    run: Callable[[RuntimeHarness], Awaitable[None]],
    make: type[OneRunner] = OneRunner,
) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[RuntimeHarness]:
        async with open_session(make(agent.runner)) as session:
            yield session

    async def bounded() -> None:
        async with opened() as session:
            await run(session)
            await session.check_laws()
            assert await session.find(ParseReject) == []

    asyncio.run(bounded())


async def texts(session: RuntimeHarness) -> list[str]:
    return [message.text for message in await session.find(AssistantMessage)]


async def open_call(session: RuntimeHarness) -> str:
    return (await session.find(ApprovalRequest))[-1].call_id


@pytest.mark.parametrize("make", [OneRunner, ServedRunner], ids=["server", "worker"])
def test_text_tool_and_the_next_turn(program: Program, make: type[OneRunner]) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("hello")
        assert await texts(session) == ["Hello to you."]
        await session.say("look")
        [result] = await session.find(ToolResult)
        assert result.result == "A-1 is on its way"
        await session.restart()
        await session.say("again")
        assert "Hello to you." in program.history()
        ends = await session.find(AgentEnd)
        assert [end.stop_reason for end in ends] == ["end_turn"] * 3
        # each turn has its own tokens and cost, although the program goes on counting
        assert [usage.usage.input_tokens for usage in await session.find(AgentUsage)] == [5, 5, 5, 5]
        costs = [end.cost.total_cost for end in ends if end.cost is not None]
        assert costs[0] == costs[2] == pytest.approx(costs[1] / 2)

    scenario(program.make_agent(), run, make)


@pytest.mark.parametrize("make", [OneRunner, ServedRunner], ids=["server", "worker"])
def test_sub_agent(program: Program, make: type[OneRunner]) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("delegate")
        starts = await session.find(AgentStart)
        assert [start.name for start in starts] == ["Clerk", "Researcher"]
        assert "It was found." in await texts(session)
        assert (await session.end_of("Researcher")).stop_reason == "end_turn"
        assert (await session.end_of("Clerk")).stop_reason == "end_turn"

    scenario(program.make_agent(), run, make)


@pytest.mark.parametrize("make", [OneRunner, ServedRunner], ids=["server", "worker"])
def test_approvals_inside_the_process(program: Program, make: type[OneRunner]) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("touch")
        await session.answer(await open_call(session), False)
        assert program.has_run("made") == 0
        assert "a person said no" in program.history()
        await session.say("touch")
        await session.answer(await open_call(session), True)
        assert program.has_run("made") == 1
        assert (await session.end_of("Clerk")).result == "That is done."

    scenario(program.make_agent(), run, make)


@pytest.mark.parametrize("make", [OneRunner, ServedRunner], ids=["server", "worker"])
def test_stop(program: Program, make: type[OneRunner]) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("hello")
        await session.send("hang")
        while "I was about" not in [delta.text for delta in await session.find(BlockDelta)]:
            await session.runner.wait_for_seq(session.runner.tree.last_seq + 1)
        await session.stop()
        assert (await session.end_of("Clerk")).stop_reason == "cancelled"
        await session.say("again")
        assert (await texts(session))[-1] == "You are back."
        assert "Hello to you." in program.history()
        assert await session.find(SessionError) == []

    scenario(program.make_agent(), run, make)


def test_files_of_a_message_reach_the_model(program: Program) -> None:
    async def run() -> None:
        files = [
            PartFile("trip.txt", "text/plain", b"Two tickets."),
            PartFile("plan.md", "text/markdown", b"# Plan"),
            PartFile("dot.png", "image/png", DOT_PNG),
        ]
        agent = program.make_agent()
        async with open_session(OneRunner(FileRunner(agent.runner, files))) as session:
            await session.say("hello")
            assert await texts(session) == ["Hello to you."]

    asyncio.run(run())
    contents = [message["content"] for message in program.requests[-1]["messages"]]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    sources = [block["source"] for block in blocks if block["type"] == "document"]
    assert [source["data"] for source in sources] == ["Two tickets.", "# Plan"]
    [image] = [block["source"] for block in blocks if block["type"] == "image"]
    assert image["type"] == "base64"
    assert b64decode(image["data"])


class FileRunner:
    """A runner whose messages have files."""

    def __init__(self, runner: Any, files: list[PartFile]) -> None:
        self._runner = runner
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def run(self, part: Part, output: Any) -> Any:
        return await self._runner.run(part._replace(files=self._files), output)


# questions that survive a restart


@pytest.mark.parametrize("make", [OneRunner, ServedRunner], ids=["server", "worker"])
@pytest.mark.parametrize("approves", [True, False], ids=["approve", "deny"])
def test_single_call_waits_over_a_restart(program: Program, approves: bool, make: type[OneRunner]) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("touch")
        await session.restart()
        await session.answer(await open_call(session), approves)
        assert program.has_run("made") == int(approves)
        [result] = await session.find(ToolResult)
        assert result.ok is approves
        assert ("a person said no" in program.history()) is not approves
        [end] = await session.find(AgentEnd)
        assert (end.stop_reason, end.result) == ("end_turn", "That is done.")
        assert [usage.usage.input_tokens for usage in await session.find(AgentUsage)] == [5, 5]
        first_cost = (await session.end_of("Clerk")).cost
        await session.say("again")
        last_cost = (await session.end_of("Clerk")).cost
        assert first_cost is not None
        assert last_cost is not None
        assert first_cost.total_cost == pytest.approx(2 * last_cost.total_cost)

    scenario(program.make_agent(("Bash",)), run, make)


def test_message_in_place_of_the_answer(program: Program) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("touch")
        await session.restart()
        await session.say("hello")
        assert program.has_run("made") == 0
        assert (await texts(session))[-1] == "Hello to you."
        assert len(program.requests) == 2
        await session.say("again")
        assert program.has_run("made") == 0

    scenario(program.make_agent(("Bash",)), run)


def test_stop_while_the_call_waits(program: Program) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("touch")
        await session.stop()
        await session.restart()
        await session.say("hello")
        assert program.has_run("made") == 0
        assert (await texts(session))[-1] == "Hello to you."

    scenario(program.make_agent(("Bash",)), run)


def test_calls_beside_each_other_wait_inside_the_process(program: Program) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.send("both")
        await session.wait_for(ApprovalRequest)
        first = await open_call(session)
        await session.answer(first, True)
        await session.wait_for_requests(2)
        await session.answer(await open_call(session), True)
        assert (program.has_run("first"), program.has_run("second")) == (1, 1)
        assert [result.ok for result in await session.find(ToolResult)] == [True, True]

    scenario(program.make_agent(("Bash",)), run)


def test_question_of_the_program_waits_over_a_restart(program: Program) -> None:
    async def run(session: RuntimeHarness) -> None:
        await session.say("ask")
        [question] = await session.find(ToolAwait)
        await session.restart()
        await session.answer(question.calls[0].call_id, "Green")
        assert "Green" in str(program.requests[-1]["messages"][-2:])
        assert (await session.end_of("Clerk")).result == "That is done."

    scenario(program.make_agent(), run)
