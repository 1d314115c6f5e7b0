"""`ClaudeCli`: the Claude CLI as who answers in a session, in place of an agent: a process, not a model.

    App("office", ClaudeCli(["claude", "--model", "opus"], name="Julian", memory="/srv/office/memory"))

The command is the program and its options; what it takes to talk in lines of JSON is added here. Each session
has a process of its own, started by its first message. One that crashed, was idle or went with its server is
followed by another that goes on with the same conversation; after a `session.end` a new one begins.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnlog.agents.definition import validate_definition
from turnlog.errors import CallerError, quote
from turnlog.events import Entry
from turnlog.team.tool_effects import TeamToolEffects

INACTIVITY_S = 900.0  # as long as the original waits
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
    """A command, the name of who answers, and where it runs. Without `env` it has this process' environment.

    What is written under `memory` is an artifact; commands to the address `screen` are for a screen. A
    process that has nothing to do for `inactivity_s` is ended. In `demo_mode` its start says so, as it does
    when a `session.start` wants it.
    """

    command: Sequence[str] = ("claude",)
    name: str = "Claude"
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    artifact_dir: str | None = None
    screen_url: str | None = None
    inactivity_s: float = INACTIVITY_S
    demo_mode: bool = False
    session_handles: dict[tuple[int, str], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    release_tasks: set[asyncio.Future[None]] = field(
        default_factory=set, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise CallerError(f"{self.name}: expected a command as a list of words, got {self.command!r:.80}")
        if not self.inactivity_s > 0:
            raise CallerError(f"{self.name}: expected an inactivity_s above 0, got {self.inactivity_s}")
        whose = f"process {quote(self.name)}"
        validate_definition(whose, "agent.start", name=self.name, via="prompt", model=self.model)

    @property
    def tool_effects(self) -> TeamToolEffects:
        """What its tools do that is more than a call."""
        return TeamToolEffects(self.artifact_dir, self.screen_url)

    @property
    def model(self) -> str | None:
        """The model that the command names; the process may have another one."""
        named = [after for word, after in pairwise(self.command) if word == "--model"]
        return named[-1] if named else None

    def argv(self, source_session: str | None) -> list[str]:
        """The whole command; a process goes on with the conversation of another."""
        resumed = ["--resume", source_session] if source_session else []
        return [*self.command, *STREAM_JSON_FLAGS, *resumed]

    def run(self, prompt: str | None = None, **options: Any) -> AsyncGenerator[Entry, None]:
        """Every event of one turn as it happens; see `turnlog.agents.run`."""
        from turnlog.agents.run import run  # running knows who runs, and not the other way round

        return run(self, prompt, **options)

    async def ask(self, prompt: str, **options: Any) -> str:
        """The answer to a prompt."""
        from turnlog.agents.run import ask

        return await ask(self, prompt, **options)
