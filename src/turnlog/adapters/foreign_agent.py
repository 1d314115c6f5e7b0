"""`ForeignAgent`: an agent of another framework as the agent of a session, in place of an `Agent`."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from turnlog.adapters.foreign_runtime import ForeignRuntime, find_tool_name
from turnlog.adapters.runner import AgentRunner
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


@dataclass(frozen=True, slots=True)
class ForeignAgent:
    """Runs a runner in the sessions of an application. `policies` are those of tools, by name."""

    runner: AgentRunner
    policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    run_owner: str = field(default_factory=new_process_id, init=False, repr=False, compare=False)
    run_pools: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        subject = f"agent {quote(self.name)}"
        CATALOG.validate_definition(subject, "agent.start", name=self.name, via="prompt")
        for tool, policy in self.policies.items():
            if not policy.expires_s > 0:
                raise CallerError(f"{subject}: {tool}: expected an expires_s above 0, got {policy.expires_s}")

    @property
    def name(self) -> str:
        return self.runner.name

    @property
    def agent_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def tool_roles(self) -> frozenset[str]:
        return frozenset(role for policy in self.policies.values() for role in policy.roles)

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return ()

    @property
    def takes_commands(self) -> bool:
        return False

    @property
    def demo_mode(self) -> bool:
        return False

    def make_runtime(self, host: SessionRunner, vocabulary: Vocabulary | None) -> SessionRuntime:
        return ForeignRuntime(host, self, vocabulary)

    def policy_of(self, agent: RuntimeAgent, call_id: str) -> ToolPolicy:
        """Return the policy of the tool that a call uses."""
        return self.policies.get(find_tool_name(agent, call_id) or "", DEFAULT_POLICY)

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Yield every event of one turn as it happens. See `turnlog.agents.run`."""
        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """Return the text of the answer to a prompt. See `turnlog.agents.run`."""
        return await ask(self, prompt, **options)
