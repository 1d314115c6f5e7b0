"""`ClaudeCode`: the Claude Code program as the agent of a session, in place of an `Agent`.

    App("office", ClaudeCode(["claude", "--model", "opus"], name="Julian", artifact_dir="/srv/office/memory"))

The command is the program and its options; the flags for JSON lines are added here. Each session has its own
process, started by its first message. After a crash, an idle stop or a restart of the server the next process
resumes the same conversation; after a `session.end` a new conversation begins.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnlog.agents.claude.runtime import ClaudeRuntime
from turnlog.agents.runtime.session_runner import SessionRunner
from turnlog.agents.runtime.session_runtime import SessionRuntime
from turnlog.errors import CallerError, quote
from turnlog.events import CATALOG, Entry, Vocabulary
from turnlog.ids import new_process_id
from turnlog.parse.claude.lines import CLAUDE_CLI
from turnlog.team.tool_effects import TeamToolEffects

INACTIVITY_S = 900.0
STREAM_JSON_FLAGS = (
    "--print",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
)


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    """A command, the name of its agent, and where it runs. Without `env` it has this process' environment.

    Files that it writes under `artifact_dir` are artifacts; its requests to `screen_url` are for a screen. A
    process that is idle for `inactivity_s` is stopped. With `demo_mode`, or if a `session.start` asks for it,
    its `process.start` says so.
    """

    command: Sequence[str] = ("claude",)
    name: str = "Claude"
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    artifact_dir: str | None = None
    screen_url: str | None = None
    inactivity_s: float = INACTIVITY_S
    demo_mode: bool = False
    run_owner: str = field(default_factory=new_process_id, init=False, repr=False, compare=False)
    run_pools: dict[tuple[int, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise CallerError(f"{self.name}: expected a command as a list, got {self.command!r:.80}")
        if not self.inactivity_s > 0:
            raise CallerError(f"{self.name}: expected an inactivity_s above 0, got {self.inactivity_s}")
        subject = f"process {quote(self.name)}"
        CATALOG.validate_definition(subject, "agent.start", name=self.name, via="prompt", model=self.model)

    @property
    def tool_effects(self) -> TeamToolEffects:
        return TeamToolEffects(self.artifact_dir, self.screen_url)

    @property
    def model(self) -> str | None:
        """Return the argument of `--model`; None without one. The process may use another model."""
        models = [value for flag, value in pairwise(self.command) if flag == "--model"]
        return models[-1] if models else None

    @property
    def agent_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def tool_roles(self) -> frozenset[str]:
        return frozenset()

    @property
    def page_tool_roles(self) -> dict[str, tuple[str, ...]]:
        return {}

    @property
    def vocabularies(self) -> tuple[Vocabulary, ...]:
        return (CLAUDE_CLI,)

    @property
    def takes_client_tools(self) -> bool:
        return False  # the process has its own tools

    @property
    def takes_commands(self) -> bool:
        return True

    def make_runtime(self, host: SessionRunner, vocabulary: Vocabulary | None) -> SessionRuntime:
        return ClaudeRuntime(host, self, vocabulary)

    def argv(self, source_session: str | None) -> list[str]:
        """Return the whole command, which resumes the conversation `source_session` if there is one."""
        resume_flags = ["--resume", source_session] if source_session else []
        return [*self.command, *STREAM_JSON_FLAGS, *resume_flags]

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Yield every event of one turn as it happens. See `turnlog.agents.run`."""
        from turnlog.agents.run import run  # that module imports this one

        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """Return the text of the answer to a prompt. See `turnlog.agents.run`."""
        from turnlog.agents.run import ask

        return await ask(self, prompt, **options)
