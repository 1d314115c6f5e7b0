"""The examples of other frameworks: one file, few lines for Turnlog, an approval that outlives a restart.

`tests/e2e/test_bring_your_own.py` serves each of them by `turnlog serve`.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.loopback import LoopbackServers
from turnlog import App
from turnlog.events import AgentEnd, AgentStart, ApprovalRequest, AssistantMessage, ToolResult
from turnlog.log import Log, MemoryStore
from turnlog.testing.runtimes.harness import RuntimeHarness
from turnlog.testing.runtimes.scripts import AgentScript, ScriptRecord, ScriptReply

FOLDER = Path(__file__).parents[3] / "examples" / "turnlog_examples" / "bring_your_own"
EXAMPLES = sorted(FOLDER.glob("*.py"))
CLAUDE_EXAMPLE = FOLDER / "claude_sdk_agent.py"
# the program of the Claude Agent SDK cannot store a question
WAITING_EXAMPLES = [path for path in EXAMPLES if path != CLAUDE_EXAMPLE]
MAX_CHANGED_LINES = 12
MARK = "# turnlog"
NUMBERS = {2: "Two", 3: "Three"}
TITLES = ["AG-UI", "Claude Agent SDK", "LangGraph", "OpenAI Agents SDK", "Pydantic AI"]  # as the files
AG_UI_EXAMPLE = "ag_ui_agent"


def load_module(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_app(path: Path) -> App:
    app = load_module(path).app
    assert isinstance(app, App)
    return app


class Example:
    """Makes the agent of an example anew, as a new process does."""

    features = frozenset()  # type: ignore[var-annotated]

    def __init__(self, path: Path) -> None:
        self._path = path

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> object:
        return load_app(self._path).runtime


@asynccontextmanager
async def open_example(path: Path) -> AsyncIterator[RuntimeHarness]:
    log = Log(MemoryStore())
    session = RuntimeHarness(log, Example(path), AgentScript("Clerk", lambda _: ScriptReply()))
    await log.create("shop", session.session)
    await session.open()
    try:
        yield session
    finally:
        await session.close()
        await log.close()


async def check_conversation(session: RuntimeHarness, tools: Sequence[str]) -> None:
    """Check the whole conversation. `tools` are the names of the researcher and of the refund."""
    await session.check_laws()
    assert [start.name for start in await session.find(AgentStart)] == ["Clerk", "Researcher"]
    texts = [message.text for message in await session.find(AssistantMessage)]
    assert texts == ["Let me look. ", "Ada ordered it.", "The order is handled."]
    results = {result.tool: result.result for result in await session.find(ToolResult)}
    assert results == dict(zip(tools, ("Ada ordered it.", "refunded A-17"), strict=True))
    assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn", "end_turn"]


async def approve_after_restart(path: Path) -> None:
    async with open_example(path) as session:
        await session.say("Please refund order A-17.")
        [request] = await session.find(ApprovalRequest)
        assert request.tool == "refund"
        await session.restart()
        await session.answer(request.call_id, True)
        await check_conversation(session, ("ask_researcher", "refund"))


@pytest.mark.parametrize("path", WAITING_EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_waits_over_a_restart(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with LoopbackServers() as servers:
            if path.stem == AG_UI_EXAMPLE:  # its agent is a server of its own
                url = servers.start(load_module(path).agent)
                monkeypatch.setenv("AGENT_URL", f"{url}/agent")
            await approve_after_restart(path)

    asyncio.run(scenario())


def test_example_of_the_claude_sdk_runs_its_program_and_asks() -> None:
    async def scenario() -> None:
        async with open_example(CLAUDE_EXAMPLE) as session:
            await session.say("Please refund order A-17.")
            [request] = await session.find(ApprovalRequest)
            assert request.tool == "mcp__shop__refund"
            await session.answer("call_refund", True)
            await check_conversation(session, ("Agent", "mcp__shop__refund"))

    asyncio.run(scenario())


def test_example_of_the_claude_sdk_is_closed_by_a_restart_and_goes_on_with_the_next_message() -> None:
    async def scenario() -> None:
        async with open_example(CLAUDE_EXAMPLE) as session:
            await session.say("Please refund order A-17.")
            await session.restart()
            await session.check_laws()
            [*_, end] = await session.find(AgentEnd)
            assert end.stop_reason == "error"
            await session.say("Once more, please.")
            await session.answer("call_refund", False)
            await session.check_laws()
            [first, second] = await session.find(AgentStart, "Clerk")
            assert first.source_session is None
            assert second.source_session is not None
            results = [result.error for result in await session.find(ToolResult) if result.error]
            assert [error.code for error in results] == ["CANCELLED", "DENIED"]

    asyncio.run(scenario())


def split_lines(path: Path) -> tuple[list[str], list[str]]:
    """Return the lines of an example that Turnlog needs, and the others."""
    lines = path.read_text().partition('"""\n\n')[2].splitlines()
    return [line for line in lines if MARK in line], [line for line in lines if MARK not in line]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_marks_every_line_that_turnlog_needs(path: Path) -> None:
    marked, others = split_lines(path)
    assert 2 <= len(marked) <= MAX_CHANGED_LINES
    assert [line for line in others if "turnlog" in line.lower() or "adapters" in line] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_without_the_marked_lines_is_an_agent_that_does_not_know_turnlog(
    path: Path, tmp_path: Path
) -> None:
    _, others = split_lines(path)
    (tmp_path / path.name).write_text("\n".join(others))
    code = f"import sys; sys.modules['turnlog'] = None; import {path.stem} as example; print(*vars(example))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    names = set(run.stdout.split())
    assert names & {"clerk", "options", "agent"}, "what its framework runs"
    assert not names & {"app", "adapters", "App"}


@pytest.mark.parametrize(("path", "title"), list(zip(EXAMPLES, TITLES, strict=True)), ids=TITLES)
def test_docs_say_how_many_lines_an_example_needs_and_name_it(path: Path, title: str) -> None:
    docs = (FOLDER.parents[2] / "docs" / "adapters.md").read_text()
    section = docs.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()
    marked, _ = split_lines(path)
    assert section.startswith(f"{NUMBERS[len(marked)]} lines: the import")
    assert f"/{path.name})" in section
    assert section.count("turnlog import App, adapters\n") == 1, "they are shown"


def test_there_is_an_example_of_each_framework() -> None:
    assert [path.stem for path in EXAMPLES] == [
        AG_UI_EXAMPLE,
        "claude_sdk_agent",
        "langgraph_agent",
        "openai_agents_agent",
        "pydantic_ai_agent",
    ]
