"""How to start the stand-in."""

import sys

COMMAND = (sys.executable, "-m", "turnlog_examples.demo_office.standin")
MODEL = "standin-1"
PACE_S = 0.03  # between words, as from a model


def standin_command(pace_s: float = PACE_S) -> tuple[str, ...]:
    return (*COMMAND, "--model", MODEL, "--forward-subagent-text", "--pace-s", str(pace_s))
