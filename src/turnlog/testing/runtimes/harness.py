"""A contract of runtimes, and its harness: a session whose agent is the one under test."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from turnlog.agents.blob_urls import blob_url
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.agents.runtime.session_folds import SessionFolds
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import RunnerOptions
from turnlog.agents.runtime.user_input import (
    answer_events,
    checked_answer_events,
    find_waiting_call,
    message_events,
)
from turnlog.agents.team import define_answerer
from turnlog.events import (
    AgentEnd,
    ApprovalRequest,
    BlockDelta,
    Entry,
    Event,
    EventDraft,
    Payload,
    Scope,
    ToolResult,
    UiCommand,
    UiMessage,
)
from turnlog.events.content import PromptDocument, PromptImage, PromptPart, PromptText
from turnlog.events.ui import Stop
from turnlog.ids import new_id, new_process_id, now_ms
from turnlog.log import Lease, Log, MemoryStore
from turnlog.testing.runtimes.log_laws import LogLaws, same_texts, texts_by_agent
from turnlog.testing.runtimes.scripts import AgentScript, ScriptRecord
from turnlog.vocabularies import FULL_CATALOG

CONTRACT_TIMEOUT_S = 120.0  # a contract takes well under a second: a longer one waits in vain

Feature = Literal[
    "thinking",
    "sub_agents",
    "hand_offs",
    "structured_output",
    "step_limit",
    "completion_usage",
    "approvals",
    "single_approvals",
    "process_approvals",
    "inner_approvals",
    "nested_approvals",
    "page_calls",
    "files",
]
# Approvals that outlive a process can be answered within it, too. With `single_approvals` a question outlives
# its process if it is the only one.
IMPLIED_FEATURES: Mapping[Feature, frozenset[Feature]] = {
    "approvals": frozenset({"process_approvals", "single_approvals"}),
    "single_approvals": frozenset({"process_approvals"}),
}
P = TypeVar("P", bound=Payload)


class MessageFile(NamedTuple):
    """A file that a member attaches to a message."""

    name: str
    media_type: str
    data: bytes


class RuntimeUnderTest(Protocol):
    """Makes agents of one framework."""

    @property
    def features(self) -> frozenset[Feature]: ...

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> Any:
        """Return an agent as `App` takes it: an `Agent`, or the definition of another runtime.

        Its models use `record.choose_reply` and `note_completion`, its tools `run_tool`.
        """
        ...


@dataclass(frozen=True)
class RuntimeContract:
    """One statement about runtimes, and the code that checks it."""

    number: int
    statement: str
    name: str
    run: Callable[[RuntimeUnderTest], Awaitable[None]]
    features: frozenset[Feature]

    def check(self, runtime: RuntimeUnderTest) -> None:
        """Run the contract. Raise AssertionError or TimeoutError."""

        async def bounded() -> None:
            async with asyncio.timeout(CONTRACT_TIMEOUT_S):
                await self.run(runtime)

        asyncio.run(bounded())

    def __str__(self) -> str:
        return f"{self.number}-{self.name}"


@dataclass
class RuntimeHarness:
    """A session with the agent under test. `record` has what its models said and its tools did."""

    log: Log
    runtime: RuntimeUnderTest
    script: AgentScript
    turn_limit_s: float = math.inf
    session: str = "sess_1"
    record: ScriptRecord = field(default_factory=ScriptRecord)
    _pool: RunnerPool | None = None
    _runner: SessionRunner | None = None
    _users: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self) -> None:
        """Make the agent, and let it own the session."""
        definition = define_answerer(self.runtime.make_agent(self.script, self.record)).runtime
        options = RunnerOptions(turn_limit_s=self.turn_limit_s)

        async def make_runner(lease: Lease) -> SessionRunner:
            folds = SessionFolds(self.log, lease.session_id, FULL_CATALOG)
            return SessionRunner(self.log, lease, folds, definition, None, options)

        self._pool = RunnerPool(self.log, make_runner, owner=new_process_id())
        self._users = AsyncExitStack()
        self._runner = await self._users.enter_async_context(self._pool.use(self.session))

    async def close(self) -> None:
        await self._users.aclose()
        if self._pool is not None:
            await self._pool.close()

    async def restart(self) -> None:
        """End the process of the agent, as far as the log knows, and start another with new objects."""
        await self.close()
        await self.open()

    @property
    def runner(self) -> SessionRunner:
        assert self._runner is not None
        return self._runner

    def _build(self, items: list[EventDraft]) -> list[Event]:
        return [item.build(FULL_CATALOG, new_id("evt_")) for item in items]

    async def build_message(self, text: str, files: Sequence[MessageFile] = ()) -> list[Event]:
        """Build the events of a message, as a member sends it."""
        message = UiMessage(text=text)
        if files:
            parts = [await self._store_file(file) for file in files]
            message = UiMessage(text=text, content=(PromptText(text=text), *parts))
        await self.runner.wait_for_head()
        return self._build(message_events(self.runner.tree, message, new_id("tr_")))

    async def _store_file(self, file: MessageFile) -> PromptPart:
        src = blob_url(await self.log.put_blob(self.session, file.data, file.media_type))
        if file.media_type.startswith("image/"):
            return PromptImage(src=src, media_type=file.media_type, title=file.name)
        return PromptDocument(src=src, media_type=file.media_type, title=file.name)

    async def build_answer(self, call_id: str, value: Any, roles: Collection[str] = ()) -> list[Event]:
        """Build the events of an answer. Raise `NotFound` if no such call waits."""
        await self.runner.wait_for_head()
        tree = self.runner.tree
        scope, call = find_waiting_call(tree, call_id)
        [item] = answer_events(tree, call_id, value)
        return self._build(checked_answer_events(item.payload, scope, call, roles, now_ms()))

    def build_stop(self) -> Event:
        [event] = self._build([EventDraft(UiCommand(command=Stop()), Scope(), "ui")])
        return event

    async def send(self, text: str, files: Sequence[MessageFile] = ()) -> str:
        """Send a message, as a member does. Return its trace."""
        events = await self.build_message(text, files)
        await self.log.append(self.session, events)
        return events[-1].scope.trace_id or ""

    async def say(self, text: str, files: Sequence[MessageFile] = ()) -> None:
        """Send a message, and wait until its turn has ended or waits."""
        await self.wait_settled(await self.send(text, files))

    async def answer(self, call_id: str, value: Any, roles: Collection[str] = ()) -> None:
        """Answer a call that waits, as a member does, and wait until its turn has ended or waits."""
        events = await self.build_answer(call_id, value, roles)
        await self.log.append(self.session, events)
        await self.wait_settled(events[-1].scope.trace_id or "")

    async def stop(self) -> None:
        """Stop everything in the session, and wait until nothing is open."""
        await self.log.append(self.session, [self.build_stop()])
        await self.wait_until(lambda: not self.runner.tree.open)

    async def wait_settled(self, trace: str) -> None:
        await self.runner.wait_for_head()
        await self.runner.wait_until_settled(trace)

    async def wait_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await self.runner.wait_for_seq(self.runner.tree.last_seq + 1)

    async def wait_for(self, payload_class: type[P]) -> P:
        """Return the first event of a kind, as soon as there is one."""
        while True:
            found = await self.find(payload_class)
            if found:
                return found[0]
            await self.runner.wait_for_seq(self.runner.tree.last_seq + 1)

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many approvals were requested: a process may ask for one after the other."""
        while len(await self.find(ApprovalRequest)) < count:
            await self.runner.wait_for_seq(self.runner.tree.last_seq + 1)

    async def wait_for_text(self, text: str) -> None:
        """Wait until the deltas in the log are a text."""
        while "".join(delta.text for delta in await self.find(BlockDelta)) != text:
            await self.runner.wait_for_seq(self.runner.tree.last_seq + 1)

    async def entries(self) -> list[Entry]:
        entries: list[Entry] = []
        after = -1
        while page := await self.log.read(self.session, after):
            entries += [FULL_CATALOG.decode_entry(envelope) for envelope in page.envelopes()]
            after = page.last
        return entries

    async def find(self, payload_class: type[P], agent: str | None = None) -> list[P]:
        return [
            entry.payload
            for entry in await self.entries()
            if isinstance(entry.payload, payload_class) and agent in (None, entry.agent_name)
        ]

    async def results(self) -> dict[str, ToolResult]:
        return {result.call_id: result for result in await self.find(ToolResult)}

    async def end_of(self, agent: str) -> AgentEnd:
        """Return the last end of an agent."""
        return (await self.find(AgentEnd, agent))[-1]

    async def check_laws(self) -> None:
        """Check the laws of the log, and that nothing is open."""
        assert LogLaws(await self.entries()).open == {}

    async def check(self, *, is_waiting: bool = False) -> None:
        """Check the laws of the log, and that its texts are those that the models said."""
        entries = await self.entries()
        laws = LogLaws(entries)
        assert bool(laws.open) == is_waiting, f"open agents: {[a.start.name for a in laws.open.values()]}"
        assert self.record.problems == []
        said = self.record.texts
        logged = texts_by_agent(entries)
        assert same_texts(logged, said), f"the log has {logged}, the models said {said}"


@asynccontextmanager
async def open_session(
    runtime: RuntimeUnderTest, script: AgentScript, turn_limit_s: float = math.inf
) -> AsyncIterator[RuntimeHarness]:
    """Open a session in a new log, with the agent of a script."""
    log = Log(MemoryStore())
    harness = RuntimeHarness(log, runtime, script, turn_limit_s)
    try:
        await log.create("contract", harness.session)
        await harness.open()
        yield harness
    finally:
        await harness.close()
        await log.close()
