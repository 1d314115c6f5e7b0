"""`ForeignAgent`: an agent of another framework as the agent of a session, in place of an `Agent`."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from turnlog.adapters.foreign_runtime import ForeignRuntime, RunnerSource, find_tool_name
from turnlog.adapters.runner import AgentRunner, PartOffer
from turnlog.agents.run import ask, run
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import SessionRuntime
from turnlog.errors import CallerError, quote
from turnlog.events import CATALOG, Entry, Vocabulary
from turnlog.ids import new_process_id
from turnlog.parse import RuntimeAgent


class ToolPolicy(NamedTuple):
    """Who may approve or answer the calls of a tool, how long a question stays open, and its risk.

    Without roles every member may. `risk` is shown with the question.
    """

    roles: tuple[str, ...] = ()
    expires_s: float = inf
    risk: str = "write"


DEFAULT_POLICY = ToolPolicy()


def check_policies(subject: str, policies: Mapping[str, ToolPolicy]) -> None:
    """Raise `CallerError` for questions that would never be open."""
    for tool, policy in policies.items():
        if not policy.expires_s > 0:
            raise CallerError(f"{subject}: {tool}: expected an expires_s above 0, got {policy.expires_s}")


class RunnerDefinition:
    """What `ForeignAgent` and `RemoteAgent` tell an application, as a `RuntimeDefinition`."""

    __slots__ = ()  # the fields are those of each agent

    @property
    def agent_names(self: RunnerSource) -> tuple[str, ...]:
        return (self.name,)

    @property
    def tool_roles(self: RunnerSource) -> frozenset[str]:
        return frozenset(role for policy in self.policies.values() for role in policy.roles)

    @property
    def page_tool_roles(self: RunnerSource) -> dict[str, tuple[str, ...]]:
        return {name: policy.roles for name, policy in self.policies.items() if policy.roles}

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return ()

    @property
    def takes_commands(self) -> bool:
        return False

    @property
    def demo_mode(self) -> bool:
        return False

    def make_runtime(
        self: RunnerSource, host: SessionRunner, vocabulary: Vocabulary | None
    ) -> SessionRuntime:
        return ForeignRuntime(host, self, vocabulary)

    def policy_of(self: RunnerSource, agent: RuntimeAgent, call_id: str) -> ToolPolicy:
        return self.policies.get(find_tool_name(agent, call_id) or "", DEFAULT_POLICY)


@dataclass(frozen=True, slots=True)
class ForeignAgent(RunnerDefinition):
    """Runs a runner in the sessions of an application. `policies` are those of tools, by name.

    `takes_client_tools` says that the runner offers the tools of a page to its agent.
    """

    runner: AgentRunner
    policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    takes_client_tools: bool = False
    run_owner: str = field(default_factory=new_process_id, init=False, repr=False, compare=False)
    run_pools: dict[tuple[int, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        subject = f"agent {quote(self.name)}"
        CATALOG.validate_definition(subject, "agent.start", name=self.name, via="prompt")
        check_policies(subject, self.policies)

    @property
    def name(self) -> str:
        return self.runner.name

    @asynccontextmanager
    async def use_runner(self, offer: PartOffer) -> AsyncIterator[AgentRunner]:
        """Return the runner at once: it is in this process."""
        yield self.runner

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Yield every event of one turn as it happens. See `turnlog.agents.run`."""
        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """Return the text of the answer to a prompt. See `turnlog.agents.run`."""
        return await ask(self, prompt, **options)
