"""The examples of other frameworks: one file, few lines for Turnlog, an approval that outlives a restart."""

import asyncio
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from turnlog import App
from turnlog.events import AgentEnd, AgentStart, ApprovalRequest, AssistantMessage, ToolResult
from turnlog.log import Log, MemoryStore
from turnlog.testing.runtimes.harness import RuntimeHarness
from turnlog.testing.runtimes.scripts import AgentScript, ScriptRecord, ScriptReply

FOLDER = Path(__file__).parents[3] / "examples" / "bring_your_own"
EXAMPLES = sorted(FOLDER.glob("*.py"))
MAX_CHANGED_LINES = 12


def load_app(path: Path) -> App:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    app = module.app
    assert isinstance(app, App)
    return app


class Example:
    """Makes the agent of an example anew, as a new process does."""

    features = frozenset()  # type: ignore[var-annotated]

    def __init__(self, path: Path) -> None:
        self._path = path

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> object:
        return load_app(self._path).runtime


async def approve_after_restart(path: Path) -> None:
    log = Log(MemoryStore())
    session = RuntimeHarness(log, Example(path), AgentScript("Clerk", lambda _: ScriptReply()))
    await log.create("shop", session.session)
    await session.open()
    try:
        await session.say("Please refund order A-17.")
        [request] = await session.find(ApprovalRequest)
        assert request.tool == "refund"
        await session.restart()
        await session.answer("call_refund", True)
        await session.check_laws()
        assert [start.name for start in await session.find(AgentStart)] == ["Clerk", "Researcher"]
        texts = [message.text for message in await session.find(AssistantMessage)]
        assert texts == ["Let me look. ", "Ada ordered it.", "The order is handled."]
        results = {result.tool: result.result for result in await session.find(ToolResult)}
        assert results == {"ask_researcher": "Ada ordered it.", "refund": "refunded A-17"}
        assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn", "end_turn"]
    finally:
        await session.close()
        await log.close()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_waits_over_a_restart(path: Path) -> None:
    asyncio.run(approve_after_restart(path))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_marks_every_line_that_turnlog_needs(path: Path) -> None:
    lines = path.read_text().partition('"""\n\n')[2].splitlines()
    marked = [line for line in lines if "# turnlog" in line]
    others = [line for line in lines if "# turnlog" not in line]
    assert 2 <= len(marked) <= MAX_CHANGED_LINES
    assert [line for line in others if "turnlog" in line.lower() or "adapters" in line] == []


def test_there_is_an_example_of_each_framework() -> None:
    assert [path.stem for path in EXAMPLES] == ["langgraph_agent", "pydantic_ai_agent"]
