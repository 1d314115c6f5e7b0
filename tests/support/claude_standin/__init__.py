"""The stand-in of the Claude CLI with the faults that tests ask for. `COMMAND` starts it in any folder."""

import sys
from pathlib import Path

from turnlog_examples.demo_office.command import MODEL

ROOT = Path(__file__).parents[3]
PROGRAM = "from tests.support.claude_standin.program import main; main()"
COMMAND = (sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {PROGRAM}")


def standin_command(pace_s: float = 0.0) -> tuple[str, ...]:
    return (*COMMAND, "--model", MODEL, "--forward-subagent-text", "--pace-s", str(pace_s))
