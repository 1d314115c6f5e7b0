"""The application: Julian's process, real or played, and what is seen of the office."""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnlog import App
from turnlog.agents import ClaudeCode
from turnlog_examples.demo_office.command import standin_command
from turnlog_examples.office.floor import REDUCERS, Floor
from turnlog_examples.office.instructions import INSTRUCTIONS, SCREEN

GUIDE = Path(__file__).with_name("guide.md")
TRIES = ("Good morning", "Write about ships", "Delete it", "I want a team of eight", "/stumble")
TURN_LIMIT_S = 600.0  # a turn in which eight helpers come
TOLD = ("--append-system-prompt", INSTRUCTIONS, "--permission-mode", "acceptEdits", "--forward-subagent-text")


def make_app(
    folder: Path,
    command: Sequence[str] = (),
    turn_limit_s: float = TURN_LIMIT_S,
    **options: Any,
) -> App:
    """The office in a folder, which is made if it is not there; without a command as this machine has it.

    `options` are those of `ClaudeCode`.
    """
    (folder / "memory").mkdir(parents=True, exist_ok=True)
    julian = ClaudeCode(
        command or julians_command(),
        name="Julian",
        cwd=folder,
        artifact_dir=str(folder.resolve() / "memory"),
        screen_url=SCREEN,
        **options,
    )
    return App(
        "office",
        julian,
        reducers=REDUCERS,
        initial_state=Floor,
        turn_limit_s=turn_limit_s,
        title="Julian's office",
        guide=GUIDE,
        suggestions=TRIES,
        dialect="office",
    )


def julians_command() -> tuple[str, ...]:
    """The real CLI, if it is installed, and else the stand-in."""
    real = installed_cli()
    return (real, *TOLD) if real else standin_command()


def installed_cli() -> str | None:
    """The CLI that the package `claude-agent-sdk` brings along, or the one on the path."""
    package = importlib.util.find_spec("claude_agent_sdk")
    for folder in (package.submodule_search_locations or ()) if package else ():
        bundled = Path(folder) / "_bundled" / "claude"
        if bundled.is_file():
            return str(bundled)
    return shutil.which("claude")
