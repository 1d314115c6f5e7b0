"""`RemoteAgent`: an agent that workers in other processes run, as the agent of an application.

App("support", adapters.RemoteAgent("Support"))                       at the server
await server.serve("support", adapters.langgraph(graph))              in the process of the agent
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from turnlog.adapters.foreign_agent import RunnerDefinition, ToolPolicy, check_policies
from turnlog.adapters.remote.offered_parts import OfferedParts
from turnlog.adapters.runner import AgentRunner, PartOffer
from turnlog.errors import CallerError, quote
from turnlog.events import CATALOG

LEASE_S = 30.0  # a worker renews three times in it; as long as a person waits for a turn that hangs
NOTICE_S = 10.0  # a worker that is restarted is back by then


@dataclass(frozen=True)
class RemoteAgent(RunnerDefinition):
    """Lets workers answer the sessions of an application.

    `workers` are the principals that may: without them, all with the server role `source`. A worker that is
    silent for `lease_s` has lost its turns. `policies` are those of its tools, by name. `takes_client_tools`
    says that the workers offer the tools of a page to their agents (`adapters.ag_ui`).
    """

    name: str
    workers: Sequence[str] = ()
    policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    takes_client_tools: bool = False
    lease_s: float = LEASE_S
    notice_s: float = NOTICE_S
    offered_parts: OfferedParts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        subject = f"agent {quote(self.name)}"
        CATALOG.validate_definition(subject, "agent.start", name=self.name, via="prompt")
        check_policies(subject, self.policies)
        if not (self.lease_s > 0 and self.notice_s > 0):
            raise CallerError(f"{subject}: expected a lease_s and a notice_s above 0")
        object.__setattr__(self, "offered_parts", OfferedParts(self.name, self.lease_s))

    def may_serve(self, principal: str) -> bool:
        return not self.workers or principal in self.workers

    @asynccontextmanager
    async def use_runner(self, offer: PartOffer) -> AsyncIterator[AgentRunner]:
        """Offer a part, and wait until a worker has begun it."""
        part = self.offered_parts.add(offer)
        try:
            await part.wait_begun(self.notice_s)
            yield part
        finally:
            self.offered_parts.remove(part)
