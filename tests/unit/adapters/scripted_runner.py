"""A runner whose parts are functions, and a session that it answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from turnlog.adapters import Finished, ForeignAgent, Part, Paused, Question, ToolPolicy
from turnlog.adapters.part_output import PartOutput
from turnlog.log import Log, MemoryStore
from turnlog.parse import AgentInfo
from turnlog.testing.runtimes.harness import RuntimeHarness, RuntimeUnderTest
from turnlog.testing.runtimes.scripts import AgentScript, ScriptRecord, ScriptReply

RunPart = Callable[[Part, PartOutput], Awaitable[Finished | Paused]]


class ScriptedRunner:
    """Runs one function for every part. `parts` are those that it got."""

    def __init__(self, run_part: RunPart, source: str = "scripted", version: str = "1.0") -> None:
        self._run_part = run_part
        self.source = source
        self.version = version
        self.name = "Lead"
        self.parts: list[Part] = []

    def can_read(self, version: str) -> bool:
        return version == self.version

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        self.parts.append(part)
        return await self._run_part(part, output)


class OneRunner:
    """Makes the agent of a runner, as the contract suite makes those of frameworks."""

    features: frozenset[Any] = frozenset()

    def __init__(self, runner: Any, **policies: ToolPolicy) -> None:
        self.runner = runner
        self._policies = policies

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> ForeignAgent:
        return ForeignAgent(self.runner, self._policies)


@asynccontextmanager
async def open_session(
    runtime: RuntimeUnderTest, log: Log | None = None, **options: Any
) -> AsyncIterator[RuntimeHarness]:
    own_log = log is None
    log = log or Log(MemoryStore())
    script = AgentScript("Lead", lambda _: ScriptReply())
    harness = RuntimeHarness(log, runtime, script, **options)
    try:
        if own_log:
            await log.create("test", harness.session)
        await harness.open()
        yield harness
    finally:
        await harness.close()
        if own_log:
            await log.close()


async def say(part: Part, output: PartOutput) -> Finished:
    """Repeat the message, and remember how many there were."""
    count = int(part.state or b"0") + 1
    await output.report(output.builder.text, output.root, f"{count}: {part.message}")
    return Finished(str(count).encode())


async def ask_to_delete(part: Part, output: PartOutput) -> Finished | Paused:
    """Ask for one approval, and then say what the answer was."""
    root = output.root
    if part.message == "Hi":
        await output.report(output.builder.call, root, "delete", {"path": "/a"}, "call_1")
        await output.report(output.builder.complete_message, root)
        return Paused(b"waits", [Question(root, "call_1")])
    for answer in part.answers.values():
        await output.report(output.builder.text, root, type(answer).__name__)
    if root.owns_open_call("call_1"):
        await output.report(output.builder.result, root, "call_1", "deleted")
    return Finished(b"done")
