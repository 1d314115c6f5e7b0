"""Office: Julian and his team, a process of the Claude CLI, seen by any number of tabs.

    turnlog serve turnlog_examples.office:app               the real CLI if it is installed, else a stand-in
    python -m turnlog_examples.office SESSION               who is on the grid, and what was written

Post the commands `summon`, `wake`, `offer_work`, `job_help`; or say "I want a team of eight", "Who is here?",
"Write about ships", "Delete it", "Please look happy". The folder `office` is made where the server runs; what
Julian remembers, and what he writes (`memory`), is there. With FORCE_DEMO_MODE it is always the stand-in.
The server reads what the process says, once; everybody else reads events. `demo_office` has the stand-in.
"""

import os
from pathlib import Path
from typing import Any

__all__ = ["app"]

FOLDER = Path("office")


def __getattr__(name: str) -> Any:
    """The application, made with its first use: it needs a folder, the stand-in does not need it."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from turnlog_examples.demo_office.command import standin_command
    from turnlog_examples.office.team import make_app

    forced = bool(os.environ.get("FORCE_DEMO_MODE"))
    return make_app(FOLDER, standin_command() if forced else (), demo_mode=forced)
