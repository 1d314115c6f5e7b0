"""The example `office` for the tests over sockets, in the folder that the environment names."""

import os
import sys
from pathlib import Path

from tests.support.claude_standin import standin_command
from turnlog_examples.office.team import make_app

FOLDER = Path(os.environ["OFFICE_FOLDER"])

app = make_app(FOLDER, standin_command())
slow = make_app(FOLDER, standin_command(0.05))
idle = make_app(FOLDER, standin_command(), inactivity_s=0.3)
hasty = make_app(
    FOLDER, standin_command(), turn_limit_s=3.0
)  # the process of a busy machine has begun by then
demo = make_app(FOLDER, standin_command(), demo_mode=True)
signed = make_app(FOLDER, standin_command(), env={**os.environ, "CLAUDE_CODE_OAUTH_TOKEN": "sk-test"})
deaf = make_app(FOLDER, [sys.executable, "-c", "import os, signal; os.close(0); signal.pause()"])
empty = make_app(FOLDER, ["no-such-program"])
