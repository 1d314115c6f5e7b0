"""The Claude Agent SDK under the contract of runtimes: its client, and a stand-in of the program."""

from functools import partial

from claude_agent_sdk import ClaudeAgentOptions

from tests.support.scripted_claude import MemoryTranscripts, ScriptedClaude, Transcripts
from turnlog import adapters
from turnlog.testing.runtimes import AgentScript, Feature, ScriptRecord


class ClaudeSdk:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "structured_output",
            "step_limit",
            "process_approvals",
            "inner_approvals",
            "files",
        }
    )

    def __init__(self, transcripts: Transcripts | None = None) -> None:
        self._transcripts = transcripts or MemoryTranscripts()

    def deferred_tools_of(self, script: AgentScript) -> tuple[str, ...]:
        return ()

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        options = ClaudeAgentOptions(max_turns=script.max_steps)
        make_transport = partial(ScriptedClaude, script, record, self._transcripts)
        deferred_tools = self.deferred_tools_of(script)
        return adapters.claude_sdk(
            options, name=script.name, make_transport=make_transport, deferred_tools=deferred_tools
        )


class DeferringClaudeSdk(ClaudeSdk):
    """Defers the calls of all tools that need approval: a question about a single call survives a restart."""

    features = ClaudeSdk.features | {"single_approvals"}

    def deferred_tools_of(self, script: AgentScript) -> tuple[str, ...]:
        scripts = [script]
        for item in scripts:
            scripts += item.agents
        return tuple({tool.name for item in scripts for tool in item.tools if tool.needs_approval})
